"""Users are listed, added, changed and removed while the service runs: from programs, on pages, and by commands."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from haybale.service import create_app
from haybale.service import security as security_module
from haybale.service.security import Access
from haybale.service.sessions import Sessions, sessions_file_of
from haybale.service.users import User, Users, digest_of, only_token
from haybale.service.users_file import UsersFile, add_user

ADDRESS = "http://127.0.0.1:8000"


@pytest.fixture(autouse=True)
def fast_guesses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(security_module, "_GUESS_SECONDS", 0.0)


class Service:
    """A service with the users Ada, a judge, and Eve, an administrator."""

    def __init__(self, workspace: Any, folder: Path) -> None:
        self.path = folder / "users.json"
        self.tokens = {
            name: str(add_user(self.path, User(name, right)))
            for name, right in {"Ada": "judge", "Eve": "administer"}.items()
        }
        self.access = Access(UsersFile(self.path), sessions=Sessions(sessions_file_of(self.path)))
        self.application = create_app(workspace, self.access)

    def client(self, name: str = "", token: str = "") -> TestClient:
        """Return a program with the token of a user, or a browser without one."""
        token = token or self.tokens.get(name, "")
        headers = {"authorization": f"Bearer {token}"} if token else {}
        return TestClient(self.application, base_url=ADDRESS, headers=headers, follow_redirects=False)

    def browser(self, name: str) -> TestClient:
        """Return a browser in which a user is logged in, and that sends the token of forms."""
        client = self.client()
        form = form_token_of(client.get("/login").text)
        assert client.post("/login", data={"csrf_token": form, "token": self.tokens[name]}).status_code == 303
        client.headers["x-csrf-token"] = form
        return client


def form_token_of(page: str) -> str:
    return page.partition('name="csrf_token" value="')[2].partition('"')[0]


@pytest.fixture
def service(workspace: Any, tmp_path: Path) -> Service:
    return Service(workspace, tmp_path)


def test_programs_add_change_and_remove_users(service: Service) -> None:
    eve = service.client("Eve")
    new = {"name": "Bob", "right": "none", "matters": {"smith": "judge"}}
    added = eve.post("/api/users", json=new)
    assert added.status_code == 201
    bob = service.client(token=added.json()["token"])
    assert bob.get("/api/topics").status_code == 403
    assert eve.post("/api/users", json=new).status_code == 409
    changed = eve.patch("/api/users/Bob", json={"right": "read", "matters": {"smith": None, "jones": "judge"}}).json()
    assert (changed["right"], changed["matters"]) == ("read", {"jones": "judge"})
    assert bob.get("/api/topics").status_code == 200  # at once
    assert bob.post("/api/topics", json={"text": "dogs"}).status_code == 403
    listed = eve.get("/api/users").json()
    assert [user["name"] for user in listed["users"]] == ["Ada", "Bob", "Eve"]
    token = eve.post("/api/users/Bob/token").json()["token"]
    assert bob.get("/api/topics").status_code == 401
    bob = service.client(token=token)
    assert bob.get("/api/topics").status_code == 200
    assert eve.delete("/api/users/Bob").json() == {"n_ended": 0}
    assert bob.get("/api/topics").status_code == 401
    assert eve.get("/api/users/Bob").status_code == 404
    assert eve.delete("/api/users/Eve").status_code == 409  # the last administrator
    assert eve.patch("/api/users/Eve", json={"right": "judge"}).status_code == 409


@pytest.mark.parametrize(
    "new", [{"name": ".."}, {"name": "a/b"}, {"name": " "}, {"name": "x", "matters": {"a/b": "read"}}]
)
def test_wrong_users_are_refused(service: Service, new: Any) -> None:
    assert service.client("Eve").post("/api/users", json=new).status_code in (409, 422)
    assert sorted(UsersFile(service.path).by_name()) == ["Ada", "Eve"]


def test_a_link_logs_a_user_in_once_while_a_removed_user_is_logged_out(service: Service) -> None:
    eve = service.client("Eve")
    link = eve.post("/api/users/Ada/link", json={"hours": 1}).json()["address"]
    assert link.startswith(f"{ADDRESS}/login?link=")
    browser = service.client()
    form = form_token_of(browser.get(link).text)
    data = {"csrf_token": form, "link": link.partition("link=")[2]}
    assert browser.post("/login", data=data).status_code == 303
    assert browser.get("/topics").status_code == 200
    assert service.client().get(link).status_code == 401
    assert eve.get("/api/users/Ada").json()["n_sessions"] == 1
    unused = eve.post("/api/users/Ada/link", json={}).json()["address"]
    assert eve.delete("/api/users/Ada").json() == {"n_ended": 1}
    assert browser.get("/api/topics").status_code == 401
    assert service.client().get(unused).status_code == 401


def test_a_user_sees_and_ends_own_sessions_only(service: Service) -> None:
    here, there, eve = service.browser("Ada"), service.browser("Ada"), service.browser("Eve")
    sessions = here.get("/api/sessions").json()["sessions"]
    assert [session["is_this"] for session in sessions].count(True) == 1
    number_of_eve = eve.get("/api/sessions").json()["sessions"][0]["number"]
    assert here.delete(f"/api/sessions/{number_of_eve}").status_code == 404
    (other,) = [session["number"] for session in sessions if not session["is_this"]]
    assert here.delete(f"/api/sessions/{other}").json() == {"n_ended": 1}
    assert there.get("/api/topics").status_code == 401
    page = here.get("/sessions").text
    assert page.count("this one") == 1
    assert here.post("/sessions", data={}).status_code == 303
    assert here.get("/api/topics").status_code == 401
    assert eve.get("/api/topics").status_code == 200


def test_another_site_ends_no_session(service: Service) -> None:
    browser = service.browser("Ada")
    del browser.headers["x-csrf-token"]
    for headers in ({"origin": "https://evil.example"}, {"sec-fetch-site": "cross-site"}):
        assert browser.delete("/api/sessions", headers=headers).status_code == 403
    assert browser.post("/sessions", data={}).status_code == 403
    assert browser.get("/api/topics").status_code == 200
    assert browser.delete("/api/sessions").status_code == 200  # a script of a page of the service


def test_pages_add_change_and_remove_users(service: Service) -> None:
    eve = service.browser("Eve")
    assert "/users" in eve.get("/topics").text
    page = eve.post("/users", data={"name": "Bob", "right": "none", "matters": "smith = judge\n\njones=read"})
    assert "Bob was added" in page.text
    (link,) = re.findall(r'id="address" value="([^"]+)"', page.text)
    assert 'id="token"' not in page.text
    assert service.client().get(link).status_code == 200
    assert UsersFile(service.path).by_name()["Bob"].matters == {"smith": "judge", "jones": "read"}
    again = eve.post("/users", data={"name": "Bob", "matters": "x=read"})
    assert again.status_code == 422
    assert "x=read" in again.text  # what was entered
    changed = eve.post("/user", data={"name": "Bob", "action": "rights", "right": "read", "matters": "smith=read"})
    assert changed.status_code == 200
    bob = UsersFile(service.path).by_name()["Bob"]
    assert (bob.default_right, bob.matters) == ("read", {"smith": "read"})
    assert eve.post("/user", data={"name": "Bob", "action": "rights", "matters": "smith"}).status_code == 422
    token = re.findall(r'id="token" value="([^"]+)"', eve.post("/user", data={"name": "Bob", "action": "token"}).text)[
        0
    ]
    assert service.client(token=token).get("/api/topics").status_code == 200
    ada = service.browser("Ada")
    assert eve.post("/user", data={"name": "Ada", "action": "end"}).status_code == 200
    assert ada.get("/api/topics").status_code == 401
    assert eve.post("/user", data={"name": "Bob", "action": "remove"}).headers["location"] == "/users"
    assert "Bob" not in eve.get("/users").text
    assert eve.get("/user?name=Bob").status_code == 404
    assert eve.post("/user", data={"name": "Eve", "action": "remove"}).status_code == 422


def test_only_administrators_of_the_service_see_users(service: Service, workspace: Any, tmp_path: Path) -> None:
    assert service.client().get("/users", headers={"accept": "text/html"}).status_code == 303
    assert service.client("Ada").get("/users").status_code == 403
    assert "/users" not in service.browser("Ada").get("/topics").text


def test_who_administers_one_matter_does_not_change_users(tmp_path: Path) -> None:
    from support.decisions import decisions

    from haybale import Engine, parse
    from haybale.review import JudgementStore
    from haybale.service import Workspace

    engine = Engine.build(decisions(6), tmp_path / "smith", language="english", encoder="tfidf(min_df=1)").prepare()
    with JudgementStore() as store:
        workspace = Workspace(engine, {"bm25": parse("bm25").fit(engine)}, store)
        service = Service(workspace, tmp_path)
        token = add_user(service.path, User("Bob", "none", {"smith": "administer"}))
        add_user(service.path, User("Cyd", "administer", {"smith": "none"}))
        service.access.users.look()  # type: ignore[union-attr]
        bob = service.client(token=str(token))
        assert bob.get("/api/deleted-topics").status_code == 200
        for method, path in (("GET", "/api/users"), ("POST", "/api/users"), ("GET", "/users"), ("POST", "/user")):
            assert bob.request(method, path).status_code == 403, path


def test_services_without_a_file_of_users_have_none_to_change(workspace: Any) -> None:
    for access in (Access(), Access(only_token("a token of everybody"))):
        client = TestClient(create_app(workspace, access), base_url=ADDRESS)
        headers = {"authorization": "Bearer a token of everybody"}
        for path in ("/api/users", "/api/sessions", "/users", "/sessions"):
            assert client.get(path, headers=headers).status_code == 404, path
        assert "/users" not in client.get("/topics", headers=headers).text


def test_a_monitor_reads_metrics_and_the_description_and_nothing_else(workspace: Any) -> None:
    users = Users([User("prometheus", "none", is_monitor=True, digest=digest_of("a token"))])
    application = create_app(workspace, Access(users))
    client = TestClient(application, base_url=ADDRESS, headers={"authorization": "Bearer a token"})
    for path in ("/metrics", "/openapi.json"):
        assert client.get(path).status_code == 200
    for route in application.routes:
        path, method = re.sub(r"\{[^}]*\}", "1", route.path), sorted(route.methods)[0]  # type: ignore[attr-defined]
        if route.right not in ("open", "none") and path not in ("/metrics", "/openapi.json"):  # type: ignore[attr-defined]
            answer = client.request(method, path)
            assert answer.status_code == 403, path
            assert workspace.engine.collection.name not in answer.text


def test_a_user_without_rights_learns_nothing_of_the_engine(workspace: Any) -> None:
    users = Users([User("Nan", "none", digest=digest_of("a token"))])
    headers = {"authorization": "Bearer a token", "accept": "text/html"}
    client = TestClient(create_app(workspace, Access(users)), base_url=ADDRESS, headers=headers)
    workspace.create_topic("a secret topic")
    for path in ("/", "/topics", "/topics/1", "/sessions", "/login", "/nowhere"):
        page = client.get(path).text
        assert "secret" not in page
        assert "documents" not in page
