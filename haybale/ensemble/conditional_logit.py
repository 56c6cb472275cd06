"""The conditional logit: weights that make relevant documents likely choices among those of their query.

McFadden, "Conditional Logit Analysis of Qualitative Choice Behavior", 1974; as a loss of rankings, the listwise
softmax cross-entropy of Cao et al., "Learning to Rank: From Pairwise Approach to Listwise Approach", ICML 2007
(ListNet with top-one probabilities).
"""

from __future__ import annotations

import warnings
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from haybale.retrieval.hits import Ints
from haybale.vectors import Floats

_ROWS = 2**14  # turned to float64 at once, about 2 MiB of 20 features

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
    ``query`` (n,) rises, ``features`` are (f, n), ``target`` (n,) is 0 where a document is not relevant; a query's
    targets sum to its share of the loss. Features are standardised over all n; a constant one has weight 0.
    """

    def __init__(self, query: Ints, features: Floats, target: Array, l2: float) -> None:
        self.features, self.target, self.l2 = features, target, l2
        self.starts = np.flatnonzero(np.diff(query, prepend=-1))
        self.ends = np.append(self.starts[1:], len(query))
        self.spread = np.array([_spread(row) for row in features])
        self._scale = np.divide(1, self.spread, out=np.zeros_like(self.spread), where=self.spread > 0)

    def __call__(self, weights: Array) -> tuple[float, Array, Array]:
        """The loss at standardised weights (f,), its gradient (f,) and its Hessian (f, f)."""
        raw = weights * self._scale
        loss, gradient, hessian = 0.0, np.zeros_like(raw), np.zeros((len(raw), len(raw)))
        for queries in self._blocks():
            added, slope, curvature = self._block(raw, queries)
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

    def _blocks(self) -> list[slice]:
        """Queries that are computed together: whole ones, about ``_ROWS`` rows."""
        cuts = np.flatnonzero(np.diff(self.starts // _ROWS, prepend=-1, append=-1))
        return [slice(start, end) for start, end in pairwise(cuts)]

    def _block(self, raw: Array, queries: slice) -> tuple[float, Array, Array]:
        rows = slice(self.starts[queries.start], self.ends[queries.stop - 1])
        starts = self.starts[queries] - rows.start
        of = np.repeat(np.arange(len(starts)), self.ends[queries] - self.starts[queries])  # query of each row
        features, target = self.features[:, rows].astype(np.float64), self.target[rows]
        score = raw @ features
        score -= np.maximum.reduceat(score, starts)[of]
        chance = np.exp(score)
        total = np.add.reduceat(chance, starts)
        loss = -float(target @ (score - np.log(total)[of]))
        share = np.add.reduceat(target, starts)
        chance *= (1 / total)[of]
        weighted = features * chance  # (f, n)
        mean = np.add.reduceat(weighted, starts, axis=1)  # (f, queries)
        hessian = (weighted * share[of]) @ features.T - (mean * share) @ mean.T
        return loss, mean @ share - features @ target, hessian


def _spread(values: Floats) -> float:
    """Standard deviation; exactly 0 of a constant, whose mean may be rounded."""
    return float(values.std(dtype=np.float64)) if np.ptp(values) > 0 else 0.0
