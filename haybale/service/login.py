"""The login of browsers: a token once, then a cookie."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Form, Query, Request
from starlette.responses import RedirectResponse, Response

from haybale.service.cookies import SESSION, cookie, cookie_values
from haybale.service.own_addresses import own_path
from haybale.service.pages.rendering import Renderer
from haybale.service.request_errors import TooManyGuessesError
from haybale.service.roles import JUDGE, OPEN, GuardedRoute, needs
from haybale.service.security import too_many_guesses
from haybale.service.workspace import Workspace


def login_routes(workspace: Workspace) -> APIRouter:
    """Return the routes ``/login`` and ``/logout``."""
    renderer = Renderer(workspace)
    router = APIRouter(include_in_schema=False, route_class=GuardedRoute)

    def page(request: Request, back: str, status: int = 200, error: str = "") -> Response:
        home = request.scope.get("root_path", "") + "/"
        return renderer.page(request, "login.html", status, is_open=False, back=own_path(back, home), error=error)

    @router.get("/login")
    @needs(OPEN)
    def form(request: Request, back: Annotated[str, Query(max_length=4000)] = "") -> Response:
        return page(request, back)

    @router.post("/login")
    @needs(OPEN)
    async def login(
        request: Request,
        token: Annotated[str, Form(max_length=1000)],
        back: Annotated[str, Form(max_length=4000)] = "",
    ) -> Response:
        access = request.state.access
        try:
            user = await access.login(token.strip())
        except TooManyGuessesError as error:
            return too_many_guesses(request, error)
        if user is None:
            return page(request, back, 401, "This token is not known.")
        answer = RedirectResponse(own_path(back, request.scope.get("root_path", "") + "/"), 303)
        answer.headers.append("set-cookie", cookie(SESSION, access.open_session(user), request.scope, "Lax"))
        return answer

    @router.post("/logout")
    @needs(JUDGE)
    async def logout(request: Request) -> Response:
        for session in cookie_values(request.headers, SESSION):
            request.state.access.close_session(session)
        answer = RedirectResponse(request.scope.get("root_path", "") + "/login", 303)
        answer.headers.append("set-cookie", cookie(SESSION, "", request.scope, "Lax"))
        return answer

    return router
