"""The file of users: nobody is lost when several are added at once, and its mode, owner and link stay."""

import json
import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from haybale.errors import HaybaleError
from haybale.folders import replace_json, replaced, whole_file
from haybale.service.users import User
from haybale.service.users_file import UsersFile, add_user


def mode_of(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_users_who_are_added_at_once_are_all_kept(tmp_path):
    """Six processes add a user each, as six haybale add-user do."""
    path = tmp_path / "users.json"
    code = "import sys, pathlib; from haybale.service.users import User; "
    code += "from haybale.service.users_file import add_user; input(); "
    code += "print(add_user(pathlib.Path(sys.argv[1]), User(sys.argv[2], 'judge')))"
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(path), f"u{n}"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for n in range(6)
    ]
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()
    tokens = [process.communicate()[0].strip() for process in processes]
    users = UsersFile(path)
    assert [users.find(token).name for token in tokens] == [f"u{n}" for n in range(6)]


def test_threads_add_users_at_once(tmp_path):
    path = tmp_path / "users.json"
    with ThreadPoolExecutor(8) as threads:
        tokens = list(threads.map(lambda n: add_user(path, User(f"u{n}", "judge")), range(40)))
    users = UsersFile(path)
    assert all(users.find(token) for token in tokens)
    assert [each.name for each in tmp_path.iterdir()] == ["users.json"]


def test_a_new_file_of_users_is_only_for_its_owner(tmp_path):
    old = os.umask(0)
    try:
        add_user(tmp_path / "users.json", User("Ada", "judge"))
    finally:
        os.umask(old)
    assert mode_of(tmp_path / "users.json") == 0o600


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664, 0o644, 0o400, 0o660])
@pytest.mark.parametrize("umask", [0, 0o22, 0o77])
def test_a_file_that_is_written_again_keeps_its_mode(tmp_path, mode, umask):
    """The law for every file that haybale replaces, by each way in which it does."""
    users, text, values, other = (tmp_path / name for name in ("users.json", "text", "values.json", "other"))
    add_user(users, User("Ada", "judge"))
    for path in (text, values, other):
        path.write_text("old")
    for path in (users, text, values, other):
        path.chmod(mode)
    old = os.umask(umask)
    try:
        add_user(users, User("Eve", "administer"))
        with whole_file(text) as file:
            assert mode_of(next(tmp_path.glob(".text.*"))) & ~mode & 0o077 == 0
            file.write("new")
        replace_json(values, {"new": 1})
        with replaced(other) as aside:
            aside.unlink()
            aside.write_text("new")
    finally:
        os.umask(old)
    assert [mode_of(path) for path in (users, text, values, other)] == [mode] * 4
    assert other.read_text() == "new"


def test_a_file_keeps_its_owner_and_group(tmp_path, monkeypatch):
    path, owned = tmp_path / "users.json", []
    add_user(path, User("Ada", "judge"))
    if os.geteuid() == 0:
        os.chown(path, 1234, 2345)
        add_user(path, User("Eve", "judge"))
        assert (path.stat().st_uid, path.stat().st_gid) == (1234, 2345)
        return
    monkeypatch.setattr(os, "chown", lambda *given: owned.append(given))
    add_user(path, User("Eve", "judge"))
    assert not owned  # it is the same


def test_a_link_to_the_file_of_users_stays_a_link(tmp_path):
    (tmp_path / "etc").mkdir()
    target, link = tmp_path / "etc" / "users.json", tmp_path / "users.json"
    link.symlink_to("etc/users.json")
    add_user(link, User("Ada", "judge"))
    target.chmod(0o640)
    add_user(link, User("Eve", "administer"))
    assert link.is_symlink()
    assert set(json.loads(target.read_text())) == {"Ada", "Eve"}
    assert mode_of(target) == 0o640


def test_a_damaged_file_of_users_is_not_written(tmp_path):
    path = tmp_path / "users.json"
    for content in ("", "[]", "{", '{"Ada": '):
        path.write_text(content)
        with pytest.raises(HaybaleError, match=r"users\.json"):
            add_user(path, User("Eve", "judge"))
        assert path.read_text() == content
    with pytest.raises(HaybaleError, match="cannot be written"):
        add_user(path / "below", User("Eve", "judge"))
