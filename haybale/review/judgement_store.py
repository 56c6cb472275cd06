"""Keep the judgements of topics in an SQLite file, in rows that are added and never changed.

A call that writes returns when its row is on disk, so a process that is killed loses nothing that it has acknowledged.
Several threads and processes may read and write one file at once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import takewhile
from typing import Any, Literal, get_args

from haybale.collections.ids import as_id, as_ids
from haybale.errors import InputError, UnknownNameError
from haybale.review.grades import check_grade
from haybale.review.store_file import StoreFile, now
from haybale.review.store_format import StoreFormat
from haybale.review.store_schema import UPGRADES, VERSION, create_tables, upgrade_tables

Kind = Literal["judged", "known", "skipped", "undone", "drawn", "reached"]
KINDS: tuple[str, ...] = get_args(Kind)
GRADED = ("judged", "known")  # kinds of rows with a grade
_SHUT = {"deleted": "restore it first", "closed": "open it again first"}  # events that end judging, while they are true
RESOLUTION = "resolution"  # among the details of a row that resolves a conflict: the judges who resolved it

JUDGEMENTS = StoreFormat(
    name="store of judgements",
    application=0x68617962,  # "hayb"
    version=VERSION,
    upgradable=UPGRADES,
    create=create_tables,
    upgrade=upgrade_tables,
    permanent={"judgements": "*", "topics": "id, name, text, time", "engines": "*"},
    whole="SELECT count(*) = coalesce(max(id), 0) FROM judgements",
)

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


_ROW_COLUMNS = tuple(name for name in Judgement.__dataclass_fields__ if name != "number")


class JudgementStore(StoreFile):
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

    store_format = JUDGEMENTS
    on_added: Callable[[Topic, Sequence[Judgement], Sequence[int]], None] | None = None  # called after rows were added

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
                values = (name, text, json.dumps(dict(settings or {})), now())
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
        return next(iter(self._topics("WHERE name = ?", name)), None)

    def _topics(self, where: str, *values: Any) -> list[Topic]:
        select = f"SELECT id, name, text, settings, time FROM topics {where} ORDER BY id"
        with self._errors():
            rows = self._connection.execute(select, values).fetchall()
        return [Topic(number, name, text, json.loads(settings), time) for number, name, text, settings, time in rows]

    def topics(self) -> list[Topic]:
        """Return all topics, in the order in which they were added."""
        return self._topics("")

    def current(self, topic: Topic) -> Topic:
        """Return a topic with the name that it has now."""
        return self._topics("WHERE id = ?", topic.number)[0]

    def rename(self, topic: Topic, name: str, judge: str = "") -> None:
        """Give a topic another name, and note the former one; a name that another topic has raises InputError."""
        name = as_id(name, "name of a topic").strip()
        with self._errors(), self._writing():
            former, other = self.current(topic).name, self._find(name)
            if not name or (other is not None and other.number != topic.number):
                raise InputError(f"a topic needs a name that no other has, found {name!r}; choose another name")
            if name != former:
                self._connection.execute("UPDATE topics SET name = ? WHERE id = ?", [name, topic.number])
                self._add_event(topic, "renamed", {"from": former, "to": name}, judge)

    def topic(self, name: str) -> Topic:
        """Return the topic of that name; an unknown one raises :class:`~haybale.UnknownNameError`."""
        topic = self._find(name)
        if topic is None:
            raise UnknownNameError("topic", name, [stored_topic.name for stored_topic in self.topics()])
        return topic

    def add(self, topic: Topic, *rows: Judgement, last: int | None = None) -> list[int]:
        """Add rows, all or none, and return their numbers. They are on disk when this returns.

        Parameters
        ----------
        topic : Topic
        *rows : Judgement
        last : int, optional
            Add nothing, and return no number, if the topic has a row with a higher number. Default: add the rows.

        Raises
        ------
        InputError
            If a row has a grade where its kind has none, lacks one, or takes back a row that was taken back already,
            or the topic is closed or deleted.
        StoreError
            If the file cannot be written.
        """
        for row in rows:
            _check(row)
        marks = ", ".join(["?"] * (len(_ROW_COLUMNS) + 1))
        insert = f"INSERT INTO judgements (topic, {', '.join(_ROW_COLUMNS)}) VALUES ({marks})"
        added_at, numbers = now(), []
        later = "SELECT 1 FROM judgements WHERE topic = ? AND id > ? LIMIT 1"
        with self._errors(), self._writing():
            if last is not None and self._connection.execute(later, [topic.number, last]).fetchone():
                return []
            is_judging = any(row.kind != "reached" for row in rows)
            decisions = {event.kind: event.value for event in self.events(topic, latest=True)} if is_judging else {}
            for kind in filter(decisions.get, _SHUT):
                raise InputError(f"topic {topic.name!r:.100} must be open to judge it, found it {kind}; {_SHUT[kind]}")
            for row in rows:
                details = json.dumps(dict(row.details), sort_keys=True) if row.details else None
                values = asdict(row) | {"time": row.time or added_at, "details": details}
                done = self._connection.execute(insert, [topic.number, *(values[name] for name in _ROW_COLUMNS)])
                numbers.append(int(done.lastrowid or 0))
        if self.on_added is not None and rows:
            self.on_added(topic, rows, numbers)
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
        with self._errors(), self._writing():
            return self._add_event(topic, kind, value, judge)

    def _add_event(self, topic: Topic, kind: str, value: Any, judge: str) -> int:
        as_ids([kind, judge], "kind and judge of an event")
        values = (topic.number, kind, json.dumps(value), judge, now())
        insert = "INSERT INTO topic_events (topic, kind, value, judge, time) VALUES (?, ?, ?, ?, ?)"
        return int(self._connection.execute(insert, values).lastrowid or 0)

    def events(self, topic: Topic, kind: str | None = None, after: int = 0, latest: bool = False) -> list[TopicEvent]:
        """Return what was decided about a topic as a whole, in the order in which it was decided.

        Parameters
        ----------
        topic : Topic
        kind : str, optional
            Only events of this kind.
        after : int, default 0
            Only events with higher numbers.
        latest : bool, default False
            Only the last event of each kind.
        """
        number, group = ("max(id)", "GROUP BY kind") if latest else ("id", "")
        select = f"SELECT kind, value, judge, time, {number} FROM topic_events WHERE topic = ? AND id > ?"
        select += f" AND ? IN ('', kind) {group} ORDER BY id"
        with self._errors():
            rows = self._connection.execute(select, [topic.number, after, kind or ""]).fetchall()
        return [TopicEvent(name, json.loads(value), judge, time, number) for name, value, judge, time, number in rows]

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
        moved_at = now()
        if not rows and (documents is None or self.attached() == (documents, last)):
            return
        with self._errors(), self._writing():
            insert = "INSERT INTO moves (judgement, doc_id, time) VALUES (?, ?, ?)"
            self._connection.executemany(insert, [(number, doc_id, moved_at) for number, doc_id in rows.items()])
            if documents is not None:
                insert = "INSERT INTO attachments (documents, last, time) VALUES (?, ?, ?)"
                self._connection.execute(insert, [documents, last, moved_at])

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
