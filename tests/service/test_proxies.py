"""What a proxy says of a request is believed from named addresses only."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.testclient import TestClient

from haybale.service import create_app
from haybale.service.proxies import FromProxies
from haybale.service.security import Access
from haybale.service.users import User, Users, digest_of

USERS = [User("Ada", "judge", digest=digest_of("token of Ada")), User("Eve", "administer")]


def asked(
    workspace: Any, access: Access, peer: str, proxies: tuple[str, ...] = ("10.1.0.0/16", "fd00::1")
) -> TestClient:
    application = FromProxies(create_app(workspace, access), proxies)
    return TestClient(application, base_url="http://127.0.0.1:8000", client=(peer, 40_000))


def status(client: TestClient, name: str | list[str], path: str = "/api/topics") -> int:
    names = [name] if isinstance(name, str) else name
    return client.get(path, headers=[("x-user", name) for name in names]).status_code


@pytest.mark.parametrize("peer", ["10.1.2.3", "fd00::1"])
def test_the_user_whom_a_proxy_names(workspace: Any, peer: str) -> None:
    client = asked(workspace, Access(Users(USERS), user_header="X-User"), peer)
    assert status(client, "Ada") == 200
    assert status(client, "Ada", "/api/deleted-topics") == 403
    assert status(client, "Eve", "/api/deleted-topics") == 200
    assert status(client, "ada") == 403  # another name
    assert status(client, "") == 401
    assert status(client, []) == 401
    assert status(client, ["Ada", "Eve"]) == 403  # one of them may be what a client has sent
    token = {"authorization": "Bearer token of Ada"}
    assert client.get("/api/topics", headers=token).status_code == 200
    assert (
        client.get("/api/topics", headers=token | {"x-user": "Mallory"}).status_code == 403
    )  # the proxy's word counts
    wrong = {"authorization": "Bearer a token for the proxy", "x-user": "Ada"}
    assert client.get("/api/topics", headers=wrong).status_code == 200


@pytest.mark.parametrize("peer", ["10.2.0.1", "127.0.0.1", "testclient", "fd00::2"])
def test_nobody_else_names_users(workspace: Any, peer: str) -> None:
    for proxies in (("10.1.0.0/16",), ()):
        client = asked(workspace, Access(Users(USERS), user_header="X-User"), peer, proxies)
        assert status(client, "Eve") == 401
        forwarded = {"x-user": "Eve", "x-forwarded-for": "10.1.2.3"}
        assert client.get("/api/topics", headers=forwarded).status_code == 401


def test_the_header_is_believed_only_if_it_was_named(workspace: Any) -> None:
    assert status(asked(workspace, Access(Users(USERS)), "10.1.2.3"), "Eve") == 401
    application = create_app(workspace, Access(Users(USERS), user_header="X-User"))  # by a server without FromProxies
    assert status(TestClient(application, base_url="http://127.0.0.1:8000", client=("10.1.2.3", 1)), "Eve") == 401


def test_users_who_are_not_in_the_file_have_the_right_of_new_users(workspace: Any) -> None:
    access = Access(Users(USERS), user_header="X-User", new_users="read")
    client = asked(workspace, access, "10.1.2.3")
    assert status(client, "Mallory") == 200
    refused = client.post("/api/topics", json={"text": "dogs"}, headers={"x-user": "Mallory"})
    assert (refused.status_code, "Mallory" in refused.json()["detail"]) == (403, True)


def test_a_change_by_a_user_whom_a_proxy_names_needs_a_page_of_the_service(workspace: Any) -> None:
    """The browser sends what the proxy goes by with every request, also with those that another site causes."""
    client = asked(workspace, Access(Users(USERS), user_header="X-User"), "10.1.2.3")
    headers = {"x-user": "Ada", "authorization": "Bearer anything"}
    form = {"content-type": "application/x-www-form-urlencoded"}
    assert client.post("/topics", content="text=dogs", headers=headers | form).status_code == 403
    page = client.get("/topics", headers=headers).text
    token = page.partition('name="csrf_token" value="')[2].partition('"')[0]
    answer = client.post("/topics", data={"text": "dogs", "csrf_token": token}, headers=headers, follow_redirects=False)
    assert answer.status_code == 303
    assert "Log out" not in page  # the proxy would log the user in again


def test_wrong_tokens_are_limited_by_address(workspace: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of one client make no other client wait, and stop no right token."""
    monkeypatch.setattr("haybale.service.security._GUESS_SECONDS", 0.0)
    access = Access(Users(USERS))
    access._guesses["198.51.100.7"] = 20  # that are being answered
    client = asked(workspace, access, "10.1.2.3")

    def tried(token: str, address: str) -> int:
        headers = {"authorization": f"Bearer {token}", "x-forwarded-for": address}
        return client.get("/api/topics", headers=headers).status_code

    assert tried("wrong", "198.51.100.7") == 429
    assert tried("wrong", "198.51.100.8") == 401
    assert tried("token of Ada", "198.51.100.7") == 200
    access._guesses["2001:db8:0:1::"] = 20
    assert tried("wrong", "2001:db8:0:1::abcd") == 429
    assert tried("wrong", "2001:db8:0:2::abcd") == 401
