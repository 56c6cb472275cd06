"""What stands before every request: host, size and time limits, who is asking, and protection from other sites.

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
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qs, quote

from fastapi import Request
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from haybale.service.problems import answer as as_asked
from haybale.service.problems import problem
from haybale.service.request_errors import NotAllowedError
from haybale.service.users import ANYBODY, User, Users

LOOPBACK = ("127.0.0.1", "localhost", "::1")
MAX_BODY = 5_000_000  # bytes of a request
MAX_PATH = 8_000  # bytes of a path
BODY_SECONDS = 30.0  # for a request to arrive
ANSWER_SECONDS = 60.0  # for an answer
SESSION, VISITOR = "haybale_session", "haybale_visitor"  # cookies
_SESSION_SECONDS = 30 * 24 * 3600
_MAX_SESSIONS = 10_000
_WRONG, _WINDOW, _PAUSE = 20, 60.0, 0.5  # wrong tokens of an address in so many seconds; seconds that each one costs
_OPEN = ("/health", "/login", "/static/")  # without a token
_ADMIN = re.compile(r"/(api/)?train(/.*)?|/(api/)?topics/[^/]*/import")
_SAFE = ("GET", "HEAD", "OPTIONS")
_FORM_TOKEN = re.compile(rb'name="csrf_token"\r\n\r\n([\w-]{1,100})\r\n')
_LOGGER = logging.getLogger("haybale.service")
_HOST = re.compile(r"(\[[0-9a-fA-F:.]+\]|[\w.-]+)(?::\d{1,5})?")
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
    _wrong: dict[str, list[float]] = field(default_factory=dict)

    def knows_host(self, given: str) -> bool:
        """Return whether a ``Host`` header names this service."""
        found = _HOST.fullmatch(given)
        if found is None:
            return False
        name = found[1].strip("[]").lower()
        if name in {each.lower() for each in self.hosts}:
            return True
        try:
            return self.any_address and bool(ipaddress.ip_address(name))
        except ValueError:
            return False

    def form_token(self, visitor: str) -> str:
        """Return the token that forms of a visitor have."""
        return hmac.new(self._secret, visitor.encode(), hashlib.sha256).hexdigest()

    async def login(self, token: str, address: str) -> User | None:
        """Return the user with a token. A wrong token costs time, and after twenty a minute the address waits."""
        if self.users is None:
            return ANYBODY
        now = time.monotonic()
        wrong = [at for at in self._wrong.get(address, []) if now - at < _WINDOW]
        found = self.users.find(token) if len(wrong) < _WRONG else None
        if found is None:
            if len(self._wrong) > _MAX_SESSIONS:
                self._wrong.clear()
            self._wrong[address] = [*wrong[-_WRONG:], now]
            await asyncio.sleep(_PAUSE)
        return found

    def open_session(self, user: User) -> str:
        """Return the cookie of a new session."""
        session = secrets.token_urlsafe(32)
        self._sessions[session] = user, time.time() + _SESSION_SECONDS
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
    """The ASGI middleware that lets a request through, or answers it with a problem."""

    def __init__(self, application: ASGIApp, access: Access) -> None:
        self.application, self.access = application, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check a request, and hand it on with its whole body."""
        if scope["type"] != "http":
            await self.application(scope, receive, send)
            return
        headers = Headers(scope=scope)
        answer: Response | None
        body = b""
        cookies = _cookies(headers)
        visitor = cookies.get(VISITOR, "")
        is_new = not re.fullmatch(r"[\w-]{20,100}", visitor)
        if is_new:
            visitor = secrets.token_urlsafe(24)
        state: dict[str, Any] = scope.setdefault("state", {})
        state["form_token"] = self.access.form_token(visitor)
        state["access"] = self.access
        state["user"] = None
        answer = self._refuse_head(scope, headers)
        if answer is None:
            has_token, answer = await self._find_user(scope, headers, cookies)
        if answer is None:
            try:
                body = await asyncio.wait_for(_whole_body(headers, receive), BODY_SECONDS)
            except TimeoutError:
                answer = problem(408, f"expected the whole request within {BODY_SECONDS:.0f} seconds; send it at once")
            except _TooLargeError:
                answer = as_asked(
                    Request(scope), 413, f"expected at most {MAX_BODY:,} bytes, found more; shorten the request"
                )
            except _GoneError:
                return
        if answer is None and scope["method"] not in _SAFE and not has_token:
            answer = self._refuse_other_sites(scope, headers, body, state["form_token"])

        is_sent, has_begun, is_over = False, False, False

        async def replay() -> Message:
            nonlocal is_sent
            if not is_sent:
                is_sent = True
                return {"type": "http.request", "body": body, "more_body": False}
            return await receive()

        async def with_headers(message: Message) -> None:
            nonlocal has_begun
            if is_over:
                return
            if message["type"] == "http.response.start":
                has_begun = True
                found = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    found.setdefault(name, value)
                is_page = found.get("content-type", "").startswith("text/html")
                if is_new and is_page:
                    found.append("set-cookie", cookie(VISITOR, visitor, scope, "Strict"))
            await send(message)

        task = asyncio.ensure_future((answer or self.application)(scope, replay, with_headers))
        await asyncio.wait({task}, timeout=ANSWER_SECONDS)
        if task.done():
            error = None if task.cancelled() else task.exception()
            if error is None:
                return
            _LOGGER.error("%s %s", scope["method"], scope["path"], exc_info=error)
            answer = as_asked(Request(scope), 500, "the service has failed; its log says why")
        else:
            task.add_done_callback(lambda late: late.cancelled() or late.exception())  # nobody waits for it
            answer = as_asked(
                Request(scope), 503, f"the answer took longer than {ANSWER_SECONDS:.0f} seconds; ask for less"
            )
        if not has_begun:
            await answer(scope, replay, with_headers)
        is_over = True

    def _refuse_head(self, scope: Scope, headers: Headers) -> Response | None:
        """Return the problem of a request that does not name this service, or is too long; None if there is none."""
        if len(headers.getlist("host")) != 1 or not self.access.knows_host(headers["host"]):
            return problem(421, "the Host header names another service; use the address that haybale serve printed")
        if len(scope["raw_path"] or b"") > MAX_PATH:
            return problem(414, f"expected a path of at most {MAX_PATH:,} bytes, found a longer one")
        if headers.get("content-length", "0").isdecimal() and int(headers.get("content-length", "0")) > MAX_BODY:
            return problem(413, f"expected at most {MAX_BODY:,} bytes, found more; shorten the request")
        return None

    async def _find_user(self, scope: Scope, headers: Headers, cookies: dict[str, str]) -> tuple[bool, Response | None]:
        """Find the user of a request; return whether it has a token, and the problem of one who may not ask."""
        address = (scope.get("client") or ("", 0))[0]
        scheme, _, token = headers.get("authorization", "").partition(" ")
        user, has_token = None, False
        if self.access.users is None:
            user = ANYBODY
        elif scheme.lower() == "bearer":
            user, has_token = await self.access.login(token.strip(), address), True
        else:
            user = self.access.user_of_session(cookies.get(SESSION, ""))
        scope["state"]["user"] = user
        path = scope["path"]
        if user is None and not path.startswith(_OPEN):
            if "text/html" in headers.get("accept", "") and scope["method"] in _SAFE:
                query = scope["query_string"].decode("latin-1")
                following = quote(path + (f"?{query}" if query else ""), safe="")
                return False, RedirectResponse(f"/login?back={following}", 303)
            answer = problem(401, "the request needs a token; send the header Authorization: Bearer TOKEN")
            answer.headers["www-authenticate"] = "Bearer"
            return False, answer
        if user is not None and user.role != "admin" and scope["method"] not in _SAFE and _ADMIN.fullmatch(path):
            return has_token, problem(
                403, f"this needs the role admin, and {user.name!r} is a {user.role}; ask an admin"
            )
        return has_token, None

    def _refuse_other_sites(self, scope: Scope, headers: Headers, body: bytes, token: str) -> Response | None:
        """Return the problem of a change that another site may have caused; None if there is none.

        Browsers send JSON to other sites only after these have agreed, which this service never does.
        """
        origin, site = headers.get("origin"), headers.get("sec-fetch-site", "none")
        is_same = origin is None or origin.partition("://")[2].lower() == headers["host"].lower()
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        given = headers.get("x-csrf-token", "")
        if kind == "application/x-www-form-urlencoded":
            given = given or next(iter(parse_qs(body.decode("latin-1"), max_num_fields=1000).get("csrf_token", [])), "")
        elif kind == "multipart/form-data" and (found := _FORM_TOKEN.search(body)):
            given = given or found[1].decode()
        has_token = hmac.compare_digest(given.encode(), token.encode())
        is_json = kind == "application/json" and scope["path"].startswith("/api/")
        if is_same and site in ("same-origin", "none") and (has_token or is_json):
            return None
        detail = "this change did not come from a page of this service; open the page anew, or send JSON"
        return as_asked(Request(scope), 403, detail)


def cookie(name: str, value: str, scope: Scope, same_site: str) -> str:
    """Return a ``Set-Cookie`` header that scripts cannot read; an empty value removes the cookie."""
    secure = "; Secure" if scope.get("scheme") == "https" else ""
    age = _SESSION_SECONDS if value else 0
    return f"{name}={value}; Path=/; HttpOnly; SameSite={same_site}; Max-Age={age}{secure}"


def _cookies(headers: Headers) -> dict[str, str]:
    try:
        return {name: each.value for name, each in SimpleCookie(headers.get("cookie", "")).items()}
    except CookieError:
        return {}


class _TooLargeError(Exception):
    pass


class _GoneError(Exception):
    pass


async def _whole_body(headers: Headers, receive: Receive) -> bytes:
    """Return the body of a request."""
    if "content-length" not in headers and "transfer-encoding" not in headers:
        return b""
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _GoneError
        part = message.get("body", b"")
        size += len(part)
        if size > MAX_BODY:
            raise _TooLargeError
        parts.append(part)
        if not message.get("more_body", False):
            return b"".join(parts)


def judge_of(request: Request, given: str) -> str:
    """Return the name under which a request judges: the user's own, where there are users.

    A user who gives the name of another raises NotAllowedError.
    """
    user: User = request.state.user
    if user.name and given not in ("", user.name):
        raise NotAllowedError(f"expected judgements of {user.name!r}, found judge={given!r:.100}; omit it")
    return user.name or given
