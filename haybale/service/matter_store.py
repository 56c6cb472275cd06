"""Keep what a team does with one engine, beside its judgements: saved searches, what was seen of them, and the log."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from haybale.engine import Engine
from haybale.engine.earlier_documents import DocumentsState, DocumentStates
from haybale.errors import StoreError
from haybale.review.engine_of_judgements import place_of
from haybale.review.left_log import unused
from haybale.review.store_file import StoreFile, now
from haybale.review.store_format import STORE_TABLES, StoreFormat, run_script

# states: documents that an engine had, by their digests. searches: saved searches. watches: how far a user has seen the
# hits of a search, on the page, by a feed or by mail. hits: what a feed has listed, and what was mailed. log_settings:
# whether the log is on, for how many days lines are kept, and the last line that was cut. log: its lines; each has the
# SHA-256 of the one before.
_TABLES = f"""
    {STORE_TABLES}
    CREATE TABLE states (digest TEXT PRIMARY KEY, value TEXT NOT NULL, time TEXT NOT NULL);
    CREATE TABLE searches (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        name TEXT NOT NULL,
        owner TEXT NOT NULL,
        is_shared INTEGER NOT NULL,
        query TEXT NOT NULL,
        time TEXT NOT NULL,
        UNIQUE (owner, name)
    );
    CREATE TABLE watches (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        search INTEGER NOT NULL REFERENCES searches (id) ON DELETE CASCADE,
        user TEXT NOT NULL,
        kind TEXT NOT NULL CHECK (kind IN ('page', 'feed', 'mail')),
        address TEXT,
        state TEXT NOT NULL REFERENCES states (digest),
        texts TEXT NOT NULL,
        time TEXT NOT NULL,
        UNIQUE (search, user, kind)
    );
    CREATE UNIQUE INDEX feeds_by_token ON watches (address) WHERE kind = 'feed';
    CREATE TABLE hits (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        watch INTEGER NOT NULL REFERENCES watches (id) ON DELETE CASCADE,
        text TEXT NOT NULL,
        value TEXT NOT NULL,
        time TEXT NOT NULL,
        UNIQUE (watch, text)
    );
    CREATE TABLE log_settings (is_on INTEGER NOT NULL, keep_days INTEGER, cut_through INTEGER NOT NULL);
    INSERT INTO log_settings VALUES (0, NULL, 0);
    CREATE TABLE log (
        number INTEGER PRIMARY KEY,
        line TEXT NOT NULL,
        time TEXT AS (json_extract(line, '$.time')),
        user TEXT AS (json_extract(line, '$.user')),
        action TEXT AS (json_extract(line, '$.action'))
    );
    CREATE INDEX log_by_time ON log (time);
    CREATE TRIGGER log_stays BEFORE UPDATE ON log BEGIN SELECT RAISE(ABORT, 'lines of the log never change'); END;
    CREATE TRIGGER log_remains BEFORE DELETE ON log
    WHEN OLD.number > (SELECT cut_through FROM log_settings)
    BEGIN SELECT RAISE(ABORT, 'lines of the log are only cut at its beginning'); END;
"""


def _create(connection: sqlite3.Connection) -> None:
    run_script(connection, _TABLES)


MATTER = StoreFormat(
    name="store of saved searches",
    application=0x68617973,  # "hays"
    version=1,
    upgradable=(),
    create=_create,
    upgrade=lambda connection: None,
    permanent={"engines": "*"},
    whole="SELECT count(*) = coalesce(max(number) - (SELECT cut_through FROM log_settings), 0) FROM log",
)


_PAGES_BEFORE_CHECKPOINT = 10_000  # of the write-ahead log, unless the service checkpoints before


class MatterStore(StoreFile):
    """Saved searches and the log of one engine, in an SQLite file or in memory."""

    store_format = MATTER

    def _set_up(self, read_only: bool) -> None:
        super()._set_up(read_only)
        # Moving a short log to the file takes longer than a line of the log may cost a search.
        self._connection.execute(f"PRAGMA wal_autocheckpoint = {_PAGES_BEFORE_CHECKPOINT}")

    def bind(self, engine: Engine) -> None:
        """Bind a new store to an engine; raise StoreError if the store belongs to another engine.

        An engine that was built again in the same folder is another one, too: what was searched in the old one is shown
        to nobody before an administrator binds the store with ``haybale attach``.
        """
        owner = self.owner
        if owner is None and self.set_owner(engine.identity, place_of(engine), None):
            return
        owner = self.owner
        assert owner is not None
        if owner.identity != engine.identity:
            raise StoreError(
                f"{self.path or 'searches in memory'}: expected saved searches and the log of the engine in "
                f"{place_of(engine) or 'memory'}, found those of another engine, or of one that was there before; move "
                "the file away, or bind it to this engine with haybale attach ENGINE FILE"
            )

    @property
    def n_changes(self) -> int:
        """How many rows this object has changed."""
        return self._connection.total_changes

    def rows(self, select: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        with self._errors():
            return self._connection.execute(select, values).fetchall()

    @contextmanager
    def writing(self, on_disk: bool = True) -> Iterator[sqlite3.Connection]:
        """Yield the connection in a transaction, which is written when the block ends, or undone after an error.

        With ``on_disk``, it is on disk then; otherwise it survives the end of this process, not that of the machine.
        """
        with self._errors():
            if not on_disk:
                self._synchronise(False)
            try:
                with self._writing():
                    yield self._connection
            finally:
                if not on_disk:
                    self._synchronise(True)

    def keep_state(self, state: DocumentsState) -> str:
        """Keep a state of the documents, and return its digest."""
        if not self.rows("SELECT 1 FROM states WHERE digest = ?", state.digest):
            with self.writing() as connection:
                insert = "INSERT OR IGNORE INTO states (digest, value, time) VALUES (?, ?, ?)"
                connection.execute(insert, [state.digest, state.to_json(), now()])
        return state.digest

    def state(self, digest: str) -> DocumentsState | None:
        """Return a state of the documents; None for one that is not here, or was changed."""
        rows = self.rows("SELECT value FROM states WHERE digest = ?", digest)
        try:
            state = DocumentsState.from_json(rows[0][0]) if rows else None
        except (ValueError, KeyError, TypeError):
            return None
        return state if state is not None and state.digest == digest else None


class MatterFile:
    """The store of an engine, which is made or opened when it is first needed. Several threads may use it.

    Parameters
    ----------
    engine : Engine
    path : Path, optional
        Default: in memory.
    """

    def __init__(self, engine: Engine, path: Path | None) -> None:
        self.engine, self.path = engine, path
        self.states = DocumentStates(engine)
        self._lock = threading.Lock()
        self._store: MatterStore | None = None
        self._n_checkpointed = 0  # changes

    @property
    def exists(self) -> bool:
        """Whether there is anything to read."""
        return self._store is not None or (self.path is not None and self.path.exists())

    @property
    def store(self) -> MatterStore:
        """The store, bound to the engine; StoreError if the file belongs to another engine or cannot be used."""
        with self._lock:
            if self._store is None:
                store = MatterStore(self.path)
                try:
                    store.bind(self.engine)
                except BaseException:
                    store.close()
                    raise
                self._store = store
            return self._store

    def checkpoint(self) -> None:
        """Move what was written since the last call to the file (:meth:`StoreFile.checkpoint`), if there is any."""
        store = self._store
        if store is not None and store.n_changes != self._n_checkpointed:
            self._n_checkpointed = store.n_changes
            store.checkpoint()

    def close(self) -> None:
        """Close the file, if it was opened; it is opened again if it is needed."""
        with self._lock:
            if self._store is not None:
                self._store.close()
            self._store = None


def searches_file_of(judgements: Path) -> Path:
    """Return the file of saved searches and the log, which lies beside the file of judgements.

    >>> searches_file_of(Path("cases-judgements.sqlite")).name, searches_file_of(Path("a.sqlite")).name
    ('cases-judgements-searches.sqlite', 'a-searches.sqlite')
    """
    return judgements.with_name(f"{judgements.stem}-searches.sqlite")


def is_matter_store(path: Path) -> bool:
    """Return whether a file is a store of saved searches and a log, by SQLite's application id."""
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            return bool(connection.execute("PRAGMA application_id").fetchone()[0] == MATTER.application)
    except sqlite3.DatabaseError:
        return False


def attach_searches(path: Path, engine: Engine) -> None:
    """Bind a file of saved searches and its log to an engine, whichever it belonged to.

    Whoever uses the engine sees the shared searches then, and its administrators the log. StoreError is raised if the
    file is in use, or is no such file.
    """
    with unused(path):  # others, such as a service, know the engine that it belonged to
        pass
    with MatterStore(path) as store:
        store.set_owner(engine.identity, place_of(engine), store.owner)
