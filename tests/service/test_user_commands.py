"""The commands about users: what they write, and what the service that uses the files sees of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.commands import haybale

from haybale.errors import InputError
from haybale.service.commands.serve import serve
from haybale.service.security import Access
from haybale.service.sessions import Sessions, sessions_file_of
from haybale.service.users import User
from haybale.service.users_file import UsersFile, add_user


def run(*arguments: object) -> str:
    """Return what a command writes to stdout."""
    done = haybale(*map(str, arguments))
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_users_are_added_listed_changed_and_removed(tmp_path: Path) -> None:
    users = tmp_path / "users.json"
    token = run("add-user", users, "Ada", "--right", "none", "--matter", "smith=judge", "--matter", "a=b=read")
    assert run("add-user", users, "Eve", "--right", "administer", "--no-token") == ""
    run("add-user", users, "prometheus", "--right", "none", "--monitor")
    access = Access(UsersFile(users), sessions=Sessions(sessions_file_of(users)))
    assert access.users is not None
    ada = access.users.find(token)
    assert ada is not None
    assert dict(ada.matters) == {"smith": "judge", "a=b": "read"}
    address = run("login-link", users, "Eve", "--address", "https://search.example.org/cases/", "--hours", "2")
    assert address.startswith("https://search.example.org/cases/login?link=")
    eve = access.user_of_link(address.partition("link=")[2], take=True)
    assert eve is not None
    sessions = [access.sessions.open(ada), access.sessions.open(eve)]
    table = [line.split() for line in run("users", users).splitlines()]
    assert [row[0] for row in table] == ["user", "Ada", "Eve", "prometheus"]
    assert table[1][1:4] == ["none", "smith=judge,", "a=b=read"]
    changed = run(
        "change-user", users, "Ada", "--right", "read", "--without-matter", "smith", "--new-token", "--monitor"
    )
    file = UsersFile(users)
    found = file.find(changed)
    assert found is not None
    assert (found.name, found.default_right, dict(found.matters)) == ("Ada", "read", {"a=b": "read"})
    assert found.is_monitor
    assert file.find(token) is None
    assert [access.sessions.find(session) is not None for session in sessions] == [False, True]
    run("change-user", users, "Eve", "--end-sessions")
    assert access.sessions.find(sessions[1]) is None
    run("remove-user", users, "Ada")
    assert list(UsersFile(users).by_name()) == ["Eve", "prometheus"]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("add-user", "Eve"), "change-user"),
        (("add-user", "Bob", "--right", "all"), "administer"),
        (("add-user", "Bob", "--matter", "smith"), "MATTER=RIGHT"),
        (("add-user", "a/b"), "slash"),
        (("change-user", "Bob"), "Eve"),
        (("change-user", "Eve", "--right", "judge"), "administer"),
        (("remove-user", "Bob"), "Eve"),
        (("login-link", "Bob"), "Eve"),
    ],
)
def test_wrong_changes_are_refused(tmp_path: Path, arguments: tuple[str, ...], named: str) -> None:
    users = tmp_path / "users.json"
    add_user(users, User("Eve", "administer"))
    before = users.read_text()
    done = haybale(arguments[0], str(users), *arguments[1:])
    assert done.returncode == 2
    assert named in done.stderr
    assert users.read_text() == before


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"user_header": "X-User"}, "--proxy"),
        ({"user_header": "X-User", "proxy": ["127.0.0.1"], "new_users": "all"}, "administer"),
        ({"users": Path("nobody.json")}, "add-user"),
    ],
)
def test_wrong_options_of_the_service_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], named: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("nobody.json").write_text("{}")
    with pytest.raises(InputError, match=named):
        serve(tmp_path / "engine", **options)
