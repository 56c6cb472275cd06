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
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from fastapi import Request
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocketClose

from haybale.errors import StoreError
from haybale.service.cookies import SESSION, VISITOR, cookie, cookie_values
from haybale.service.problems import answer as as_asked
from haybale.service.problems import problem
from haybale.service.request_errors import NotAllowedError, TooManyGuessesError
from haybale.service.request_work import MAX_UPLOAD, LargeRequests
from haybale.service.roles import ADMINISTER, NONE, RANKS, READ
from haybale.service.sessions import Sessions
from haybale.service.users import ANYBODY, User, Users
from haybale.service.users_file import UsersFile

LOOPBACK = ("127.0.0.1", "localhost", "::1")
MAX_PATH = 8_000  # bytes of a path
_GUESS_SECONDS = 0.5  # until a wrong token or link is answered
_MAX_GUESSES, _MAX_GUESSES_PER_ADDRESS = 100, 20  # that are being answered at once
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
    sessions : Sessions
        Default: in memory.
    user_header : str, optional
        The header in which proxies name the user whom they have authenticated
        (:class:`~haybale.service.proxies.FromProxies` says which requests come from a proxy). Default: none.
    new_users : {"none", "read", "judge", "administer"}
        The right of users whom a proxy names and who are not among ``users``. Default: none, so that they are refused.
    """

    users: Users | None = None
    hosts: Iterable[str] = LOOPBACK
    any_address: bool = False
    sessions: Sessions = field(default_factory=Sessions)
    user_header: str | None = None
    new_users: str = NONE
    large_requests: LargeRequests = field(default_factory=LargeRequests)
    _guesses: Counter[str] = field(default_factory=Counter)  # wrong tokens that are being answered, by address

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
        """Return the token that forms of a visitor have; it stays the same over a restart."""
        return hmac.new(self.sessions.secret, visitor.encode(), hashlib.sha256).hexdigest()

    async def login(self, token: str, address: str = "") -> User | None:
        """Return the user with a token, at once; a wrong token is answered after half a second.

        A right token is never refused because others have given wrong ones, from whatever address. Guessing a token of
        256 bits is hopeless at any rate; the pause makes it slow for weaker tokens, too.

        Raises
        ------
        TooManyGuessesError
            For a wrong token while 20 others from its address, or 100 from all, are being answered.
        """
        if self.users is None:
            return ANYBODY
        user = self.users.find(token)
        if user is None:
            await self.delay_guess(address)
        return user

    async def delay_guess(self, address: str) -> None:
        """Wait as long as the answer to a wrong token or link takes; TooManyGuessesError is raised if many wait."""
        if self._guesses[address] >= _MAX_GUESSES_PER_ADDRESS or self._guesses.total() >= _MAX_GUESSES:
            raise TooManyGuessesError("too many wrong tokens are being answered; try it again in two seconds")
        self._guesses[address] += 1
        try:
            await asyncio.sleep(_GUESS_SECONDS)
        finally:
            self._guesses[address] -= 1
            self._guesses += Counter()  # without addresses that have no guesses left

    def user_of_session(self, session: str) -> User | None:
        """Return the user of a session that has not ended; it ends with the user, and with the user's token."""
        row = self.sessions.find(session)
        user = None if row is None else self._user(row.user, row.credential)
        if row is not None and user is None:
            self.sessions.end(session)
        return user

    def user_of_link(self, link: str, take: bool = False) -> User | None:
        """Return the user whom a link logs in; with ``take``, the link is used now."""
        named = self.sessions.user_of_link(link, take)
        return None if named is None else self._user(*named)

    def user_of_header(self, headers: Headers) -> User | None:
        """Return the user whom a proxy names; one who is not among the users has the right of new users.

        Raises
        ------
        NotAllowedError
            If the header is there twice, since one of them may be what a client has sent.
        """
        names = headers.getlist(self.user_header) if self.user_header is not None else []
        if len(names) > 1:
            raise NotAllowedError(
                f"expected the header {self.user_header} once, found it {len(names)} times; let the proxy replace it"
            )
        name = _in_unicode(names[0]).strip() if names else ""
        if not name:
            return None
        listed = None if self.users is None else self.users.by_name().get(name)
        return listed or User(name, self.new_users)

    def may_read(self, name: str, matter: str | None) -> bool:
        """Return whether a user, who is not asking now, may read a matter; where users have no names, everybody may."""
        users = {} if self.users is None else self.users.by_name()
        if "" in users or (self.users is None and self.user_header is None):
            return True
        user = users.get(name)
        if user is None and self.user_header is not None:
            user = User(name, self.new_users)
        return user is not None and RANKS[user.within(matter).right] >= RANKS[READ]

    def _user(self, name: str, credential: str) -> User | None:
        user = None if self.users is None else self.users.by_name().get(name)
        return user if user is not None and hmac.compare_digest(user.digest, credential) else None


def _in_unicode(value: str) -> str:
    """Return the value of a header, whose bytes are UTF-8 or else Latin-1."""
    try:
        return value.encode("latin-1").decode("utf-8")
    except UnicodeError:
        return value


class Guard:
    """The ASGI middleware that finds the user of a request, refuses requests to other hosts, and answers failures.

    Whether the user may do what is asked is checked at the route
    (:class:`~haybale.service.guarded_routes.GuardedRoute`), by the right that the user has in the matter.

    Parameters
    ----------
    application : ASGIApp
        One of a single matter, or one that hands requests on to the applications of several; such a one sets
        ``state["user"]`` to :meth:`~haybale.service.users.User.within` the matter, before it hands a request on.
    access : Access
    matter : str, optional
        The matter of all requests. Default: the application says which.
    """

    def __init__(self, application: ASGIApp, access: Access, matter: str | None = None) -> None:
        self.application, self.access, self.matter = application, access, matter

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
        state |= {"user": None, "session": None, "has_token": False, "service_path": scope.get("root_path", "")}
        state["has_users_file"] = isinstance(self.access.users, UsersFile)
        answer = self._refuse_head(scope, headers)
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
            if answer is None:
                answer = await self._find_user(scope, headers)
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
        return None

    async def _find_user(self, scope: Scope, headers: Headers) -> Response | None:
        """Find the user of a request; return a problem if who asks cannot be told."""
        state, access = scope["state"], self.access
        scheme, _, token = headers.get("authorization", "").partition(" ")
        user: User | None = None
        try:
            if access.user_header is not None and scope.get("from_proxy", False):
                user = access.user_of_header(headers)
            if user is None and access.users is None:
                user = ANYBODY
            elif user is None and scheme.lower() == "bearer":
                state["has_token"] = True
                user = await access.login(token.strip(), address_of(scope))
            elif user is None:
                for session in cookie_values(headers, SESSION):
                    user = user or access.user_of_session(session)
                    state["session"] = session if user is not None and state["session"] is None else state["session"]
        except TooManyGuessesError as error:
            return too_many_guesses(Request(scope), error)
        except NotAllowedError as error:
            return as_asked(Request(scope), 403, str(error))
        except StoreError as error:
            return as_asked(Request(scope), 503, str(error))
        state["user"] = None if user is None else user.within(self.matter)
        return None


def address_of(scope: Scope) -> str:
    """Return the address of a client; of IPv6, the network of 64 bits, which one client has as a whole.

    >>> address_of({"client": ("192.0.2.7", 1)}), address_of({"client": ("2001:db8::7:8", 1)})
    ('192.0.2.7', '2001:db8::')
    """
    host = (scope.get("client") or ("", 0))[0]
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return str(host)
    return str(ipaddress.ip_network(f"{address}/64", strict=False)[0]) if address.version == 6 else str(address)


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
    """Return the judge who reads judgements; None for an administrator who asks for what is hidden from judges.

    Anybody else who asks for it raises NotAllowedError.
    """
    if hidden and request.state.user.right != ADMINISTER:
        raise NotAllowedError("hidden judgements are for administrators only; omit hidden, or ask an administrator")
    return None if hidden else judge_of(request, given)
