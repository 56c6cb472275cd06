"""A topic on the documents that an engine has at one moment: the learner's ranking, and what can be proposed next."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from haybale.cached import cached_property
from haybale.engine import Engine
from haybale.engine.reattaching import TextDigests, digest_of
from haybale.review.judgement_store import Judgement
from haybale.review.proposals import Floats, Learner, id_places, top_documents
from haybale.review.topic_state import SAMPLE, TopicState

if TYPE_CHECKING:
    from haybale.review.screening import Screening

LEARNED, EXPLORED = "learner", "learner, explored"  # what proposed a document
_MAX_RELEVANT = 50  # latest relevant documents, whose typical terms are marked in proposed ones


class Proposal(NamedTuple):
    """The number of a document, its place among those that can be proposed, and what proposed it."""

    number: int
    rank: int | None
    model: str


class TopicRanking:
    """The ranking of a snapshot's documents for a topic, by a learner that has learned the judgements that count.

    Parameters
    ----------
    snapshot : Engine
    state : TopicState
        Without rows; :meth:`apply` adds them. Of the documents of its groups of duplicates, only the representatives
        are proposed, learned from and counted.
    learner : Learner
    """

    def __init__(self, snapshot: Engine, state: TopicState, learner: Learner) -> None:
        self.snapshot, self.state, self.learner = snapshot, state, learner
        self.collection = snapshot.collection
        self.has_passage = np.diff(self.collection.passages.doc_offsets) > 0  # and is a representative
        copies = [doc_id for doc_id, standing in state.representatives.items() if doc_id != standing]
        self.has_passage[self.collection.document_numbers(copies)] = False
        self.places = id_places(self.collection.doc_ids)
        self.taught: dict[str, int] = {}  # the grades that the learner knows
        self._graded, self._held_out, self._skipped = np.zeros((3, self.collection.n_documents), dtype=bool)
        self._digests = TextDigests(self.collection)
        self._numbers: dict[str, int | None] = {}  # by id; progress asks for each judged document several times
        self._terms: dict[str, frozenset[str]] = {}  # terms of the best passages of relevant documents, by id

    def apply(self, row: Judgement) -> None:
        """Add a row, and tell the learner what has changed about its document, if the engine has it."""
        self._update(self.state.apply(row))

    def regroup(self, representatives: Mapping[str, str], rows: Iterable[Judgement]) -> TopicRanking:
        """Return the ranking with other groups of duplicates, and a state to which all rows are added.

        The learner keeps what it has learned of the documents that stay representatives with their judgements.
        """
        state = TopicState(self.state.rule, plan=self.state.plan, representatives=representatives)
        ranking = TopicRanking(self.snapshot, state, self.learner)
        ranking.taught, ranking._terms = dict(self.taught), self._terms
        for row in rows:
            state.apply(row)
        for doc_id in dict.fromkeys([*self.taught, *state.rows]):
            ranking._update(doc_id)
        return ranking

    def _update(self, doc_id: str) -> None:
        """Bring a document, and what the learner knows of it, to the present state."""
        number = self.number(doc_id)
        if number is None:
            return
        grade, held_out = self.state.grade(doc_id), self.state.is_held_out(doc_id)
        self._graded[number], self._held_out[number] = grade is not None, held_out
        self._skipped[number] = self.state.is_skipped(doc_id)
        is_copy = self.state.representative(doc_id) != doc_id
        is_unfit = held_out or is_copy or self.was_replaced(doc_id)  # nobody has judged the text that it has now
        before, now = self.taught.get(doc_id), None if is_unfit else grade
        if before == now:
            return
        if before is not None:
            self.learner.unjudge(number)
            del self.taught[doc_id]
        if now is not None:
            self.learner.judge(number, float(now))
            self.taught[doc_id] = now

    def number(self, doc_id: str) -> int | None:
        """Return the number of a document; None if the engine does not have it."""
        if doc_id not in self._numbers:
            number = int(self.collection.find_documents([doc_id])[0])
            self._numbers[doc_id] = None if number < 0 else number
        return self._numbers[doc_id]

    def doc_id(self, number: int) -> str:
        """Return the id of a document."""
        return str(self.collection.doc_ids[number].as_py())

    def scores(self, seen_by: str | None = None) -> Floats:
        """Return the learner's scores; NaN where they would tell this judge the grade of a document that is hidden."""
        scores = self.learner.scores()
        hidden = {doc_id for doc_id, judge in self.state.waiting.items() if seen_by not in (None, judge)}
        if hidden:
            hidden |= {copy for copy, doc_id in self.state.representatives.items() if doc_id in hidden}
            numbers = self.collection.find_documents(sorted(hidden))
            scores = scores.copy()
            scores[numbers[numbers >= 0]] = np.nan
        return scores

    def judged_by_others(self, judge: str | None) -> tuple[list[Proposal], list[Proposal]]:
        """Return what a judge should judge after others, in the order in which it was first judged; None: nothing.

        The order, the rank and the model are those of the first judge: the learner's present order would tell the
        other's grade. In double screening, the documents are those that wait for a second judge; in single screening,
        all that the judge has not judged. The second list has those that the judge has put off.
        """
        ready, put_off = list[Proposal](), list[Proposal]()
        if judge is None:
            return ready, put_off
        state = self.state
        if state.plan.is_double:
            doc_ids = [doc_id for doc_id, first in state.waiting.items() if first != judge]
        else:
            graded = [doc_id for doc_id in state.rows if state.graded(doc_id) and judge not in state.grades(doc_id)]
            doc_ids = sorted(graded, key=lambda doc_id: self.first_shown(doc_id).number)
        for doc_id in doc_ids:
            number, shown = self.number(doc_id), self.first_shown(doc_id)
            if number is not None and self.has_passage[number]:
                is_put_off = any(row.kind == "skipped" and row.judge == judge for row in state.rows[doc_id])
                (put_off if is_put_off else ready).append(Proposal(number, shown.rank, shown.model or ""))
        return ready, put_off

    def first_shown(self, doc_id: str) -> Judgement:
        """Return the first judgement of a judged document, which has what was shown then."""
        return self.state.graded(doc_id)[0]

    def passage_shown_first(self, number: int) -> int:
        """Return the number of the passage that the first judge of a document saw, or of its first passage."""
        start, end = (int(bound) for bound in self.collection.passages.doc_offsets[number : number + 2])
        ids = self.collection.passages.ids[start:end].to_pylist()
        shown = self.first_shown(self.doc_id(number)).passage_id
        return start + ids.index(shown) if shown in ids else start

    def drawn_to_judge(self) -> list[Proposal]:
        """Return the documents of the random sample that nobody has judged or skipped."""
        proposals = []
        for doc_id in self.sample():
            if not self.state.is_skipped(doc_id):
                number = self.number(doc_id)
                if number is not None and not self.state.grades(doc_id):
                    proposals.append(Proposal(number, None, SAMPLE))
        return proposals

    def ranked(self, n: int, explore_every: int | None, taken: Sequence[int] = ()) -> list[Proposal]:
        """Return the n documents that the learner proposes of those that nobody has judged, those held out included.

        Parameters
        ----------
        n : int
        explore_every : int or None
            Propose as every k-th document the one about which the learner is least sure.
        taken : sequence of int
            Documents that are left out.
        """
        candidates = self.has_passage & (~self._graded | self._held_out)
        candidates[list(taken)] = False
        if n < 1 or not candidates.any():
            return []
        scores, proposals = self.learner.scores(), []
        if explore_every is not None and (len(self.state.reading_order()) + 1) % explore_every == 0:
            number = int(top_documents(self.learner.disagreement(), candidates, self.places, 1)[0])
            rank = int((scores[candidates] > scores[number]).sum()) + 1
            proposals.append(Proposal(number, rank, EXPLORED))
            candidates[number] = False
        order = top_documents(scores, candidates & ~self._skipped, self.places, n)
        rest = top_documents(scores, candidates & self._skipped, self.places, n - len(order))
        ranked = enumerate([*order.tolist(), *rest.tolist()], 1)
        return [*proposals, *(Proposal(number, rank, LEARNED) for rank, number in ranked)][:n]

    def is_held_out(self, number: int) -> bool:
        """Return whether a document was judged as part of the random sample, and not reached by the ranking."""
        return bool(self._held_out[number])

    def screening(self) -> Screening:
        """Return what stopping rules see of the documents that the engine has.

        A document that waits for a second judge is not read yet.
        """
        from haybale.review.screening import Screening

        state = self.state
        here = [doc_id for doc_id in state.rows if self.number(doc_id) is not None and doc_id not in state.waiting]
        order = [doc_id for doc_id in filter(state.is_read, state.reading_order()) if self.number(doc_id) is not None]
        known_ids = [doc_id for doc_id in here if state.is_known(doc_id)]
        others = self.has_passage.copy()
        others[self.collection.document_numbers([*order, *known_ids])] = False
        if not order and not others.any():
            order = known_ids  # every document was judged without a proposal, so that all were read
        read = self.collection.document_numbers(order)
        rows = np.concatenate([read, np.flatnonzero(others)])
        probabilities: Floats = self.learner.probabilities()
        sample = self.sample()
        reading = [doc_id for doc_id in sample if self.number(doc_id) is not None and doc_id not in state.waiting]
        held_out = list(filter(state.is_held_out, reading))
        sampled = set(sample).intersection(order)
        return Screening(
            labels=np.array([(state.grade(doc_id) or 0) > 0 for doc_id in order], dtype=bool),
            n_documents=len(rows),
            sampled=np.array([doc_id in sampled for doc_id in order], dtype=bool),
            scores=probabilities[rows],
            held_out=np.array([(state.grade(doc_id) or 0) > 0 for doc_id in held_out], dtype=bool),
            sample_gap=self._sample_gap(sample),
        )

    @cached_property
    def population(self) -> str:
        """A digest of the ids of the documents that can be drawn for a random sample."""
        rows = np.flatnonzero(self.has_passage)
        ids = sorted(self.collection.doc_ids.take(pa.array(rows)).to_pylist())
        return hashlib.sha256("\0".join(ids).encode()).hexdigest()[:16]

    def sample(self) -> list[str]:
        """Return the documents that were drawn from those that the engine has; if there are none, all drawn ones."""
        drawn = [doc_id for doc_id in self.state.rows if self.state.is_drawn(doc_id)]
        return list(filter(self._is_in_sample, drawn)) or drawn

    def _is_in_sample(self, doc_id: str) -> bool:
        return any(population == self.population for population in self.state.populations(doc_id))

    def _sample_gap(self, sample: Sequence[str]) -> str:
        """Return why a random sample certifies nothing about the documents that the engine has; empty if it does.

        Each document of the sample must be judged with the text that it has now, and drawn from these documents.
        """
        unjudged = [doc_id for doc_id in sample if not self.state.is_read(doc_id)]
        replaced = [doc_id for doc_id in sample if self.state.is_read(doc_id) and self.was_replaced(doc_id)]
        if unjudged or replaced:
            skipped = sum(map(self.state.is_skipped, unjudged))
            counts = f"{len(unjudged) + len(replaced):,} of the {len(sample):,} documents of the random sample"
            return f"{counts} are not judged, of which {skipped:,} were skipped and {len(replaced):,} were replaced"
        if any(self.number(doc_id) is None or not self._is_in_sample(doc_id) for doc_id in sample):
            return "documents were added or removed after the random sample was drawn; draw another one"
        return ""

    def relevant_terms(self, without: str | None = None) -> list[frozenset[str]]:
        """Return the terms of the best passages of the relevant documents that were judged last, without one of them.

        Documents that wait for a second judge are left out: marked terms would tell the first one's grade.

        The best passage of a document is found once, when its terms are first needed. Later judgements do not change
        it, because it would take too long to find the passages of all relevant documents for each proposal.
        """
        hidden = {*self.state.waiting, without}
        relevant = [doc_id for doc_id, grade in self.taught.items() if grade > 0 and doc_id not in hidden]
        relevant = relevant[-_MAX_RELEVANT:]
        for doc_id in relevant:
            number = self.number(doc_id)
            if doc_id not in self._terms and number is not None:
                text = str(self.collection.passages.texts[self.learner.best_passage(number)].as_py())
                self._terms[doc_id] = frozenset(self.snapshot.analyzer.terms(text))
        return [self._terms[doc_id] for doc_id in relevant if doc_id in self._terms]

    def to_draw(self) -> tuple[list[str], int]:
        """Return the ids, sorted, that can be drawn for the random sample, and how often documents were drawn."""
        rows = np.flatnonzero(self.has_passage)
        ids = [self.doc_id(number) for number in rows[np.argsort(self.places[rows])].tolist()]
        left = [doc_id for doc_id in ids if not (self._is_in_sample(doc_id) or self.state.is_known(doc_id))]
        return left, sum(len(self.state.populations(doc_id)) for doc_id in self.state.rows)

    def was_replaced(self, doc_id: str) -> bool:
        """Return whether a document has another text than one that a judge judged last."""
        return bool(self.replaced([doc_id]))

    def replaced(self, doc_ids: Iterable[str]) -> list[str]:
        """Return which documents, judged for these or for their groups, have another text than the judged one, sorted.

        Of each judge, the last judgement counts.
        """
        latest = (row for doc_id in doc_ids for row in self.state.latest(doc_id).values())
        return sorted({row.doc_id for row in latest if self.is_of_other_text(row)})

    def is_undecided(self, doc_id: str) -> bool:
        """Return whether it is not known which text of a document was judged."""
        rows = [row for row in self.state.rows[doc_id] if row.grade is not None]
        return self.number(doc_id) is not None and not any(row.document for row in rows)

    def learnable_grades(self) -> dict[str, int]:
        """Return the grades of documents that the engine has with the text that was judged."""
        grades = {doc_id: self.state.grade(doc_id) for doc_id in self.state.rows if self.number(doc_id) is not None}
        return {
            doc_id: grade for doc_id, grade in grades.items() if grade is not None and not self.was_replaced(doc_id)
        }

    def present_moves(self, moves: Sequence[tuple[str, str]]) -> dict[str, str]:
        """Return the documents to which judgements have followed their texts, by the documents that were judged."""
        return dict(sorted((old, new) for old, new in moves if old != new and self.number(new) is not None))

    def status_of(self, row: Judgement) -> str:
        """Return ``"orphaned"`` or ``"replaced"`` if the document of a row does not have the text that was judged."""
        if self.number(row.doc_id) is None:
            return "orphaned"
        return "replaced" if self.is_of_other_text(row) else ""

    def is_of_other_text(self, row: Judgement) -> bool:
        """Return whether a row is about another text than the one that its document has now."""
        digest = self._digests.of([row.doc_id])[row.doc_id]
        return None not in (row.document, digest) and row.document != digest


def text_digest(engine: Engine, doc_id: str) -> str:
    """Return a digest of a document's text; an unknown document raises :class:`~haybale.InputError`."""
    collection = engine.snapshot().collection
    return digest_of(collection, int(collection.document_numbers([doc_id])[0]))


def with_digest(row: Judgement, engine: Engine) -> Judgement:
    """Return a row with a digest of the text that its document has in an engine, unless it has one already."""
    return row if row.document is not None else replace(row, document=text_digest(engine, row.doc_id))
