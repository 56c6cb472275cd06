"""Learn one topic from its text and from judgements, and score every document after each of them.

Eight support vector regressors learn the topic, from different features (:class:`TopicFeatures`), with linear and RBF
kernels; four of them take the topic's text as a relevant document. In most of them, relevant documents together count
about ten times as much as irrelevant ones, whatever their numbers. Which member is best differs from topic to topic.
Their ranks are therefore combined with weights that they earn on the topic itself
(:mod:`~haybale.review.member_weights`). docs/findings.md has what else was tried.

A judgement adds one row to the solutions (:class:`~haybale.review.incremental_svr.IncrementalSVR`). Its kernel with all
rows is computed once and kept (:class:`~haybale.review.judged_rows.JudgedRows`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from haybale.ensemble.kernel import exp_negative
from haybale.errors import InputError
from haybale.review.calibration import UNREAD_RATIO, fit_probabilities, share_of_last, sigmoid
from haybale.review.incremental_svr import IncrementalSVR
from haybale.review.judged_rows import MAX_ROWS, JudgedRows
from haybale.review.member_weights import RANK_CONSTANT, SHARE_FOR_ALL, MemberWeights, score_ranks
from haybale.review.topic_features import TopicFeatures
from haybale.vectors import Floats

__all__ = ["TopicFeatures", "TopicLearner"]

Scores = NDArray[np.float64]

_TEXT_WEIGHT = 0.3  # the cost of the topic's text, for a cost of 1 of a relevant document
_N_BAGS = 10
_LEFT_OUT_SHARE = 1 / 3  # the share of the judged documents that a bag does not have
_ROWS_PER_KERNEL_BLOCK = 1024  # considered rows whose RBF kernel with a judged row is computed at once


class Member(NamedTuple):
    """A regressor: what it compares, whether it takes the topic's text, its kernel and its costs."""

    kernel: str
    uses_text: bool
    is_rbf: bool = False
    bias: float = 1.0  # added to the kernel
    cost: float = 0.11
    ratio: float = 9.8  # the cost of all relevant documents together, for a cost of 1 of all irrelevant ones


BAGGED = Member("words", True, is_rbf=True, bias=0.1)
MEMBERS = (
    Member("words", True),
    Member("stems", True),
    Member("pairs", False),
    BAGGED,
    Member("fields", True),
    Member("words", False, bias=0.0),
    Member("words", False, ratio=1.0),
    Member("words", False, ratio=3.0),
)


class TopicLearner:
    """Score the documents of one topic, given its text and the judgements so far.

    Nothing is random but the judgements that each bag learns from, which depend on ``random_state`` and the document
    only, and in a large collection the rows among which judged ones are ranked. The members' solutions depend on the
    judgements, and their weights also on the order. The state is the same whether or not scores were asked in between.

    Parameters
    ----------
    features : TopicFeatures
    text : str, optional
        The topic's text. Without one, and before the first judgement, all scores are equal.
    random_state : int, default 0
    max_rows : int, default 50_000
        The number of rows (short documents, or passages of long ones) that are considered at most. In larger
        collections these are the ones that are most similar to the text, and then those nearest to each relevant
        document. The others are ranked behind them, by the text.
    members : sequence of Member, default MEMBERS
        The first one takes the topic's text and chooses the passages by which long documents are learned. ``BAGGED`` is
        one of them.
    rank_constant, share_for_all : float
        As in :class:`~haybale.review.member_weights.MemberWeights`.

    Examples
    --------
    >>> learner = TopicLearner(TopicFeatures.of(["Dogs bark.", "Cats purr.", "A dog needs a lead."]), "cats")
    >>> int(learner.scores().argmax())
    1
    >>> learner.judge(1, 0)
    >>> learner.judge(0, 1)
    >>> int(learner.scores().argmax())
    0
    """

    def __init__(
        self,
        features: TopicFeatures,
        text: str | None = None,
        *,
        random_state: int = 0,
        max_rows: int = MAX_ROWS,
        members: Sequence[Member] = MEMBERS,
        rank_constant: float = RANK_CONSTANT,
        share_for_all: float = SHARE_FOR_ALL,
    ) -> None:
        self.features, self.random_state = features, random_state
        self._members = [member for member in members if member.kernel in features.kernels]
        self._svr = [IncrementalSVR() for _ in self._members]
        self._bags = IncrementalSVR(_N_BAGS)
        self._weights = MemberWeights(len(self._members), rank_constant, share_for_all)
        self._documents: list[int] = []  # judged documents; -1 is the topic's text
        self._is_open = np.ones(features.n_documents, dtype=bool)  # whether a document was not judged
        self._labels: list[float] = []
        self._in_bags: list[NDArray[np.bool_]] = []
        self._text_vectors = features.vectors(text or "")
        self._judged = JudgedRows(features, self._text_vectors, random_state, max_rows)
        self._is_solved = False
        self._forget_scores()
        if any(len(vector.columns) for vector in self._text_vectors["words"]):
            self._add(-1, None, 1.0, None)

    def judge(self, document: int, grade: float) -> None:
        """Learn that a document is relevant (a grade above 0) or irrelevant.

        Raises
        ------
        InputError
            For a document that is judged already, or a number out of range.
        """
        if not 0 <= document < self.features.n_documents:
            raise InputError(f"document must be from 0 to {self.features.n_documents - 1}, found {document}")
        if not self._is_open[document]:
            raise InputError(f"document {document} is judged already; call unjudge first")
        if self._judged.consider(np.array([document])):
            self._forget_scores()
        row = self._best_row(document)
        losses = self._losses_at(row, grade > 0)
        if grade > 0:
            self._judged.consider_nearest(row)
        self._add(document, row, 1.0 if grade > 0 else -1.0, losses)

    def unjudge(self, document: int) -> None:
        """Forget the judgement of a document; a document that was not judged raises :class:`InputError`."""
        if document < 0 or document not in self._documents:
            raise InputError(f"document {document} is not judged; judge it first")
        position = self._documents.index(document)
        self._judged.remove(position)
        for member, svr in zip(self._members, self._svr, strict=True):
            svr.remove(position - self._skipped(member))
        self._bags.remove(position)
        self._weights.remove(position)
        self._is_open[document] = True
        del self._documents[position], self._labels[position], self._in_bags[position]
        self._forget_scores()

    def scores(self) -> Scores:
        """Return a score for each document, (n_documents,); a higher one is more likely relevant."""
        can_rank = self._can_rank()
        documents, members = self._by_document(self._member_scores()[can_rank])
        is_open = self._is_open[documents]
        ranks = score_ranks(members, is_open if is_open.any() else ~is_open)
        total = self._weights.scores(ranks, can_rank)
        if self._judged.is_whole:
            return total
        by_text = np.maximum.reduceat(self._judged.by_text, self.features.row_offsets[:-1])
        scores = np.asarray(total.min() - 2 + by_text, dtype=np.float64)
        scores[documents] = total
        return scores

    def probabilities(self) -> Scores:
        """Return the probability, (n_documents,), that each document is relevant.

        It is a sigmoid of the bags' mean score (:func:`~haybale.review.calibration.fit_probabilities`), where judged
        documents are scored by the bags that have not learned from them. Until a relevant and an irrelevant document
        were judged, all documents have the same probability.
        """
        judged = np.array([position for position, document in enumerate(self._documents) if document >= 0], dtype=int)
        relevant = np.array([self._labels[position] > 0 for position in judged], dtype=bool)
        probabilities = np.full(self.features.n_documents, (relevant.sum() + 0.5) / (len(relevant) + 1))
        if relevant.all() or not relevant.any():
            return probabilities
        documents, bags = self._bag_scores()
        scores = bags.mean(axis=0)
        learned = np.transpose(self._in_bags)[:, judged]
        out_of_bag = ~learned.all(axis=0)
        sums, n_bags = np.where(learned, 0, self._bags.values[:, judged]).sum(axis=0), (~learned).sum(axis=0)
        values = sums[out_of_bag] / n_bags[out_of_bag]
        rest = scores[self._is_open[documents]]
        slope, offset = fit_probabilities(values, relevant[out_of_bag], share_of_last(relevant), rest)
        probabilities[:] = sigmoid(np.array([offset + slope * scores.min()]))
        probabilities[documents] = sigmoid(slope * scores + offset)
        return probabilities

    def disagreement(self) -> Scores:
        """Return the standard deviation, (n_documents,), of the bags' scores for each document."""
        documents, scores = self._bag_scores()
        deviations = np.zeros(self.features.n_documents)
        deviations[documents] = scores.std(axis=0)
        return deviations

    def best_passage(self, document: int) -> int:
        """Return the number of the passage by which a document has its score.

        In a short document, which is scored as a whole, it is the passage that is most similar to the text and the
        relevant documents.
        """
        features = self.features
        first, end = features.passage_offsets[document : document + 2].tolist()
        start, stop = features.row_offsets[document : document + 2].tolist()
        if end - first <= 1 or not self._documents:
            return int(first)
        if stop - start == end - first:
            return int(first + self._best_row(document) - start)
        self._solve()
        [space] = features.kernels["words"]
        weights = np.zeros(space.matrix.shape[1], dtype=np.float32)
        for position, beta in enumerate(self._svr[0].beta[0]):
            [vector] = self._judged.vectors(position)["words"]
            weights[vector.columns] += beta * vector.weights
        vectors = [space.vector(str(text)) for text in features.passages[first:end]]
        return int(first + np.argmax([weights[vector.columns] @ vector.weights for vector in vectors]))

    def _can_rank(self) -> NDArray[np.bool_]:
        """Return which members have learned a relevant row, (n_members,); all of them if none has."""
        n_texts = int(bool(self._documents) and self._documents[0] < 0)
        has_relevant = max(self._labels[n_texts:], default=-1) > 0
        return np.array([has_relevant or not n_texts or member.uses_text for member in self._members])

    def _losses_at(self, row: int, is_relevant: bool) -> Scores | None:
        """Return the loss (n_members,) of each member at the judgement of a row that was not learned yet.

        It is NaN for a member that has learned no relevant row. None if no member has.
        """
        judged, can_rank = self._judged, self._can_rank()
        if max(self._labels, default=-1) < 0:
            return None
        if judged.are_all_references:
            scores, position = self._member_scores()[can_rank], int(judged.places(np.array([row]))[0])
        else:
            scores, position = self._predictions(judged.reference_columns), len(judged.references)
            scores = np.column_stack([scores, self._predictions(partial(judged.column, row=row))])[can_rank]
        is_open_row = self._is_open[judged.documents]
        is_open = np.ones(scores.shape[1], dtype=bool)
        is_open[: len(judged.references)] = is_open_row[judged.references]
        n_open = int(is_open_row.sum())
        ratio = max(n_open / is_open.sum(), 1)  # open rows for each open reference
        ranks = score_ranks(scores.astype(np.float64), is_open)[:, position]
        relevant = np.array(self._labels[self._documents[0] < 0 :]) > 0
        losses = np.full(len(self._members), np.nan)
        share = share_of_last(relevant) * UNREAD_RATIO
        losses[can_rank] = self._weights.losses(0.5 + (ranks - 0.5) * ratio, n_open, is_relevant, share)
        return losses

    def _add(self, document: int, row: int | None, label: float, losses: Scores | None) -> None:
        if row is not None:
            self._solve()  # so that the next solution starts from that of the judgements before it
        vectors = self._text_vectors if row is None else self.features.row(row)
        products = self._judged.add(vectors, row)
        self._documents.append(document)
        self._labels.append(label)
        if document >= 0:
            self._is_open[document] = False
        chance = np.random.default_rng([self.random_state, document]).random(_N_BAGS) if document >= 0 else 1
        self._in_bags.append(np.broadcast_to(chance >= _LEFT_OUT_SHARE, _N_BAGS))
        self._weights.add(losses)
        for member, svr in [*zip(self._members, self._svr, strict=True), (BAGGED, self._bags)]:
            if document >= 0 or member.uses_text:
                used = products[member.kernel][self._skipped(member) :]
                svr.add((np.exp(2 * (used - 1)) if member.is_rbf else used) + np.float32(member.bias), label)
        self._forget_scores()

    def _skipped(self, member: Member) -> int:
        """Return how many of the first rows a member does not learn from: 1 if it ignores the topic's text."""
        return int(not member.uses_text and bool(self._documents) and self._documents[0] < 0)

    def _costs(self, member: Member, labels: Floats) -> Floats:
        """Return the cost of each row that a member learns from, given the labels of all rows."""
        positive = labels[self._skipped(member) :] > 0
        n_positive, n = int(positive.sum()), len(positive)
        is_mixed = 0 < n_positive < n
        costs = np.where(positive, 1.0, n_positive / (member.ratio * (n - n_positive)) if is_mixed else 1.0)
        costs *= member.cost * n / costs.sum()
        if member.uses_text and self._documents[0] < 0 and n_positive > 1:
            costs[0] *= _TEXT_WEIGHT
        return costs.astype(np.float32)

    def _solve(self) -> None:
        """Find the solutions for the present judgements, once."""
        if not self._is_solved:
            labels = np.array(self._labels, dtype=np.float32)
            for member, svr in zip(self._members, self._svr, strict=True):
                if len(svr):
                    svr.solve(self._costs(member, labels)[None])
            self._is_solved = True

    def _forget_scores(self) -> None:
        self._is_solved = False
        self._scores: Floats | None = None
        self._scores_of_bags: tuple[NDArray[np.int64], Scores] | None = None

    def _member_scores(self) -> Floats:
        """Return the score of each considered row by each member, (n_members, n_rows), of the present judgements."""
        if self._scores is None:
            self._scores = self._predictions(self._judged.columns)
        return self._scores

    def _predictions(self, columns_of: Callable[[str], Floats]) -> Floats:
        """Return each member's score, (n_members, n), for n rows whose kernel with the judged rows is given by name."""
        self._solve()
        scores: dict[int, Floats] = {}
        for kernel, is_rbf in dict.fromkeys((member.kernel, member.is_rbf) for member in self._members):
            alike = [
                number
                for number, member in enumerate(self._members)
                if (member.kernel, member.is_rbf) == (kernel, is_rbf)
            ]
            beta = np.zeros((len(alike), len(self._documents)), dtype=np.float32)
            for row, number in enumerate(alike):
                beta[row, self._skipped(self._members[number]) :] = self._svr[number].beta[0]
            scores |= dict(zip(alike, _predict(columns_of(kernel), beta, is_rbf), strict=True))
        return np.array([scores[number] for number in range(len(self._members))])

    def _bag_scores(self) -> tuple[NDArray[np.int64], Scores]:
        """Return the considered documents, and their scores by each bag, (n_bags, n_documents)."""
        if self._scores_of_bags is None:
            if len(self._bags):
                self._solve()
                # The bags start from the solution on all rows, not from their last one: so their scores depend on the
                # judgements only.
                self._bags.start_from(self._svr[self._members.index(BAGGED)])
                costs = self._costs(BAGGED, np.array(self._labels, dtype=np.float32))
                self._bags.solve(np.where(np.transpose(self._in_bags), costs, 0))
                scores = _predict(self._judged.columns(BAGGED.kernel), self._bags.beta, BAGGED.is_rbf)
                scores += np.float32(BAGGED.bias) * self._bags.beta.sum(axis=1)[:, None]
            else:
                scores = np.zeros((_N_BAGS, len(self._judged.rows)), dtype=np.float32)
            self._scores_of_bags = self._by_document(scores)
        return self._scores_of_bags

    def _by_document(self, scores: Floats) -> tuple[NDArray[np.int64], Scores]:
        """Return the considered documents, rising, and the scores of the best row of each, (n, n_documents)."""
        documents = self._judged.documents
        if self._judged.is_whole and len(documents) == self.features.n_documents:
            return documents, scores.astype(np.float64)
        order = np.argsort(documents, kind="stable")
        distinct, starts = np.unique(documents[order], return_index=True)
        return distinct, np.maximum.reduceat(scores[:, order], starts, axis=1).astype(np.float64)

    def _best_row(self, document: int) -> int:
        """Return the row by which the first member scores a document."""
        start, stop = self.features.row_offsets[document : document + 2].tolist()
        rows = np.arange(start, stop)
        if len(rows) > 1 and self._judged.is_considered[rows].all():
            rows = rows[np.argmax(self._member_scores()[0, self._judged.places(rows)])][None]
        return int(rows[0])


@njit(nogil=True, fastmath=True, cache=True)
def _add_rbf(columns: Floats, beta: Floats, out: Floats) -> None:  # pragma: no cover - compiled
    """Add the RBF kernel of each column entry, times each row of coefficients, to ``out``."""
    n, n_rows = columns.shape
    kernel = np.empty(_ROWS_PER_KERNEL_BLOCK, dtype=np.float32)
    for start in range(0, n_rows, _ROWS_PER_KERNEL_BLOCK):
        size = min(_ROWS_PER_KERNEL_BLOCK, n_rows - start)
        for i in range(n):
            row = columns[i]
            for k in range(size):
                kernel[k] = exp_negative(min(np.float32(2) * row[start + k] - np.float32(2), np.float32(0)))
            for b in range(len(beta)):
                weight, part = beta[b, i], out[b]
                for k in range(size):
                    part[start + k] += weight * kernel[k]


def _predict(columns: Floats, beta: Floats, is_rbf: bool) -> Any:
    """Return the predictions (n_bags, n_rows), without the bias, from the kernel of the judged rows."""
    if not is_rbf:
        return beta @ columns
    out = np.zeros((len(beta), columns.shape[1]), dtype=np.float32)
    _add_rbf(columns, np.ascontiguousarray(beta), out)
    return out
