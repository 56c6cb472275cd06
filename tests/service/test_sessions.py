"""Sessions of browsers: they survive a restart, and end with their time, on request, with the user, with the token."""

from __future__ import annotations

import json
import sqlite3
import stat
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx2
import pytest
from starlette.testclient import TestClient
from support.decisions import decisions
from support.served import Served

from haybale import Engine
from haybale.errors import InputError, StoreError
from haybale.service import create_app
from haybale.service import security as security_module
from haybale.service.security import Access
from haybale.service.sessions import MAX_SECONDS, MAX_SESSIONS_PER_USER, Sessions, sessions_file_of
from haybale.service.users import User, Users, digest_of
from haybale.service.users_file import UsersFile, add_user, change_user, remove_user, renew_token

HOUR = 3600.0
ADA = User("Ada", "judge", digest=digest_of("token of Ada"))


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "users-sessions.sqlite"


def test_a_session_is_found_after_a_restart(path: Path, clock: Clock) -> None:
    before = Sessions(path, clock=clock)
    session = before.open(ADA, "Firefox")
    before.close()
    after = Sessions(path, clock=clock)
    found = after.find(session)
    assert found is not None
    assert (found.user, found.credential, found.browser) == ("Ada", ADA.digest, "Firefox")
    assert after.secret == before.secret
    assert after.find("another") is None


def test_the_file_has_no_session_and_is_for_its_owner_only(path: Path, clock: Clock) -> None:
    sessions = Sessions(path, clock=clock)
    session, link = sessions.open(ADA), sessions.make_link(ADA)[0]
    for file in path.parent.iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600, file
        assert session.encode() not in file.read_bytes()
        assert link.encode() not in file.read_bytes()


def test_a_session_ends_when_it_is_idle_and_at_the_latest_after_thirty_days(path: Path, clock: Clock) -> None:
    sessions, begun = Sessions(path, 12 * HOUR, clock), clock.now
    used, unused = sessions.open(ADA), sessions.open(ADA)
    clock.now += 12 * HOUR - 1
    assert sessions.find(used) is not None
    clock.now += 1
    assert sessions.find(unused) is None
    while clock.now + 11 * HOUR < begun + MAX_SECONDS:
        clock.now += 11 * HOUR
        assert sessions.find(used) is not None
    clock.now = begun + MAX_SECONDS
    assert sessions.find(used) is None
    assert sessions.of("Ada") == []


def test_when_a_session_was_used_is_written_once_a_minute(path: Path, clock: Clock) -> None:
    sessions = Sessions(path, clock=clock)
    session = sessions.open(ADA)
    are_written = []
    with closing(sqlite3.connect(path)) as other:
        for seconds in (1, 30, 28, 1, 1, 30):
            before = other.execute("PRAGMA data_version").fetchone()
            clock.now += seconds
            assert sessions.find(session) is not None
            are_written.append(other.execute("PRAGMA data_version").fetchone() != before)
    assert are_written == [False, False, False, True, False, False]


def test_a_full_disk_ends_no_session(path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    sessions = Sessions(path, clock=clock)
    session = sessions.open(ADA)
    clock.now += 100
    sessions._connection.execute("PRAGMA query_only = ON")  # writing fails, as on a full disk
    assert sessions.find(session) is not None
    with pytest.raises(StoreError, match="sessions"):
        sessions.open(ADA)


def test_a_user_has_so_many_sessions(path: Path, clock: Clock) -> None:
    sessions = Sessions(path, clock=clock)
    other = sessions.open(User("Eve", "judge"))
    opened = []
    for _ in range(MAX_SESSIONS_PER_USER + 2):
        clock.now += 1
        opened.append(sessions.open(ADA))
    assert [sessions.find(session) is not None for session in opened[:4]] == [False, False, True, True]
    assert len(sessions.of("Ada")) == MAX_SESSIONS_PER_USER
    assert sessions.find(other) is not None


def test_sessions_of_one_user_end_and_others_stay(path: Path, clock: Clock) -> None:
    sessions = Sessions(path, clock=clock)
    first, second, other = sessions.open(ADA), sessions.open(ADA), sessions.open(User("Eve", "judge"))
    number = sessions.of("Ada")[0].number
    assert sessions.end_of("Eve", number) == 0  # it is Ada's
    assert sessions.end_of("Ada", number) == 1
    assert [sessions.find(session) is not None for session in (first, second, other)] == [True, False, True]
    assert sessions.end_of("Ada") == 1
    assert sessions.of("Ada") == []
    assert sessions.find(other) is not None


def test_a_link_works_once_and_in_its_time(path: Path, clock: Clock) -> None:
    sessions = Sessions(path, clock=clock)
    link, late = sessions.make_link(ADA, HOUR)[0], sessions.make_link(ADA, HOUR)[0]
    assert sessions.user_of_link(link) == sessions.user_of_link(link, take=True) == ("Ada", ADA.digest)
    assert sessions.user_of_link(link) is None
    assert sessions.user_of_link(link, take=True) is None
    clock.now += HOUR
    assert sessions.user_of_link(late, take=True) is None


def test_a_damaged_file_is_named(path: Path, tmp_path: Path) -> None:
    path.write_bytes(b"no database" * 1000)
    later, folder = tmp_path / "later-sessions.sqlite", tmp_path / "folder-sessions.sqlite"
    with closing(sqlite3.connect(later)) as connection:
        connection.execute("PRAGMA user_version = 99")
    folder.mkdir()
    for damaged in (path, later, folder, tmp_path / "no" / "folder"):
        with pytest.raises(StoreError, match=damaged.name):
            Sessions(damaged)


def test_sessions_are_opened_and_ended_by_several_threads_and_processes(path: Path) -> None:
    """Each of two connections stands for a process."""
    first, second = Sessions(path), Sessions(path)

    def use(number: int) -> bool:
        session = first.open(User(f"u{number}", "judge"))
        is_there = second.find(session) is not None
        second.end(session)
        return is_there and first.find(session) is None

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(use, range(60)))


@pytest.fixture
def users(tmp_path: Path) -> Path:
    return tmp_path / "users.json"


def access_of(users: Path, clock: Clock) -> Access:
    return Access(UsersFile(users, clock), sessions=Sessions(sessions_file_of(users), clock=clock))


def test_a_session_ends_with_its_user_and_with_the_token(users: Path, clock: Clock) -> None:
    for name in ("Ada", "Bob", "Cyd"):
        add_user(users, User(name, "judge"))
    access = access_of(users, clock)
    assert access.users is not None
    sessions = {name: access.sessions.open(user) for name, user in access.users.by_name().items()}
    remove_user(users, "Ada")
    renew_token(users, "Bob")
    change_user(users, "Cyd", "read")
    clock.now += 1
    assert access.user_of_session(sessions["Ada"]) is None
    assert access.user_of_session(sessions["Bob"]) is None
    cyd = access.user_of_session(sessions["Cyd"])
    assert cyd is not None
    assert cyd.right == "read"
    add_user(users, User("Ada", "judge"))
    clock.now += 1
    assert access.user_of_session(sessions["Ada"]) is None  # another Ada


def test_the_file_is_looked_at_once_a_second(users: Path, clock: Clock) -> None:
    token = add_user(users, User("Ada", "judge"))
    file = UsersFile(users, clock)
    remove_user(users, "Ada")
    assert file.find(str(token)) is not None
    clock.now += 1
    assert file.find(str(token)) is None


DAMAGED = ["", "[]", '{"Ada": 1}', '{"Ada": {"right": "all"}}', '{"Ada": {"right": "read", "token": "sha256:é"}}', None]


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_file_leaves_the_users_as_they_are(
    users: Path, clock: Clock, damage: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    token = add_user(users, User("Ada", "judge"))
    file = UsersFile(users, clock)
    good = users.read_text()
    if damage is None:
        users.unlink()
    else:
        users.write_text(damage)
    for _ in range(3):
        clock.now += 1
        assert file.find(str(token)) is not None
    assert [record.levelname for record in caplog.records] == ["ERROR"]  # once
    users.write_text(good.replace("Ada", "Eve"))
    clock.now += 1
    assert list(file.by_name()) == ["Eve"]


def test_the_last_administrator_stays(users: Path) -> None:
    add_user(users, User("Ada", "administer"))
    add_user(users, User("Bob", "judge"))
    for change in (lambda: remove_user(users, "Ada"), lambda: change_user(users, "Ada", "judge")):
        with pytest.raises(InputError, match="administer"):
            change()
    change_user(users, "Bob", "administer")
    remove_user(users, "Ada")
    judges = users.with_name("judges.json")  # a file without administrators
    add_user(judges, User("Cyd", "judge"))
    remove_user(judges, "Cyd")
    assert UsersFile(judges).by_name() == {}


def test_files_of_earlier_versions_are_read(users: Path) -> None:
    entries = {name: {"role": role, "token": digest_of(name)} for name, role in (("Ada", "judge"), ("Eve", "admin"))}
    users.write_text(json.dumps(entries))
    file = UsersFile(users)
    assert {name: user.default_right for name, user in file.by_name().items()} == {"Ada": "judge", "Eve": "administer"}
    user = file.find("Ada")
    assert user is not None
    assert user.name == "Ada"


def test_rights_by_matter(users: Path) -> None:
    add_user(users, User("Ada", "none", {"smith": "judge", "jones": "read"}))
    user = UsersFile(users).by_name()["Ada"]
    assert [user.right_in(matter) for matter in ("smith", "jones", "other")] == ["judge", "read", "none"]
    change_user(users, "Ada", matters={"smith": None, "other": "administer"})
    user = UsersFile(users).by_name()["Ada"]
    assert [user.right_in(matter) for matter in ("smith", "jones", "other")] == ["none", "read", "administer"]
    assert not user.is_administrator  # of the service


def asked(workspace: Any, access: Access, **options: Any) -> TestClient:
    return TestClient(
        create_app(workspace, access), base_url="http://127.0.0.1:8000", follow_redirects=False, **options
    )


def form_token_of(page: str) -> str:
    return page.partition('name="csrf_token" value="')[2].partition('"')[0]


def test_a_link_opens_a_session_by_a_button(workspace: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(security_module, "_GUESS_SECONDS", 0.0)
    access = Access(Users([ADA]))
    link, _ = access.sessions.make_link(ADA)
    client = asked(workspace, access)
    for _ in range(2):  # a program that checks mail opens it first
        page = client.get(f"/login?link={link}")
        assert page.status_code == 200
        assert "Log in as Ada" in page.text
    assert client.get("/api/topics").status_code == 401
    given = {"csrf_token": form_token_of(page.text), "link": link}
    assert client.post("/login", data=given | {"csrf_token": "0" * 64}).status_code == 403
    assert client.post("/login", data=given).status_code == 303
    assert client.get("/api/topics").status_code == 200
    other = asked(workspace, access)
    assert other.get(f"/login?link={link}").status_code == 401
    given["csrf_token"] = form_token_of(other.get("/login").text)
    assert other.post("/login", data=given).status_code == 401
    assert "set-cookie" not in other.post("/login", data=given).headers


def test_another_login_in_a_browser_ends_the_session_before(workspace: Any) -> None:
    access = Access(Users([ADA]))
    client = asked(workspace, access)
    for _ in range(2):
        given = {"csrf_token": form_token_of(client.get("/login").text), "token": "token of Ada"}
        assert client.post("/login", data=given).status_code == 303
    assert len(access.sessions.of("Ada")) == 1


@pytest.mark.thorough
def test_a_browser_stays_logged_in_over_a_restart_of_the_service(tmp_path: Path, users: Path) -> None:
    """Over real processes, one of which is killed: the session, and the form of a page that was open."""
    Engine.build(decisions(8), tmp_path / "engine", language="english", encoder="tfidf(min_df=1)").prepare()
    token = add_user(users, User("Ada", "judge"))
    with Served(tmp_path / "engine", "--users", str(users)) as served, httpx2.Client() as browser:
        page = browser.get(f"{served.address}/login").text
        form = {"csrf_token": form_token_of(page)}
        assert browser.post(f"{served.address}/login", data=form | {"token": token}).status_code == 303
        kept = dict(browser.cookies)
        served.kill()
    with Served(tmp_path / "engine", "--users", str(users)) as served, httpx2.Client(cookies=kept) as browser:
        assert browser.post(f"{served.address}/topics", data=form | {"text": "dogs"}).status_code == 303
        assert len(browser.get(f"{served.address}/api/topics").json()["topics"]) == 1
        remove_user(users, "Ada")
        time.sleep(1.1)  # the file is looked at once a second
        assert browser.get(f"{served.address}/api/topics").status_code == 401
