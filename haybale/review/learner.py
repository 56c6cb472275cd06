"""Learn one topic from its text and from judgements, and score every document after each of them.

Three regressors over the TF-IDF vectors of :class:`TopicFeatures` learn the topic: two linear ones, one of which takes
the topic's text as a relevant document, and one with an RBF kernel. Their scores are standardised over the documents
that were not judged, and added. Relevant documents together count about ten times as much as irrelevant ones, whatever
their numbers.

A judgement adds one row to the solutions (:class:`~haybale.review.incremental_svr.IncrementalSVR`). Its products with
all rows are computed once and kept, and all that follows works on them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from haybale.ensemble.kernel import exp_negative
from haybale.errors import InputError
from haybale.review.incremental_svr import IncrementalSVR
from haybale.review.topic_features import TopicFeatures
from haybale.vectors import Floats

__all__ = ["TopicFeatures", "TopicLearner"]

Scores = NDArray[np.float64]

_COST = 0.11
_RATIO = 9.8  # the cost of all relevant documents together, for a cost of 1 of all irrelevant ones
_TEXT_WEIGHT = 0.3  # the cost of the topic's text, for a cost of 1 of a relevant document
_N_BAGS = 10
_LEFT_OUT = 1 / 3  # the share of the judged documents that a bag does not have
_BLOCK = 1024


class _Member(NamedTuple):
    """A kernel, and what it learns from."""

    is_rbf: bool
    bias: float  # added to the kernel
    uses_text: bool


_MEMBERS = (_Member(False, 1.0, True), _Member(False, 1.0, False), _Member(True, 0.1, True))
_BAGGED = 2  # the member whose bags disagree


class TopicLearner:
    """Score the documents of one topic, given its text and the judgements so far.

    Nothing is random but the choice of the judgements that each bag learns from, and this depends on ``random_state``
    and the document only. The state after some judgements is the same whether or not scores were asked in between.

    Parameters
    ----------
    features : TopicFeatures
    text : str, optional
        The topic's text. Without one, and before the first judgement, all scores are equal.
    random_state : int, default 0

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

    def __init__(self, features: TopicFeatures, text: str | None = None, *, random_state: int = 0) -> None:
        self.features, self.random_state = features, random_state
        self._documents: list[int] = []  # judged documents; -1 is the topic's text
        self._rows: list[int] = []
        self._labels: list[float] = []
        self._columns = np.zeros((16, features.n_rows), dtype=np.float32)
        self._svr = [IncrementalSVR() for _ in _MEMBERS]
        self._bags = IncrementalSVR(_N_BAGS)
        self._drawn: dict[int, NDArray[np.bool_]] = {}  # which bags learn from each document, (n_bags,)
        self._scores: Floats | None = None  # (n_members, n_rows) of the present judgements
        self._bag_scores: Scores | None = None  # (n_bags, n_documents)
        vector = self._text_vector = features.vector(text or "")
        if len(vector.terms):
            self._add(-1, -1, features.products(vector), 1.0)

    def judge(self, document: int, grade: float) -> None:
        """Learn that a document is relevant (a grade above 0) or irrelevant.

        Raises
        ------
        InputError
            For a document that is judged already, or a number out of range.
        """
        if not 0 <= document < self.features.n_documents:
            raise InputError(f"document must be from 0 to {self.features.n_documents - 1}, found {document}")
        if document in self._documents:
            raise InputError(f"document {document} is judged already; call unjudge first")
        self._update()
        row = self._best_row(document)
        column = self.features.products(self.features.row(row))
        self._add(document, row, column, 1.0 if grade > 0 else -1.0)

    def unjudge(self, document: int) -> None:
        """Forget the judgement of a document; a document that was not judged raises :class:`InputError`."""
        if document < 0 or document not in self._documents:
            raise InputError(f"document {document} is not judged; judge it first")
        self._update()
        place = self._documents.index(document)
        self._columns[place : len(self._documents) - 1] = self._columns[place + 1 : len(self._documents)]
        for known in (self._documents, self._rows, self._labels):
            del known[place]
        for member, svr in zip(_MEMBERS, self._svr, strict=True):
            svr.remove(place - self._skipped(member))
        self._bags.remove(place)
        self._scores = self._bag_scores = None

    def scores(self) -> Scores:
        """Return a score for each document, (n_documents,); a higher one is more likely relevant."""
        members = [self._by_document(each) for each in self._update()]
        judged = [document for document in self._documents if document >= 0]
        open_ = np.ones(self.features.n_documents, dtype=bool)
        open_[judged] = len(judged) == len(open_)
        total = np.zeros(len(open_))
        for values in members:
            spread = values[open_].std()
            if spread > 1e-9:
                total += (values - values[open_].mean()) / spread
        return total

    def probabilities(self) -> Scores:
        """Return the probability, (n_documents,), that each document is relevant.

        The bags' mean score becomes a probability by Platt's method, fitted on the judged documents, each of which is
        scored by the bags that have not learned from it. Until a relevant and an irrelevant document were judged, all
        documents have the same probability.
        """
        judged = [place for place, document in enumerate(self._documents) if document >= 0]
        labels = np.array(self._labels)[judged] > 0
        n_documents = self.features.n_documents
        if labels.all() or not labels.any():
            return np.full(n_documents, (labels.sum() + 0.5) / (len(labels) + 1))
        scores = self._bags_by_document().mean(axis=0)
        values = np.where(self._in_bags()[:, judged], np.nan, self._bags.values[:, judged])
        known = ~np.isnan(values).all(axis=0)
        slope, offset = _platt(np.nanmean(values[:, known], axis=0), labels[known])
        return np.asarray(1 / (1 + np.exp(-(slope * scores + offset))))

    def disagreement(self) -> Scores:
        """Return the standard deviation, (n_documents,), of the bags' scores for each document."""
        deviation: Scores = self._bags_by_document().std(axis=0)
        return deviation

    def best_passage(self, document: int) -> int:
        """Return the number of the passage by which a document has its score.

        In a short document, which is scored as a whole, it is the passage that is most similar to the relevant ones.
        """
        features = self.features
        first, end = features.passage_offsets[document : document + 2].tolist()
        start, stop = features.row_offsets[document : document + 2].tolist()
        if end - first <= 1 or not self._documents:
            return int(first)
        if stop - start == end - first:
            return int(first + self._best_row(document) - start)
        weights = self._linear_weights()
        texts = features.passages[first:end]
        vectors = [features.vector(str(text)) for text in texts]
        return int(first + np.argmax([weights[each.terms] @ each.weights for each in vectors]))

    def _add(self, document: int, row: int, column: Floats, label: float) -> None:
        n = len(self._documents)
        if n == len(self._columns):
            self._columns = np.concatenate([self._columns, np.zeros_like(self._columns)])
        self._columns[n] = column
        self._documents.append(document)
        self._rows.append(row)
        self._labels.append(label)
        has_text = self._documents[0] < 0
        products = np.ones(n + 1, dtype=np.float32)
        if document >= 0:
            products[:n] = self._columns[:n, row]
            products[n] = 0.0 if self.features.is_empty[row] else 1.0
        for member, svr in [*zip(_MEMBERS, self._svr, strict=True), (_MEMBERS[_BAGGED], self._bags)]:
            if document >= 0 or member.uses_text:
                used = products[self._skipped(member) if has_text else 0 :]
                svr.add((np.exp(2 * (used - 1)) if member.is_rbf else used) + np.float32(member.bias), label)
        self._scores = self._bag_scores = None

    def _skipped(self, member: _Member) -> int:
        """Return how many of the first rows a member does not learn from: 1 if it ignores the topic's text."""
        return int(not member.uses_text and bool(self._documents) and self._documents[0] < 0)

    def _costs(self) -> Floats:
        """Return the cost of each judged document, and of the text."""
        positive = np.array(self._labels) > 0
        n_positive, n = int(positive.sum()), len(positive)
        costs = np.where(positive, 1.0, n_positive / (_RATIO * max(n - n_positive, 1)) if n_positive else 1.0)
        costs *= _COST * n / costs.sum()
        if self._documents[0] < 0:
            costs[0] *= _TEXT_WEIGHT
        return costs.astype(np.float32)

    def _update(self) -> Floats:
        """Return the score of each row by each member, (n_members, n_rows), of the present judgements."""
        if self._scores is None:
            n, n_rows = len(self._documents), self.features.n_rows
            self._scores = np.zeros((len(_MEMBERS), n_rows), dtype=np.float32)
            for place, (member, svr) in enumerate(zip(_MEMBERS, self._svr, strict=True)):
                if len(svr):
                    skipped = self._skipped(member)
                    svr.solve(self._costs()[None, skipped:])
                    columns = self._columns[skipped:n]
                    self._scores[place] = _predict(columns, svr.beta, member.is_rbf)[0]
        return self._scores

    def _in_bags(self) -> NDArray[np.bool_]:
        """Return whether each bag learns from each judged document, (n_bags, n); all learn from the text."""
        for document in self._documents:
            if document not in self._drawn:
                random = np.random.default_rng([self.random_state, document]).random(_N_BAGS) if document >= 0 else 1.0
                self._drawn[document] = np.full(_N_BAGS, random) >= _LEFT_OUT
        return np.array([self._drawn[document] for document in self._documents]).T

    def _bags_by_document(self) -> Scores:
        """Return the score of each document by each bag, (n_bags, n_documents)."""
        if self._bag_scores is None:
            n = len(self._documents)
            if not n:
                return np.zeros((_N_BAGS, self.features.n_documents))
            self._update()
            # From the whole solution, not from the bags' last one, so that they depend on the judgements only.
            self._bags.start_from(self._svr[_BAGGED])
            self._bags.solve(np.where(self._in_bags(), self._costs(), 0))
            member = _MEMBERS[_BAGGED]
            scores = _predict(self._columns[:n], self._bags.beta, member.is_rbf)
            scores += member.bias * self._bags.beta.sum(axis=1)[:, None]
            self._bag_scores = np.stack([self._by_document(each) for each in scores])
        return self._bag_scores

    def _by_document(self, scores: Floats) -> Scores:
        """Return the score of the best row of each document."""
        best = scores if self.features.one_row_each else np.maximum.reduceat(scores, self.features.row_offsets[:-1])
        return np.asarray(best, dtype=np.float64)

    def _best_row(self, document: int) -> int:
        start, stop = self.features.row_offsets[document : document + 2].tolist()
        return int(start + np.argmax(self._update()[_BAGGED, start:stop])) if stop - start > 1 else int(start)

    def _linear_weights(self) -> Floats:
        """Return the weight of each term by the first member."""
        self._update()
        weights = np.zeros(self.features.matrix.shape[1], dtype=np.float32)
        skipped = len(self._documents) - len(self._svr[0])
        for row, beta in zip(self._rows[skipped:], self._svr[0].beta[0], strict=True):
            vector = self._text_vector if row < 0 else self.features.row(row)
            weights[vector.terms] += beta * vector.weights
        return weights


@njit(nogil=True, fastmath=True, cache=True)
def _add_rbf(columns: Floats, beta: Floats, out: Floats) -> None:  # pragma: no cover - compiled
    """Add the RBF kernel of each column entry, times each row of coefficients, to ``out``."""
    n, n_rows = columns.shape
    kernel = np.empty(_BLOCK, dtype=np.float32)
    for start in range(0, n_rows, _BLOCK):
        size = min(_BLOCK, n_rows - start)
        for i in range(n):
            row = columns[i]
            for k in range(size):
                kernel[k] = exp_negative(min(np.float32(2) * row[start + k] - np.float32(2), np.float32(0)))
            for b in range(len(beta)):
                weight, part = beta[b, i], out[b]
                for k in range(size):
                    part[start + k] += weight * kernel[k]


def _predict(columns: Floats, beta: Floats, is_rbf: bool) -> Any:
    """Return the predictions (n_bags, n_rows) without the bias, from the products (n, n_rows) with the judged rows."""
    if not is_rbf:
        return beta @ columns
    out = np.zeros((len(beta), columns.shape[1]), dtype=np.float32)
    _add_rbf(columns, np.ascontiguousarray(beta), out)
    return out


def _platt(scores: Scores, labels: NDArray[np.bool_]) -> tuple[float, float]:
    """Return slope and offset of Platt's sigmoid (Lin, Lin & Weng 2007, with a slope that is never negative)."""
    n_positive = int(labels.sum())
    n_negative = len(labels) - n_positive
    target = np.where(labels, (n_positive + 1) / (n_positive + 2), 1 / (n_negative + 2))
    slope, offset = 0.0, float(np.log((n_positive + 1) / (n_negative + 1)))
    for _ in range(50):
        p = 1 / (1 + np.exp(-(slope * scores + offset)))
        weight = np.maximum(p * (1 - p), 1e-12)
        gradient = np.array([scores @ (p - target), (p - target).sum()])
        cross = weight @ scores
        hessian = np.array([[weight @ scores**2 + 1e-6, cross], [cross, weight.sum() + 1e-6]])
        step = np.linalg.solve(hessian, gradient)
        step *= min(1.0, 5 / max(float(np.abs(step).max()), 1e-12))
        slope, offset = slope - float(step[0]), offset - float(step[1])
        if np.abs(step).max() < 1e-6:
            break
    return max(slope, 0.0), offset
