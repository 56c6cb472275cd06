"""The service behind a real nginx, under a path that nginx hands on, and under one that it takes off."""

from __future__ import annotations

import base64
import getpass
import http.client
import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlencode

import pytest
from support.decisions import decisions
from support.proxied import ask, free_port, running
from support.served import Served

from haybale import Engine, InputError
from haybale.service.under_path import checked_root_path
from haybale.service.users import User
from haybale.service.users_file import add_user

TOKEN = "a token of everybody"
NGINX = shutil.which("nginx") or next((path for path in ("/usr/sbin/nginx",) if Path(path).exists()), None)
CONFIGURATION = """
daemon off; user {user}; pid {folder}/nginx.pid; error_log {folder}/error.log; worker_processes 1;
events {{}}
http {{
    access_log off; client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder};
    uwsgi_temp_path {folder}; scgi_temp_path {folder};
    proxy_set_header Host $host;
    proxy_set_header X-Forwarded-For "$http_x_forwarded_for, 198.51.100.7";
    proxy_set_header X-Forwarded-Proto https;
    server {{
        listen 127.0.0.1:{port};
        {locations}
    }}
}}
"""
PATHS = "location /cases/ {{ proxy_pass {whole}; }} location /stripped/ {{ proxy_pass {stripped}/; }}"
SINGLE_SIGN_ON = """location / {{
    auth_basic haybale; auth_basic_user_file {passwords};
    proxy_set_header X-Remote-User $remote_user; proxy_set_header Authorization "";
    proxy_set_header Host $host;
    proxy_pass {address};
}}"""


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
        nginx_with(tmp_path, port, PATHS.format(whole=whole.address, stripped=stripped.address)),
    ):
        yield port, log


@contextmanager
def nginx_with(folder: Path, port: int, locations: str) -> Iterator[None]:
    """Run nginx with these locations within the block."""
    assert NGINX is not None
    configuration = folder / "nginx.conf"
    configuration.write_text(
        CONFIGURATION.format(user=getpass.getuser(), folder=folder, port=port, locations=locations)
    )
    with running([NGINX, "-c", str(configuration), "-p", str(folder)], port):
        yield


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


@pytest.mark.thorough
def test_users_whom_nginx_has_authenticated(tmp_path: Path) -> None:
    """Single sign-on: nginx checks a password, and names the user in a header, which nobody else can set."""
    if NGINX is None:
        pytest.skip("nginx is not installed")
    Engine.build(decisions(), tmp_path / "engine", language="english", encoder="tfidf(min_df=1)").prepare()
    users, port, passwords = tmp_path / "users.json", free_port(), tmp_path / "passwords"
    add_user(users, User("Jörg", "administer"), has_token=False)
    add_user(users, User("Ada", "judge"), has_token=False)
    passwords.write_text("".join(f"{name}:{{PLAIN}}secret\n" for name in ("Jörg", "Ada", "Mallory")))
    options = ["--users", str(users), "--user-header", "X-Remote-User", "--proxy", "127.0.0.1"]

    def asked(name: str, path: str, method: str = "GET", **headers: str) -> int:
        encoded = base64.b64encode(f"{name}:secret".encode()).decode()
        return ask(port, method, path, authorization=f"Basic {encoded}", **headers)[0]

    with Served(tmp_path / "engine", *options, "--host", "0.0.0.0", "--allow-host", "localhost") as served:
        service = served.address.replace("0.0.0.0", "127.0.0.1")
        with nginx_with(tmp_path, port, SINGLE_SIGN_ON.format(passwords=passwords, address=service)):
            assert ask(port, "GET", "/api/topics")[0] == 401  # by nginx
            assert asked("Ada", "/api/topics") == 200
            assert asked("Ada", "/api/users") == 403
            assert asked("Ada", "/api/users", x_remote_user="Jörg".encode().decode("latin-1")) == 403
            assert asked("Jörg", "/api/users") == 200
            assert asked("Mallory", "/api/topics") == 403  # nginx knows the user, and the file of users does not
            body = json.dumps({"text": "dogs"})
            encoded = base64.b64encode(b"Ada:secret").decode()
            for site, status in (("cross-site", 403), ("same-origin", 201)):
                headers = {
                    "authorization": f"Basic {encoded}",
                    "content_type": "application/json",
                    "sec_fetch_site": site,
                }
                assert ask(port, "POST", "/api/topics", body, **headers)[0] == status
        direct = http.client.HTTPConnection(
            "127.0.0.1", int(service.rpartition(":")[2]), source_address=("127.0.0.2", 0)
        )
        direct.request("GET", "/api/topics", headers={"X-Remote-User": "Ada", "X-Forwarded-For": "127.0.0.1"})
        assert direct.getresponse().status == 401
        direct.close()


@pytest.mark.parametrize("wrong", ["cases", "/a b", "//evil.example", "/api", "/topics/7", "/?q"])
def test_wrong_root_paths_are_refused(wrong: str) -> None:
    with pytest.raises(InputError, match="root-path"):
        checked_root_path(wrong, {"api", "topics"})
