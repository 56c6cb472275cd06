"""A topic on the documents that an engine has at one moment: the learner's ranking, and what can be proposed next."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from haybale.cached import cached_property
from haybale.engine import Engine
from haybale.engine.reattaching import TextDigests, digest_of
from haybale.review.audit_log import AUDIT, AuditLog, AuditSettings, documents_digest
from haybale.review.judgement_store import Judgement
from haybale.review.proposals import Bools, Floats, Learner, id_places, top_documents
from haybale.review.topic_state import SAMPLE, TopicState

if TYPE_CHECKING:
    from haybale.review.draws import Draws
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
        Without rows; :meth:`apply` adds them.
    learner : Learner
    """

    audit: AuditSettings | None  # of the audit that was begun last

    def __init__(self, snapshot: Engine, state: TopicState, learner: Learner) -> None:
        self.snapshot, self.state, self.learner = snapshot, state, learner
        self.collection = snapshot.collection
        self.has_passage = np.diff(self.collection.passages.doc_offsets) > 0
        self.places = id_places(self.collection.doc_ids)
        self.taught: dict[str, int] = {}  # the grades that the learner knows
        self._graded, self._held_out, self._skipped = np.zeros((3, self.collection.n_documents), dtype=bool)
        self.audit_log, self.audit = AuditLog(), None
        self._digests = TextDigests(self.collection)
        self._numbers: dict[str, int | None] = {}  # by id; progress asks for each judged document several times
        self._terms: dict[str, frozenset[str]] = {}  # terms of the best passages of relevant documents, by id

    def apply(self, row: Judgement) -> None:
        """Add a row, and tell the learner what has changed about its document, if the engine has it."""
        doc_id = self.state.apply(row)
        number = self.number(doc_id)
        if number is None:
            return
        grade, held_out = self.state.grade(doc_id), self.state.is_held_out(doc_id)
        self._graded[number], self._held_out[number] = grade is not None, held_out
        self._skipped[number] = self.state.is_skipped(doc_id)
        if self.was_replaced(doc_id):
            grade = None  # nobody has judged the text that the document has now
        if self.has_passage[number] and not self.is_of_other_text(row):
            self.audit_log.apply(row, grade)
        before, now = self.taught.get(doc_id), None if held_out else grade
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

    def drawn_to_judge(self, judge: str | None) -> list[Proposal]:
        """Return the documents of the random sample that were not skipped, nor judged by a judge (None: by anybody).

        Those that the draws of an audit need come first; a judge gets them if nobody has judged them.
        """
        proposals = []
        if self.audit is not None:
            for doc_id in self.audit_log.to_judge(self.audit.number):
                if not self.state.is_skipped(doc_id) and (number := self.number(doc_id)) is not None:
                    proposals.append(Proposal(number, None, AUDIT))
        for doc_id in self.sample():
            if not self.state.is_skipped(doc_id):
                grades, number = self.state.grades(doc_id), self.number(doc_id)
                if number is not None and (not grades if judge is None else judge not in grades):
                    proposals.append(Proposal(number, None, SAMPLE))
        return proposals

    def ranked(self, n: int, judge: str | None, explore_every: int | None, taken: Sequence[int] = ()) -> list[Proposal]:
        """Return the n documents that the learner proposes, those held out included.

        Parameters
        ----------
        n : int
        judge : str or None
            Leave out what this judge has judged; None: what anybody has judged.
        explore_every : int or None
            Propose as every k-th document the one about which the learner is least sure.
        taken : sequence of int
            Documents that are left out.
        """
        candidates = self._open(judge)
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

    def _open(self, judge: str | None) -> Bools:
        """Return which documents can still be proposed to a judge, those held out included."""
        if judge is None:
            return self.has_passage & (~self._graded | self._held_out)
        done = np.zeros(len(self._graded), dtype=bool)
        for doc_id in self.state.rows:
            number = self.number(doc_id)
            if number is not None and judge in self.state.grades(doc_id):
                done[number] = not self._held_out[number]
        return self.has_passage & ~done

    def screening(self) -> Screening:
        """Return what stopping rules see of the documents that the engine has."""
        from haybale.review.screening import Screening

        state = self.state
        here = [doc_id for doc_id in state.rows if self.number(doc_id) is not None]
        order = [doc_id for doc_id in state.reading_order() if self.number(doc_id) is not None]
        known_ids = [doc_id for doc_id in here if state.is_known(doc_id)]
        others = self.has_passage.copy()
        others[self.collection.document_numbers([*order, *known_ids])] = False
        if not order and not others.any():
            order = known_ids  # every document was judged without a proposal, so that all were read
        read = self.collection.document_numbers(order)
        rows = np.concatenate([read, np.flatnonzero(others)])
        probabilities: Floats = self.learner.probabilities()
        sample = self.sample()
        held_out = [doc_id for doc_id in sample if self.number(doc_id) is not None and state.is_held_out(doc_id)]
        sampled = set(sample).intersection(order)
        return Screening(
            labels=np.array([(state.grade(doc_id) or 0) > 0 for doc_id in order], dtype=bool),
            n_documents=len(rows),
            sampled=np.array([doc_id in sampled for doc_id in order], dtype=bool),
            scores=probabilities[rows],
            held_out=np.array([(state.grade(doc_id) or 0) > 0 for doc_id in held_out], dtype=bool),
            sample_gap=self._sample_gap(sample),
            counted_draws=self._draws(order, known_ids),
        )

    def certificates(self) -> list[str]:
        """Return the texts of the stopping rules for which documents were drawn or are drawn."""
        return [*(["qbcb"] if self.sample() else []), *([self.audit.rule] if self.audit is not None else [])]

    def _draws(self, order: Sequence[str], known_ids: Sequence[str]) -> Draws | None:
        """Return the draws of the audit for a reading order and the documents judged outside it."""
        if self.audit is None:
            return None
        order_rows = [self.state.proposed_at(doc_id) or 0 for doc_id in order]
        others = [doc_id for doc_id in set(known_ids).difference(order) if doc_id in self.audit_log.taken]
        return self.audit_log.draws(self.audit, order_rows, others, self.audit_gap)

    @cached_property
    def in_id_order(self) -> NDArray[np.int64]:
        """The numbers of the documents with a passage, by their ids."""
        rows = np.flatnonzero(self.has_passage)
        return rows[np.argsort(self.places[rows])]

    @property
    def audit_gap(self) -> str:
        """Why the audit says nothing about the documents that the engine has; empty if it does."""
        if self.audit is None:
            return ""
        is_same_version = self.audit.version is not None and self.audit.version == self.snapshot.documents_digest
        if is_same_version or self.audit.documents == self._documents_digest:
            return ""
        return "documents were added, removed or replaced after the audit began; begin another one"

    @cached_property
    def _documents_digest(self) -> str:
        return documents_digest(self.collection)

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
        unjudged = [doc_id for doc_id in sample if not self.state.grades(doc_id)]
        replaced = [doc_id for doc_id in sample if self.state.grades(doc_id) and self.was_replaced(doc_id)]
        if unjudged or replaced:
            skipped = sum(map(self.state.is_skipped, unjudged))
            counts = f"{len(unjudged) + len(replaced):,} of the {len(sample):,} documents of the random sample"
            return f"{counts} are not judged, of which {skipped:,} were skipped and {len(replaced):,} were replaced"
        if any(self.number(doc_id) is None or not self._is_in_sample(doc_id) for doc_id in sample):
            return "documents were added or removed after the random sample was drawn; draw another one"
        return ""

    def relevant_terms(self) -> list[frozenset[str]]:
        """Return the terms of the best passages of the relevant documents that were judged last.

        The best passage of a document is found once, when its terms are first needed. Later judgements do not change
        it, because it would take too long to find the passages of all relevant documents for each proposal.
        """
        relevant = [doc_id for doc_id, grade in self.taught.items() if grade > 0][-_MAX_RELEVANT:]
        for doc_id in relevant:
            number = self.number(doc_id)
            if doc_id not in self._terms and number is not None:
                text = str(self.collection.passages.texts[self.learner.best_passage(number)].as_py())
                self._terms[doc_id] = frozenset(self.snapshot.analyzer.terms(text))
        return [self._terms[doc_id] for doc_id in relevant if doc_id in self._terms]

    def to_draw(self) -> tuple[list[str], int]:
        """Return the ids, sorted, that can be drawn for the random sample, and how often documents were drawn."""
        ids = [self.doc_id(number) for number in self.in_id_order.tolist()]
        left = [doc_id for doc_id in ids if not (self._is_in_sample(doc_id) or self.state.is_known(doc_id))]
        return left, sum(len(self.state.populations(doc_id)) for doc_id in self.state.rows)

    def was_replaced(self, doc_id: str) -> bool:
        """Return whether a document has another text than one that a judge judged last."""
        latest = {row.judge: row for row in self.state.rows.get(doc_id, ()) if row.grade is not None}
        return any(map(self.is_of_other_text, latest.values()))

    def is_undecided(self, doc_id: str) -> bool:
        """Return whether it is not known which text of a document was judged."""
        rows = [row for row in self.state.rows[doc_id] if row.grade is not None]
        return self.number(doc_id) is not None and not any(row.document for row in rows)

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
