"""The page on which administrators list, add, change and remove users, and the page of a user's own sessions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Form, Query, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from haybale.errors import HaybaleError
from haybale.service.accounts import Accounts, browser_in_words
from haybale.service.guarded_routes import GuardedRoute
from haybale.service.pages.rendering import Renderer, address
from haybale.service.problems import status_of
from haybale.service.roles import ADMINISTER, JUDGE, NONE, READ, needs
from haybale.service.sessions import Session
from haybale.service.times import in_iso
from haybale.service.users import User
from haybale.service.users_api import own_sessions, service_address, session_number
from haybale.service.users_file import MAX_NAME, rights_by_matter

RIGHTS_IN_WORDS = {NONE: "nothing", READ: "search and read", JUDGE: "judge", ADMINISTER: "administer"}
LINK_HOURS = 24.0
UserName = Annotated[str, Form(max_length=MAX_NAME)]
Right = Annotated[Literal["none", "read", "judge", "administer"], Form()]


def users_pages(renderer: Renderer) -> APIRouter:
    """Return the routes ``/users``, ``/user`` and ``/sessions``."""
    router = APIRouter(include_in_schema=False, route_class=GuardedRoute)

    def list_page(request: Request, entered: Mapping[str, Any], error: str = "", status: int = 200) -> HTMLResponse:
        values = {"users": Accounts(request.state.access).all(), "entered": entered, "rights": RIGHTS_IN_WORDS}
        return renderer.page(
            request, "users.html", status, here="/users", error=error, user_link=_user_path, max_name=MAX_NAME, **values
        )

    def user_page(request: Request, name: str, status: int = 200, **values: Any) -> HTMLResponse:
        accounts = Accounts(request.state.access)
        shown = {"error": "", "message": "", "token": None, "login_address": None} | values
        return renderer.page(
            request,
            "user.html",
            status,
            here="/users",
            account=accounts.get(name),
            sessions=_in_words(accounts.sessions(name), session_number(request)),
            rights=RIGHTS_IN_WORDS,
            hours=LINK_HOURS,
            **shown,
        )

    def with_link(request: Request, name: str, message: str, token: str | None = None) -> HTMLResponse:
        path, _ = Accounts(request.state.access).make_link(name, LINK_HOURS)
        return user_page(request, name, message=message, token=token, login_address=service_address(request) + path)

    @router.get("/users")
    @needs(ADMINISTER, of_service=True)
    def users(request: Request) -> HTMLResponse:
        return list_page(request, {"name": "", "right": JUDGE, "matters": ""})

    @router.post("/users")
    @needs(ADMINISTER, of_service=True)
    def add(
        request: Request,
        name: UserName,
        right: Right = "judge",
        matters: Annotated[str, Form(max_length=100_000)] = "",
        has_token: Annotated[bool, Form()] = False,
        is_monitor: Annotated[bool, Form()] = False,
    ) -> Response:
        try:
            user = User(name.strip(), right, _rights_of_lines(matters), is_monitor)
            token = Accounts(request.state.access).add(user, has_token)
        except HaybaleError as error:
            entered = {"name": name, "right": right, "matters": matters}
            return list_page(request, entered, str(error), status_of(error))
        return with_link(request, user.name, f"{user.name} was added.", token)

    @router.get("/user")
    @needs(ADMINISTER, of_service=True)
    def shown(request: Request, name: Annotated[str, Query(max_length=MAX_NAME)]) -> HTMLResponse:
        return user_page(request, name)

    @router.post("/user")
    @needs(ADMINISTER, of_service=True)
    def change(
        request: Request,
        name: UserName,
        action: Annotated[Literal["rights", "link", "token", "end", "remove"], Form()],
        right: Right = "none",
        matters: Annotated[str, Form(max_length=100_000)] = "",
        is_monitor: Annotated[bool, Form()] = False,
        number: Annotated[int | None, Form(ge=0, lt=10**18)] = None,
    ) -> Response:
        accounts = Accounts(request.state.access)
        account = accounts.get(name)
        if action == "link":
            return with_link(request, name, "")
        try:
            if action == "rights":
                changed = {**dict.fromkeys(account.matters), **_rights_of_lines(matters)}
                accounts.change(name, right, changed, is_monitor)
                return user_page(request, name, message="The rights are changed.")
            if action == "token":
                token = accounts.renew_token(name)
                return user_page(request, name, message="The token before and all sessions have ended.", token=token)
            if action == "end":
                n = accounts.end_sessions(name, number)
                return user_page(request, name, message=f"{n:,} session{'' if n == 1 else 's'} ended.")
            accounts.remove(name)
        except HaybaleError as error:
            return user_page(request, name, status_of(error), error=str(error))
        return RedirectResponse(f"{request.state.service_path}/users", 303)

    @router.get("/sessions")
    @needs(NONE)
    def sessions(request: Request) -> HTMLResponse:
        access, name = own_sessions(request)
        shown = _in_words(access.sessions.of(name), session_number(request))
        return renderer.page(
            request, "sessions.html", here="/sessions", sessions=shown, right=RIGHTS_IN_WORDS[request.state.user.right]
        )

    @router.post("/sessions")
    @needs(NONE)
    def end_sessions(request: Request, number: Annotated[int | None, Form(ge=0, lt=10**18)] = None) -> Response:
        access, name = own_sessions(request)
        access.sessions.end_of(name, number)
        return RedirectResponse(f"{request.state.service_path}/sessions", 303)

    return router


def _user_path(name: str) -> str:
    return address("/user", {"name": name})


def _rights_of_lines(text: str) -> dict[str, str]:
    """Return rights by matter, one in a line.

    >>> _rights_of_lines("smith = judge\\n\\njones=read")
    {'smith': 'judge', 'jones': 'read'}
    """
    lines = [line for line in text.splitlines() if line.strip()]
    return {matter.strip(): right.strip() for matter, right in rights_by_matter(lines).items()}


def _in_words(sessions: list[Session], this: int | None) -> list[dict[str, Any]]:
    return [
        {
            "number": session.number,
            "browser": browser_in_words(session.browser),
            "begun": in_iso(session.begun),
            "seen": in_iso(session.seen),
            "is_this": session.number == this,
        }
        for session in sessions
    ]
