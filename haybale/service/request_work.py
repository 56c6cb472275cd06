"""Read the body of a request, and do its work: with limits, a few large requests at once, and no longer than wanted.

The work of a request ends with it: when its client has gone, or its time is over, the searches that it has begun stop.
"""

from __future__ import annotations

import asyncio
import hmac
import os
import re
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from urllib.parse import parse_qs

from fastapi import Request
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from haybale.service.problems import answer as as_asked
from haybale.service.problems import problem
from haybale.stopping_work import Work, stoppable

MAX_BODY = 5_000_000  # bytes of a request
MAX_UPLOAD = 100_000_000  # bytes of a request that imports a file
MAX_BODIES = 500_000_000  # bytes of all requests that are in memory at once
BODY_SECONDS = 30.0  # for a request to arrive, and one more for every MIN_BODY_RATE bytes that have
MIN_BODY_RATE = 100_000  # bytes a second
ANSWER_SECONDS = 60.0  # for an answer, from the whole request
LARGE_BYTES = 10_000  # a request with a larger body or query string is large
MAX_WAITING = 32  # large requests that wait for others
WAITING_SECONDS = 20.0  # for which a large request waits at most
LOOK_SECONDS = 0.02  # between two looks whether it is the turn of a request that waits
PROGRAM_HEADER = "x-requested-with"  # with any value, it says that no form of a page has sent a form
_FORM_TOKEN = re.compile(rb'name="csrf_token"\r\n\r\n([\w-]{1,100})\r\n')

Handle = Callable[[Scope, Receive, Send], Awaitable[None]]


class BodyMemory:
    """Counts the bytes of the requests that are in memory, so that many slow uploads together do not fill it.

    Parameters
    ----------
    n_bytes : int, default 500,000,000
        At most so many at once.
    """

    def __init__(self, n_bytes: int | None = None) -> None:
        self._lock = threading.Lock()
        self._n_free = MAX_BODIES if n_bytes is None else n_bytes

    @contextmanager
    def of_request(self) -> Iterator[Callable[[int], None]]:
        """Yield what counts further bytes of a request; it raises an error if there is no room for them."""
        n_held = 0

        def hold(n_bytes: int) -> None:
            nonlocal n_held
            with self._lock:
                if n_bytes > self._n_free:
                    raise _BusyError
                self._n_free -= n_bytes
            n_held += n_bytes

        try:
            yield hold
        finally:
            with self._lock:
                self._n_free += n_held


class LargeRequests:
    """Lets a few large requests work at once, and some others wait, so that small ones are answered meanwhile.

    Parameters
    ----------
    n : int
        How many work at once.
    """

    def __init__(self, n: int | None = None) -> None:
        self._lock = threading.Lock()  # not of asyncio, because an application may run in several event loops
        self._n_free = n or max(2, (os.cpu_count() or 2) // 2)
        self._n_waiting = 0
        self.bodies = BodyMemory()

    @asynccontextmanager
    async def one(self) -> AsyncIterator[bool]:
        """Wait for a turn; yield False if there is none within :data:`WAITING_SECONDS`, or too many wait already."""
        if not await self._has_turn():
            yield False
            return
        try:
            yield True
        finally:
            with self._lock:
                self._n_free += 1

    async def _has_turn(self) -> bool:
        end = time.monotonic() + WAITING_SECONDS
        if self._takes():
            return True
        if self._n_waiting >= MAX_WAITING:
            return False
        self._n_waiting += 1
        try:
            while time.monotonic() < end:
                await asyncio.sleep(LOOK_SECONDS)
                if self._takes():
                    return True
            return False
        finally:
            self._n_waiting -= 1

    def _takes(self) -> bool:
        with self._lock:
            is_free = self._n_free > 0
            self._n_free -= is_free
            return is_free


async def answered(
    handle: Handle,
    scope: Scope,
    receive: Receive,
    send: Send,
    is_change: bool,
    is_large: bool = False,
    max_body: int = MAX_BODY,
) -> None:
    """Read a request of at most ``max_body`` bytes, refuse what another site may have caused, and answer it."""
    with scope["state"]["access"].large_requests.bodies.of_request() as hold:
        await _answered(handle, scope, receive, send, is_change, is_large, max_body, hold)


async def _answered(
    handle: Handle,
    scope: Scope,
    receive: Receive,
    send: Send,
    is_change: bool,
    is_large: bool,
    max_body: int,
    hold: Callable[[int], None],
) -> None:
    request, body = Request(scope), b""
    refusal: Response | None = None
    try:
        body = await _whole_body(request.headers, receive, max_body, hold)
    except TimeoutError:
        limits = f"{BODY_SECONDS:.0f} seconds, and one more for every {MIN_BODY_RATE:,} bytes"
        refusal = problem(408, f"expected the whole request within {limits}; send it at once")
    except _TooLargeError:
        refusal = as_asked(request, 413, f"expected at most {max_body:,} bytes, found more; shorten the request")
    except _BusyError:
        refusal = _busy(request)
    except _GoneError:
        return
    if refusal is None and is_change and not scope["state"]["has_token"]:
        refusal = _refuse_other_sites(request, body)
    if refusal is not None:
        await refusal(scope, receive, send)
    elif not (is_large or _is_large(request, body)):
        await _worked(handle, scope, body, receive, send)
    else:
        async with scope["state"]["access"].large_requests.one() as has_turn:
            if has_turn:
                await _worked(handle, scope, body, receive, send)
                return
        await _busy(request)(scope, receive, send)


def _busy(request: Request) -> Response:
    answer = as_asked(request, 503, "too many large requests at once; try it again in a few seconds")
    answer.headers["retry-after"] = "5"
    return answer


def _is_large(request: Request, body: bytes) -> bool:
    """Return whether a request may take long: its text is long, or kept under an id, or it brings a file."""
    is_file = request.headers.get("content-type", "").strip().lower().startswith("multipart/")
    kept = request.query_params.get("text", "")
    return is_file or bool(kept) or max(len(body), len(request.scope["query_string"])) > LARGE_BYTES


async def _worked(handle: Handle, scope: Scope, body: bytes, receive: Receive, send: Send) -> None:
    """Answer a request until its client has gone or its time is over; its work stops then."""
    gone, is_sent, has_begun, is_over = asyncio.Event(), False, False, False

    async def replay() -> Message:
        nonlocal is_sent
        if not is_sent:
            is_sent = True
            return {"type": "http.request", "body": body, "more_body": False}
        await gone.wait()
        return {"type": "http.disconnect"}

    async def sent(message: Message) -> None:
        nonlocal has_begun
        if not is_over:
            has_begun = True
            await send(message)

    async def listen() -> None:
        n_messages = 0
        while (await receive())["type"] != "http.disconnect":
            n_messages += 1
            if n_messages > 1:  # the end of a request without a body is the only one that may come
                return
        gone.set()

    work = Work(ANSWER_SECONDS)
    with stoppable(work):
        answering = asyncio.ensure_future(handle(scope, replay, sent))
    listening, leaving = asyncio.ensure_future(listen()), asyncio.ensure_future(gone.wait())
    try:
        await asyncio.wait({answering, leaving}, timeout=ANSWER_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        if answering.done():
            await answering  # raises its error
            return
        is_over = True
        work.stop()
        if not gone.is_set() and not has_begun:
            late = f"the answer took longer than {ANSWER_SECONDS:.0f} seconds, and was stopped; ask for less"
            await as_asked(Request(scope), 503, late)(scope, replay, send)
        answering.add_done_callback(lambda task: task.cancelled() or task.exception())  # nobody waits for it
        await asyncio.wait({answering}, timeout=ANSWER_SECONDS)  # it ends soon, and counts as working until then
    finally:
        work.stop()
        for task in (listening, leaving, answering):
            task.cancel()


class _TooLargeError(Exception):
    pass


class _GoneError(Exception):
    pass


class _BusyError(Exception):
    pass


async def _whole_body(headers: Headers, receive: Receive, max_body: int, hold: Callable[[int], None]) -> bytes:
    """Return the body of a request; one that comes too slowly raises TimeoutError."""
    if "content-length" not in headers and "transfer-encoding" not in headers:
        return b""
    if int(headers.get("content-length", "0")) > max_body:
        raise _TooLargeError
    parts, size, start = [], 0, time.monotonic()
    while True:
        seconds = start + BODY_SECONDS + size / MIN_BODY_RATE - time.monotonic()
        message = await asyncio.wait_for(receive(), seconds)
        if message["type"] == "http.disconnect":
            raise _GoneError
        part = message.get("body", b"")
        size += len(part)
        if size > max_body:
            raise _TooLargeError
        hold(len(part))
        parts.append(part)
        if not message.get("more_body", False):
            return b"".join(parts)


def _refuse_other_sites(request: Request, body: bytes) -> Response | None:
    """Return the problem of a change that another site may have caused; None if there is none.

    Browsers send JSON, headers that forms do not have, and other methods than POST, to other sites only after these
    have agreed, which this service never does.
    """
    headers = request.headers
    origin, site = headers.get("origin"), headers.get("sec-fetch-site", "none")
    is_same = origin is None or origin.partition("://")[2].lower() == headers["host"].lower()
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    form_token = headers.get("x-csrf-token", "")
    if kind == "application/x-www-form-urlencoded":
        form_token = form_token or _token_of_form(body)
    elif kind == "multipart/form-data" and (token := _FORM_TOKEN.search(body)):
        form_token = form_token or token[1].decode()
    expected = request.scope["state"]["form_tokens"]
    has_token = any(hmac.compare_digest(form_token.encode(), token.encode()) for token in expected)
    is_asked_before = kind == "application/json" or PROGRAM_HEADER in headers
    is_asked_before = is_asked_before or request.method in ("PUT", "PATCH", "DELETE")
    if is_same and site in ("same-origin", "none") and (has_token or is_asked_before):
        return None
    detail = (
        "this change did not come from a page of this service; open the page anew, or send JSON, or a form with the "
        f"header {PROGRAM_HEADER}"
    )
    return as_asked(request, 403, detail)


def _token_of_form(body: bytes) -> str:
    try:
        fields = parse_qs(body.decode("latin-1"), max_num_fields=1000)
    except ValueError:  # more fields
        return ""
    return next(iter(fields.get("csrf_token", [])), "")
