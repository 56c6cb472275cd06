"""The service behind a real nginx, under a path that nginx hands on, and under one that it takes off."""

from __future__ import annotations

import http.client
import json
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest
from support.decisions import decisions
from support.served import Served

from haybale import Engine, InputError
from haybale.service.under_path import checked_root_path

TOKEN = "a token of everybody"
NGINX = shutil.which("nginx") or next((path for path in ("/usr/sbin/nginx",) if Path(path).exists()), None)
CONFIGURATION = """
daemon off; pid {folder}/nginx.pid; error_log {folder}/error.log; worker_processes 1;
events {{}}
http {{
    access_log off; client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder};
    uwsgi_temp_path {folder}; scgi_temp_path {folder};
    proxy_set_header Host $host;
    proxy_set_header X-Forwarded-For "$http_x_forwarded_for, 198.51.100.7";
    proxy_set_header X-Forwarded-Proto https;
    server {{
        listen 127.0.0.1:{port};
        location /cases/ {{ proxy_pass {whole}; }}
        location /stripped/ {{ proxy_pass {stripped}/; }}
    }}
}}
"""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        return port


@pytest.fixture
def nginx(tmp_path: Path) -> Iterator[tuple[int, Path]]:
    """Yield the port of nginx before two services, and the access log of the first."""
    if NGINX is None:
        pytest.skip("nginx is not installed")
    Engine.build(decisions(), tmp_path / "engine", language="english", encoder="tfidf(min_df=1)").prepare()
    port, log = free_port(), tmp_path / "access.log"
    options = ["--token", TOKEN, "--proxy", "127.0.0.1", "--allow-host", "localhost"]
    first = ["--root-path", "/cases", "--access-log", str(log), "--judgements", str(tmp_path / "1.sqlite")]
    second = ["--root-path", "/stripped", "--judgements", str(tmp_path / "2.sqlite")]
    with (
        Served(tmp_path / "engine", *options, *first) as whole,
        Served(tmp_path / "engine", *options, *second) as stripped,
    ):
        configuration = tmp_path / "nginx.conf"
        configuration.write_text(
            CONFIGURATION.format(folder=tmp_path, port=port, whole=whole.address, stripped=stripped.address)
        )
        proxy = subprocess.Popen([NGINX, "-c", str(configuration), "-p", str(tmp_path)], stderr=subprocess.DEVNULL)
        try:
            end = time.monotonic() + 20
            while time.monotonic() < end:
                try:
                    socket.create_connection(("127.0.0.1", port), timeout=1).close()
                    break
                except OSError:
                    time.sleep(0.05)
            yield port, log
        finally:
            proxy.terminate()
            proxy.wait(20)


def ask(
    port: int, method: str, path: str, body: str | None = None, **headers: str
) -> tuple[int, http.client.HTTPMessage, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, path, body, names)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, answer.headers, text


@pytest.mark.thorough
def test_pages_and_interface_behind_nginx(nginx: tuple[int, Path]) -> None:
    port, log = nginx
    for root in ("/cases", "/stripped"):
        status, headers, _ = ask(port, "GET", f"{root}/topics", accept="text/html")
        assert (status, headers["location"]) == (303, f"{root}/login?back={root.replace('/', '%2F')}%2Ftopics")
        status, headers, page = ask(port, "GET", headers["location"], accept="text/html")
        visitor = headers["set-cookie"]
        assert status == 200
        assert f"Path={root}/" in visitor
        assert "Secure" in visitor  # nginx says that browsers come by HTTPS
        addresses = re.findall(r'(?:href|src|action)="(/[^"]*)"', page)
        assert addresses
        assert all(address.startswith(f"{root}/") for address in addresses)
        assert ask(port, "GET", next(address for address in addresses if address.endswith(".css")))[0] == 200
        token = re.search(r'name="csrf_token" value="([^"]+)"', page)
        assert token is not None
        form = urlencode({"token": TOKEN, "csrf_token": token[1], "back": f"{root}/topics"})
        kind = "application/x-www-form-urlencoded"
        cookie = visitor.partition(";")[0]
        status, headers, _ = ask(port, "POST", f"{root}/login", form, content_type=kind, cookie=cookie)
        assert (status, headers["location"]) == (303, f"{root}/topics")
        session = cookie + "; " + headers["set-cookie"].partition(";")[0]
        assert ask(port, "GET", f"{root}/topics", cookie=session)[0] == 200
        status, headers, _ = ask(port, "GET", f"{root}/topics/", cookie=session)
        assert (status, headers["location"]) == (307, f"{root}/topics")
        bearer = f"Bearer {TOKEN}"
        hits = json.loads(ask(port, "GET", f"{root}/api/search?q=dog", authorization=bearer)[2])["hits"]
        assert hits[0]["doc_id"].startswith("dog/")
        document = json.loads(ask(port, "GET", f"{root}/openapi.json", authorization=bearer)[2])
        assert document["servers"] == [{"url": root}]
        assert ask(port, "HEAD", f"{root}/health")[2] == ""
    ask(port, "GET", "/cases/health", x_forwarded_for="203.0.113.9")
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    assert lines[-1]["client"] == "198.51.100.7"  # what nginx has added, not what a client claims


@pytest.mark.parametrize("wrong", ["cases", "/a b", "//evil.example", "/api", "/topics/7", "/?q"])
def test_wrong_root_paths_are_refused(wrong: str) -> None:
    with pytest.raises(InputError, match="root-path"):
        checked_root_path(wrong, {"api", "topics"})
