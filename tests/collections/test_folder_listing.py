"""A folder has only files of its own, each once; what cannot be read is listed, and stops nothing."""

from __future__ import annotations

import json
import os
import shutil
import socket
import stat
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from haybale import Engine, InputError
from haybale.collections.folder_listing import list_files
from haybale.collections.readers.files import read_files, read_single_files, read_some_files
from haybale.engine.update import record_files, signatures, update

NOBODY = 65534


@pytest.fixture
def docs() -> Iterator[Path]:
    """A folder that every user can read, unlike those of ``tmp_path``."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o777)
        folder = Path(name, "docs")
        (folder / "sub").mkdir(parents=True)
        (folder / "a.txt").write_text("about land")
        (folder / "sub" / "b.txt").write_text("about taxes")
        yield folder


def as_nobody(call: Callable[[], Any]) -> Any:
    """Return what a function returns in a process without the rights of root; its values must be those of JSON."""
    readable, writable = os.pipe()
    child = os.fork()
    if not child:
        try:
            if os.geteuid() == 0:
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            content = json.dumps(call())
        except BaseException as error:
            content = json.dumps({"error": repr(error)})
        os.write(writable, content.encode())
        os._exit(0)
    os.close(writable)
    with os.fdopen(readable) as pipe:
        content = pipe.read()
    os.waitpid(child, 0)
    return json.loads(content)


def documents(source: Path) -> list[Any]:
    collection = read_files(source)
    return [sorted(collection.doc_ids.to_pylist()), [part.file for part in collection.unread]]


def own(folder: Path) -> None:
    for path in (folder, *folder.rglob("*")):
        os.chown(path, NOBODY, NOBODY, follow_symlinks=False)


def test_files_without_permission_are_listed(docs: Path, tmp_path: Path) -> None:
    read_files(docs)  # loads the modules that another user may not read
    (docs / "closed").mkdir()
    (docs / "closed" / "x.txt").write_text("x")
    (docs / "secret.txt").write_text("secret")
    own(docs)
    (docs / "secret.txt").chmod(0)
    (docs / "closed").chmod(0)
    assert as_nobody(lambda: documents(docs)) == [["a.txt", "sub/b.txt"], ["closed", "secret.txt"]]
    names = as_nobody(lambda: {name: value[2] for name, value in signatures(docs).items()})
    assert sorted(names) == ["a.txt", "secret.txt", "sub/b.txt"]
    assert names["secret.txt"] == ""


def test_an_update_without_permission(docs: Path) -> None:
    """Documents of a folder that cannot be listed any more stay; a file that cannot be read is tried again."""
    (docs / "closed").mkdir()
    (docs / "closed" / "x.txt").write_text("x is here")
    (docs / "secret.txt").write_text("a secret")
    own(docs)
    (docs / "secret.txt").chmod(0)
    out = docs.with_name("engine")

    def indexed() -> Any:
        before = signatures(docs)
        collection = read_files(docs)
        engine = Engine.build(collection, out, language="english", encoder="tfidf(min_df=1)")
        record_files(engine, before, docs)
        return sorted(engine.whole.doc_ids.to_pylist())

    def updated() -> Any:
        engine = Engine.open(out)
        found = update(engine, docs)
        return [found.n_added, found.n_replaced, found.n_removed, sorted(part.file for part in engine.unread)]

    Engine(read_files(docs / "a.txt"), language="english", encoder="tfidf(min_df=1)")
    Engine.build({"a": "some text"}, docs.with_name("other"))
    assert as_nobody(indexed) == ["a.txt", "closed/x.txt", "sub/b.txt"]
    (docs / "closed").chmod(0)
    (docs / "new.txt").write_text("a new file")
    (docs / "new.txt").chmod(0o644)
    assert as_nobody(updated) == [1, 0, 0, ["closed", "secret.txt"]]
    (docs / "closed").chmod(0o755)
    (docs / "secret.txt").chmod(0o644)
    assert as_nobody(updated) == [1, 0, 0, []]
    assert as_nobody(updated) == [0, 0, 0, []]


def test_links(docs: Path) -> None:
    outside = docs.with_name("outside")
    outside.mkdir()
    (outside / "o.txt").write_text("outside")
    (docs / ".hidden").write_text("a hidden file about stones")
    (docs / "blob").write_text("a text about birds")
    for name, target in {
        "out.txt": outside / "o.txt",
        "relative.txt": "../outside/o.txt",
        "outdir": outside,
        "dangling.txt": "nowhere",
        "twice.txt": "a.txt",
        "sub/loop": "..",
        "itself.txt": "itself.txt",
        "metadata.csv": outside / "o.txt",
        "device.txt": "/dev/zero",
        "named.txt": "blob",
        "shown.txt": ".hidden",
    }.items():
        (docs / name).symlink_to(target)
    found, skipped = documents(docs)
    assert found == ["a.txt", "named.txt", "shown.txt", "sub/b.txt"]
    assert set(skipped) == {
        *("out.txt", "relative.txt", "outdir", "dangling.txt", "twice.txt", "sub/loop", "itself.txt", "device.txt"),
        *("metadata.csv", "blob"),
    }
    link = docs.with_name("link")
    link.symlink_to(docs)
    assert documents(link) == [found, skipped]
    assert documents(outside / "o.txt")[0] == ["o.txt"]


def test_links_that_appear_before_an_update(docs: Path, tmp_path: Path) -> None:
    collection = read_files(docs)
    engine = Engine.build(collection, tmp_path / "engine", encoder="tfidf(min_df=1)")
    record_files(engine, signatures(docs), docs)
    (docs.with_name("o.txt")).write_text("outside")
    (docs / "out.txt").symlink_to("../o.txt")
    (docs / "metadata.csv").symlink_to("../o.txt")
    for _ in range(2):
        found = update(engine, docs)
        assert found[:3] == (0, 0, 0)
        assert [part.file for part in engine.unread] == ["out.txt"]
    with pytest.raises(InputError):
        update(engine, docs, strict=True)
    (docs / "out.txt").unlink()
    update(engine, docs)
    assert engine.unread == []


@pytest.mark.parametrize("name", ["pipe.txt", "pipe.zip", "socket.txt", "metadata.csv"])
def test_pipes_and_sockets_are_not_waited_for(name: str, docs: Path) -> None:
    if name.startswith("socket"):
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(docs / name))
    else:
        os.mkfifo(docs / name)
    assert documents(docs)[0] == ["a.txt", "sub/b.txt"]
    assert read_single_files([docs / name])[0] is None


def test_a_file_that_vanishes_while_it_is_read(docs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listing = list_files(docs)
    (docs / "a.txt").unlink()
    monkeypatch.setattr("haybale.collections.readers.files.list_files", lambda source: listing)
    monkeypatch.setattr("haybale.engine.update.list_files", lambda source: listing)
    assert documents(docs) == [["sub/b.txt"], ["a.txt"]]
    assert list(signatures(docs)) == ["sub/b.txt"]


def test_names_that_are_not_utf_8(docs: Path) -> None:
    with open(os.fsencode(docs) + b"/\xff.txt", "w") as file:
        file.write("a text")
    found, skipped = documents(docs)
    assert (found, len(skipped)) == (["a.txt", "sub/b.txt"], 1)
    assert skipped[0].isascii()
    json.dumps(signatures(docs), ensure_ascii=False).encode()


def test_zip_files_with_links_and_names_outside(docs: Path) -> None:
    with zipfile.ZipFile(docs / "old.zip", "w") as archive:
        for name in ("../up.txt", "/etc/root.txt", "in/../../up.txt", "C:\\windows.txt", "good.txt"):
            archive.writestr(name, f"a text of {name}")
        link = zipfile.ZipInfo("link.txt")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(link, "/etc/passwd")
    found, skipped = documents(docs)
    assert found == ["a.txt", "old.zip/good.txt", "sub/b.txt"]
    assert len(skipped) == 5


def test_a_folder_that_cannot_be_listed(docs: Path) -> None:
    own(docs)
    docs.chmod(0)
    assert "InputError" in as_nobody(lambda: documents(docs))["error"]
    docs.chmod(0o755)
    shutil.rmtree(docs / "sub")
    (docs / "a.txt").unlink()
    assert read_some_files(docs) == (None, [])
