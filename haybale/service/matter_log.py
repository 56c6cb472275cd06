"""The log of a matter: who searched, opened, judged, exported and trained what, and when, in a chain of lines."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from haybale.errors import InputError
from haybale.review.store_file import now, utc_now
from haybale.service.acting_user import acting_user
from haybale.service.log_chain import CUT, ORIGIN, LogCheck, LogHead, check_lines, digest_of_line, line_of
from haybale.service.matter_store import MatterFile, MatterStore
from haybale.service.request_errors import NotFoundError

ACTIONS = ("search", "list", "open", "judge", "export", "train", "mail", "log", CUT)
MAX_DAYS = 36_500  # for which lines can be kept
_CUT_SECONDS = 3600.0  # between two looks whether lines are too old
_LINES_PER_READ = 1000
_FORGET_STATES = (  # the states of documents that no line and no look refers to
    "DELETE FROM states WHERE digest NOT IN (SELECT state FROM watches) AND digest NOT IN "
    "(SELECT value FROM log, json_each(log.line) WHERE json_each.key IN ('documents', 'documents_before'))"
)
_LAST = "SELECT number, line FROM log ORDER BY number DESC LIMIT 1"


@dataclass(frozen=True)
class LogEntry:
    """A line of the log.

    Parameters
    ----------
    number : int
    time : str
        ISO 8601, in UTC.
    user : str
        Who did it; empty where there are no users, and for the command line.
    action : str
        What was done: one of :data:`ACTIONS`.
    details : dict
        More about it, as the line has it.
    line : str
        The line itself, as it is exported.
    """

    number: int
    time: str
    user: str
    action: str
    details: dict[str, Any]
    line: str


@dataclass(frozen=True)
class LogSettings:
    """Whether a log is on, and for how many days lines are kept; None for ever."""

    is_on: bool
    keep_days: int | None


class MatterLog:
    """The log of an engine's service. It is off until an administrator turns it on, and says so itself.

    A line is written before what it is about is answered, and survives the end of the process. If it cannot be written,
    StoreError is raised, and nothing is answered. Several threads and processes may write at once.

    Parameters
    ----------
    file : MatterFile

    Examples
    --------
    >>> from haybale import Engine
    >>> engine = Engine({"a": "Dogs bark."}, language="english", encoder="tfidf(min_df=1)")
    >>> log = MatterLog(MatterFile(engine, None))
    >>> log.change(is_on=True, user="Eve")
    >>> log.record("open", {"doc_id": "a"}, user="Ada")
    >>> [(entry.user, entry.action) for entry in log.entries()], log.check().is_whole
    ([('Ada', 'open'), ('Eve', 'log')], True)
    """

    def __init__(self, file: MatterFile) -> None:
        self._file, self._lock = file, threading.Lock()
        self._next_cut = 0.0  # by time.monotonic

    @property
    def settings(self) -> LogSettings:
        """Whether the log is on, and how long lines are kept."""
        if not self._file.exists:
            return LogSettings(False, None)
        ((is_on, keep_days),) = self._file.store.rows("SELECT is_on, keep_days FROM log_settings")
        return LogSettings(bool(is_on), keep_days)

    @property
    def is_on(self) -> bool:
        """Whether what is done is logged."""
        return self.settings.is_on

    def begin(self, is_on: bool | None = None) -> None:
        """Turn the log on or off when a service begins, if it is said; StoreError if it is that of another engine."""
        if self._file.exists:
            _ = self._file.store
        self.change(is_on=is_on, user="")

    def change(self, *, is_on: bool | None = None, keep_days: int | None = None, user: str | None = None) -> None:
        """Turn the log on or off, or say for how many days lines are kept; the log says who did it.

        Parameters
        ----------
        is_on : bool, optional
            Default: as it is.
        keep_days : int, optional
            Older lines are cut, within an hour. 0 keeps all lines. Default: as it is.
        user : str, optional
            Default: the user of the request.
        """
        if keep_days is not None and not 0 <= keep_days <= MAX_DAYS:
            raise InputError(f"keep_days must be 0 to {MAX_DAYS:,}, found {keep_days:,}; 0 keeps all lines")
        before = self.settings
        after = LogSettings(
            before.is_on if is_on is None else is_on, before.keep_days if keep_days is None else keep_days or None
        )
        if after == before:
            return
        with self._file.store.writing() as connection:
            connection.execute("UPDATE log_settings SET is_on = ?, keep_days = ?", [after.is_on, after.keep_days])
            _append(connection, "log", vars(after), acting_user() if user is None else user)
        self._next_cut = 0.0
        self.cut_old_lines()

    def record(self, action: str, details: Mapping[str, Any], user: str | None = None) -> None:
        """Write a line, if the log is on.

        Parameters
        ----------
        action : str
        details : mapping of str to object
            Values that JSON has.
        user : str, optional
            Default: the user of the request.
        """
        if not self._file.exists:
            return
        with self._file.store.writing(on_disk=False) as connection:
            if connection.execute("SELECT is_on FROM log_settings").fetchone()[0]:
                _append(connection, action, details, acting_user() if user is None else user)
        self.cut_old_lines()

    def cut_old_lines(self) -> None:
        """Cut the lines that are older than lines are kept, if it is an hour since the last look; a line says so."""
        if time.monotonic() < self._next_cut or not self._file.exists:
            return
        with self._lock:
            self._next_cut = time.monotonic() + _CUT_SECONDS
            keep_days = self.settings.keep_days
            if keep_days is None:
                return
            end = (utc_now() - timedelta(days=keep_days)).isoformat(timespec="milliseconds")
            with self._file.store.writing() as connection:
                select = (
                    "SELECT coalesce((SELECT min(number) - 1 FROM log WHERE time >= ?), (SELECT max(number) FROM log))"
                )
                through = connection.execute(select, [end]).fetchone()[0]
                cut = connection.execute("SELECT line FROM log WHERE number = ?", [through]).fetchone()
                if cut is None:  # all lines are younger
                    return
                connection.execute("UPDATE log_settings SET cut_through = ?", [through])
                details = {"through": through, "digest": digest_of_line(cut[0]), "keep_days": keep_days}
                _append(connection, CUT, details, "")
                connection.execute("DELETE FROM log WHERE number <= ?", [through])
                connection.execute(_FORGET_STATES)

    def entries(
        self, offset: int = 0, limit: int = 100, user: str | None = None, action: str | None = None
    ) -> list[LogEntry]:
        """Return lines, the last one first; of one user or of one action, if these are given."""
        if not self._file.exists:
            return []
        where, values = _condition(user, action)
        select = f"SELECT line FROM log {where} ORDER BY number DESC LIMIT ? OFFSET ?"
        return [_entry(line) for (line,) in self._file.store.rows(select, *values, limit, offset)]

    def n_entries(self, user: str | None = None, action: str | None = None) -> int:
        """Return the number of lines that :meth:`entries` has."""
        if not self._file.exists:
            return 0
        where, values = _condition(user, action)
        return int(self._file.store.rows(f"SELECT count(*) FROM log {where}", *values)[0][0])

    def users(self) -> list[str]:
        """Return the names that lines have, sorted."""
        if not self._file.exists:
            return []
        return [name for (name,) in self._file.store.rows("SELECT DISTINCT user FROM log ORDER BY user")]

    def entry(self, number: int) -> LogEntry:
        """Return a line; NotFoundError for a number that there is not, or not any more."""
        select = "SELECT line FROM log WHERE number = ?"
        rows = self._file.store.rows(select, number) if self._file.exists else []
        if not rows:
            raise NotFoundError(f"expected the number of a line of the log, found {number}; see the list of lines")
        return _entry(rows[0][0])

    def lines(self) -> Iterator[str]:
        """Return all lines in their order, as they are exported."""
        return stored_lines(self._file.store) if self._file.exists else iter(())

    @property
    def head(self) -> LogHead:
        """The number and the SHA-256 of the last line, to be kept where nobody who can write the log can."""
        rows = self._file.store.rows(_LAST) if self._file.exists else []
        return LogHead(rows[0][0], digest_of_line(rows[0][1])) if rows else LogHead(0, ORIGIN)

    def check(self, heads: Iterable[LogHead] = ()) -> LogCheck:
        """Check that no line was changed or removed (:func:`~haybale.service.log_chain.check_lines`)."""
        return check_lines(self.lines(), heads)


def stored_lines(store: MatterStore) -> Iterator[str]:
    """Yield the lines of the log of a store in their order."""
    number = 0
    while rows := store.rows(
        "SELECT number, line FROM log WHERE number > ? ORDER BY number LIMIT ?", number, _LINES_PER_READ
    ):
        yield from (line for _, line in rows)
        number = rows[-1][0]


def _append(connection: sqlite3.Connection, action: str, details: Mapping[str, Any], user: str) -> None:
    """Write a line after the last one, in the caller's transaction."""
    last = connection.execute(_LAST).fetchone()
    number, before = (0, ORIGIN) if last is None else (last[0], digest_of_line(last[1]))
    line = line_of(number + 1, now(), user.encode("utf-8", "replace").decode(), action, details, before)
    connection.execute("INSERT INTO log (number, line) VALUES (?, ?)", [number + 1, line])


def _condition(user: str | None, action: str | None) -> tuple[str, list[str]]:
    values = {"user": user, "action": action}
    chosen = {name: value for name, value in values.items() if value is not None}
    conditions = " AND ".join(f"{name} = ?" for name in chosen)
    return (f"WHERE {conditions}" if chosen else ""), list(chosen.values())


def _entry(line: str) -> LogEntry:
    details = json.loads(line)
    number, written_at, user, action = (details.pop(name, "") for name in ("number", "time", "user", "action"))
    details.pop("before", None)
    return LogEntry(number, written_at, user, action, details, line)
