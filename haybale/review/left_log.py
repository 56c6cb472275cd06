"""Recognise a write-ahead log that a killed process has left, and that must not be replayed into a store's file.

SQLite keeps what was written last beside the file, in a log of the same name with ``-wal``, and replays it when the
file is opened next. It cannot know whether the log is of this file: after another file was moved to the name, such as a
backup, pages of both are mixed. Every transaction of a store therefore writes the row of its table ``store``: a random
id of the file, and a number that rises by one. A log is the file's own if its last state has the file's id, if it
begins where the file ends or before, and if nothing of the file is missing afterwards.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import sqlite3
import tempfile
import threading
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from haybale.errors import StoreError
from haybale.review.interrupted_restore import finish_restore
from haybale.review.store_format import StoreFormat

_WAL_HEAD, _FRAME_HEAD = 32, 24  # bytes
_SHARED_FIRST, _SHARED_SIZE = 0x40000002, 510  # the bytes of a file that connections of SQLite lock while they use it
_BYTES_PER_READ = 2**22

_LOCK = threading.RLock()
_OPEN: Counter[str] = Counter()  # the files that this process has open, by real path


@contextmanager
def opening(path: Path, store_format: StoreFormat) -> Iterator[None]:
    """Note that this process opens a file, after its log was checked; if the block fails, note that it did not.

    A restore of the file that was interrupted is finished first. Call :func:`closed` when the file is closed. The lock
    is held while the log is checked only.
    """
    real = os.path.realpath(path)
    finish_restore(path)
    with _LOCK:
        # Closing any descriptor of a file drops all locks that this process has on it, so a file in use is not touched.
        if not _OPEN[real]:
            _check_log(real, store_format)
        _OPEN[real] += 1
    try:
        yield
    except BaseException:
        closed(path)
        raise


def closed(path: Path) -> None:
    """Note that this process has closed a file."""
    with _LOCK:
        _OPEN[os.path.realpath(path)] -= 1


@contextmanager
def unused(path: Path) -> Iterator[int | None]:
    """Keep others from using a file in the block; raise StoreError if this or another process uses it.

    Yields its descriptor, or None if there is no such file.
    """
    real = os.path.realpath(path)
    with _LOCK:
        if _OPEN[real]:
            raise StoreError(f"{path}: expected a file that nobody uses, found it open in this process; close it first")
        with _locked(real) as descriptor:
            if descriptor is None and os.path.exists(real):
                if not os.access(real, os.R_OK | os.W_OK):
                    raise StoreError(
                        f"{path}: expected a file that can be written, found that it cannot; change its mode"
                    )
                raise StoreError(
                    f"{path}: expected a file that nobody uses, found that a process has it open, such as haybale "
                    "serve; end it first"
                )
            yield descriptor


@contextmanager
def _locked(real: str) -> Iterator[int | None]:
    """Lock a file as SQLite does for exclusive use; yield None if it does not exist, or another process uses it."""
    try:
        descriptor = os.open(real, os.O_RDWR)
    except OSError:
        yield None  # opening the store raises the error that says why
        return
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, _SHARED_SIZE, _SHARED_FIRST)
    except OSError:
        os.close(descriptor)
        yield None
        return
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _check_log(real: str, store_format: StoreFormat) -> None:
    """Set the log of a file that no process uses aside, with a warning, if it is not the file's own, or damaged."""
    log = Path(f"{real}-wal")
    if not os.path.exists(real) or _first_commit(log) is None:
        return
    with _locked(real) as descriptor:
        if descriptor is None:
            return  # another process uses it, and has checked the log
        with tempfile.TemporaryDirectory(prefix="haybale-") as folder:
            try:
                problem = _problem(descriptor, log, Path(folder), store_format)
            except OSError as error:
                raise StoreError(
                    f"{real}: its log could not be checked in {folder} ({error.strerror}); free space there, and open "
                    "it again"
                ) from error
        if problem:
            kept = set_aside_name(Path(real))
            kept = kept.with_name(f"{kept.name}-wal")
            os.replace(log, kept)
            with suppress(FileNotFoundError):
                os.unlink(f"{real}-shm")  # an index of the log, which SQLite makes anew
            warnings.warn(
                f"{real}: expected a log of this file, found {problem}; it was set aside as {kept.name}, not replayed; "
                "check that nothing is missing",
                stacklevel=5,
            )


def set_aside_name(path: Path) -> Path:
    """Return a new name for what was at a path, with the time."""
    base = f"{path.name}.{datetime.now(UTC):%Y%m%dT%H%M%S}"
    names = (f"{base}{f'-{number}' if number else ''}" for number in range(10**6))
    return path.with_name(next(name for name in names if not any(path.parent.glob(f"{glob_literal(name)}*"))))


def glob_literal(name: str) -> str:
    """Return a pattern that matches a name only."""
    return "".join(f"[{sign}]" if sign in "*?[" else sign for sign in name)


def _first_commit(log: Path) -> int | None:
    """Return where the first transaction of a log ends, in bytes; None if the log has none."""
    try:
        with open(log, "rb") as file:
            head = file.read(_WAL_HEAD)
            size = int.from_bytes(head[8:12], "big")
            size = 2**16 if size == 1 else size
            if len(head) < _WAL_HEAD or not 2**9 <= size <= 2**16:
                return None
            end = _WAL_HEAD
            while len(frame := file.read(_FRAME_HEAD)) == _FRAME_HEAD and frame[8:16] == head[16:24]:
                end += _FRAME_HEAD + size
                if len(file.read(size)) < size:
                    return None
                if any(frame[4:8]):  # the number of pages after the transaction, 0 within it
                    return end
    except FileNotFoundError:
        return None
    return None


class _Written(NamedTuple):
    """The id of a file and how often it was written; None and 0 if it has no tables."""

    id: str | None
    writes: int


def _problem(descriptor: int, log: Path, folder: Path, store_format: StoreFormat) -> str:
    """Return why a log must not be replayed into a file, judged by copies; an empty text if it may be.

    Raises StoreError if neither the file alone nor the file with its log is a whole store.
    """
    alone, both, begun = (folder / name for name in ("alone", "both", "begun"))
    for path in (alone, both, begun):
        _copy(descriptor, path)
    shutil.copyfile(log, f"{both}-wal")
    with open(log, "rb") as file, open(f"{begun}-wal", "wb") as prefix:
        prefix.write(file.read(_first_commit(log) or 0))
    is_whole, after = _is_whole(both, store_format), _written(both)
    before, first = _written(alone), _written(begun)
    is_whole_alone = _is_whole(alone, store_format) or _is_empty(alone)
    if not is_whole or after is None:
        if not is_whole_alone:
            raise StoreError(
                f"{str(log).removesuffix('-wal')}: expected a whole {store_format.name}, found a damaged one with and "
                "without its log; restore a backup"
            )
        return "one that is damaged, or of another file"
    if before is not None and before.id not in (None, after.id):
        return "one of another file"
    if is_whole_alone and before is not None:
        begins_at = before.writes if first is None else first.writes - 1
        if not begins_at <= before.writes <= after.writes or _lacks_rows(alone, both, store_format):
            return "one that does not continue it"
    return ""


def _copy(descriptor: int, path: Path) -> None:
    """Copy a file by its descriptor: a second one would drop the lock when it is closed."""
    os.lseek(descriptor, 0, os.SEEK_SET)
    with open(path, "wb") as out:
        while data := os.read(descriptor, _BYTES_PER_READ):
            out.write(data)


def _is_empty(path: Path) -> bool:
    """Return whether a file is a database without tables."""
    try:
        with closing(sqlite3.connect(path)) as connection:
            return not connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]
    except sqlite3.DatabaseError:
        return False


def _is_whole(path: Path, store_format: StoreFormat) -> bool:
    """Return whether a file is a store without damage, and without a gap in the numbers of its rows."""
    try:
        with closing(sqlite3.connect(path)) as connection:
            return is_whole_store(connection, store_format)
    except sqlite3.DatabaseError:
        return False


def is_whole_store(connection: sqlite3.Connection, store_format: StoreFormat) -> bool:
    """Return whether an open database is a store without damage, and without a gap in the numbers of its rows."""
    run = connection.execute
    try:
        is_of_format = run("PRAGMA application_id").fetchone()[0] == store_format.application
        if not is_of_format or run("PRAGMA foreign_key_check").fetchone():
            return False
        if run("PRAGMA integrity_check").fetchall() != [("ok",)]:
            return False
        return bool(run(store_format.whole).fetchone()[0])
    except sqlite3.DatabaseError:
        return False


def _written(path: Path) -> _Written | None:
    """Return the id of a file and how often it was written; None if the file cannot be read."""
    try:
        with closing(sqlite3.connect(path)) as connection:
            if not connection.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'store'").fetchone()[0]:
                return _Written(None, 0)
            row = connection.execute("SELECT id, writes FROM store").fetchone()
            return None if row is None else _Written(*row)
    except sqlite3.DatabaseError:
        return None


def _lacks_rows(before: Path, after: Path, store_format: StoreFormat) -> bool:
    """Return whether a store lacks permanent rows that it had before, or has changed ones."""
    with closing(sqlite3.connect(after)) as connection:
        connection.execute("ATTACH ? AS before", [str(before)])
        tables = {name for (name,) in connection.execute("SELECT name FROM before.sqlite_schema WHERE type = 'table'")}
        for table, columns in store_format.permanent.items():
            both = f"SELECT {columns} FROM before.{table} EXCEPT SELECT {columns} FROM main.{table}"
            if table in tables and connection.execute(f"SELECT count(*) FROM ({both})").fetchone()[0]:
                return True
    return False
