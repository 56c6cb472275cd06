"""The second stage of a review: what was included by title and abstract is judged again by its full text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from haybale.collections.ids import as_id
from haybale.errors import InputError
from haybale.parameters import COUNT, TEXT_OR_NONE, check_parameters
from haybale.review.grades import check_grade
from haybale.review.judgement_store import Judgement, JudgementStore, Topic
from haybale.review.protocol import NOT_RETRIEVED, protocol_of, reason_details
from haybale.review.review_results import ReviewDocument, judgement_table
from haybale.review.shown_documents import marked_passage
from haybale.review.topic_ranking import TopicRanking, with_digest
from haybale.review.topic_state import FULL_TEXT, TopicState
from haybale.search.searching import metadata_of, title_of

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class FullTextProgress:
    """How far the stage of full texts has come.

    Parameters
    ----------
    n_sought : int
        Documents that were included by title and abstract.
    n_not_retrieved, n_assessed : int
        Those of them that nobody could get, and those that were judged by their full text.
    n_included : int
        Those of the assessed ones that are relevant.
    n_skipped : int
        Those that were put off.
    """

    n_sought: int
    n_not_retrieved: int
    n_assessed: int
    n_included: int
    n_skipped: int

    @property
    def n_left(self) -> int:
        """Documents that were neither judged nor found to be unavailable."""
        return self.n_sought - self.n_not_retrieved - self.n_assessed

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return asdict(self) | {"n_left": self.n_left}


class FullTextStage:
    """The stage of full texts of a review, :attr:`haybale.Review.full_text`.

    Documents come in the order in which they were included. Neither the ranking nor stopping rules learn from this
    stage, because it is about what titles and abstracts cannot show; exports and PRISMA numbers have its decisions.

    Parameters
    ----------
    store : JudgementStore
    topic : Topic
        Its protocol must have two stages before a document is judged here.
    ranking_of : callable
        Returns the ranking of the topic, with all rows of the store.
    lock : reentrant lock
        Held while the ranking is used.
    """

    def __init__(
        self,
        store: JudgementStore,
        topic: Topic,
        ranking_of: Callable[[], TopicRanking],
        lock: AbstractContextManager[Any],
    ) -> None:
        self.store, self.topic = store, topic
        self._ranking_of, self._lock = ranking_of, lock

    def _sync(self) -> tuple[TopicRanking, TopicState]:
        ranking = self._ranking_of()
        return ranking, full_text_state(ranking.state)

    def next(self, n: int = 1, judge: str | None = None) -> list[ReviewDocument]:
        """Return the documents to judge next, those that were put off last; none if all were judged.

        Parameters
        ----------
        n : int, default 1
        judge : str, optional
            Propose documents that this judge has not judged, even if others have. Default: that nobody has judged.
        """
        check_parameters("next", {"n": n, "judge": judge}, {"n": COUNT, "judge": TEXT_OR_NONE})
        with self._lock:
            ranking, state = self._sync()
            left = [
                doc_id
                for doc_id in included(ranking)
                if (not state.grades(doc_id) if judge is None else judge not in state.grades(doc_id))
            ]
            left.sort(key=state.is_skipped)
            probabilities = ranking.learner.probabilities() if left else ()
            return [self._shown(ranking, doc_id, probabilities) for doc_id in left[:n]]

    def document(self, doc_id: str) -> ReviewDocument:
        """Return one document as :meth:`next` does; one that was not included raises InputError."""
        with self._lock:
            ranking, _ = self._sync()
            doc_id = self._checked(ranking, doc_id)
            return self._shown(ranking, doc_id, ranking.learner.probabilities())

    def _shown(self, ranking: TopicRanking, doc_id: str, probabilities: Any) -> ReviewDocument:
        collection, number = ranking.collection, ranking.number(doc_id)
        assert number is not None
        best = marked_passage(ranking, ranking.learner.best_passage(number), self.topic.text)
        about = title_of(collection, number), metadata_of(collection, number)
        return ReviewDocument(doc_id, *about, [best], float(probabilities[number]), None, FULL_TEXT, [])

    def judge(
        self,
        doc_id: str,
        grade: int,
        judge: str = "",
        note: str | None = None,
        seconds: float | None = None,
        reasons: Sequence[str] = (),
    ) -> None:
        """Judge a document by its full text. The judgement is on disk when this returns.

        Parameters
        ----------
        doc_id, grade, judge, note, seconds
            As in :meth:`haybale.Review.judge`.
        reasons : sequence of str, optional
            Why it is excluded, the main reason first. ``"not retrieved"`` says that nobody could get the full text.

        Raises
        ------
        InputError
            If the document was not included by title and abstract, or the protocol has one stage.
        """
        check_parameters("judge", {"judge": judge, "note": note}, {"judge": [str], "note": TEXT_OR_NONE})
        grade = check_grade(grade)
        details = reason_details(grade, reasons, FULL_TEXT)
        taken = None if seconds is None else float(seconds)
        row = Judgement(doc_id, "judged", grade, judge, taken, note, model=FULL_TEXT, details=details)
        self._add(row)

    def not_retrieved(self, doc_id: str, judge: str = "", note: str | None = None) -> None:
        """Say that nobody could get the full text of a document."""
        self.judge(doc_id, 0, judge, note, reasons=[NOT_RETRIEVED])

    def skip(self, doc_id: str, judge: str = "") -> None:
        """Put a document off: it is proposed again after all others."""
        self._add(Judgement(doc_id, "skipped", judge=judge, details={"stage": FULL_TEXT}))

    def undo(self, judge: str | None = None) -> str:
        """Take the last judgement or skip of this stage back, and return the id of its document.

        Parameters
        ----------
        judge : str, optional
            Take back what this judge did last. Default: whoever did it.
        """
        with self._lock:
            _, state = self._sync()
            last = state.last_of(judge, ("judged", "skipped"))
            if last is None:
                raise InputError("undo() needs a judgement of a full text, found none; judge a document first")
            details = {"stage": FULL_TEXT}
            row = Judgement(last.doc_id, "undone", judge=last.judge, undoes=last.number, details=details)
            self.store.add(self.topic, row)
            self._sync()
        return last.doc_id

    def _add(self, row: Judgement) -> None:
        with self._lock:
            ranking, _ = self._sync()
            doc_id = self._checked(ranking, row.doc_id)
            if protocol_of(self.store, self.topic).n_stages == 1:
                raise InputError(
                    "a full text needs a protocol with n_stages=2, found 1; call change_protocol(n_stages=2)"
                )
            self.store.add(self.topic, with_digest(replace(row, doc_id=doc_id), ranking.snapshot))
            self._sync()

    def _checked(self, ranking: TopicRanking, doc_id: str) -> str:
        doc_id = as_id(doc_id, "document id")
        ranking.collection.document_numbers([doc_id])  # raises for an unknown document
        if not is_included(ranking.state, doc_id):
            raise InputError(
                f"document {doc_id!r} must be included by title and abstract before its full text; judge it there first"
            )
        return doc_id

    def grades(self, doc_id: str) -> dict[str, int]:
        """Return the latest grade of each judge by the full text; the judge who judged last is last."""
        with self._lock:
            return self._sync()[1].grades(doc_id)

    def judgements(self) -> pd.DataFrame:
        """Return the judgements of this stage that count, as :meth:`haybale.Review.judgements` does."""
        with self._lock:
            ranking, state = self._sync()
            rows = state.graded_rows()
            return judgement_table(rows, [ranking.status_of(row) for row in rows])

    def progress(self) -> FullTextProgress:
        """Return how many full texts were sought, judged and included."""
        with self._lock:
            ranking, state = self._sync()
            sought = included(ranking)
            judged = [doc_id for doc_id in sought if state.grades(doc_id)]
            missing = sum(is_not_retrieved(state, doc_id) for doc_id in judged)
            n_included = sum((state.grade(doc_id) or 0) > 0 for doc_id in judged)
            n_skipped = sum(map(state.is_skipped, sought))
            return FullTextProgress(len(sought), missing, len(judged) - missing, n_included, n_skipped)


def full_text_state(state: TopicState) -> TopicState:
    """Return the state of the stage of full texts, from the rows that the first stage has kept for it."""
    return TopicState(state.rule, state.rows_of_other_stage, representatives=state.representatives, stage=FULL_TEXT)


def included(ranking: TopicRanking) -> list[str]:
    """Return the documents of the engine that were included by title and abstract, in the order of their judgements."""
    state = ranking.state
    doc_ids = dict.fromkeys(state.representative(row.doc_id) for row in state.graded_rows())
    return [doc_id for doc_id in doc_ids if is_included(state, doc_id) and ranking.number(doc_id) is not None]


def is_included(state: TopicState, doc_id: str) -> bool:
    """Return whether as many judges as a document needs have judged it, and it counts as relevant."""
    return state.is_read(doc_id) and (state.grade(doc_id) or 0) > 0


def main_reason(state: TopicState, doc_id: str) -> str:
    """Return the first reason of the judge who excluded a document last and gave one; empty without a reason."""
    with_reason = [row for row in state.latest(doc_id).values() if row.grade == 0 and row.details.get("reason")]
    return str(max(with_reason, key=lambda row: row.number).details["reason"][0]) if with_reason else ""


def is_not_retrieved(state: TopicState, doc_id: str) -> bool:
    """Return whether a document was excluded because nobody could get its full text."""
    return state.grade(doc_id) == 0 and main_reason(state, doc_id) == NOT_RETRIEVED


def decisions(state: TopicState) -> TopicState:
    """Return a state with the last decision about each document: that about its full text, if it was judged.

    Judgements of a full text get the rank and the passage of the first stage, from which they follow.
    """
    full_texts = full_text_state(state)
    decided = TopicState(state.rule, plan=state.plan, representatives=state.representatives)
    for doc_id, rows in state.rows.items():
        is_judged_again = is_included(state, doc_id) and full_texts.grades(doc_id)
        decided.rows[doc_id] = _with_proposal(full_texts.rows[doc_id], rows) if is_judged_again else rows
    decided.take_notes(state)
    return decided


def _with_proposal(rows: Sequence[Judgement], first_stage: Sequence[Judgement]) -> list[Judgement]:
    """Return judgements of full texts with the rank and passage with which their document was proposed."""
    proposal = next((row for row in first_stage if row.rank is not None), first_stage[0])
    shown = {name: getattr(proposal, name) for name in ("rank", "passage_id", "passage")}
    return [replace(row, **shown) for row in rows]
