"""The login of browsers: a token once, then a cookie."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Form, Query, Request
from starlette.responses import RedirectResponse, Response

from haybale.service.pages.rendering import Renderer
from haybale.service.security import SESSION, cookie
from haybale.service.workspace import Workspace


def login_routes(workspace: Workspace) -> APIRouter:
    """Return the routes ``/login`` and ``/logout``."""
    renderer = Renderer(workspace)
    router = APIRouter(include_in_schema=False)

    def page(request: Request, back: str, status: int = 200, error: str = "") -> Response:
        return renderer.page(request, "login.html", status, is_open=False, back=_own_path(back), error=error)

    @router.get("/login")
    def form(request: Request, back: Annotated[str, Query(max_length=4000)] = "/") -> Response:
        return page(request, back)

    @router.post("/login")
    async def login(
        request: Request,
        token: Annotated[str, Form(max_length=1000)],
        back: Annotated[str, Form(max_length=4000)] = "/",
    ) -> Response:
        access = request.state.access
        user = await access.login(token.strip(), request.client.host if request.client else "")
        if user is None:
            return page(request, back, 401, "This token is not known.")
        answer = RedirectResponse(_own_path(back), 303)
        answer.headers.append("set-cookie", cookie(SESSION, access.open_session(user), request.scope, "Lax"))
        return answer

    @router.post("/logout")
    async def logout(request: Request) -> Response:
        request.state.access.close_session(request.cookies.get(SESSION, ""))
        answer = RedirectResponse("/login", 303)
        answer.headers.append("set-cookie", cookie(SESSION, "", request.scope, "Lax"))
        return answer

    return router


def _own_path(back: str) -> str:
    r"""Return a path of this service; the address of another site becomes the start page.

    >>> _own_path("/search?q=dog"), _own_path("//elsewhere.org"), _own_path("/\\elsewhere.org")
    ('/search?q=dog', '/', '/')
    """
    is_own = back.startswith("/") and not back.startswith(("//", "/\\")) and back.isprintable()
    return back if is_own else "/"
