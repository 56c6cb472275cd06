"""The routes of the REST interface for users and sessions."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Request
from pydantic import Field

from haybale.service.accounts import Account, Accounts
from haybale.service.answers import Answer, answers
from haybale.service.api import Body, Nothing, api_router
from haybale.service.request_errors import NotFoundError
from haybale.service.roles import ADMINISTER, NONE, needs
from haybale.service.security import Access
from haybale.service.sessions import Session
from haybale.service.times import in_iso
from haybale.service.users import User
from haybale.service.users_file import MAX_MATTER, MAX_NAME

Right = Literal["none", "read", "judge", "administer"]
UserName = Annotated[str, Path(max_length=MAX_NAME, description="The name of a user.")]
MatterName = Annotated[str, Field(min_length=1, max_length=MAX_MATTER)]


class NewUser(Body):
    """A user to add."""

    name: str = Field(min_length=1, max_length=MAX_NAME, pattern=r"^[^/]*$")
    right: Right = Field("judge", description="What the user may do in matters that `matters` does not name.")
    matters: dict[MatterName, Right] = Field({}, max_length=1000, description="Rights by matter.")
    is_monitor: bool = Field(False, description="Whether the user may read metrics without a right.")
    has_token: bool = Field(True, description="Whether a token is made, without which the user logs in by links.")


class UserChanges(Body):
    """What to change about a user; what is left out stays."""

    right: Right | None = None
    matters: dict[MatterName, Right | None] | None = Field(
        None, max_length=1000, description="Rights by matter; null takes a matter out. Other matters stay."
    )
    is_monitor: bool | None = None


class NewLink(Body):
    """A link to make."""

    hours: float = Field(24, gt=0, le=720, description="For how long it works.")


class UsersAnswer(Answer):
    """Users, sorted by name."""

    users: list[Account]
    n_users: int


class TokenAnswer(Answer):
    """A token, which is kept nowhere."""

    name: str
    token: str | None


class LinkAnswer(Answer):
    """A link that logs a user in, once."""

    address: str
    expires: str


class SessionAnswer(Answer):
    """A session of a browser."""

    number: int
    browser: str = Field(description="What the browser says that it is.")
    begun: str
    seen: str = Field(description="When it was last used, to the minute.")
    is_this: bool = Field(description="Whether the request is of this session.")


class SessionsAnswer(Answer):
    """Sessions, the last used one first."""

    sessions: list[SessionAnswer]


class EndedAnswer(Answer):
    """How many sessions ended."""

    n_ended: int


def users_api() -> APIRouter:
    """Return the routes; the ones of users are for administrators of the whole service."""
    router = api_router()

    @router.get("/users", **answers(UsersAnswer))
    @needs(ADMINISTER, of_service=True)
    def users(
        request: Request,
        offset: Annotated[int, Query(ge=0)] = 0,
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    ) -> dict[str, Any]:
        """Return the users with their rights."""
        accounts = _accounts(request).all()
        return {"users": [vars(account) for account in accounts[offset : offset + limit]], "n_users": len(accounts)}

    @router.post("/users", **answers(TokenAnswer, 201))
    @needs(ADMINISTER, of_service=True)
    def add_user(request: Request, new_user: NewUser) -> dict[str, Any]:
        """Add a user, and return the token, which is kept nowhere."""
        user = User(new_user.name, new_user.right, new_user.matters, new_user.is_monitor)
        return {"name": user.name, "token": _accounts(request).add(user, new_user.has_token)}

    @router.get("/users/{user}", **answers(Account))
    @needs(ADMINISTER, of_service=True)
    def user(request: Request, user: UserName) -> dict[str, Any]:
        """Return a user."""
        return vars(_accounts(request).get(user))

    @router.patch("/users/{user}", **answers(Account))
    @needs(ADMINISTER, of_service=True)
    def change_user(request: Request, user: UserName, changes: UserChanges) -> dict[str, Any]:
        """Change the rights of a user; they hold from the next request on."""
        return vars(_accounts(request).change(user, changes.right, changes.matters, changes.is_monitor))

    @router.delete("/users/{user}", **answers(EndedAnswer))
    @needs(ADMINISTER, of_service=True)
    def remove_user(request: Request, user: UserName) -> dict[str, Any]:
        """Remove a user, whose sessions end."""
        accounts = _accounts(request)
        n = len(accounts.sessions(user))
        accounts.remove(user)
        return {"n_ended": n}

    @router.post("/users/{user}/token", **answers(TokenAnswer, 201))
    @needs(ADMINISTER, of_service=True)
    def renew_token(request: Request, user: UserName, nothing: Nothing | None = None) -> dict[str, Any]:
        """Make a new token; the old one, and all sessions of the user, end."""
        return {"name": user, "token": _accounts(request).renew_token(user)}

    @router.post("/users/{user}/link", **answers(LinkAnswer, 201))
    @needs(ADMINISTER, of_service=True)
    def make_link(request: Request, user: UserName, new_link: NewLink) -> dict[str, Any]:
        """Make a link that logs the user in, once. Whoever has it can use it."""
        path, expires = _accounts(request).make_link(user, new_link.hours)
        return {"address": service_address(request) + path, "expires": expires}

    @router.get("/users/{user}/sessions", **answers(SessionsAnswer))
    @needs(ADMINISTER, of_service=True)
    def sessions_of_user(request: Request, user: UserName) -> dict[str, Any]:
        """Return the sessions of a user."""
        return {"sessions": _described(request, _accounts(request).sessions(user))}

    @router.delete("/users/{user}/sessions", **answers(EndedAnswer))
    @needs(ADMINISTER, of_service=True)
    def end_sessions_of_user(request: Request, user: UserName) -> dict[str, Any]:
        """End all sessions of a user, and the links that have not been used."""
        return {"n_ended": _accounts(request).end_sessions(user)}

    @router.get("/sessions", **answers(SessionsAnswer))
    @needs(NONE)
    def sessions(request: Request) -> dict[str, Any]:
        """Return the sessions of the user who asks."""
        access, name = own_sessions(request)
        return {"sessions": _described(request, access.sessions.of(name))}

    @router.delete("/sessions", **answers(EndedAnswer))
    @needs(NONE)
    def end_sessions(request: Request) -> dict[str, Any]:
        """End all sessions of the user who asks."""
        access, name = own_sessions(request)
        return {"n_ended": access.sessions.end_of(name)}

    @router.delete("/sessions/{number:number}", **answers(EndedAnswer))
    @needs(NONE)
    def end_session(request: Request, number: int) -> dict[str, Any]:
        """End one session of the user who asks."""
        access, name = own_sessions(request)
        if not access.sessions.end_of(name, number):
            raise NotFoundError(f"expected the number of a session of yours, found {number}; see the list of sessions")
        return {"n_ended": 1}

    return router


def service_address(request: Request) -> str:
    """Return the address at which the browser of a request reaches the service, without a slash at the end."""
    return f"{request.url.scheme}://{request.headers['host']}{request.state.service_path}"


def own_sessions(request: Request) -> tuple[Access, str]:
    """Return what keeps sessions, and the name of the user who asks; NotFoundError is raised if users have no names."""
    user: User = request.state.user
    if not user.name:
        raise NotFoundError("sessions are listed by user, and this service has none; start it with --users FILE")
    return request.state.access, user.name


def session_number(request: Request) -> int | None:
    """Return the number of the session of a request; None for requests with a token."""
    access: Access = request.state.access
    session = None if request.state.session is None else access.sessions.find(request.state.session)
    return None if session is None else session.number


def _accounts(request: Request) -> Accounts:
    return Accounts(request.state.access)


def _described(request: Request, sessions: list[Session]) -> list[dict[str, Any]]:
    this = session_number(request)
    return [
        {
            "number": session.number,
            "browser": session.browser,
            "begun": in_iso(session.begun),
            "seen": in_iso(session.seen),
            "is_this": session.number == this,
        }
        for session in sessions
    ]
