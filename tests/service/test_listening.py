"""The socket of a service."""

from __future__ import annotations

import asyncio
import socket

import pytest

from haybale import InputError
from haybale.service.serving import listening_socket


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
def test_answers_in_parts_are_sent_at_once(host: str) -> None:
    """Connections of a server of asyncio do not wait for the acknowledgement of what they have sent before."""
    if host == "::1" and not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    options = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        options.append(writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    async def ask() -> None:
        try:
            listening = listening_socket(host, 0)
        except InputError:
            pytest.skip(f"nothing can listen on {host}")
        server = await asyncio.start_server(answer, sock=listening)
        async with server:
            reader, writer = await asyncio.open_connection(*listening.getsockname()[:2])
            await reader.read()
            writer.close()

    asyncio.run(ask())
    assert options
    assert all(options)


def test_an_address_that_is_taken_is_an_input_error() -> None:
    with listening_socket("127.0.0.1", 0) as listening:
        port = listening.getsockname()[1]
        with pytest.raises(InputError, match=str(port)):
            listening_socket("127.0.0.1", port)
