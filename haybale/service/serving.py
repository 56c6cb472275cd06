"""Run the web application on a socket, and end connections of clients that are too slow."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from haybale.errors import InputError
from haybale.service.proxies import FromProxies

if TYPE_CHECKING:
    from fastapi import FastAPI

_HEAD_SECONDS = 15.0  # for the head of a request, from the connection or from the last answer
_READ_SECONDS = 120.0  # for a client to take an answer, from its request
_IDLE_SECONDS = 15  # of a connection between two requests
_GRACE_SECONDS = 30  # for running requests to finish when the service ends
_MAX_HEAD_BYTES = 64 * 1024
# When a running thread lets another one run. A request has hundreds of steps in compiled code, and after
# each of them it may have to wait for the thread that prepares reviews. With Python's default of 0.005 seconds, some
# requests took four seconds.
_SWITCH_SECONDS = 0.0005


class PatientProtocol(H11Protocol):
    """HTTP as uvicorn speaks it, but a connection ends if no request comes, or if nobody reads the answer."""

    _seen: Any = None  # the request at the last look
    _looks = 0  # the number of looks in a row at which the request was the same

    def connection_made(self, transport: Any) -> None:
        """Start the timer that looks whether the client is too slow."""
        super().connection_made(transport)
        self._timer = self.loop.call_later(_HEAD_SECONDS, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer."""
        self._timer.cancel()
        super().connection_lost(exc)

    def _look(self) -> None:
        is_same, self._seen = self.cycle is self._seen, self.cycle
        self._looks = self._looks + 1 if is_same else 0
        is_waiting = self.cycle is None or self.cycle.response_complete
        if is_same and (is_waiting or self._looks * _HEAD_SECONDS >= _READ_SECONDS):
            self.transport.abort()
            return
        self._timer = self.loop.call_later(_HEAD_SECONDS, self._look)


def run(application: FastAPI, host: str, port: int, ready: Callable[[str], None], proxies: Sequence[str] = ()) -> None:
    """Serve an application until the process gets SIGINT or SIGTERM; running requests finish first.

    Parameters
    ----------
    application : FastAPI
    host : str
    port : int
        0 for any free one.
    ready : callable
        Called with the address, such as ``"http://127.0.0.1:8000/"``, before requests are answered.
    proxies : sequence of str, default ()
        Addresses and networks of proxies, whose headers are believed.

    Raises
    ------
    InputError
        If the address cannot be listened on.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listening = socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        raise InputError(f"cannot listen on {host!r}, port {port} ({error}); give another --host or --port") from None
    with listening:
        shown = f"[{host}]" if ":" in host else host
        config = uvicorn.Config(
            FromProxies(application, proxies),
            http=PatientProtocol,
            ws="none",
            loop="asyncio",
            log_level="warning",
            access_log=False,
            server_header=False,
            proxy_headers=False,  # FromProxies reads them
            timeout_keep_alive=_IDLE_SECONDS,
            timeout_graceful_shutdown=_GRACE_SECONDS,
            h11_max_incomplete_event_size=_MAX_HEAD_BYTES,
        )
        server = uvicorn.Server(config)
        sys.setswitchinterval(_SWITCH_SECONDS)
        ready(f"http://{shown}:{listening.getsockname()[1]}/")
        asyncio.run(server.serve(sockets=[listening]))
