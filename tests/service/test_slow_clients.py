"""Clients that send or read slowly: those that make progress are answered, the others are cut off, and harm nobody."""

from __future__ import annotations

import http.client
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing

import pytest
from support.served import Served

from haybale import Engine

pytestmark = pytest.mark.thorough

# The limits of the service, in fractions of a second, and bytes.
LIMITS = """
from haybale.service import request_work, serving
serving._HEAD_SECONDS, serving._STILL_SECONDS, serving._MIN_MOVED_BYTES = 0.3, 1.2, 20_000
request_work.BODY_SECONDS, request_work.MIN_BODY_RATE, request_work.MAX_BODIES = 1.0, 100_000, 10_000_000
"""
N_PASSAGES, PASSAGE_BYTES = 200, 60_000
MANY_BYTES = N_PASSAGES * PASSAGE_BYTES  # of an answer, more than the system keeps for a client that does not read


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("slow")
    text = "A dog barks. " * (PASSAGE_BYTES // 13)
    documents = {"long": [f"{number} {text}" for number in range(N_PASSAGES)], "short": ["A cat purrs."]}
    Engine.build(documents, folder / "engine", language="english", encoder="tfidf(min_df=1)").prepare()
    with Served(folder / "engine", before=LIMITS) as service:
        yield service


def connected(served: Served, small_buffer: bool = False) -> socket.socket:
    host, _, port = served.address.removeprefix("http://").partition(":")
    client = socket.socket()
    client.settimeout(30)
    if small_buffer:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
    client.connect((host, int(port)))
    return client


def head(served: Served, *lines: str, method: str = "POST", path: str = "/api/search") -> bytes:
    host = served.address.removeprefix("http://")
    return "\r\n".join([f"{method} {path} HTTP/1.1", f"Host: {host}", *lines, "", ""]).encode()


def everything(client: socket.socket) -> bytes:
    """Return what comes until the connection ends."""
    parts = []
    try:
        while part := client.recv(2**16):
            parts.append(part)
    except ConnectionError:
        pass
    return b"".join(parts)


def drip(client: socket.socket, part: bytes, seconds: float) -> bool:
    """Send a part again and again; return whether the connection has ended."""
    end = time.monotonic() + seconds
    try:
        while time.monotonic() < end:
            client.sendall(part)
            time.sleep(0.05)
    except ConnectionError:
        return True
    return False


@pytest.mark.parametrize("first", [b"", b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"])
def test_a_head_that_drips_is_cut_off(served: Served, first: bytes) -> None:
    with closing(connected(served)) as client:
        if first:
            client.sendall(first)
            assert client.recv(2**16).startswith(b"HTTP/1.1 200")
        client.sendall(b"GET /health HTTP/1.1\r\nX-Slow: ")
        assert drip(client, b"a", 10)


JSON = "Content-Type: application/json"


@pytest.mark.parametrize(
    ("length", "part"), [("Content-Length: 100000", b"a"), ("Transfer-Encoding: chunked", b"1\r\na\r\n")]
)
def test_a_body_that_drips_is_answered_408_and_cut_off(served: Served, length: str, part: bytes) -> None:
    with closing(connected(served)) as client:
        client.sendall(head(served, JSON, length))
        assert drip(client, part, 10)
    with closing(connected(served)) as client:
        client.sendall(head(served, JSON, length) + part)
        assert everything(client).startswith(b"HTTP/1.1 408")


def test_a_body_that_comes_slowly_but_comes_is_answered(served: Served) -> None:
    """It takes longer than one second, and comes at more bytes a second than the limit."""
    body = b'{"q": "cat"' + b" " * 400_000 + b"}"
    start = time.monotonic()
    with closing(connected(served)) as client:
        client.sendall(head(served, JSON, f"Content-Length: {len(body)}", "Connection: close"))
        for first in range(0, len(body), 20_000):
            client.sendall(body[first : first + 20_000])
            time.sleep(0.09)
        answer = everything(client)
    assert time.monotonic() - start > 1.5
    assert answer.startswith(b"HTTP/1.1 200")


def test_chunked_bodies_without_a_length(served: Served) -> None:
    body = b'{"q": "cat"}'
    with closing(connected(served)) as client:
        client.sendall(head(served, JSON, "Transfer-Encoding: chunked", "Connection: close"))
        for sign in body:
            client.sendall(b"1\r\n" + bytes([sign]) + b"\r\n")
        client.sendall(b"0\r\n\r\n")
        answer = everything(client)
    assert answer.startswith(b"HTTP/1.1 200")
    assert b'"short"' in answer
    with closing(connected(served)) as client:
        client.sendall(head(served, JSON, "Transfer-Encoding: chunked"))
        try:
            for _ in range(60):  # 6 MB, where 5 are allowed
                client.sendall(b"186a0\r\n" + b" " * 100_000 + b"\r\n")
        except ConnectionError:
            pass
        assert everything(client).startswith(b"HTTP/1.1 413")


def test_many_uploads_that_stay_unfinished_do_not_fill_the_memory(served: Served) -> None:
    """Six of four megabytes each, where ten are kept: some are refused, and small requests are answered meanwhile."""
    clients = [connected(served) for _ in range(6)]
    for client in clients:
        client.sendall(head(served, JSON, "Content-Length: 4500000"))
    parts = [threading.Thread(target=drip, args=(client, b" " * 100_000, 2.0)) for client in clients]
    for part in parts:
        part.start()
    assert served.ask("/api/search", {"q": "cat"})["hits"]
    for part in parts:
        part.join()
    statuses = [everything(client)[9:12] for client in clients]
    for client in clients:
        client.close()
    assert b"503" in statuses
    for _ in range(3):  # what they held is free again
        body = b'{"q": "cat"' + b" " * 4_500_000 + b"}"
        with closing(connected(served)) as client:
            client.sendall(head(served, JSON, f"Content-Length: {len(body)}", "Connection: close") + body)
            assert everything(client).startswith(b"HTTP/1.1 200")


def test_a_client_that_reads_slowly_gets_the_whole_answer(served: Served) -> None:
    start, n_read = time.monotonic(), 0
    with closing(connected(served, small_buffer=True)) as client:
        client.sendall(head(served, "Connection: close", method="GET", path="/api/documents/long"))
        while part := client.recv(2**16):
            n_read += len(part)
            time.sleep(0.01)
    assert time.monotonic() - start > 1.5
    assert n_read > MANY_BYTES


def test_answers_that_nobody_reads_are_dropped_and_others_are_answered(served: Served) -> None:
    clients = [connected(served, small_buffer=True) for _ in range(5)]
    for client in clients:
        client.sendall(head(served, method="GET", path="/api/documents/long"))
    for _ in range(5):
        assert served.ask("/api/search?q=cat")["hits"][0]["doc_id"] == "short"
        time.sleep(0.1)
    time.sleep(1.5)
    sizes = [len(everything(client)) for client in clients]
    for client in clients:
        client.close()
    assert max(sizes) < MANY_BYTES
    own, _ = served.memory()
    assert own < 2**31


def test_an_idle_connection_is_closed(served: Served) -> None:
    connection = http.client.HTTPConnection(served.address.removeprefix("http://"), timeout=30)
    connection.request("GET", "/health")
    connection.getresponse().read()
    assert connection.sock.recv(1) == b""
    connection.close()
