"""A real proxy before a real service: a free port, a wait until a proxy listens, and requests through it."""

from __future__ import annotations

import http.client
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        return port


@contextmanager
def running(command: Sequence[str], port: int, environment: Mapping[str, str] | None = None) -> Iterator[None]:
    """Run a proxy that listens on a port within the block."""
    proxy = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    try:
        end = time.monotonic() + 20
        while time.monotonic() < end:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                time.sleep(0.05)
        yield
    finally:
        proxy.terminate()
        proxy.wait(20)


def ask(
    port: int, method: str, path: str, body: str | None = None, *, https_name: str = "", **headers: str
) -> tuple[int, http.client.HTTPMessage, str]:
    """Return status, headers and text of an answer; with ``https_name``, by HTTPS from a server of this name."""
    connection: http.client.HTTPConnection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    if https_name:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # the proxy has made the certificate itself
        connection = http.client.HTTPSConnection(https_name, port, timeout=60, context=context)
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, body, names)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, answer.headers, text
