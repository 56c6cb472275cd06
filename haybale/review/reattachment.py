"""Let the judgements of a store follow the texts that were judged, when the documents of an engine change.

Each row of a store has a digest of the text that was judged. If its document has another text now, or is gone, the row
is moved to the document that has the text: the store notes the move, and all who read it find the row there. A row
whose text is gone stays and is listed. :mod:`haybale.engine.reattaching` has the rules.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from haybale.collections import Collection
from haybale.engine import Engine
from haybale.engine.reattaching import TextDigests, moves_of, read_renamed, unattached
from haybale.review.judgement_store import GRADED, Judgement, JudgementStore


@dataclass(frozen=True)
class TopicReattachment:
    """What became of the judgements of a topic.

    Parameters
    ----------
    moved : dict of str to str
        New ids of judged documents, by the old ones.
    orphaned, replaced, undecided : list of str
        Judged documents that do not have the text that was judged, as
        :class:`~haybale.engine.Unattached` describes them.
    """

    moved: dict[str, str]
    orphaned: list[str]
    replaced: list[str]
    undecided: list[str]


@dataclass(frozen=True)
class Reattachment:
    """What became of the judgements of a store.

    Parameters
    ----------
    topics : dict of str to TopicReattachment
        By the name of the topic.
    """

    topics: dict[str, TopicReattachment]

    @property
    def n_moved(self) -> int:
        """Number of judged documents of all topics whose judgements were moved."""
        return sum(len(topic.moved) for topic in self.topics.values())

    @property
    def n_orphaned(self) -> int:
        """Number of judged documents whose text is gone."""
        return sum(len(topic.orphaned) for topic in self.topics.values())

    @property
    def n_replaced(self) -> int:
        """Number of judged documents that have another text now."""
        return sum(len(topic.replaced) for topic in self.topics.values())

    @property
    def n_undecided(self) -> int:
        """Number of judged documents of which the judged text is not known."""
        return sum(len(topic.undecided) for topic in self.topics.values())

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        counts = {name: getattr(self, name) for name in ("n_moved", "n_orphaned", "n_replaced", "n_undecided")}
        return counts | {"topics": {name: asdict(topic) for name, topic in self.topics.items()}}


def reattach(store: JudgementStore, engine: Engine) -> Reattachment:
    """Move the judgements of all topics to the documents that have the texts that were judged.

    Nothing is deleted, and a second call moves nothing. An engine that does not have the latest documents, such as a
    view of some, moves nothing, either.

    Parameters
    ----------
    store : JudgementStore
    engine : Engine
        The engine whose documents were judged.

    Returns
    -------
    Reattachment
        What was moved, and what is about a text that no document has.

    Examples
    --------
    >>> engine = Engine({"r1": "Dogs bark.", "r2": "Cats purr."}, language="english", encoder="tfidf(min_df=1)")
    >>> from haybale import Review
    >>> with JudgementStore() as store:
    ...     Review(engine, "pets", judgements=store).judge("r1", 1)
    ...     _ = engine.replace({"r1": "Cows moo.", "r9": "Dogs bark."})
    ...     reattach(store, engine).topics["pets"].moved
    {'r1': 'r9'}
    """
    snapshot = engine.snapshot()
    texts, renamed = TextDigests(snapshot.collection), read_renamed(snapshot.folder)
    is_latest, last = snapshot.has_latest_documents, store.last_row()
    topics: dict[str, TopicReattachment] = {}
    moved_rows: dict[int, str] = {}
    for topic in store.topics():
        rows = store.judgements(topic)
        digests = digests_of(rows)
        where = {row.number: (row.doc_id, digests[row.number]) for row in rows}
        judged = {where[row.number] for row in counting(rows)}
        superseded = {where[row.number] for row in rows if row.kind in GRADED} - judged
        moves = moves_of(where.values(), texts, renamed, superseded) if is_latest else {}
        moved_rows |= {number: moves[pair] for number, pair in where.items() if pair in moves}
        present = texts.of(list(moves.values()))
        moved = {pair[0]: to for pair, to in moves.items() if pair in judged and present[to] is not None}
        now = [(moves.get(pair, pair[0]), pair[1]) for pair in judged]
        topics[topic.name] = TopicReattachment(moved, *unattached(now, texts))
    if is_latest:
        store.move(moved_rows, snapshot.documents_digest, last)
    return Reattachment(topics)


def ensure_attached(store: JudgementStore, engine: Engine) -> None:
    """Call :func:`reattach` unless the store has not changed since it was called for the same documents."""
    snapshot = engine.snapshot()
    if not store.last_row() or not snapshot.has_latest_documents:
        return
    documents = snapshot.documents_digest
    if documents is None or store.attached() != (documents, store.last_row()):
        reattach(store, snapshot)


def digests_of(rows: Sequence[Judgement]) -> dict[int, str | None]:
    """Return the digest of the text that each row is about, by the row's number."""
    digests = {row.number: row.document for row in rows}
    return digests | {row.number: digests.get(row.undoes) for row in rows if row.undoes is not None}


def counting(rows: Iterable[Judgement]) -> list[Judgement]:
    """Return the latest row of each judge about each document that has a grade and was not undone."""
    rows = list(rows)
    undone = {row.undoes for row in rows if row.undoes is not None}
    graded = (row for row in rows if row.kind in GRADED and not row.is_resolution and row.number not in undone)
    return list({(row.doc_id, row.judge): row for row in graded}.values())


def known_by_new_ids(collection: Collection, engine: Engine, grades: dict[str, int]) -> dict[str, int]:
    """Return grades by document id, with the new ids of documents that were renamed in the engine."""
    numbers = collection.find_documents(list(grades)).tolist()
    missing = {doc_id for doc_id, number in zip(grades, numbers, strict=True) if number < 0}
    renamed = read_renamed(engine.folder) if missing else {}
    return {renamed.get(doc_id, doc_id) if doc_id in missing else doc_id: grade for doc_id, grade in grades.items()}
