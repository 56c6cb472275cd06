"""The judges of a topic: who must judge what, where they disagree, who resolves it, and how far they agree."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from haybale.collections.ids import as_id
from haybale.errors import InputError
from haybale.parameters import COUNT, TEXT_OR_NONE, check_parameters
from haybale.review.judge_agreement import WINDOW, agreement, agreement_over_time
from haybale.review.judgement_store import RESOLUTION, Judgement, JudgementStore, Topic, check_grade
from haybale.review.screening_plan import SCREENING_EVENT, ScreeningPlan
from haybale.review.topic_ranking import TopicRanking, with_digest

if TYPE_CHECKING:
    import pandas as pd

_JUDGEMENT_FIELDS = ("judge", "grade", "note", "time")


@dataclass(frozen=True)
class Conflict:
    """A document that one judge found relevant and another irrelevant.

    Parameters
    ----------
    doc_id : str
    judgements : list of Judgement
        The latest judgement of each judge, with its note, in the order in which they were given.
    resolution : Judgement or None
        The judgement that resolves the conflict. ``details["resolution"]`` names the judges who resolved it.
    """

    doc_id: str
    judgements: list[Judgement]
    resolution: Judgement | None

    @property
    def judges(self) -> list[str]:
        """The judges who contradict each other."""
        return [row.judge for row in self.judgements]

    @property
    def resolved_by(self) -> list[str]:
        """The judges who have resolved the conflict; empty if nobody has."""
        return [] if self.resolution is None else self.resolution.resolved_by

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        rows = [{name: getattr(row, name) for name in _JUDGEMENT_FIELDS} for row in self.judgements]
        resolution = self.resolution
        if resolution is None:
            return {"doc_id": self.doc_id, "judgements": rows, "resolution": None}
        of_resolution = {name: getattr(resolution, name) for name in _JUDGEMENT_FIELDS}
        return {"doc_id": self.doc_id, "judgements": rows, "resolution": of_resolution | {"by": self.resolved_by}}


class Judges:
    """The judges of a review's topic; :attr:`haybale.Review.judges` is one.

    In double screening, documents need two judges. Each of them is proposed to a second judge, who sees nothing of the
    first judgement until both have judged. If they contradict each other, a third judge or both together resolve the
    conflict; the resolution counts from then on, and the two judgements stay.

    Several threads may use it at once.

    Parameters
    ----------
    store : JudgementStore
    topic : Topic
    sync : callable
        Returns the ranking of the review, with the rows that were added since the last call.
    lock : lock
        Held while the ranking is used.

    Examples
    --------
    >>> from haybale import Engine, Review
    >>> engine = Engine({"a": "Dogs bark.", "b": "Cats purr."}, language="english")
    >>> review = Review(engine, "dogs")
    >>> review.judges.screen_double()
    ScreeningPlan(double_share=1.0, seed=0)
    >>> review.judge("a", 1, "Ada", note="loud")
    >>> review.next(judge="Bob")[0].doc_id
    'a'
    >>> review.judge("a", 0, "Bob")
    >>> [conflict.judges for conflict in review.judges.conflicts()]
    [['Ada', 'Bob']]
    >>> review.judges.resolve("a", 0, "Cyd")
    >>> review.progress().n_relevant
    0
    """

    def __init__(
        self, store: JudgementStore, topic: Topic, sync: Callable[[], TopicRanking], lock: AbstractContextManager[Any]
    ) -> None:
        self._store, self._topic, self._sync, self._lock = store, topic, sync, lock

    @property
    def plan(self) -> ScreeningPlan:
        """Which documents need two judges."""
        with self._lock:
            return self._sync().state.plan

    def screen_double(self, share: float = 1.0, seed: int = 0, judge: str = "") -> ScreeningPlan:
        """Let two judges judge documents, blind to each other, from now on; return the plan. It is kept in the store.

        Documents that one judge has judged before then wait for a second one. Documents that were known from the start
        do not.

        Parameters
        ----------
        share : float, default 1
            The share of the documents; 0 is single screening, and shows what was hidden.
        seed : int, default 0
            Draws the documents (:class:`ScreeningPlan`).
        judge : str, default ""
            Who decides this.

        Raises
        ------
        InputError
            For a share or seed out of range, and for a topic whose judgements are combined by the rule ``"latest"``,
            by which the last of two judges would win.
        """
        check_parameters("screen_double", {"judge": judge}, {"judge": [str]})
        plan = ScreeningPlan(float(share), seed)
        with self._lock:
            if plan.is_double and self._sync().state.rule == "latest":
                raise InputError(
                    "double screening needs a topic with combine='any', 'majority' or 'maximum', found 'latest', by "
                    "which the last of two judges would win; begin another topic"
                )
            self._store.record(self._topic, SCREENING_EVENT, plan.to_dict(), judge)
            return self._sync().state.plan

    def conflicts(self, resolved: bool = False) -> list[Conflict]:
        """Return the documents that judges have judged differently, in the order of the first judgements.

        Parameters
        ----------
        resolved : bool, default False
            Whether to return those that were resolved, instead of the others.
        """
        with self._lock:
            state = self._sync().state
            chosen = [
                doc_id
                for doc_id in state.rows
                if (state.resolution(doc_id) is not None if resolved else state.is_conflict(doc_id))
            ]
            made = [
                Conflict(doc_id, list(state.latest(doc_id).values()), state.resolution(doc_id)) for doc_id in chosen
            ]
            return sorted(made, key=lambda conflict: min(row.number for row in conflict.judgements))

    def resolve(
        self, doc_id: str, grade: int, judge: str, note: str | None = None, together_with: str | None = None
    ) -> None:
        """Resolve a conflict. The resolution counts from now on, and all judgements stay.

        Parameters
        ----------
        doc_id : str
        grade : int
            0 for irrelevant, 1 or more for relevant.
        judge : str
            Who writes the resolution: a third judge, or one of those who contradict each other.
        note : str, optional
        together_with : str, optional
            The judge with whom ``judge`` has agreed. It is needed if ``judge`` is one of those who contradict each
            other, and must be another of them.

        Raises
        ------
        InputError
            If judges do not contradict each other about the document, a second judgement is missing, the conflict is
            resolved already, or one of the judges would decide alone. Nothing is written then.
        """
        named = {"judge": judge, "note": note, "together_with": together_with}
        check_parameters("resolve", named, {"judge": [str], "note": TEXT_OR_NONE, "together_with": TEXT_OR_NONE})
        grade = check_grade(grade)
        with self._lock:
            ranking = self._sync()
            doc_id = as_id(doc_id, "document id")
            ranking.collection.document_numbers([doc_id])  # raises for an unknown document
            self._check_conflict(doc_id)
            grades = ranking.state.grades(doc_id)
            others = [name for name in grades if (grades[name] > 0) != (grades.get(judge, grades[name]) > 0)]
            if not judge.strip():
                raise InputError(f"resolve needs judge, the name of who resolves it, found {judge!r}; give the name")
            if judge in grades and together_with not in others:
                either = " or ".join(map(repr, others))
                raise InputError(
                    f"{judge!r} has judged document {doc_id!r}, so together_with must be {either}, found "
                    f"{together_with!r}; name the judge who agrees, or let a third judge resolve it"
                )
            if judge not in grades and together_with is not None:
                raise InputError(
                    f"together_with must be None for {judge!r}, who is a third judge, found {together_with!r}; omit it"
                )
            by = [judge] if together_with is None else [judge, together_with]
            row = Judgement(doc_id, "judged", grade, judge, note=note, details={RESOLUTION: {"by": by}})
            self._store.add(self._topic, with_digest(row, ranking.snapshot))
            self._sync()

    def _check_conflict(self, doc_id: str) -> None:
        state = self._sync().state
        if state.is_waiting(doc_id):
            raise InputError(f"document {doc_id!r} must be judged by two judges first, found one; let another judge it")
        if state.resolution(doc_id) is not None:
            raise InputError(
                f"resolve needs an open conflict, found {doc_id!r}, which is resolved; call undo_resolution() first"
            )
        if not state.is_conflict(doc_id):
            raise InputError(
                f"resolve needs a document that judges contradict each other about, found {doc_id!r}, about which they "
                "do not; see conflicts()"
            )

    def undo_resolution(self, doc_id: str, judge: str = "") -> None:
        """Take the resolution of a conflict back, so that the judgements count again. It stays in the store as undone.

        Parameters
        ----------
        doc_id : str
        judge : str, default ""
            Who takes it back.

        Raises
        ------
        InputError
            If there is no resolution.
        """
        check_parameters("undo_resolution", {"judge": judge}, {"judge": [str]})
        with self._lock:
            resolution = self._sync().state.resolution(as_id(doc_id, "document id"))
            if resolution is None:
                raise InputError(
                    f"undo_resolution needs a resolution of document {doc_id!r}, found none; see conflicts()"
                )
            row = Judgement(resolution.doc_id, "undone", judge=judge, undoes=resolution.number)
            self._store.add(self._topic, row)
            self._sync()

    def agreement(self) -> pd.DataFrame:
        """Return how far each pair of judges agrees (:func:`~haybale.review.judge_agreement.agreement`).

        Of a document that needs two judges, the grades count that the first two had given when both had judged, blind
        to each other; of others, the latest grade of each judge. Documents that wait for a second judge count as judged
        by one only. Resolutions are no judgements of a judge.
        """
        graded = self._blind_judgements().items()
        return agreement({doc_id: {name: row.grade or 0 for name, row in rows.items()} for doc_id, rows in graded})

    def agreement_over_time(self, window: int = WINDOW) -> pd.DataFrame:
        """Return how far each pair agreed after each document that both had judged.

        The table is that of :func:`~haybale.review.judge_agreement.agreement_over_time`.

        Parameters
        ----------
        window : int, default 50
            The measures are those of so many latest documents of the pair.
        """
        check_parameters("agreement_over_time", {"window": window}, {"window": COUNT})
        return agreement_over_time(self._blind_judgements(), window)

    def _blind_judgements(self) -> dict[str, dict[str, Judgement]]:
        with self._lock:
            state = self._sync().state
            return {doc_id: rows for doc_id in state.rows if (rows := state.blind_judgements(doc_id))}
