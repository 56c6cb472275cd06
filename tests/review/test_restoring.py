"""Backups that are restored, and logs that killed processes have left: nothing is mixed, and nothing is lost."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from support.commands import haybale as command

from haybale.errors import HaybaleError, InputError, StoreError
from haybale.review import Judgement, JudgementStore, restore

# Adds rows, says after each one that it was added, and waits for an answer.
WRITER = """
import sys
from haybale.review import Judgement, JudgementStore
store = JudgementStore(sys.argv[1])
topic = store.add_topic(sys.argv[2])
while sys.stdin.readline():
    number = store.n_rows()
    store.add(topic, Judgement(f"{sys.argv[2]}{number}", "judged", 1, note="n" * (number * 37 % 900)))
    print(number, flush=True)
"""


class Writer:
    """A process that adds rows to a store until it is killed."""

    def __init__(self, path: Path, topic: str = "dogs") -> None:
        how = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen([sys.executable, "-c", WRITER, str(path), topic], **how)  # type: ignore[call-overload]

    def add(self, n: int) -> None:
        """Add rows; they are on disk when this returns."""
        for _ in range(n):
            self.process.stdin.write("\n")
            self.process.stdin.flush()
            assert self.process.stdout.readline()

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate()


def rows_of(path: Path) -> list[tuple[str, str]]:
    """Return the document of each row by topic; a warning about a log is allowed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        store = JudgementStore(path)
    with store:
        return [(topic.name, row.doc_id) for topic in store.topics() for row in store.judgements(topic)]


def killed(
    folder: Path, n: int, topic: str = "dogs", backup_at: int | None = None
) -> tuple[Path, list[tuple[str, str]]]:
    """Return a file whose writer was killed, with its log beside it, and its rows."""
    folder.mkdir()
    path, writer = folder / "j.sqlite", Writer(folder / "j.sqlite", topic)
    writer.add(n if backup_at is None else backup_at)
    if backup_at is not None:
        with JudgementStore(path) as store:
            store.backup(folder / "bak.sqlite")
        writer.add(n - backup_at)
    writer.kill()
    assert (folder / "j.sqlite-wal").stat().st_size
    return path, [(topic, f"{topic}{number}") for number in range(n)]


def whole(path: Path) -> bool:
    import sqlite3
    from contextlib import closing

    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


@pytest.fixture(scope="module")
def killed_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two files whose writers were killed, and backups of both: copy the folders."""
    folder = tmp_path_factory.mktemp("killed")
    killed(folder / "dogs", 300, backup_at=40)
    killed(folder / "tax", 60, "tax", backup_at=20)
    return folder


def test_a_killed_writer_loses_nothing(killed_folder: Path, tmp_path: Path) -> None:
    for name, n in (("dogs", 300), ("tax", 60)):
        shutil.copytree(killed_folder / name, tmp_path / name)
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # its own log is no reason for a warning
            JudgementStore(tmp_path / name / "j.sqlite").close()
        assert rows_of(tmp_path / name / "j.sqlite") == [(name, f"{name}{number}") for number in range(n)]


def test_a_backup_that_is_moved_beside_a_left_log(killed_folder: Path, tmp_path: Path) -> None:
    shutil.copytree(killed_folder / "dogs", folder := tmp_path / "dogs")
    log = (folder / "j.sqlite-wal").read_bytes()
    os.replace(folder / "bak.sqlite", folder / "j.sqlite")
    with pytest.warns(UserWarning, match="set aside"):
        JudgementStore(folder / "j.sqlite").close()
    assert rows_of(folder / "j.sqlite") == [("dogs", f"dogs{number}") for number in range(40)]
    assert whole(folder / "j.sqlite")
    assert log in [path.read_bytes() for path in folder.glob("j.sqlite.*-wal")]


def test_the_log_of_another_file_is_not_replayed(killed_folder: Path, tmp_path: Path) -> None:
    """Two stores with equal pages: a log of one would put its judgements into the other."""
    shutil.copytree(killed_folder, tmp_path / "all")
    dogs, tax = tmp_path / "all" / "dogs", tmp_path / "all" / "tax"
    JudgementStore(tax / "j.sqlite").close()
    shutil.copy(dogs / "j.sqlite-wal", tax / "j.sqlite-wal")
    with pytest.warns(UserWarning, match="set aside"):
        JudgementStore(tax / "j.sqlite").close()
    assert rows_of(tax / "j.sqlite") == [("tax", f"tax{number}") for number in range(60)]


def test_restore_keeps_the_old_file_and_its_log(killed_folder: Path, tmp_path: Path) -> None:
    shutil.copytree(killed_folder / "dogs", folder := tmp_path / "dogs")
    done = command("restore", str(folder / "bak.sqlite"), str(folder / "j.sqlite"))
    assert done.returncode == 0, done.stderr
    assert rows_of(folder / "j.sqlite") == [("dogs", f"dogs{number}") for number in range(40)]
    (old,) = [path for path in folder.glob("j.sqlite.*") if not path.name.endswith(("-wal", "-shm"))]
    assert rows_of(old) == [("dogs", f"dogs{number}") for number in range(300)]
    assert rows_of(folder / "bak.sqlite") == rows_of(folder / "j.sqlite")
    assert not [path for path in folder.iterdir() if path.name.startswith(".")]
    again = restore(folder / "bak.sqlite", folder / "new" / "deep.sqlite")  # a file that does not exist
    assert again == (40, [])
    assert rows_of(folder / "new" / "deep.sqlite") == rows_of(folder / "bak.sqlite")


def test_restore_refuses(killed_folder: Path, tmp_path: Path) -> None:
    shutil.copytree(killed_folder / "dogs", folder := tmp_path / "dogs")
    path, backup = folder / "j.sqlite", folder / "bak.sqlite"
    before = rows_of(path)
    writer = Writer(path)
    writer.add(1)
    with pytest.raises(StoreError, match="uses"):
        restore(backup, path)
    writer.kill()
    with JudgementStore(path), pytest.raises(StoreError, match="uses"):
        restore(backup, path)
    rng = random.Random(0)
    data = bytearray(backup.read_bytes())
    for start in range(4096, len(data), 4096):
        data[start : start + 40] = rng.randbytes(40)
    (folder / "damaged.sqlite").write_bytes(data)
    (folder / "half.sqlite").write_bytes(backup.read_bytes()[: len(data) // 2])
    (folder / "text.sqlite").write_text("no database")
    (folder / "empty.sqlite").write_bytes(b"")
    for name in ("damaged", "half", "text", "empty"):
        with pytest.raises(StoreError):
            restore(folder / f"{name}.sqlite", path)
    for wrong in (folder / "none.sqlite", path, folder):
        with pytest.raises(InputError):
            restore(wrong, path)
    with pytest.raises(InputError):
        restore(backup, folder)
    assert rows_of(path) == [*before, ("dogs", "dogs300")]
    assert not list(folder.glob("j.sqlite.*"))


def test_a_store_that_a_service_uses_is_not_attached(tmp_path: Path) -> None:
    from haybale import Engine
    from haybale.review import attach

    writer = Writer(tmp_path / "j.sqlite")
    writer.add(1)
    with pytest.raises(StoreError, match="uses"):
        attach(tmp_path / "j.sqlite", Engine({"a": "Dogs bark."}, language="english"))
    writer.kill()


@pytest.mark.parametrize("seed", range(40))
def test_whatever_lies_beside_a_file_is_not_mixed_into_it(killed_folder: Path, tmp_path: Path, seed: int) -> None:
    """Law: a file with any log beside it opens with its own rows, those of its log, or an error; never with others."""
    rng, folder = random.Random(seed), tmp_path / "all"
    shutil.copytree(killed_folder, folder)
    name = rng.choice(("dogs", "tax"))
    path = folder / name / "j.sqlite"
    own, n = [(name, f"{name}{number}") for number in range(300)], {"dogs": 300, "tax": 60}[name]
    others = [folder / each / file for each in ("dogs", "tax") for file in ("j.sqlite", "bak.sqlite")]
    least, most = 0, n
    way = rng.randrange(6)
    log = path.with_name("j.sqlite-wal")
    if way == 0:  # a copy of a moment, moved over the file
        os.replace(path.with_name("bak.sqlite"), path)
        least = most = {"dogs": 40, "tax": 20}[name]
    elif way == 1:  # the log of another file
        JudgementStore(path).close()
        other = "tax" if name == "dogs" else "dogs"
        shutil.copy(folder / other / "j.sqlite-wal", log)
        least = n
    elif way == 2:  # a plain copy that went on, with the log of the original
        with JudgementStore(path) as store:
            store.add(store.topics()[0], *(Judgement(f"{name}{n + number}", "judged", 0) for number in range(9)))
        shutil.copy(killed_folder / name / "j.sqlite-wal", log)
        least = most = n + 9
    elif way == 3:  # a log that lacks its end, as after a power failure
        log.write_bytes(log.read_bytes()[: rng.randrange(log.stat().st_size)])
    elif way == 4:  # a damaged log
        data = bytearray(log.read_bytes())
        for _ in range(rng.randint(1, 5)):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        log.write_bytes(data)
    else:  # another file moved to the name, with or without the index of the log
        os.replace(moved := rng.choice([each for each in others if each != path and each.exists()]), path)
        name = moved.parent.name
        own, most = [(name, f"{name}{number}") for number in range(300)], {"dogs": 300, "tax": 60}[name]
    if rng.random() < 0.5:
        path.with_name("j.sqlite-shm").unlink(missing_ok=True)
    try:
        rows = rows_of(path)
    except HaybaleError:
        return
    assert least <= len(rows) <= most, way
    assert rows == own[: len(rows)] if way != 2 else len(rows) == most
    assert whole(path)
