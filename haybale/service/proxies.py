"""Believe what named proxies say of a request: who asks, and whether by HTTPS."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware


class FromProxies:
    """The ASGI middleware that notes in ``scope["from_proxy"]`` whether a request comes from a proxy.

    The headers ``X-Forwarded-For`` and ``X-Forwarded-Proto`` of proxies are believed, and of nobody else.

    Parameters
    ----------
    application : ASGIApp
    proxies : sequence of str
        Addresses and networks.
    """

    def __init__(self, application: ASGIApp, proxies: Sequence[str]) -> None:
        self.application = ProxyHeadersMiddleware(application, list(proxies))  # type: ignore[arg-type]
        self.networks = [ipaddress.ip_network(proxy) for proxy in proxies]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand a request on with what is believed."""
        if scope["type"] == "http":
            scope = {**scope, "from_proxy": self._is_proxy((scope.get("client") or ("", 0))[0])}
        await self.application(scope, receive, send)  # type: ignore[arg-type]

    def _is_proxy(self, host: str) -> bool:
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            return False
        return any(address in network for network in self.networks)
