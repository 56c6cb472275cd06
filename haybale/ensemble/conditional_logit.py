"""The conditional logit: weights that make relevant documents likely choices among those of their query.

McFadden, "Conditional Logit Analysis of Qualitative Choice Behavior", 1974; as a loss of rankings, the listwise
softmax cross-entropy of Cao et al., "Learning to Rank: From Pairwise Approach to Listwise Approach", ICML 2007
(ListNet with top-one probabilities).
"""

from __future__ import annotations

import threading
import warnings
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from haybale.machine import in_threads
from haybale.retrieval.hits import Ints
from haybale.vectors import Floats

_ROWS = 2**12  # turned to float64 at once: with 20 features they and their product stay in a core's cache

Array = NDArray[np.float64]


class Fitted(NamedTuple):
    """Weights of the features as they are (f,), their standard deviations (f,), the loss, and steps."""

    weights: Array
    spread: Array
    loss: float
    n_iter: int


class ConditionalLogit:
    """The loss and its gradient in the weights of standardised features.

    loss = −Σ over documents d of target_d · log softmax(x·w)_d, the softmax over the documents of the query, + l2·|w|².

    Parameters
    ----------
    query : (n,) the query of each document; rises.
    features : (f, n) float32. They are standardised over all n; a constant one has weight 0.
    target : (n,) float64, 0 where a document is not relevant. A query's targets sum to its share of the loss; queries
        without any add nothing but to the standard deviations.
    l2 : penalty on the squared weights of standardised features, from 0 on.
    """

    def __init__(self, query: Ints, features: Floats, target: Array, l2: float) -> None:
        self.spread = np.array(in_threads(_spread, features))
        self._scale = np.divide(1, self.spread, out=np.zeros_like(self.spread), where=self.spread > 0)
        starts = np.flatnonzero(np.diff(query, prepend=-1))
        counts = np.diff(np.append(starts, len(query)))
        share = np.add.reduceat(target, starts) if len(starts) else np.empty(0)
        counted = share > 0
        if not counted.all():
            rows = np.repeat(counted, counts)
            features, target, counts, share = features[:, rows], target[rows], counts[counted], share[counted]
        self.features, self.target, self.l2 = features, target, l2
        self._share = share
        self._ends = np.append(0, np.cumsum(counts))
        cuts = np.append(np.flatnonzero(np.diff(self._ends[:-1] // _ROWS, prepend=-1)), len(counts))
        self._blocks = [slice(start, end) for start, end in pairwise(cuts)]  # whole queries, about _ROWS rows
        self._longest = int(np.diff(self._ends[cuts]).max(initial=0))
        self._room = threading.local()

    def __call__(self, weights: Array) -> tuple[float, Array, Array]:
        """The loss at standardised weights (f,), its gradient (f,) and its Hessian (f, f).

        The same bits whatever the number of threads: blocks of queries are computed apart, and added in their order.
        """
        raw = weights * self._scale
        loss, gradient, hessian = 0.0, np.zeros_like(raw), np.zeros((len(raw), len(raw)))
        for added, slope, curvature in in_threads(lambda queries: self._block(raw, queries), self._blocks):
            loss, gradient, hessian = loss + added, gradient + slope, hessian + curvature
        hessian = hessian * self._scale[:, None] * self._scale + 2 * self.l2 * np.eye(len(raw))
        return float(loss + self.l2 * weights @ weights), gradient * self._scale + 2 * self.l2 * weights, hessian

    def fit(self, max_iter: int) -> Fitted:
        """The minimum, by Newton's method from 0, whose steps are halved until they lower the loss."""
        weights = np.zeros(len(self._scale))
        loss, gradient, hessian = self(weights)
        for n_iter in range(max_iter):
            step = -np.linalg.lstsq(hessian, gradient, rcond=None)[0]  # singular without l2, if features are collinear
            slope, length = float(gradient @ step), 1.0
            if -slope <= 1e-12 * max(1.0, abs(loss)):
                return Fitted(weights * self._scale, self.spread, loss, n_iter)
            following = self(weights + step)
            while following[0] > loss + 1e-4 * length * slope and length > 1e-6:
                length /= 2
                following = self(weights + length * step)
            weights, (loss, gradient, hessian) = weights + length * step, following
        warnings.warn(f"no minimum after max_iter={max_iter} steps", ConvergenceWarning, stacklevel=3)
        return Fitted(weights * self._scale, self.spread, loss, max_iter)

    def _block(self, raw: Array, queries: slice) -> tuple[float, Array, Array]:
        """What some queries add to loss, gradient and Hessian in the weights of features as they are."""
        ends = self._ends[queries.start : queries.stop + 1]
        rows, starts = slice(ends[0], ends[-1]), ends[:-1] - ends[0]
        of = np.repeat(np.arange(len(starts)), np.diff(ends))  # query of each row
        features, weighted = self._buffers(rows.stop - rows.start)
        np.copyto(features, self.features[:, rows])
        target, share = self.target[rows], self._share[queries]
        score = raw @ features
        score -= np.maximum.reduceat(score, starts)[of]
        chance = np.exp(score)
        total = np.add.reduceat(chance, starts)
        loss = -float(target @ (score - np.log(total)[of]))
        chance *= (share / total)[of]
        np.multiply(features, chance, out=weighted)
        mean = np.add.reduceat(weighted, starts, axis=1)  # (f, queries), times the query's share
        hessian = weighted @ features.T - (mean / share) @ mean.T
        return loss, mean.sum(axis=1) - features @ target, hessian

    def _buffers(self, n: int) -> tuple[Array, Array]:
        """Room for two (f, n) tables, the same for all blocks of a thread: new memory costs more than the sums."""
        if not hasattr(self._room, "buffers"):
            self._room.buffers = np.empty((2, len(self.features) * self._longest))
        f = len(self.features)
        features, weighted = (buffer[: f * n].reshape(f, n) for buffer in self._room.buffers)
        return features, weighted


def _spread(values: Floats) -> float:
    """Standard deviation; exactly 0 of a constant, whose mean may be rounded."""
    return float(values.std(dtype=np.float64)) if np.ptp(values) > 0 else 0.0
