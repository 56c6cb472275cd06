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
_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


class AccessLog:
    """The ASGI middleware that watches requests.

    A line has ``time``, ``client``, ``user``, ``method``, ``path``, ``status``, ``bytes`` and ``seconds``. Queries are
    left out, because they say what people look for. Characters that could end a line are escaped.

    Parameters
    ----------
    application : ASGIApp
    metrics : Metrics
    out : text stream, optional
        Default: no log.
    """

    def __init__(self, application: ASGIApp, metrics: Metrics, out: TextIO | None = None) -> None:
        self.application, self.metrics, self.out = application, metrics, out
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
            self.metrics.end(method, getattr(scope.get("route"), "path", "other"), status, seconds)
            if self.out is not None:
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
        }
        with self._lock:
            try:
                print(json.dumps(line), file=self.out, flush=True)
                self._is_written = True
            except (OSError, ValueError) as error:  # a full disk, or a closed file; requests are still answered
                if self._is_written:
                    _LOGGER.warning("the access log cannot be written: %s", error)
                self._is_written = False
