"""Sessions of browsers, links that open one, and the secret of form tokens, in an SQLite file beside the users.

The file has digests of sessions and links, never what opens one. Only its owner can read it.
"""

from __future__ import annotations

import hashlib
import logging
import os
import secrets
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from haybale.errors import StoreError
from haybale.service.users import User

IDLE_SECONDS = 12 * 3600.0  # after the last request, by default
MAX_SECONDS = 30 * 24 * 3600  # from the login
LINK_SECONDS = 24 * 3600.0  # in which a link opens a session, by default
MAX_SESSIONS_PER_USER = 50
_WRITE_SECONDS = 60.0  # between two notes of when a session was last seen
_BUSY_SECONDS = 2.0  # to wait for another process that writes
_VERSION = 1  # of the tables
_TABLES = """
CREATE TABLE sessions (
    id INTEGER PRIMARY KEY AUTOINCREMENT, digest TEXT NOT NULL UNIQUE, user TEXT NOT NULL, credential TEXT NOT NULL,
    browser TEXT NOT NULL, begun REAL NOT NULL, seen REAL NOT NULL
);
CREATE INDEX sessions_of_users ON sessions (user);
CREATE TABLE links (digest TEXT PRIMARY KEY, user TEXT NOT NULL, credential TEXT NOT NULL, expires REAL NOT NULL);
CREATE TABLE secrets (name TEXT PRIMARY KEY, value BLOB NOT NULL);
"""
_LOGGER = logging.getLogger("haybale.service")


def sessions_file_of(users: Path) -> Path:
    """Return the file of the sessions of a file of users, beside it where links lead.

    >>> sessions_file_of(Path("cases/users.json")).name
    'users-sessions.sqlite'
    """
    real = Path(os.path.realpath(users))
    return real.with_name(f"{real.stem}-sessions.sqlite")


def end_sessions_in(users: Path, name: str) -> int:
    """End all sessions of a user, and links that open one; return how many ended. Without a file, there are none."""
    path = sessions_file_of(users)
    if not path.exists():
        return 0
    with closing(Sessions(path, MAX_SECONDS)) as sessions:
        return sessions.end_of(name)


@dataclass(frozen=True)
class Session:
    """A session of a browser.

    Parameters
    ----------
    number : int
    user : str
    credential : str
        The digest of the user's token when the session began; it ends when the user has another one.
    browser : str
        What the browser says that it is.
    begun, seen : float
        When it began, and when it was last used, to the minute, in Unix time.
    """

    number: int
    user: str
    credential: str
    browser: str
    begun: float
    seen: float


class Sessions:
    """The sessions of a service. Several threads and processes may use one file at once.

    Parameters
    ----------
    path : Path, optional
        The file. Default: in memory.
    idle_seconds : float, default 43,200
        A session ends when it was not used for this long.
    clock : callable, default time.time
        Returns the time in seconds.

    Raises
    ------
    StoreError
        If the file cannot be read or written.
    """

    def __init__(
        self,
        path: Path | None = None,
        idle_seconds: float = IDLE_SECONDS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.path, self.idle_seconds, self._clock = path, idle_seconds, clock
        self._lock = threading.Lock()
        with self._errors():
            if path is not None:
                _make_private(path)
            self._connection = sqlite3.connect(
                path or ":memory:", timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
            )
            weakref.finalize(self, self._connection.close)
            self._connection.execute("PRAGMA journal_mode = WAL")
            with self._writing() as run:
                version = run("PRAGMA user_version").fetchone()[0]
                if version not in (0, _VERSION):
                    raise sqlite3.DatabaseError(f"expected tables of version {_VERSION}, found {version}")
                if version == 0:
                    for statement in _TABLES.split(";"):
                        run(statement)
                    run("INSERT INTO secrets VALUES ('form tokens', ?)", [secrets.token_bytes(32)])
                    run(f"PRAGMA user_version = {_VERSION}")
            self.secret: bytes = self._connection.execute("SELECT value FROM secrets").fetchone()[0]

    def open(self, user: User, browser: str = "") -> str:
        """Begin a session, and return what its cookie has; the oldest of more than 50 sessions of a user ends."""
        session, now = secrets.token_urlsafe(32), self._clock()
        self.remove_ended()
        with self._writing() as run:
            values = [_digest(session), user.name, user.digest, browser[:200], now, now]
            run(
                "INSERT INTO sessions (digest, user, credential, browser, begun, seen) VALUES (?, ?, ?, ?, ?, ?)",
                values,
            )
            run(
                "DELETE FROM sessions WHERE user = ? AND id NOT IN "
                "(SELECT id FROM sessions WHERE user = ? ORDER BY seen DESC, id DESC LIMIT ?)",
                [user.name, user.name, MAX_SESSIONS_PER_USER],
            )
        return session

    def find(self, session: str) -> Session | None:
        """Return a session that has not ended, by what its cookie has, and note that it was used."""
        rows = self._read("digest = ?", [_digest(session)])
        if not rows or self._has_ended(rows[0]):
            return None
        if self._clock() - rows[0].seen >= _WRITE_SECONDS:
            try:
                with self._writing() as run:
                    run("UPDATE sessions SET seen = ? WHERE id = ?", [self._clock(), rows[0].number])
            except StoreError as error:  # a full disk; the session goes on until its idle time is over
                _LOGGER.warning("when a session was last used cannot be noted: %s", error)
        return rows[0]

    def of(self, user: str) -> list[Session]:
        """Return the sessions of a user that have not ended, the last used one first."""
        rows = self._read("user = ? ORDER BY seen DESC, id DESC", [user])
        return [session for session in rows if not self._has_ended(session)]

    def end(self, session: str) -> None:
        """End a session, by what its cookie has."""
        with self._writing() as run:
            run("DELETE FROM sessions WHERE digest = ?", [_digest(session)])

    def end_of(self, user: str, number: int | None = None) -> int:
        """End one session of a user, or all, and return how many ended; links to open one end with all of them."""
        with self._writing() as run:
            if number is not None:
                return run("DELETE FROM sessions WHERE user = ? AND id = ?", [user, number]).rowcount
            run("DELETE FROM links WHERE user = ?", [user])
            return run("DELETE FROM sessions WHERE user = ?", [user]).rowcount

    def make_link(self, user: User, seconds: float = LINK_SECONDS) -> tuple[str, float]:
        """Return what a link has that opens one session of a user, once, and until when, in Unix time."""
        link, end = secrets.token_urlsafe(32), self._clock() + seconds
        with self._writing() as run:
            run("INSERT INTO links VALUES (?, ?, ?, ?)", [_digest(link), user.name, user.digest, end])
        return link, end

    def user_of_link(self, link: str, take: bool = False) -> tuple[str, str] | None:
        """Return the name and the credential of the user for whom a link was made; None if its time is over.

        With ``take``, the link is used now, and cannot be used again.
        """
        where, values = "digest = ? AND expires > ?", [_digest(link), self._clock()]
        with self._writing() if take else self._reading() as run:
            row = run(f"SELECT user, credential FROM links WHERE {where}", values).fetchone()
            if take:
                run(f"DELETE FROM links WHERE {where}", values)
        return None if row is None else (row[0], row[1])

    def remove_ended(self) -> None:
        """Remove sessions and links whose time is over."""
        now = self._clock()
        with self._writing() as run:
            run("DELETE FROM sessions WHERE seen <= ? OR begun <= ?", [now - self.idle_seconds, now - MAX_SECONDS])
            run("DELETE FROM links WHERE expires <= ?", [now])

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()

    def _has_ended(self, session: Session) -> bool:
        now = self._clock()
        return now - session.seen >= self.idle_seconds or now - session.begun >= MAX_SECONDS

    def _read(self, where: str, values: list[object]) -> list[Session]:
        with self._reading() as run:
            select = f"SELECT id, user, credential, browser, begun, seen FROM sessions WHERE {where}"
            return [Session(*row) for row in run(select, values)]

    @contextmanager
    def _reading(self) -> Iterator[Callable[..., sqlite3.Cursor]]:
        with self._lock, self._errors():
            yield self._connection.execute

    @contextmanager
    def _writing(self) -> Iterator[Callable[..., sqlite3.Cursor]]:
        """Yield what runs a statement in one transaction."""
        with self._lock, self._errors():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection.execute
                self._connection.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    self._connection.execute("ROLLBACK")
                raise

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Raise StoreError in place of errors of SQLite and of the system."""
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            if isinstance(error, StoreError):
                raise
            raise StoreError(
                f"{self.path}: sessions cannot be kept there: {error}; correct it, or remove the file, so that "
                "everybody logs in again"
            ) from None


def _digest(session: str) -> str:
    return hashlib.sha256(session.encode("utf-8", "surrogatepass")).hexdigest()


def _make_private(path: Path) -> None:
    """Make a file that only its owner can read; SQLite gives its own files beside it the same mode."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))
    with suppress(PermissionError):
        path.chmod(0o600)
