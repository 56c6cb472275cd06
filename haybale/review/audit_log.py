"""What the rows of a topic say about its audit: which documents were taken before each draw, and their labels."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haybale.collections import Collection
from haybale.engine.reattaching import ids_by_digest
from haybale.review.betting import BettingTest
from haybale.review.draws import DrawPlan, Draws
from haybale.review.judgement_store import GRADED, Judgement, TopicEvent

AUDIT = "audit"  # the kind of event that begins an audit, the key of its details, and what chose a drawn document
_UNKNOWN = -1  # the label of a document that is not judged


@dataclass(frozen=True)
class AuditSettings:
    """How an audit was begun.

    Parameters
    ----------
    number : int
        The number of the event in the store.
    target, confidence : float
        As for :class:`~haybale.review.Audit`.
    seed : int
        The seed of the draws.
    n_documents : int
        Number of documents that can be relevant. A group of duplicates counts as one.
    documents : str
        A digest of their ids and texts.
    version : str or None
        A digest of the engine's version of its documents then, which is found faster; None for an engine in memory.
    judge, time : str
        Who began it, and when (ISO 8601, in UTC).
    """

    number: int
    target: float
    confidence: float
    seed: int
    n_documents: int
    documents: str
    version: str | None
    judge: str
    time: str

    @property
    def rule(self) -> str:
        """The text of its stopping rule."""
        return f"audit(target={self.target!r},confidence={self.confidence!r})"

    @classmethod
    def of(cls, event: TopicEvent) -> AuditSettings:
        """Return the settings that an event holds."""
        return cls(number=event.number, judge=event.judge, time=event.time, **event.value)


@dataclass(frozen=True)
class Taken:
    """A document that was judged or drawn, so that it cannot be drawn any more.

    Parameters
    ----------
    row : Judgement
        The row of its first judgement, or of the draw.
    audit : int
        The number of the audit that drew it; 0 if none did.
    """

    row: Judgement
    audit: int

    @property
    def is_proposed(self) -> bool:
        """Whether the ranking proposed it."""
        return not self.audit and self.row.rank is not None


class AuditLog:
    """The documents of a topic in the order in which they were first judged or drawn.

    A document keeps its position when its judgement is changed or taken back, so that it is known for good which
    documents could be drawn at each draw. The labels are those of today.
    """

    def __init__(self) -> None:
        self.taken: dict[str, Taken] = {}
        self._labels: dict[str, int] = {}  # in the same order
        self._tests: dict[float, tuple[NDArray[np.int64], BettingTest]] = {}

    def take(self, doc_id: str, row: Judgement) -> None:
        """Note that a row makes a document one that cannot be drawn, if it is a judgement or a draw."""
        audit = audit_of(row)
        if doc_id not in self.taken and (audit or row.kind in GRADED):
            self.taken[doc_id], self._labels[doc_id] = Taken(row, audit), _UNKNOWN

    def label(self, doc_id: str, grade: int | None) -> None:
        """Note the grade of a document; None if it is not judged."""
        if doc_id in self.taken:
            self._labels[doc_id] = _UNKNOWN if grade is None else int(grade > 0)

    @property
    def labels(self) -> NDArray[np.int8]:
        """1 for relevant, 0 for irrelevant, -1 for not judged, for each document that was taken, (n_taken,)."""
        return np.fromiter(self._labels.values(), dtype=np.int8, count=len(self._labels))

    def drawn(self, audit: int) -> list[str]:
        """Return the documents that an audit drew, in the order of the draws."""
        return [doc_id for doc_id, taken in self.taken.items() if taken.audit == audit]

    def to_judge(self, audit: int) -> list[str]:
        """Return the documents that must be judged so that all draws of an audit count: drawn, or taken before one."""
        last = max((at for at, document in enumerate(self.taken.values()) if document.audit == audit), default=-1)
        return [doc_id for doc_id, label in islice(self._labels.items(), last + 1) if label == _UNKNOWN]

    def is_due(self, settings: AuditSettings) -> bool:
        """Return whether the next document should be drawn; documents that are not judged count as irrelevant."""
        labels = np.maximum(self.labels, 0)
        taken = list(self.taken.values())
        plan = DrawPlan(settings.target)
        proposed = np.fromiter((document.is_proposed for document in taken), dtype=bool, count=len(taken))
        last = np.flatnonzero(proposed & (labels > 0))  # nothing before counts for the plan
        for position in range(int(last[-1]) if len(last) else 0, len(taken)):
            if proposed[position] or taken[position].audit == settings.number:
                plan.note(bool(labels[position]), not proposed[position])
        return plan.is_due(int(labels.sum()), settings.n_documents - len(taken))

    def draws(self, settings: AuditSettings, order_rows: Sequence[int], others: Sequence[str], gap: str) -> Draws:
        """Return the draws of an audit that count.

        Parameters
        ----------
        settings : AuditSettings
        order_rows : sequence of int
            The numbers of the rows with which each document of the reading order was read, rising.
        others : sequence of str
            The documents that were judged outside the reading order.
        gap : str
            Why no draw counts; empty if draws count.
        """
        labels = self.labels
        at = np.flatnonzero([document.audit == settings.number for document in self.taken.values()])
        unknown = np.flatnonzero(labels == _UNKNOWN)
        end = int(unknown[0]) if len(unknown) else len(labels)
        counting = at[at < end] if not gap else at[:0]
        before = np.cumsum(labels) - labels
        row_numbers = np.array([document.row.number for document in self.taken.values()], dtype=np.int64)
        other_rows = np.array([self.taken[doc_id].row.number for doc_id in others], dtype=np.int64)
        by_row = np.argsort(other_rows)
        return Draws(
            np.searchsorted(order_rows, row_numbers[counting]),
            before[counting].astype(np.int64),
            settings.n_documents - counting,
            labels[counting] > 0,
            np.searchsorted(order_rows, other_rows[by_row]),
            np.array([self._labels[doc_id] > 0 for doc_id in others], dtype=bool)[by_row],
            gap or self._gap(end, at),
            (int((labels > 0).sum()), settings.n_documents - int((labels != _UNKNOWN).sum()), settings.n_documents),
            self._tests,
        )

    def _gap(self, end: int, at: NDArray[np.int64]) -> str:
        """Return why draws do not count; nothing if only the last one is not judged yet."""
        after = at[at >= end]
        if not len(after) or (len(after) == 1 and after[0] == end):
            return ""
        doc_id = list(self.taken)[end]
        which = (
            f"draw {int(np.searchsorted(at, end)) + 1}, document {doc_id!r}," if end in at else f"document {doc_id!r}"
        )
        return f"{which} is not judged, and the {len(after):,} draws since do not count before it is; judge it"


def audit_of(row: Judgement) -> int:
    """Return the number of the audit that drew a document with this row; 0 if none did."""
    return int(row.details[AUDIT]["audit"]) if row.kind == "drawn" and AUDIT in row.details else 0


def audits_of(events: Sequence[TopicEvent]) -> list[AuditSettings]:
    """Return the audits that the events of a topic began."""
    return [AuditSettings.of(event) for event in events if event.kind == AUDIT]


def draw_details(settings: AuditSettings, number: int, position: int, n_unread: int) -> dict[str, Any]:
    """Return what the row of a draw keeps."""
    return {AUDIT: {"audit": settings.number, "draw": number, "position": position, "n_unread": n_unread}}


def documents_digest(collection: Collection, is_read: NDArray[np.bool_]) -> str:
    """Return a digest of the ids and texts of some documents: 64 hexadecimal digits."""
    digests = {doc_id: digest for digest, doc_ids in ids_by_digest(collection).items() for doc_id in doc_ids}
    chosen = zip(collection.doc_ids.to_pylist(), is_read.tolist(), strict=True)
    doc_ids = sorted(doc_id for doc_id, is_chosen in chosen if is_chosen)
    return hashlib.sha256("".join(f"{doc_id}\0{digests.get(doc_id)}\0" for doc_id in doc_ids).encode()).hexdigest()
