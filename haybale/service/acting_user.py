"""Who does what a request asks for, known wherever the request is worked on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from urllib.parse import unquote

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from haybale.service.cookies import cookie_values

JUDGE_COOKIE = "haybale-judge"  # the cookie with the judge's name, where there are no users
_name: ContextVar[str] = ContextVar("acting user", default="")


def acting_user() -> str:
    """Return the name of the user of the request that is worked on; empty outside of requests, and for nobody.

    >>> with acting_as("Ada"):
    ...     acting_user()
    'Ada'
    """
    return _name.get()


@contextmanager
def acting_as(name: str) -> Iterator[None]:
    """Let :func:`acting_user` return a name in the block, and in threads that get its context."""
    token = _name.set(name)
    try:
        yield
    finally:
        _name.reset(token)


class ActingUser:
    """The ASGI middleware that notes who asks: the user, or where there are no users, the name given on a page."""

    def __init__(self, application: ASGIApp) -> None:
        self.application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand a request on, in the name of its user."""
        user = scope.get("state", {}).get("user")
        name = "" if user is None else user.name
        if user is not None and not name:
            name = unquote(next(iter(cookie_values(Headers(scope=scope), JUDGE_COOKIE)), ""))
        with acting_as(name):
            await self.application(scope, receive, send)
