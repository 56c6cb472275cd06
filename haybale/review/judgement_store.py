"""Keep the judgements of topics in an SQLite file, in rows that are added and never changed.

A call that writes returns when its row is on disk, so a process that is killed loses nothing that it has acknowledged.
Several threads and processes may read and write one file at once.
"""

from __future__ import annotations

import json
import sqlite3
import threading
import time
import weakref
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from itertools import takewhile
from pathlib import Path
from typing import Any, Literal, get_args

from haybale.collections.ids import as_ids
from haybale.errors import InputError, StoreError, UnknownNameError
from haybale.folders import check_new_file, replaced
from haybale.review.left_log import closed, opening
from haybale.review.store_schema import UPGRADES, VERSION, create_tables, upgrade_tables

Kind = Literal["judged", "known", "skipped", "undone", "drawn", "reached"]
KINDS: tuple[str, ...] = get_args(Kind)
GRADED = ("judged", "known")  # kinds of rows with a grade
RESOLUTION = "resolution"  # among the details of a row that resolves a conflict: the judges who resolved it

APPLICATION = 0x68617962  # "hayb": SQLite's application id of these files
_WRITE_TIMEOUT_SECONDS = 60.0  # how long to wait for another process that is writing

# The document at which a row is now; a row that takes another one back is at the document of the other row.
_DOC_ID = (
    "coalesce((SELECT doc_id FROM moves WHERE judgement = coalesce(judgements.undoes, judgements.id) "
    "ORDER BY id DESC LIMIT 1), judgements.doc_id)"
)


@dataclass(frozen=True)
class Topic:
    """A topic of a store.

    Parameters
    ----------
    number : int
        Its number in the store.
    name, text : str
        The text is empty if the topic is given by known documents only.
    settings : dict
        The settings with which its review began, such as ``random_state``.
    time : str
        When it was added: ISO 8601, in UTC.
    """

    number: int
    name: str
    text: str
    settings: dict[str, Any]
    time: str


@dataclass(frozen=True)
class Judgement:
    """A row of a store: one thing that a judge did with one document of a topic.

    Parameters
    ----------
    doc_id : str
    kind : {"judged", "known", "skipped", "undone", "drawn", "reached"}
        ``"judged"`` in a review; ``"known"`` from the start; ``"skipped"``; ``"undone"``, which takes the row
        ``undoes`` back; ``"drawn"`` at random, to be judged; ``"reached"`` by the ranking after it was judged as part
        of a random sample.
    grade : int, optional
        0 for irrelevant, 1 or more for relevant. Only rows of the kinds ``"judged"`` and ``"known"`` have one.
    judge : str, default ""
        Who judged.
    seconds : float, optional
        How long it took.
    note : str, optional
        A remark of the judge.
    passage_id, passage : str, optional
        The passage that was shown: its id and its text.
    rank : int, optional
        The place among the documents that were not judged, from 1; None if the ranking did not propose the document.
    model : str, optional
        What ranked or chose the document.
    document : str, optional
        A digest of the document's text, by which a replaced document is recognised.
    undoes : int, optional
        The number of the row that this one takes back.
    details : mapping of str to object, default {}
        More about the row, as JSON has it.
    time : str
        When the row was added: ISO 8601, in UTC. The store sets it.
    number : int
        The number of the row, rising. The store sets it.
    """

    doc_id: str
    kind: Kind
    grade: int | None = None
    judge: str = ""
    seconds: float | None = None
    note: str | None = None
    passage_id: str | None = None
    passage: str | None = None
    rank: int | None = None
    model: str | None = None
    document: str | None = None
    undoes: int | None = None
    details: Mapping[str, Any] = field(default_factory=dict, hash=False)
    time: str = ""
    number: int = 0

    @property
    def is_resolution(self) -> bool:
        """Whether the row resolves a conflict between judges, rather than being a judgement of one of them."""
        return RESOLUTION in self.details

    @property
    def resolved_by(self) -> list[str]:
        """The judges who resolved a conflict; empty if the row is no resolution."""
        return [str(name) for name in self.details[RESOLUTION]["by"]] if self.is_resolution else []


@dataclass(frozen=True)
class TopicEvent:
    """Something that was decided about a topic as a whole, such as its criteria. The last of a kind counts.

    Parameters
    ----------
    kind : str
        What was decided.
    value : object
        The decision, as JSON has it.
    judge : str
        Who decided.
    time : str
        When: ISO 8601, in UTC.
    number : int
        The number of the event, rising.
    """

    kind: str
    value: Any
    judge: str
    time: str
    number: int


@dataclass(frozen=True)
class Owner:
    """The engine that the judgements of a store belong to.

    Parameters
    ----------
    identity : str
        Its :attr:`Engine.identity <haybale.Engine.identity>`.
    folder : str or None
        Its folder or address when it was bound to the store; None for an engine in memory.
    time : str
        When it was bound: ISO 8601, in UTC.
    """

    identity: str
    folder: str | None
    time: str


_ROW_COLUMNS = tuple(name for name in Judgement.__dataclass_fields__ if name != "number")


class JudgementStore:
    """Judgements of topics, in an SQLite file or in memory.

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
        If the file is not a store of judgements, is damaged, was written by another version, or cannot be written.

    Examples
    --------
    >>> with JudgementStore() as store:
    ...     topic = store.add_topic("leases", "When does a lease end?")
    ...     number = store.add(topic, Judgement("doc-7", "judged", grade=1, judge="Ada"))
    ...     [(row.doc_id, row.grade, row.judge) for row in store.judgements(topic)]
    [('doc-7', 1, 'Ada')]
    """

    def __init__(self, path: str | Path | None = None, *, read_only: bool = False) -> None:
        self.path = None if path is None else Path(path)
        self._lock, self._is_closed = threading.RLock(), False
        with self._errors():
            if self.path is not None and not read_only:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            with nullcontext() if self.path is None else opening(self.path, APPLICATION):
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
        if application != APPLICATION and not (is_empty and application == 0):
            raise StoreError(f"{self.path}: expected a store of judgements, found another database; give another path")
        if version != VERSION and version not in UPGRADES and not (is_empty and version == 0 and not read_only):
            raise StoreError(
                f"{self.path}: expected version {VERSION} of the store, found {version}; use the version of haybale "
                "that wrote it, and export its judgements with that version"
            )
        if read_only:
            if version != VERSION:
                self._read_upgraded_copy()
            return
        self._use_wal()
        run("PRAGMA synchronous = FULL")  # a row is on disk before the call returns
        if is_empty:
            with self._writing():
                if run("PRAGMA user_version").fetchone()[0] == 0:  # otherwise another process was faster
                    create_tables(self._connection)
                    run(f"PRAGMA application_id = {APPLICATION}")
                    run(f"PRAGMA user_version = {VERSION}")
        elif version != VERSION:
            with self._writing():
                upgrade_tables(self._connection)

    def _read_upgraded_copy(self) -> None:
        """Read a copy in memory that has the tables of today; the file of an older version stays as it is."""
        with closing(self._connection) as file:
            self._connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
            file.backup(self._connection)
        upgrade_tables(self._connection)

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
        """The engine that the judgements belong to; None before the store is first used with an engine."""
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
            values = (identity, folder, _now())
            self._connection.execute("INSERT INTO engines (identity, folder, time) VALUES (?, ?, ?)", values)
        return True

    def add_topic(self, name: str, text: str = "", settings: Mapping[str, Any] | None = None) -> Topic:
        """Add a topic, or return the one of that name.

        Parameters
        ----------
        name : str
        text : str, optional
            What is looked for.
        settings : mapping, optional
            Plain values that are kept with a new topic.

        Raises
        ------
        InputError
            If the name is empty, or the topic has another text.
        """
        as_ids([name, text], "name and text of a topic")
        if not name.strip():
            raise InputError(f"a topic needs a name, found {name!r}")
        with self._errors(), self._writing():
            topic = self._find(name)
            if topic is None:
                values = (name, text, json.dumps(dict(settings or {})), _now())
                self._connection.execute("INSERT INTO topics (name, text, settings, time) VALUES (?, ?, ?, ?)", values)
                topic = self._find(name)
        assert topic is not None
        if text and text != topic.text:
            alike = takewhile(lambda pair: pair[0] == pair[1], zip(topic.text, text, strict=False))
            start = max(0, sum(1 for _ in alike) - 40)  # long texts are shown where they differ
            raise InputError(
                f"topic {name!r} must keep its text {topic.text[start:]!r:.200}, found {text[start:]!r:.200}; omit the "
                "text, or choose another name"
            )
        return topic

    def _find(self, name: str) -> Topic | None:
        row = self._connection.execute(
            "SELECT id, name, text, settings, time FROM topics WHERE name = ?", [name]
        ).fetchone()
        return None if row is None else Topic(row[0], row[1], row[2], json.loads(row[3]), row[4])

    def topics(self) -> list[Topic]:
        """Return all topics, in the order in which they were added."""
        with self._errors():
            rows = self._connection.execute("SELECT id, name, text, settings, time FROM topics ORDER BY id").fetchall()
        return [Topic(number, name, text, json.loads(settings), time) for number, name, text, settings, time in rows]

    def topic(self, name: str) -> Topic:
        """Return the topic of that name; an unknown one raises :class:`~haybale.UnknownNameError`."""
        with self._errors():
            topic = self._find(name)
        if topic is None:
            raise UnknownNameError("topic", name, [stored_topic.name for stored_topic in self.topics()])
        return topic

    def add(self, topic: Topic, *rows: Judgement) -> list[int]:
        """Add rows, all or none, and return their numbers. They are on disk when this returns.

        Raises
        ------
        InputError
            If a row has a grade where its kind has none, lacks one, or takes back a row that was taken back already.
        StoreError
            If the file cannot be written.
        """
        for row in rows:
            _check(row)
        marks = ", ".join(["?"] * (len(_ROW_COLUMNS) + 1))
        insert = f"INSERT INTO judgements (topic, {', '.join(_ROW_COLUMNS)}) VALUES ({marks})"
        now, numbers = _now(), []
        with self._errors(), self._writing():
            for row in rows:
                values = asdict(row) | {"time": row.time or now, "details": _details_text(row)}
                done = self._connection.execute(insert, [topic.number, *(values[name] for name in _ROW_COLUMNS)])
                numbers.append(int(done.lastrowid or 0))
        return numbers

    def judgements(self, topic: Topic, after: int = 0) -> list[Judgement]:
        """Return the rows of a topic in the order in which they were added, each at the document where it is now.

        Parameters
        ----------
        topic : Topic
        after : int, default 0
            Only rows with higher numbers.
        """
        columns = ", ".join(_DOC_ID if name == "doc_id" else name for name in _ROW_COLUMNS)
        select = f"SELECT {columns}, id FROM judgements WHERE topic = ? AND id > ? ORDER BY id"
        with self._errors():
            rows = self._connection.execute(select, [topic.number, after]).fetchall()
        return [_judgement(dict(zip((*_ROW_COLUMNS, "number"), row, strict=True))) for row in rows]

    def record(self, topic: Topic, kind: str, value: Any, judge: str = "") -> int:
        """Keep what was decided about a topic as a whole, and return the number of the event. It is on disk then.

        Parameters
        ----------
        topic : Topic
        kind : str
        value : object
            Anything that JSON has.
        judge : str, default ""
        """
        as_ids([kind, judge], "kind and judge of an event")
        values = (topic.number, kind, json.dumps(value), judge, _now())
        insert = "INSERT INTO topic_events (topic, kind, value, judge, time) VALUES (?, ?, ?, ?, ?)"
        with self._errors(), self._writing():
            return int(self._connection.execute(insert, values).lastrowid or 0)

    def events(self, topic: Topic, kind: str | None = None, after: int = 0) -> list[TopicEvent]:
        """Return what was decided about a topic as a whole, in the order in which it was decided.

        Parameters
        ----------
        topic : Topic
        kind : str, optional
            Only events of this kind.
        after : int, default 0
            Only events with higher numbers.
        """
        select = "SELECT kind, value, judge, time, id FROM topic_events WHERE topic = ? AND id > ? ORDER BY id"
        with self._errors():
            rows = self._connection.execute(select, [topic.number, after]).fetchall()
        return [
            TopicEvent(name, json.loads(value), judge, time, number)
            for name, value, judge, time, number in rows
            if kind in (None, name)
        ]

    def n_rows(self) -> int:
        """Return the number of rows of all topics."""
        with self._errors():
            return int(self._connection.execute("SELECT count(*) FROM judgements").fetchone()[0])

    def move(self, rows: Mapping[int, str], documents: str | None = None, last: int = 0) -> None:
        """Move rows, given by their numbers, to other documents, because the text that was judged is there now.

        The rows themselves stay as they are; :meth:`judgements` returns them at their new documents.

        Parameters
        ----------
        rows : mapping of int to str
            The new document of each row.
        documents, last : str and int, optional
            The digest of the documents for which all rows up to the number ``last`` are at the right ones now, which
            :meth:`attached` returns. Default: not noted.
        """
        as_ids(rows.values(), "document ids")
        now = _now()
        if not rows and (documents is None or self.attached() == (documents, last)):
            return
        with self._errors(), self._writing():
            insert = "INSERT INTO moves (judgement, doc_id, time) VALUES (?, ?, ?)"
            self._connection.executemany(insert, [(number, doc_id, now) for number, doc_id in rows.items()])
            if documents is not None:
                insert = "INSERT INTO attachments (documents, last, time) VALUES (?, ?, ?)"
                self._connection.execute(insert, [documents, last, now])

    def moves(self, topic: Topic) -> list[tuple[str, str]]:
        """Return, for the rows of a topic that were moved, the document that was judged and the one where it is now."""
        select = (
            f"SELECT doc_id, {_DOC_ID} FROM judgements WHERE topic = ? AND grade IS NOT NULL "
            "AND id IN (SELECT judgement FROM moves) ORDER BY id"
        )
        with self._errors():
            return [(old, new) for old, new in self._connection.execute(select, [topic.number])]

    def last_move(self) -> int:
        """Return the number of the last move; 0 if no row was moved."""
        with self._errors():
            return int(self._connection.execute("SELECT coalesce(max(id), 0) FROM moves").fetchone()[0])

    def attached(self) -> tuple[str, int] | None:
        """Return the digest of documents and the number of a row that :meth:`move` noted last."""
        select = "SELECT documents, last FROM attachments ORDER BY id DESC LIMIT 1"
        with self._errors():
            row = self._connection.execute(select).fetchone()
        return None if row is None else (row[0], row[1])

    def last_row(self) -> int:
        """Return the number of the last row of all topics; 0 if there is none."""
        with self._errors():
            return int(self._connection.execute("SELECT coalesce(max(id), 0) FROM judgements").fetchone()[0])

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

    def __enter__(self) -> JudgementStore:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"JudgementStore({'in memory' if self.path is None else str(self.path)!r})"

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
                    f"{self.path}: expected an open store of judgements, found a closed one; open it again"
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
                    f"{self.path}: could not be used as a store of judgements ({error}); check that it is one, and "
                    "that its disk can be written"
                ) from error


def _details_text(row: Judgement) -> str | None:
    return json.dumps(dict(row.details), sort_keys=True) if row.details else None


def _judgement(values: dict[str, Any]) -> Judgement:
    details = values["details"]
    return Judgement(**values | {"details": json.loads(details) if details else {}})


def _check(row: Judgement) -> None:
    as_ids([row.doc_id, row.judge, row.note or ""], "document id, judge and note")
    if row.kind not in KINDS:
        raise UnknownNameError("kind of judgement", row.kind, KINDS)
    grade = row.grade
    if row.kind in GRADED:
        check_grade(grade)
    elif grade is not None:
        raise InputError(f"a row of the kind {row.kind!r} must have no grade, found {grade!r}")


def check_grade(grade: Any) -> int:
    """Return a grade as an integer; anything but a whole number from 0 raises :class:`~haybale.InputError`."""
    try:
        if isinstance(grade, str) or int(grade) != grade or not 0 <= grade < 2**31:
            raise ValueError
        return int(grade)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"a grade must be 0 for irrelevant, or 1 or more for relevant; found {grade!r}") from None


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")
