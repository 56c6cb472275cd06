"""A topic as the list of topics shows it, computed from the rows of the store without a learner."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from haybale.engine.reattaching import TextDigests, unattached
from haybale.review.combined_judgements import DEFAULT_RULE
from haybale.review.judgement_store import GRADED, Judgement, JudgementStore, Topic
from haybale.review.reattachment import counting
from haybale.review.screening_plan import ScreeningPlan, plan_of
from haybale.review.topic_state import TopicState


@dataclass(frozen=True)
class TopicSummary:
    """A topic with what was judged.

    Parameters
    ----------
    id : int
        The number of the topic in the store.
    name, text : str
    time : str
        When it was added: ISO 8601, in UTC.
    n_judged, n_relevant, n_contradictory : int
        Judged documents, the relevant ones among those that do not wait for a second judge, and those that one judge
        found relevant and another not, and that nobody has resolved.
    combine : {"any", "latest", "majority", "maximum"}
        The rule for the grade of a document that several judges have judged
        (:func:`~haybale.review.combined_judgements.combined_grade`).
    judges : dict of str to int
        The number of documents that each judge has judged, by name.
    last : str or None
        When the last judgement was given.
    n_orphaned, n_replaced : int
        Judged documents that are gone, or have another text than the one that was judged.
    n_waiting : int
        Documents that need two judges, and that one has judged.
    double_share : float
        The share of the documents that need two judges; 0 in single screening.
    """

    id: int
    name: str
    text: str
    time: str
    n_judged: int
    n_relevant: int
    n_contradictory: int
    combine: str
    judges: dict[str, int]
    last: str | None
    n_orphaned: int = 0
    n_replaced: int = 0
    n_waiting: int = 0
    double_share: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return asdict(self)


class TopicRows:
    """The rows of one topic, which are read from the store as they are added. Several threads may use it.

    ``representatives`` returns those of groups of duplicates, which count as one document; the same mapping until they
    change.
    """

    def __init__(
        self,
        store: JudgementStore,
        topic: Topic,
        representatives: Callable[[Topic], Mapping[str, str] | None] = lambda topic: None,
    ) -> None:
        self.store, self.topic, self._representatives = store, topic, representatives
        self._state = TopicState(topic.settings.get("combine", DEFAULT_RULE))
        self._grouped_by: Mapping[str, str] | None = None  # the representatives that the state has seen
        self._last_move = self._last_event = 0  # the last move of judgements, and decision, that the state has seen
        self._lock = threading.Lock()

    def _sync(self) -> TopicState:
        last_move, representatives = self.store.last_move(), self._representatives(self.topic)
        if last_move != self._last_move or representatives is not self._grouped_by:
            # Judgements have followed texts to other documents, or groups of duplicates have changed.
            self._last_move, self._grouped_by = last_move, representatives
            self._state = TopicState(self._state.rule, plan=self._state.plan, representatives=representatives)
        if events := self.store.events(self.topic, after=self._last_event):
            self._last_event = events[-1].number
            self._state.follow(plan_of(events, self._state.plan))
        for row in self.store.judgements(self.topic, self._state.last):
            self._state.apply(row)
        return self._state

    def summary(self, texts: TextDigests | None = None) -> TopicSummary:
        """Return how much was judged, and by whom; with ``texts``, also how many judged texts are gone or replaced."""
        with self._lock:
            state = self._sync()
            graded = {doc_id: grades for doc_id in state.rows if (grades := state.grades(doc_id))}
            judges = Counter(judge for grades in graded.values() for judge in grades if judge)
            last = state.last_of(None, GRADED)
            n_orphaned = n_replaced = 0
            if texts is not None:
                latest = counting(row for rows in state.rows.values() for row in rows)
                without_text = unattached(((row.doc_id, row.document) for row in latest), texts)
                n_orphaned, n_replaced = len(without_text.orphaned), len(without_text.replaced)
            return TopicSummary(
                self.topic.number,
                self.topic.name,
                self.topic.text,
                self.topic.time,
                n_judged=len(graded),
                n_relevant=sum((state.grade(doc_id) or 0) > 0 for doc_id in graded if doc_id not in state.waiting),
                n_contradictory=sum(map(state.is_conflict, graded)),
                combine=state.rule,
                judges=dict(sorted(judges.items())),
                last=None if last is None else last.time,
                n_orphaned=n_orphaned,
                n_replaced=n_replaced,
                n_waiting=len(state.waiting),
                double_share=state.plan.double_share,
            )

    @property
    def plan(self) -> ScreeningPlan:
        """Which documents need two judges."""
        with self._lock:
            return self._sync().plan

    def grades(self, doc_id: str, judge: str, digest: str | None = None) -> dict[str, int]:
        """Return the latest grade of each judge of a document, as far as a judge may see them.

        With the digest of its text, only the grades of those who judged this text are returned.
        """
        with self._lock:
            rows = self._shown(doc_id, judge, digest)
            return {row.judge: row.grade for row in rows.values() if row.grade is not None}

    def shown_grade(self, doc_id: str, judge: str, digest: str | None = None) -> int | None:
        """Return the grade of a document that counts, as far as a judge may see it; None if there is none.

        If the document waits for a second judge, it is the judge's own grade.
        """
        with self._lock:
            state, rows = self._sync(), self._shown(doc_id, judge, digest)
            if state.is_waiting(doc_id):
                return rows[judge].grade if judge in rows else None
            return state.grade(doc_id) if rows else None

    def contradicted(self, doc_id: str, judge: str) -> dict[str, int]:
        """Return the grades of the judges who contradict a judge about a document.

        If the document needs two judges, nobody is told, so that nobody is tempted to take a judgement back at once.
        """
        with self._lock:
            if self._sync().needs_two(doc_id):
                return {}
        grades = self.grades(doc_id, judge)
        judged = grades.get(judge)
        return {} if judged is None else {name: grade for name, grade in grades.items() if (grade > 0) != (judged > 0)}

    def resolution(self, doc_id: str) -> Judgement | None:
        """Return what resolves a conflict about a document; None if nothing does."""
        with self._lock:
            return self._sync().resolution(doc_id)

    def _shown(self, doc_id: str, judge: str, digest: str | None) -> dict[str, Judgement]:
        """Return the latest row of each judge that a judge may see, about the text with a digest if it is not None."""
        state = self._sync()
        hidden = state.hidden_rows(doc_id, judge)
        rows = {name: row for name, row in state.latest(doc_id).items() if row not in hidden}
        of_duplicates = {name for name, row in rows.items() if row.doc_id != doc_id}  # which have texts of their own
        same_text = {name for name, row in rows.items() if None in (digest, row.document) or row.document == digest}
        return {name: row for name, row in rows.items() if name in of_duplicates | same_text}

    def n_places(self, doc_id: str, judge: str) -> int:
        """Return how many judges a document still needs; 0 if this judge has judged it."""
        with self._lock:
            state = self._sync()
            if state.is_waiting(doc_id):
                return int(judge not in state.grades(doc_id))
            if state.grades(doc_id):
                return 0
            return 2 if state.needs_two(doc_id) else 1

    def is_repeated(self, doc_id: str, judge: str, grade: int, note: str | None, digest: str | None) -> bool:
        """Return whether a judgement would repeat the last thing that anybody has said about a document.

        It does not if another judge has judged since, or if this one has put the document off since: the judgement that
        was written last counts. Nor does it if the text was another one, whose digest is not ``digest``.
        """
        with self._lock:
            of_document = (row for row in self._sync().rows_of(doc_id) if not row.is_resolution)
            rows = [row for row in of_document if row.grade is not None or row.judge == judge]
            last = rows[-1] if rows else None
            is_equal = last is not None and (last.judge, last.grade) == (judge, grade)
            if last is None or not is_equal:
                return False
            is_of_same_text = None in (last.document, digest) or last.document == digest
            return is_of_same_text and note in (None, last.note)
