"""A mail server on a port of this machine, which accepts and refuses mails as a test says."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email.message import EmailMessage
from email.parser import BytesParser
from email.policy import default
from typing import Any

from aiosmtpd.smtp import SMTP


class Mailbox:
    """The mails that a server has accepted, in ``mails``, and what it refuses."""

    def __init__(self) -> None:
        self.mails: list[EmailMessage] = []
        self.refused_addresses: set[str] = set()
        self.is_full = False

    async def handle_RCPT(self, server: Any, session: Any, envelope: Any, address: str, options: Any) -> str:
        """Accept or refuse an address."""
        if address in self.refused_addresses:
            return "550 no such user here"
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:
        """Accept or refuse a mail."""
        if self.is_full:
            return "452 insufficient storage"
        self.mails.append(BytesParser(policy=default).parsebytes(envelope.content))
        return "250 OK"


@contextmanager
def mail_server(mailbox: Mailbox, *, encrypted: ssl.SSLContext | None = None, **options: Any) -> Iterator[int]:
    """Run a server in the block, and yield its port; ``encrypted`` is for a port that is encrypted from the start."""
    loop = asyncio.new_event_loop()
    made = loop.create_server(lambda: SMTP(mailbox, loop=loop, **options), "127.0.0.1", 0, ssl=encrypted)
    server = loop.run_until_complete(made)
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        server.close()
        for task in asyncio.all_tasks(loop):
            task.cancel()
            loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
        loop.run_until_complete(server.wait_closed())
        loop.close()
