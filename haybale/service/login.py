"""The login of browsers: by a token, or by a link that an administrator has made; then a cookie."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Form, Query, Request
from starlette.responses import RedirectResponse, Response

from haybale.service.cookies import SESSION, cookie, cookie_values
from haybale.service.guarded_routes import GuardedRoute
from haybale.service.own_addresses import own_path
from haybale.service.pages.rendering import Renderer
from haybale.service.request_errors import TooManyGuessesError
from haybale.service.roles import NONE, OPEN, needs
from haybale.service.security import Access, address_of, too_many_guesses

_WRONG_TOKEN = "No user has this token. Copy the whole token, or ask for a link."
_WRONG_LINK = "This link was used already, or its time is over. Ask an administrator for another one."


def login_routes(renderer: Renderer) -> APIRouter:
    """Return the routes ``/login`` and ``/logout``."""
    router = APIRouter(include_in_schema=False, route_class=GuardedRoute)

    def page(
        request: Request, back: str, status: int = 200, error: str = "", link: str = "", name: str = ""
    ) -> Response:
        values = {"back": own_path(back, _home(request)), "error": error, "login_link": link, "login_name": name}
        return renderer.page(request, "login.html", status, is_open=False, **values)

    @router.get("/login")
    @needs(OPEN)
    async def form(
        request: Request,
        back: Annotated[str, Query(max_length=4000)] = "",
        link: Annotated[str, Query(max_length=200)] = "",
    ) -> Response:
        """Ask for a token; with a link, ask whether to log in, since programs that check mail open links, too."""
        if not link:
            return page(request, back)
        access: Access = request.state.access
        user = access.user_of_link(link)
        if user is not None:
            return page(request, back, link=link, name=user.name)
        try:
            await access.delay_guess(address_of(request.scope))
        except TooManyGuessesError as error:
            return too_many_guesses(request, error)
        return page(request, back, 401, _WRONG_LINK)

    @router.post("/login")
    @needs(OPEN)
    async def login(
        request: Request,
        token: Annotated[str, Form(max_length=1000)] = "",
        link: Annotated[str, Form(max_length=200)] = "",
        back: Annotated[str, Form(max_length=4000)] = "",
    ) -> Response:
        access: Access = request.state.access
        try:
            if link:
                user = access.user_of_link(link, take=True)
                if user is None:
                    await access.delay_guess(address_of(request.scope))
            else:
                user = await access.login(token.strip(), address_of(request.scope))
        except TooManyGuessesError as error:
            return too_many_guesses(request, error)
        if user is None:
            return page(request, back, 401, _WRONG_LINK if link else _WRONG_TOKEN)
        for earlier in cookie_values(request.headers, SESSION):  # this browser's, perhaps of another user
            access.sessions.end(earlier)
        session = access.sessions.open(user, request.headers.get("user-agent", ""))
        answer = RedirectResponse(own_path(back, _home(request)), 303)
        answer.headers.append("set-cookie", cookie(SESSION, session, request.scope, "Lax"))
        return answer

    @router.post("/logout")
    @needs(NONE)
    async def logout(request: Request) -> Response:
        access: Access = request.state.access
        for session in cookie_values(request.headers, SESSION):
            access.sessions.end(session)
        answer = RedirectResponse(_home(request) + "login", 303)
        answer.headers.append("set-cookie", cookie(SESSION, "", request.scope, "Lax"))
        return answer

    return router


def _home(request: Request) -> str:
    return str(request.scope.get("root_path", "")) + "/"
