"""The duplicates of a topic: those of the engine, with what its judges have separated and joined.

A group of duplicates is read once: a judgement of one of its documents counts for all, and the learner learns it once.
A judge who sees that a document is none of a group takes it out; the file of judgements keeps that, for this topic.
Topics that were begun before duplicates were found go on as they were, until somebody says otherwise.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence

from haybale.collections.ids import as_ids
from haybale.engine import DuplicateGroup, Duplicates, Engine
from haybale.errors import InputError
from haybale.review.judgement_store import Judgement, JudgementStore, Topic, TopicEvent

DUPLICATES = "duplicates"  # of a topic: whether a group is read once; topics of earlier versions lack it
SEPARATED, JOINED, READ_ONCE = "duplicates separated", "duplicates joined", "duplicates read once"  # kinds of events
BY_HAND = "joined by a judge"  # the reason of a group


class TopicDuplicates:
    """The groups of duplicates of a topic, as the engine and the judges change them. Several threads may use it.

    Parameters
    ----------
    engine : Engine
    store : JudgementStore
    topic : Topic
    read_once : bool, optional
        Whether a group is read once. Default: as somebody decided for the topic, else as the topic was begun.

    Examples
    --------
    >>> from haybale import Review
    >>> record = {"title": "Why dogs bark at night", "text": "Dogs bark.", "year": 2020, "author": "Doe"}
    >>> engine = Engine({"a": record, "b": record}, language="english", encoder="tfidf(min_df=1)")
    >>> review = Review(engine, "barking dogs")
    >>> review.duplicates.groups()
    Duplicates: 2 documents, 1 duplicate in 1 group, 1 to read
    >>> review.duplicates.separate(["b"], judge="Ada")
    >>> review.duplicates.groups().n_duplicates
    0
    """

    def __init__(self, engine: Engine, store: JudgementStore, topic: Topic, read_once: bool | None = None) -> None:
        self.engine, self.store, self.topic, self._read_once = engine, store, topic, read_once
        self._events: list[TopicEvent] = []
        self._last = 0  # the number of the last event
        self._made: tuple[Engine, Duplicates] | None = None
        self._lock = threading.Lock()

    @property
    def are_read_once(self) -> bool:
        """Whether a group is read once."""
        self.groups()
        return reads_once(self.topic, self._events) if self._read_once is None else self._read_once

    def groups(self, engine: Engine | None = None) -> Duplicates:
        """Return the groups among the documents that the engine has now; the same object until something changes.

        There are none if groups are not read once. ``engine`` may be a snapshot, to use the documents that it has.
        """
        with self._lock:
            snapshot, new = (engine or self.engine).snapshot(), self.store.events(self.topic, after=self._last)
            self._last = max([self._last, *(event.number for event in new)])
            decisions = [event for event in new if event.kind in (SEPARATED, JOINED, READ_ONCE)]
            self._events += decisions
            if self._made is None or decisions or self._made[0] is not snapshot:
                if reads_once(self.topic, self._events) if self._read_once is None else self._read_once:
                    duplicates = with_decisions(snapshot.duplicates(), self._events)
                else:
                    duplicates = Duplicates([], dict.fromkeys(snapshot.whole.doc_ids.to_pylist(), ""))
                is_same = self._made is not None and duplicates == self._made[1]
                self._made = snapshot, self._made[1] if self._made is not None and is_same else duplicates
            return self._made[1]

    def separate(self, doc_ids: Sequence[str], judge: str = "") -> None:
        """Take documents out of their groups: they are no duplicates, and are read by themselves.

        Judgements stay with the documents that were judged. It is on disk when this returns.

        Raises
        ------
        InputError
            If one of them is in no group.
        """
        groups = self.groups()
        for doc_id in as_ids(doc_ids, "document ids"):
            if not groups.others(doc_id):
                raise InputError(f"expected documents of groups of duplicates, found {doc_id!r} in none; omit it")
        self.store.record(self.topic, SEPARATED, list(doc_ids), judge)

    def join(self, doc_ids: Sequence[str], judge: str = "") -> None:
        """Make documents, with the groups that they are in, one group of duplicates.

        Raises
        ------
        InputError
            For fewer than two documents, one that the engine does not have, or if groups are not read once.
        """
        groups, distinct = self.groups(), list(dict.fromkeys(as_ids(doc_ids, "document ids")))
        if len(distinct) < 2:
            raise InputError(f"expected two or more documents to join, found {len(distinct)}; give their ids")
        for doc_id in distinct:
            if doc_id not in groups.sources:
                raise InputError(f"expected documents of the engine, found {doc_id!r}; check the id")
        if not self.are_read_once:
            raise InputError(
                f"topic {self.topic.name!r:.100} must read a group once to join documents, found that it reads all; "
                "call read_once(True) first"
            )
        self.store.record(self.topic, JOINED, distinct, judge)

    def read_once(self, is_on: bool, judge: str = "") -> None:
        """Decide whether a group of duplicates is read once in this topic, also in reviews that are open."""
        self.store.record(self.topic, READ_ONCE, bool(is_on), judge)


def reads_once(topic: Topic, events: Iterable[TopicEvent]) -> bool:
    """Return whether a group of duplicates is read once in a topic."""
    chosen = [bool(event.value) for event in events if event.kind == READ_ONCE]
    return chosen[-1] if chosen else bool(topic.settings.get(DUPLICATES, False))


def with_decisions(duplicates: Duplicates, events: Iterable[TopicEvent]) -> Duplicates:
    """Return duplicates after what judges have separated and joined, in order; documents that are gone are left out."""
    groups = {group.representative: group for group in duplicates.groups}
    of_document = dict(duplicates.representatives)
    changed = False
    for event in events:
        if event.kind not in (SEPARATED, JOINED):
            continue
        changed = True
        doc_ids = [doc_id for doc_id in event.value if doc_id in duplicates.sources]
        if event.kind == SEPARATED:
            for doc_id in doc_ids:
                _keep(groups, of_document, _left(groups, of_document, doc_id), ())
        elif len(doc_ids) > 1:
            members: dict[str, None] = {}
            for doc_id in doc_ids:
                group = groups.pop(of_document[doc_id]) if doc_id in of_document else DuplicateGroup((doc_id,), ())
                members |= dict.fromkeys(group.doc_ids)
                for member in group.doc_ids:
                    of_document.pop(member, None)
            _keep(groups, of_document, list(members), (BY_HAND,))
    return Duplicates(sorted(groups.values()), duplicates.sources) if changed else duplicates


def _left(groups: dict[str, DuplicateGroup], of_document: dict[str, str], doc_id: str) -> list[str]:
    """Take the group of a document away, and return the other documents of the group."""
    if doc_id not in of_document:
        return []
    group = groups.pop(of_document[doc_id])
    for member in group.doc_ids:
        del of_document[member]
    return [member for member in group.doc_ids if member != doc_id]


def _keep(
    groups: dict[str, DuplicateGroup], of_document: dict[str, str], doc_ids: list[str], reasons: tuple[str, ...]
) -> None:
    """Make a group of documents; one document is none."""
    if len(doc_ids) > 1:
        groups[doc_ids[0]] = DuplicateGroup((doc_ids[0], *sorted(doc_ids[1:])), reasons)
        of_document.update(dict.fromkeys(doc_ids, doc_ids[0]))


def carried_rows(rows: Sequence[Judgement], duplicates: Duplicates) -> tuple[list[Judgement], dict[str, str]]:
    """Return judgements with those that they carry to duplicates, and the judged document of each duplicate.

    Of several judged documents of a group, the others are duplicates of the one that was judged first.
    """
    by_document: dict[str, list[Judgement]] = {}
    for row in rows:
        by_document.setdefault(row.doc_id, []).append(row)
    all_rows, judged_of = list(rows), dict[str, str]()
    for doc_id, document_rows in by_document.items():
        for other in duplicates.others(doc_id) if doc_id not in judged_of else ():
            judged_of[other] = doc_id
            if other not in by_document:
                all_rows += (
                    Judgement(other, row.kind, row.grade, row.judge, time=row.time, details=row.details)
                    for row in document_rows
                )
    return all_rows, judged_of
