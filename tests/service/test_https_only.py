"""With --https-only, a service behind a proxy answers nothing by HTTP but whether it works."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient
from support.commands import haybale as command

from haybale.service import create_app
from haybale.service.https_only import HttpsOnly
from haybale.service.security import Access
from haybale.service.users import only_token

HOST, TOKEN = "search.example.org", "a token of everybody"
POLICY = "strict-transport-security"


@pytest.fixture
def clients(workspace) -> Iterator[tuple[TestClient, TestClient]]:
    """A client that comes by HTTP, and one by HTTPS, as the proxy says, which uvicorn puts into the scope."""
    access = Access(only_token(TOKEN), [HOST])
    application = HttpsOnly(create_app(workspace, access, root_path="/cases"), access, "/cases")
    how = {"raise_server_exceptions": False, "follow_redirects": False}
    with (
        TestClient(application, base_url=f"http://{HOST}:8080", **how) as http,
        TestClient(application, base_url=f"https://{HOST}", **how) as https,
    ):
        yield http, https


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize(
    "path",
    ["/", "/topics?a=1&b=%C3%BC", "/documents/dog%2F1", "/login?back=%2Fcases%2Ftopics", "/nothing", "//evil.example/"],
)
def test_browsers_are_led_to_https(clients, method: str, path: str) -> None:
    http, _ = clients
    for root in ("", "/cases"):  # which the proxy may take off
        answer = http.request(method, f"http://{HOST}:8080{root}{path}")
        assert (answer.status_code, answer.headers["location"]) == (308, f"https://{HOST}/cases{path}")
        assert POLICY not in answer.headers  # browsers ignore it there
        assert "set-cookie" not in answer.headers


def test_by_https_pages_are_answered_and_browsers_stay(clients) -> None:
    _, https = clients
    for path in ("/login", "/", "/nothing", "/health", "/static/pages.css"):
        answer = https.get(path)
        assert answer.status_code != 308
        is_open = path == "/health"
        assert (POLICY in answer.headers) != is_open
    assert "max-age=" in https.get("/login").headers[POLICY]
    assert "secure" in https.get("/login", headers={"accept": "text/html"}).headers["set-cookie"].lower()


@pytest.mark.parametrize("path", ["/health", "/ready"])
def test_supervisors_are_answered_by_http(clients, path: str) -> None:
    http, _ = clients
    assert http.get(path).status_code in (200, 503)
    assert http.get(f"/cases{path}").status_code in (200, 503)


def test_changes_and_tokens_by_http_are_refused(clients) -> None:
    http, https = clients
    token = {"authorization": f"Bearer {TOKEN}"}
    for answer in (
        http.get("/api/topics", headers=token),
        http.post("/api/topics", json={"text": "dogs"}, headers=token),
        http.post("/login", data={"token": TOKEN}),
    ):
        assert answer.status_code == 403
        assert answer.json()["detail"].count("https://")
    assert https.get("/api/topics", headers=token).json()["topics"] == []


def test_other_hosts_are_not_redirected(clients) -> None:
    http, _ = clients
    answer = http.get("/", headers={"host": "evil.example"})
    assert answer.status_code == 421
    assert "location" not in answer.headers


def test_without_the_option_http_is_answered(client) -> None:
    answer = client.get("/topics")
    assert answer.status_code == 200
    assert POLICY not in answer.headers


def test_the_option_needs_a_proxy(tmp_path: Path) -> None:
    done = command("serve", str(tmp_path), "--https-only")
    assert done.returncode == 2
    assert "--proxy" in done.stderr
