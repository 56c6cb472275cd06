"""The service behind a real Caddy, with the lines of docs/how-to/serve.md."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode

import pytest
from support.decisions import decisions
from support.proxied import ask, free_port, running
from support.served import Served

from haybale import Engine
from haybale.service.users import User
from haybale.service.users_file import add_user

CADDY = shutil.which("caddy")
PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "serve.md"
TOKEN = "a token of everybody"

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.skipif(CADDY is None, reason="caddy is not installed"),
]


@contextmanager
def caddy(folder: Path, site: str, port: int) -> Iterator[None]:
    """Run Caddy with one site; what it keeps, such as its certificates, is in the folder."""
    assert CADDY is not None
    configuration = folder / "Caddyfile"
    configuration.write_text(f"{{\n    admin off\n    skip_install_trust\n    auto_https disable_redirects\n}}\n{site}")
    environment = os.environ | {"XDG_DATA_HOME": str(folder), "XDG_CONFIG_HOME": str(folder), "HOME": str(folder)}
    with running([CADDY, "run", "--config", str(configuration), "--adapter", "caddyfile"], port, environment):
        yield


def site_of_the_page(first: str, address: str, service: str) -> str:
    """Return the lines for Caddy of the page whose second line begins so, for another address and another service."""
    blocks = re.findall(r"```text\n(search\.example\.org \{.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    [lines] = [block for block in blocks if block.splitlines()[1].strip().startswith(first)]
    return lines.replace("search.example.org", address).replace("127.0.0.1:8000", service.removeprefix("http://"))


def test_pages_and_interface_by_https(tmp_path: Path) -> None:
    Engine.build(decisions(), tmp_path / "engine", language="english", encoder="tfidf(min_df=1)").prepare()
    port, log = free_port(), tmp_path / "access.log"
    options = ["--token", TOKEN, "--proxy", "127.0.0.1", "--allow-host", "localhost", "--access-log", str(log)]
    with Served(tmp_path / "engine", *options) as served:
        site = site_of_the_page("reverse_proxy", f"https://localhost:{port}", served.address)
        with caddy(tmp_path, site.replace("{\n", "{\n    tls internal\n", 1), port):

            def asked(
                method: str, path: str, body: str | None = None, **headers: str
            ) -> tuple[int, dict[str, str], str]:
                status, answered, text = ask(port, method, path, body, https_name="localhost", **headers)
                return status, {name.lower(): value for name, value in answered.items()}, text

            status, headers, _ = asked("GET", "/topics", accept="text/html")
            assert (status, headers["location"]) == (303, "/login?back=%2Ftopics")
            status, headers, page = asked("GET", headers["location"], accept="text/html")
            assert status == 200
            assert "Secure" in headers["set-cookie"]
            visitor = headers["set-cookie"].partition(";")[0]
            csrf = re.search(r'name="csrf_token" value="([^"]+)"', page)
            assert csrf is not None
            form = urlencode({"token": TOKEN, "csrf_token": csrf[1], "back": "/topics"})
            kind = "application/x-www-form-urlencoded"
            status, headers, _ = asked("POST", "/login", form, content_type=kind, cookie=visitor)
            assert (status, headers["location"]) == (303, "/topics")
            session = f"{visitor}; {headers['set-cookie'].partition(';')[0]}"
            assert asked("GET", "/topics", cookie=session)[0] == 200
            hits = json.loads(asked("GET", "/api/search?q=dog", authorization=f"Bearer {TOKEN}")[2])["hits"]
            assert hits[0]["doc_id"].startswith("dog/")
            assert asked("HEAD", "/health")[2] == ""
            asked("GET", "/health", x_forwarded_for="203.0.113.9")
    clients = {json.loads(line)["client"] for line in log.read_text().splitlines()}
    assert clients <= {"127.0.0.1", "::1"}  # what Caddy has seen, not what a client claims


def test_users_whom_caddy_has_authenticated(tmp_path: Path) -> None:
    assert CADDY is not None
    Engine.build(decisions(), tmp_path / "engine", language="english", encoder="tfidf(min_df=1)").prepare()
    users, port = tmp_path / "users.json", free_port()
    add_user(users, User("Bob", "administer"), has_token=False)
    add_user(users, User("Ada", "judge"), has_token=False)
    hashing = [CADDY, "hash-password", "--plaintext", "secret"]
    password = subprocess.run(hashing, capture_output=True, text=True, check=True).stdout.strip()
    options = ["--users", str(users), "--user-header", "X-Remote-User", "--proxy", "127.0.0.1"]

    def asked(name: str, path: str, **headers: str) -> int:
        encoded = base64.b64encode(f"{name}:secret".encode()).decode()
        return ask(port, "GET", path, authorization=f"Basic {encoded}", **headers)[0]

    with Served(tmp_path / "engine", *options) as served:
        site = site_of_the_page("basic_auth", f"http://127.0.0.1:{port}", served.address)
        passwords = "\n        ".join(f"{name} {password}" for name in ("Ada", "Bob", "Mallory"))
        site = site.replace("Ada $2a$14$…", passwords)
        version = subprocess.run([CADDY, "version"], capture_output=True, text=True, check=True).stdout
        if tuple(map(int, re.findall(r"\d+", version)[:2])) < (2, 8):
            site = site.replace("basic_auth", "basicauth")  # its name before Caddy 2.8
        with caddy(tmp_path, site, port):
            assert ask(port, "GET", "/api/topics")[0] == 401  # by Caddy
            assert asked("Ada", "/api/topics") == 200
            assert asked("Ada", "/api/users") == 403
            assert asked("Ada", "/api/users", x_remote_user="Bob") == 403
            assert asked("Bob", "/api/users") == 200
            assert asked("Mallory", "/api/topics") == 403  # Caddy knows the user, and the file of users does not
