"""Read what is left of a request that was answered early, so that the client reads the answer.

A connection that is closed while data of the client is unread is reset, and the client may lose the answer: nginx then
answers 502 instead of the 401 or 413 that it was sent.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from starlette.types import ASGIApp, Message, Receive, Scope, Send

DRAIN_SECONDS = 2.0  # for what is left of a request
MAX_DRAINED = 100_000_000  # bytes


class DrainedRequests:
    """The ASGI middleware that ends an answer only when the request has come, or :data:`DRAIN_SECONDS` are over."""

    def __init__(self, application: ASGIApp) -> None:
        self.application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand a request on, and read what the application leaves of it."""
        if scope["type"] != "http":
            await self.application(scope, receive, send)
            return
        is_whole = False

        async def received() -> Message:
            nonlocal is_whole
            message = await receive()
            is_whole = is_whole or not message.get("more_body", False)
            return message

        async def drain() -> None:
            n_bytes = 0
            while not is_whole and n_bytes < MAX_DRAINED:
                n_bytes += len((await received()).get("body", b""))

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.body" and not message.get("more_body", False) and not is_whole:
                with suppress(TimeoutError):
                    await asyncio.wait_for(drain(), DRAIN_SECONDS)
            await send(message)

        await self.application(scope, received, sent)
