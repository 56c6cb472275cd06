"""Test atomic writing of files and folders."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from haybale.errors import InputError, OutputExistsError
from haybale.folders import check_file, check_output, new_json, replace_json, whole_file, whole_folder


def test_a_folder_appears_when_it_is_complete(tmp_path: Path) -> None:
    target = tmp_path / "a/b"
    with whole_folder(target) as aside:
        (aside / "file").write_text("x")
        assert not target.exists()
    assert [path.name for path in target.iterdir()] == ["file"]
    for existing in (target, target / "file"):
        with pytest.raises(OutputExistsError, match=existing.name):
            check_output(existing)
    with pytest.raises(KeyError), whole_folder(tmp_path / "c") as aside:  # noqa: PT012
        (aside / "file").write_text("x")
        raise KeyError
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_file_is_replaced_when_the_new_one_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "new/file"
    with whole_file(path) as file:
        file.write("old \ud800\n")
    assert path.read_text() == "old \\ud800\n"
    with pytest.raises(KeyError), whole_file(path) as file:  # noqa: PT012
        file.write("new")
        raise KeyError
    with pytest.raises(TypeError):
        replace_json(path, object())
    assert path.read_text() == "old \\ud800\n"
    replace_json(path, {"ü": 1})
    assert path.read_text(encoding="utf-8") == '{\n  "ü": 1\n}\n'
    with pytest.raises(OutputExistsError, match="file"):
        new_json(path, {})
    assert [each.name for each in path.parent.iterdir()] == ["file"]


def test_the_first_of_two_writers_to_finish_wins(tmp_path: Path) -> None:
    target = tmp_path / "folder"
    (tmp_path / f".folder.{os.getpid()}").mkdir()  # left behind by a killed process
    with pytest.raises(OutputExistsError, match="folder"), whole_folder(target) as slow:  # noqa: PT012
        (slow / "file").write_text("slow")
        with whole_folder(target) as fast:
            (fast / "file").write_text("fast")
    assert (target / "file").read_text() == "fast"
    assert not slow.exists()


def test_links_are_followed_and_kept(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("old")
    for name in ("folder", "file"):
        (tmp_path / f"to {name}").symlink_to(name)
    check_output(tmp_path / "to folder")
    with whole_folder(tmp_path / "to folder") as aside:
        (aside / "new").touch()
    check_file(tmp_path / "to file")
    with whole_file(tmp_path / "to file") as file:
        file.write("new")
    assert [path.name for path in (tmp_path / "folder").iterdir()] == ["new"]
    assert (tmp_path / "file").read_text() == "new"
    assert all((tmp_path / f"to {name}").is_symlink() for name in ("folder", "file"))


def test_paths_that_cannot_be_replaced_are_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in (Path("/dev/null"), tmp_path):
        with pytest.raises(InputError, match=str(path)):
            check_file(path)
    monkeypatch.setattr("os.path.ismount", lambda path: True)
    with pytest.raises(InputError, match="mount"):
        check_output(tmp_path)
