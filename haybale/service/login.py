"""The login of browsers: a token once, then a cookie."""

from __future__ import annotations

from html import escape
from typing import Annotated

from fastapi import APIRouter, Form, Query, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from haybale.service.security import SESSION, cookie

_PAGE = """<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><title>haybale: log in</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="stylesheet" href="/static/haybale.css"></head>
<body><main><h1>Log in</h1>{wrong}
<form method="post" action="/login">
<input type="hidden" name="csrf_token" value="{form_token}"><input type="hidden" name="next" value="{following}">
<p><label for="token">Your token</label><br>
<input id="token" name="token" type="password" autocomplete="current-password" required autofocus></p>
<p><button>Log in</button></p>
</form></main></body></html>
"""


def login_routes() -> APIRouter:
    """Return the routes ``/login`` and ``/logout``."""
    router = APIRouter(include_in_schema=False)

    @router.get("/login")
    def form(request: Request, next: Annotated[str, Query(max_length=4000)] = "/") -> Response:
        return _page(request, next)

    @router.post("/login")
    async def login(
        request: Request,
        token: Annotated[str, Form(max_length=1000)],
        next: Annotated[str, Form(max_length=4000)] = "/",
    ) -> Response:
        access = request.state.access
        user = await access.login(token.strip(), request.client.host if request.client else "")
        if user is None:
            return _page(request, next, 401)
        answer = RedirectResponse(_own_path(next), 303)
        answer.headers.append("set-cookie", cookie(SESSION, access.open_session(user), request.scope, "Lax"))
        return answer

    @router.post("/logout")
    async def logout(request: Request) -> Response:
        request.state.access.close_session(request.cookies.get(SESSION, ""))
        answer = RedirectResponse("/login", 303)
        answer.headers.append("set-cookie", cookie(SESSION, "", request.scope, "Lax"))
        return answer

    return router


def _page(request: Request, following: str, status: int = 200) -> HTMLResponse:
    wrong = '<p role="alert">This token is not known.</p>' if status != 200 else ""
    token, path = escape(request.state.form_token), escape(_own_path(following))
    return HTMLResponse(_PAGE.format(wrong=wrong, form_token=token, following=path), status)


def _own_path(following: str) -> str:
    r"""Return a path of this service; the address of another site becomes the start page.

    >>> _own_path("/search?q=dog"), _own_path("//elsewhere.org"), _own_path("/\\elsewhere.org")
    ('/search?q=dog', '/', '/')
    """
    is_own = following.startswith("/") and not following.startswith(("//", "/\\")) and following.isprintable()
    return following if is_own else "/"
