"""Watch requests: count them for the metrics, and write a line of JSON for each to the access log."""

from __future__ import annotations

import json
import logging
import threading
import time
from datetime import UTC, datetime
from typing import TextIO

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from haybale.service.metrics import Metrics

_LOGGER = logging.getLogger("haybale.service")
MATTER_PATH = "/matters/{matter}"  # before the routes of a matter, in the metrics of a service
_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


class AccessLog:
    """The ASGI middleware that watches requests.

    A line has ``time``, ``client``, ``user``, ``method``, ``path``, ``status``, ``bytes`` and ``seconds``. Queries are
    left out, because they say what people look for. Characters that could end a line are escaped. In a service of
    several matters, each has its own log, with its name as ``matter``, and that of the service has the other requests.

    Parameters
    ----------
    application : ASGIApp
    metrics : Metrics
    out : text stream, optional
        Default: no log.
    matter : str, default ""
        The matter whose requests are watched; empty for a whole service.
    """

    def __init__(self, application: ASGIApp, metrics: Metrics, out: TextIO | None = None, matter: str = "") -> None:
        self.application, self.metrics, self.out, self.matter = application, metrics, out, matter
        self._lock = threading.Lock()
        self._is_written = True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand a request on, and note how it was answered."""
        if scope["type"] != "http":
            await self.application(scope, receive, send)
            return
        start, status, size = time.perf_counter(), 499, 0  # 499: the client has gone before an answer

        async def counted(message: Message) -> None:
            nonlocal status, size
            if message["type"] == "http.response.start":
                status = message["status"]
            size += len(message.get("body", b""))
            await send(message)

        self.metrics.begin()
        try:
            await self.application(scope, receive, counted)
        finally:
            seconds = time.perf_counter() - start
            method = scope["method"] if scope["method"] in _METHODS else "OTHER"
            route, matter = getattr(scope.get("route"), "path", "other"), scope.get("matter", "")
            self.metrics.end(method, route if matter == self.matter else MATTER_PATH + route, status, seconds)
            if self.out is not None and matter == self.matter:
                self._write(scope, status, size, seconds)

    def _write(self, scope: Scope, status: int, size: int, seconds: float) -> None:
        user = scope.get("state", {}).get("user")
        line = {
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "client": (scope.get("client") or ("", 0))[0],
            "user": user.name if user is not None else None,
            "method": scope["method"],
            "path": scope["path"],
            "status": status,
            "bytes": size,
            "seconds": round(seconds, 4),
        } | ({"matter": self.matter} if self.matter else {})
        with self._lock:
            try:
                print(json.dumps(line), file=self.out, flush=True)
                self._is_written = True
            except (OSError, ValueError) as error:  # a full disk, or a closed file; requests are still answered
                if self._is_written:
                    _LOGGER.warning("the access log cannot be written: %s", error)
                self._is_written = False
