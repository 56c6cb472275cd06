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
from haybale.service.drained_requests import DrainedRequests
from haybale.service.proxies import FromProxies

if TYPE_CHECKING:
    from starlette.types import ASGIApp

_HEAD_SECONDS = 15.0  # for the head of a request, from the connection or from the last answer
_STILL_SECONDS = 120.0  # for a request that makes no progress: of its body, of its work, and of its answer
_MIN_MOVED_BYTES = 300_000  # that a body or an answer must move between two looks to have made progress
_IDLE_SECONDS = 15  # of a connection between two requests
_GRACE_SECONDS = 30  # for running requests to finish when the service ends
_MAX_HEAD_BYTES = 64 * 1024
# When a running thread lets another one run. A request has hundreds of steps in compiled code, and after
# each of them it may have to wait for the thread that prepares reviews. With Python's default of 0.005 seconds, some
# requests took four seconds.
_SWITCH_SECONDS = 0.0005


class PatientProtocol(H11Protocol):
    """HTTP as uvicorn speaks it, but a connection ends if no request comes, or if nobody reads the answer.

    A look every fifteen seconds compares the request, the bytes that have come and those that are still to be sent with
    the last look. uvicorn counts an answer as complete when it is in a buffer, from which a slow client may read for
    minutes.
    """

    _seen: Any = None  # the request at the last look
    _looks = 0  # the number of looks in a row at which the request was the same, and has made no progress
    _n_received = _n_received_then = 0  # bytes until now, and until the last look
    _n_unsent = 0  # bytes in the buffer at the last look

    def connection_made(self, transport: Any) -> None:
        """Start the timer that looks whether the client is too slow."""
        super().connection_made(transport)
        self._timer = self.loop.call_later(_HEAD_SECONDS, self._look)

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer."""
        self._timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Count what has come, and read it."""
        self._n_received += len(data)
        super().data_received(data)

    def _look(self) -> None:
        n_unsent = self.transport.get_write_buffer_size()
        n_sent = self._n_unsent - n_unsent
        has_moved = (
            self._n_received - self._n_received_then >= _MIN_MOVED_BYTES
            or n_sent >= _MIN_MOVED_BYTES
            or n_sent == self._n_unsent > 0  # the rest of an answer
        )
        self._looks = self._looks + 1 if self.cycle is self._seen and not has_moved else 0
        self._seen, self._n_unsent, self._n_received_then = self.cycle, n_unsent, self._n_received
        is_waiting = not n_unsent and (self.cycle is None or self.cycle.response_complete)
        if self._looks and (is_waiting or self._looks * _HEAD_SECONDS >= _STILL_SECONDS):
            self.transport.abort()
            return
        self._timer = self.loop.call_later(_HEAD_SECONDS, self._look)


def listening_socket(host: str, port: int) -> socket.socket:
    """Return a socket that listens; its connections send what is written at once.

    asyncio sees to this only for sockets that were made for TCP by name. Otherwise the body of an answer waits until
    the client has acknowledged its head, which clients that keep a connection open do after 40 ms.

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
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def run(application: ASGIApp, host: str, port: int, ready: Callable[[str], None], proxies: Sequence[str] = ()) -> None:
    """Serve an application until the process gets SIGINT or SIGTERM; running requests finish first.

    Parameters
    ----------
    application : ASGI application
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
    with listening_socket(host, port) as listening:
        shown = f"[{host}]" if ":" in host else host
        config = uvicorn.Config(
            DrainedRequests(FromProxies(application, proxies)),
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
