"""An SQLite file that belongs to one engine, and that threads and processes read and write at once.

A call that writes returns when its rows are written, so a process that is killed loses nothing that it has
acknowledged. With ``PRAGMA synchronous = FULL``, they are on disk then, too.
"""

from __future__ import annotations

import sqlite3
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar, Self

from haybale.errors import InputError, StoreError
from haybale.folders import check_new_file, replaced
from haybale.review.left_log import closed, opening
from haybale.review.store_format import StoreFormat
from haybale.review.store_owner import Owner

_WRITE_TIMEOUT_SECONDS = 60.0  # how long to wait for another process that is writing


class StoreFile:
    """An SQLite file of the format that a subclass declares, or such a database in memory.

    Threads may share a store, and several processes may open one file. Use it in a ``with`` statement, or call
    :meth:`close`.

    Parameters
    ----------
    path : str or Path, optional
        The file, which is made if it does not exist. Default: in memory.
    read_only : bool, default False
        Whether only to read an existing file.

    Raises
    ------
    StoreError
        If the file is of another format, is damaged, was written by another version, or cannot be written.
    """

    store_format: ClassVar[StoreFormat]

    def __init__(self, path: str | Path | None = None, *, read_only: bool = False) -> None:
        self.path = None if path is None else Path(path)
        self._lock, self._is_closed = threading.RLock(), False
        with self._errors():
            if self.path is not None and not read_only:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            with nullcontext() if self.path is None else opening(self.path, self.store_format):
                self._connect(read_only)
        self._let_go = weakref.finalize(self, closed, self.path or Path()) if self.path is not None else None

    def _connect(self, read_only: bool) -> None:
        how = "?mode=ro" if read_only else ""
        self._connection = sqlite3.connect(
            ":memory:" if self.path is None else f"{self.path.absolute().as_uri()}{how}",
            uri=self.path is not None,
            timeout=_WRITE_TIMEOUT_SECONDS,
            isolation_level=None,  # transactions begin where the code says so
            check_same_thread=False,
        )
        try:
            self._set_up(read_only)
        except BaseException:
            self._connection.close()
            raise

    def _set_up(self, read_only: bool) -> None:
        run = self._connection.execute
        run("PRAGMA foreign_keys = ON")
        run("BEGIN")  # all three queries see one moment, while other processes make the store
        application, version = run("PRAGMA application_id").fetchone()[0], run("PRAGMA user_version").fetchone()[0]
        is_empty = not run("SELECT count(*) FROM sqlite_schema").fetchone()[0]
        run("COMMIT")
        kind = self.store_format
        if application != kind.application and not (is_empty and application == 0):
            raise StoreError(f"{self.path}: expected a {kind.name}, found another database; give another path")
        is_new = is_empty and version == 0 and not read_only
        if version != kind.version and version not in kind.upgradable and not is_new:
            raise StoreError(
                f"{self.path}: expected version {kind.version} of the store, found {version}; use the version of "
                "haybale that wrote it, and export what it holds with that version"
            )
        if read_only:
            if version != kind.version:
                self._read_upgraded_copy()
            return
        self._use_wal()
        self._synchronise(True)
        if is_empty:
            with self._writing():
                if run("PRAGMA user_version").fetchone()[0] == 0:  # otherwise another process was faster
                    kind.create(self._connection)
                    run(f"PRAGMA application_id = {kind.application}")
                    run(f"PRAGMA user_version = {kind.version}")
        elif version != kind.version:
            with self._writing():
                kind.upgrade(self._connection)

    def _read_upgraded_copy(self) -> None:
        """Read a copy in memory that has the tables of today; the file of an older version stays as it is."""
        with closing(self._connection) as file:
            self._connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
            file.backup(self._connection)
        self.store_format.upgrade(self._connection)

    def _synchronise(self, is_full: bool) -> None:
        """Say whether a row is on disk before the call returns; otherwise the system writes it within seconds."""
        self._connection.execute(f"PRAGMA synchronous = {'FULL' if is_full else 'NORMAL'}")

    def checkpoint(self) -> None:
        """Move what is in the write-ahead log to the file, while others write, so that no write has to wait for it."""
        if self.path is not None:
            # A full disk, or a damaged file, is noticed by the next write.
            with suppress(sqlite3.Error), closing(sqlite3.connect(self.path)) as connection:
                connection.execute("PRAGMA wal_checkpoint(PASSIVE)")

    def _use_wal(self) -> None:
        """Switch to a write-ahead log, for which SQLite itself does not wait while other processes open the file."""
        end = time.monotonic() + _WRITE_TIMEOUT_SECONDS
        while True:
            try:
                self._connection.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > end:
                    raise
            time.sleep(0.01)

    @property
    def owner(self) -> Owner | None:
        """The engine that the store belongs to; None before the store is first used with an engine."""
        with self._errors():
            return self._owner()

    def _owner(self) -> Owner | None:
        select = "SELECT identity, folder, time FROM engines ORDER BY id DESC LIMIT 1"
        row = self._connection.execute(select).fetchone()
        return None if row is None else Owner(*row)

    def set_owner(self, identity: str, folder: str | None, before: Owner | None) -> bool:
        """Bind the store to an engine, if its owner is still ``before``; return whether it was bound.

        :func:`~haybale.review.engine_of_judgements.bind` says when a store may be bound.
        """
        with self._errors(), self._writing():
            if self._owner() != before:
                return False
            values = (identity, folder, now())
            self._connection.execute("INSERT INTO engines (identity, folder, time) VALUES (?, ?, ?)", values)
        return True

    def backup(self, path: str | Path) -> None:
        """Write a copy of one moment to a new file, while others read and write the store.

        Parameters
        ----------
        path : str or Path
            An existing file raises :class:`~haybale.OutputExistsError`. The copy appears when it is complete.
        """
        path = Path(path)
        check_new_file(path)
        with self._errors(), replaced(path) as aside, closing(sqlite3.connect(aside, isolation_level=None)) as copy:
            self._connection.backup(copy)
            copy.execute("UPDATE store SET id = lower(hex(randomblob(16)))")  # another file, with its own log

    def close(self) -> None:
        """Close the file. What is in memory only is lost."""
        with self._lock:
            self._is_closed = True
            self._connection.close()
            if self._let_go is not None:
                self._let_go()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({'in memory' if self.path is None else str(self.path)!r})"

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Hold a transaction in which no other process writes; it is on disk at the end, or undone after an error."""
        run, n_changes = self._connection.execute, self._connection.total_changes
        run("BEGIN IMMEDIATE")
        try:
            yield
            if self._connection.total_changes != n_changes:
                run("UPDATE store SET writes = writes + 1")
            run("COMMIT")
        except BaseException:
            if self._connection.in_transaction:
                run("ROLLBACK")
            raise

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Let one thread use the connection, and turn errors of SQLite into those of haybale."""
        with self._lock:
            if self._is_closed:
                raise StoreError(
                    f"{self.path}: expected an open {self.store_format.name}, found a closed one; open it again"
                )
            try:
                yield
            except sqlite3.IntegrityError as error:
                if "undoes" in str(error):
                    raise InputError(f"expected a judgement that counts, found one that was undone ({error})") from None
                raise StoreError(
                    f"{self.path}: the row must meet the conditions of the store ({error}); check its values"
                ) from error
            except (sqlite3.Error, OSError) as error:
                if isinstance(error, StoreError):
                    raise
                raise StoreError(
                    f"{self.path}: could not be used as a {self.store_format.name} ({error}); check that it is one, "
                    "and that its disk can be written"
                ) from error


def utc_now() -> datetime:
    """Return the time, in UTC."""
    return datetime.now(UTC)


def now() -> str:
    """Return the time as stores have it: ISO 8601, in UTC."""
    return utc_now().isoformat(timespec="milliseconds")
