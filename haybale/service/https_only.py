"""Lead browsers that come by HTTP to HTTPS, and tell them to stay there (RFC 6797)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from haybale.service.problems import problem

if TYPE_CHECKING:
    from haybale.service.security import Access

OPEN_PATHS = ("/health", "/ready")  # which supervisors ask by HTTP, without a proxy
STRICT_TRANSPORT_SECURITY = "max-age=31536000"  # a year, in seconds


class HttpsOnly:
    """The ASGI middleware that answers nothing by HTTP, except whether the service works; it is outside all others.

    A GET or HEAD is redirected. A change, and a request with a token, is refused, so that whoever sends it notices:
    the token was readable on its way. The scheme is what a trusted proxy says in ``X-Forwarded-Proto``. Requests to
    other hosts are left to :class:`~haybale.service.security.Guard`.

    Parameters
    ----------
    application : ASGIApp
    access : haybale.service.security.Access
        Knows the names of the service.
    root_path : str, default ""
        The path under which a proxy serves the application; requests may have it or not.
    """

    def __init__(self, application: ASGIApp, access: Access, root_path: str = "") -> None:
        self.application, self.access, self.root_path = application, access, root_path.rstrip("/")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand on a request by HTTPS, or say where it belongs."""
        if scope["type"] != "http" or scope["path"].removeprefix(self.root_path) in OPEN_PATHS:
            await self.application(scope, receive, send)
        elif scope["scheme"] == "https":
            await self.application(scope, receive, _strict(send))
        else:
            headers = Headers(scope=scope)
            hosts = headers.getlist("host")
            if len(hosts) != 1 or not self.access.knows_host(hosts[0]):
                await self.application(scope, receive, send)
                return
            address = f"https://{_without_port(hosts[0])}{self._path_of(scope)}"
            if scope["method"] in ("GET", "HEAD") and "authorization" not in headers:
                await RedirectResponse(address, 308)(scope, receive, send)
            else:
                answer = problem(403, f"expected HTTPS, found HTTP, which others can read; send it to {address:.200}")
                await answer(scope, receive, send)

    def _path_of(self, scope: Scope) -> str:
        """Return the path and query of a request as they were sent, under the path of the service."""
        path: str = (scope.get("raw_path") or scope["path"].encode()).decode("latin-1")
        if path != self.root_path and not path.startswith(f"{self.root_path}/"):
            path = self.root_path + path
        query = scope["query_string"].decode("latin-1")
        return path + (f"?{query}" if query else "")


def _strict(send: Send) -> Send:
    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message)["strict-transport-security"] = STRICT_TRANSPORT_SECURITY
        await send(message)

    return sent


def _without_port(host: str) -> str:
    """Return the name in a ``Host`` header; HTTPS has another port.

    >>> _without_port("search.example.org:80"), _without_port("[::1]:8000"), _without_port("[::1]")
    ('search.example.org', '[::1]', '[::1]')
    """
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdecimal() else host
