"""Check every request before its route: its host, the size of its head, and its user.

Pages need no check of their own. They read ``request.state.user`` (:class:`~haybale.service.users.User`), and put
``request.state.form_token`` into each form that changes something, as the field ``csrf_token``; scripts send it as the
header ``X-CSRF-Token``. The content security policy allows scripts and styles from files only, not within a page:
no ``style`` attribute, no ``onclick``. A response may bring headers of its own in place of these.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import logging
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from fastapi import Request
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocketClose

from haybale.service.cookies import SESSION, SESSION_SECONDS, VISITOR, cookie, cookie_values
from haybale.service.problems import answer as as_asked
from haybale.service.problems import problem
from haybale.service.request_errors import NotAllowedError, TooManyGuessesError
from haybale.service.request_work import MAX_UPLOAD, LargeRequests
from haybale.service.roles import unguarded
from haybale.service.users import ANYBODY, User, Users

LOOPBACK = ("127.0.0.1", "localhost", "::1")
MAX_PATH = 8_000  # bytes of a path
_MAX_SESSIONS = 10_000
_WRONG_TOKEN_SECONDS = 0.5  # until a wrong token is answered
_MAX_WRONG_TOKENS = 100  # that are being answered at once
_LOGGER = logging.getLogger("haybale.service")
_HOST_HEADER = re.compile(r"(\[[0-9a-fA-F:.]+\]|[\w.-]+)(?::\d{1,5})?")
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


@dataclass
class Access:
    """Who may use a service, and under which names.

    Parameters
    ----------
    users : Users, optional
        Default: anybody, which is for this machine only.
    hosts : sequence of str
        The names in the ``Host`` header, without ports. Default: those of this machine for itself.
    any_address : bool, default False
        Whether the ``Host`` may be any IP address, which no other site can pretend to be.
    """

    users: Users | None = None
    hosts: Iterable[str] = LOOPBACK
    any_address: bool = False
    _secret: bytes = field(default_factory=lambda: secrets.token_bytes(32))
    _sessions: OrderedDict[str, tuple[User, float]] = field(default_factory=OrderedDict)
    _n_guesses: int = 0  # wrong tokens that are being answered
    large_requests: LargeRequests = field(default_factory=LargeRequests)

    def knows_host(self, given: str) -> bool:
        """Return whether a ``Host`` header names this service."""
        match = _HOST_HEADER.fullmatch(given)
        if match is None:
            return False
        name = match[1].strip("[]").lower()
        if name in {host.lower() for host in self.hosts}:
            return True
        try:
            return self.any_address and bool(ipaddress.ip_address(name))
        except ValueError:
            return False

    def form_token(self, visitor: str) -> str:
        """Return the token that forms of a visitor have."""
        return hmac.new(self._secret, visitor.encode(), hashlib.sha256).hexdigest()

    async def login(self, token: str) -> User | None:
        """Return the user with a token, at once; a wrong token is answered after half a second.

        A right token is never refused because others have given wrong ones: behind a proxy, all users share one
        address. Guessing a token of 256 bits is hopeless at any rate; the pause makes it slow for weaker tokens, too.

        Raises
        ------
        TooManyGuessesError
            For a wrong token while 100 others are being answered.
        """
        if self.users is None:
            return ANYBODY
        user = self.users.find(token)
        if user is None:
            if self._n_guesses >= _MAX_WRONG_TOKENS:
                raise TooManyGuessesError("too many wrong tokens are being answered; try it again in two seconds")
            self._n_guesses += 1
            try:
                await asyncio.sleep(_WRONG_TOKEN_SECONDS)
            finally:
                self._n_guesses -= 1
        return user

    def open_session(self, user: User) -> str:
        """Return the cookie of a new session."""
        session = secrets.token_urlsafe(32)
        self._sessions[session] = user, time.time() + SESSION_SECONDS
        while len(self._sessions) > _MAX_SESSIONS:
            self._sessions.popitem(last=False)
        return session

    def close_session(self, session: str) -> None:
        """Forget a session."""
        self._sessions.pop(session, None)

    def user_of_session(self, session: str) -> User | None:
        """Return the user of a session that has not ended."""
        user, end = self._sessions.get(session, (None, 0.0))
        return user if time.time() < end else None


class Guard:
    """The ASGI middleware that finds the user of a request, refuses requests to other hosts, and answers failures.

    Whether the user may do what is asked is checked at the route (:class:`~haybale.service.roles.GuardedRoute`).
    """

    def __init__(self, application: ASGIApp, access: Access) -> None:
        self.application, self.access = application, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check the head of a request, and hand it on."""
        if scope["type"] == "websocket":
            await WebSocketClose()(scope, receive, send)
            return
        if scope["type"] != "http":
            await self.application(scope, receive, send)
            return
        headers = Headers(scope=scope)
        visitors = [value for value in cookie_values(headers, VISITOR) if re.fullmatch(r"[\w-]{20,100}", value)]
        is_new = not visitors
        visitors = visitors or [secrets.token_urlsafe(24)]
        tokens = [self.access.form_token(visitor) for visitor in visitors]
        state: dict[str, Any] = scope.setdefault("state", {})
        state |= {"form_token": tokens[0], "form_tokens": tokens, "access": self.access}
        state |= {"user": None, "has_token": False}
        answer = self._refuse_head(scope, headers)
        if answer is None:
            answer = await self._find_user(scope, headers)
        has_begun = False

        async def with_headers(message: Message) -> None:
            nonlocal has_begun
            if message["type"] == "http.response.start":
                has_begun = True
                answered = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    answered.setdefault(name, value)
                is_page = answered.get("content-type", "").startswith("text/html")
                if is_new and is_page:
                    answered.append("set-cookie", cookie(VISITOR, visitors[0], scope, "Strict"))
            elif scope["method"] == "HEAD" and message["type"] == "http.response.body":
                message = {**message, "body": b""}
            await send(message)

        try:
            await (answer or self.application)(scope, receive, with_headers)
        except Exception as error:
            _LOGGER.error("%s %s", scope["method"], scope["path"], exc_info=error)
            if not has_begun:
                failed = as_asked(Request(scope), 500, "the service has failed; its log says why")
                await failed(scope, receive, with_headers)

    def _refuse_head(self, scope: Scope, headers: Headers) -> Response | None:
        """Return the problem of a request that does not name this service, or is too long; None if there is none."""
        if len(headers.getlist("host")) != 1 or not self.access.knows_host(headers["host"]):
            return problem(421, "the Host header names another service; use the address that haybale serve printed")
        if len(scope.get("raw_path") or b"") > MAX_PATH:
            return problem(414, f"expected a path of at most {MAX_PATH:,} bytes, found a longer one")
        length = headers.get("content-length", "0")
        if not re.fullmatch(r"[0-9]{1,4000}", length):
            return problem(400, "the header Content-Length must be a number")
        if int(length) > MAX_UPLOAD:
            return problem(413, f"expected at most {MAX_UPLOAD:,} bytes, found more; shorten the request")
        others = unguarded(scope["app"].router.routes) if "app" in scope else []
        if others:
            _LOGGER.error("routes without a role: %s; nothing is answered", others)
            return problem(500, "the service has a route without a role; its log says which")
        return None

    async def _find_user(self, scope: Scope, headers: Headers) -> Response | None:
        """Find the user of a request; return a problem if too many wrong tokens are being answered."""
        state = scope["state"]
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if self.access.users is None:
            state["user"] = ANYBODY
        elif scheme.lower() == "bearer":
            state["has_token"] = True
            try:
                state["user"] = await self.access.login(token.strip())
            except TooManyGuessesError as error:
                return too_many_guesses(Request(scope), error)
        else:
            sessions = map(self.access.user_of_session, cookie_values(headers, SESSION))
            state["user"] = next((user for user in sessions if user is not None), None)
        return None


def too_many_guesses(request: Request, error: TooManyGuessesError) -> Response:
    """Return the answer to a wrong token while too many others are being answered."""
    answer = as_asked(request, 429, str(error))
    answer.headers["retry-after"] = "2"
    return answer


def judge_of(request: Request, given: str) -> str:
    """Return the name under which a request judges: the user's own, where there are users.

    A user who gives the name of another raises NotAllowedError.
    """
    user: User = request.state.user
    if user.name and given not in ("", user.name):
        raise NotAllowedError(f"expected judgements of {user.name!r}, found judge={given!r:.100}; omit it")
    return user.name or given


def reader_of(request: Request, given: str, hidden: bool) -> str | None:
    """Return the judge who reads judgements; None for an admin who asks for what is hidden from judges.

    Anybody else who asks for it raises NotAllowedError.
    """
    if hidden and request.state.user.role != "admin":
        raise NotAllowedError("hidden judgements are for admins only, found a judge; omit hidden, or ask an admin")
    return None if hidden else judge_of(request, given)
