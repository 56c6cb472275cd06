"""The conditional logit: weights that make relevant documents likely choices among those of their query.

McFadden, "Conditional Logit Analysis of Qualitative Choice Behavior", 1974; as a loss of rankings, the listwise
softmax cross-entropy of Cao et al., "Learning to Rank: From Pairwise Approach to Listwise Approach", ICML 2007
(ListNet with top-one probabilities).
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from sklearn.exceptions import ConvergenceWarning

from haybale.retrieval.hits import Ints
from haybale.vectors import Floats

_ROWS = 2**14  # turned to float64 at once, about 2 MiB of 20 features
_NEVER = -1e300  # the score of a document that cannot be chosen; finite, so that 0 · score is 0

Array = NDArray[np.float64]


@dataclass(frozen=True)
class View:
    """The queries as they are seen once: some of the features, and which documents there are."""

    weight: float
    features: Floats  # (g, n)
    relevant: NDArray[np.bool_]  # (n,)
    absent: NDArray[np.bool_] | None = None  # (n,) documents that are not in the pool of this view


class Fitted(NamedTuple):
    """Weights of the features as they are (f,), their standard deviations (f,), the loss, and steps."""

    weights: Array
    spread: Array
    loss: float
    n_iter: int


class ConditionalLogit:
    """The loss and its gradient in the weights of standardised features.

    loss = Σ over views v and queries q of weight_v · (−1/n_rel Σ over relevant d of log softmax(x·w)_d) / n_queries
    + l2·|w|². ``shared`` (f, n) are features that are the same in every view, ``views`` have the others;
    ``query`` (n,) rises. ``n_queries`` are those with a relevant document in the first view, by which features are
    standardised, too; a constant feature has weight 0. A query without a relevant document in a view is no part of it.
    """

    def __init__(self, query: Ints, shared: Floats, views: Sequence[View], l2: float) -> None:
        self.shared, self.views, self.l2 = shared, views, l2
        self.starts = np.flatnonzero(np.diff(query, prepend=-1))
        self.ends = np.append(self.starts[1:], len(query))
        counts = [np.add.reduceat(view.relevant, self.starts, dtype=np.int64) for view in views]  # (n_queries,) each
        self.n_relevant = counts
        self.n_queries = int((counts[0] > 0).sum())
        self.spread = np.array([_spread(row) for part in (shared, views[0].features) for row in part])
        self._scale = np.divide(1, self.spread, out=np.zeros_like(self.spread), where=self.spread > 0)

    def __call__(self, weights: Array) -> tuple[float, Array]:
        """The loss at standardised weights (f,), and its gradient (f,)."""
        raw = weights * self._scale
        loss, gradient = 0.0, np.zeros_like(raw)
        for queries in self._blocks():
            added, slope = self._block(raw, queries)
            loss, gradient = loss + added, gradient + slope
        loss, gradient = loss / self.n_queries, gradient * self._scale / self.n_queries
        return float(loss + self.l2 * weights @ weights), gradient + 2 * self.l2 * weights

    def fit(self, max_iter: int) -> Fitted:
        """The minimum, by L-BFGS from 0."""
        options = {"maxiter": max_iter, "maxfun": 10 * max_iter, "ftol": 1e-9, "gtol": 1e-6, "maxcor": 20}
        found = minimize(self, np.zeros(len(self._scale)), jac=True, method="L-BFGS-B", options=options)
        if found.nit >= max_iter:
            warnings.warn(f"no minimum after max_iter={max_iter} steps", ConvergenceWarning, stacklevel=3)
        return Fitted(found.x * self._scale, self.spread, float(found.fun), int(found.nit))

    def _blocks(self) -> list[slice]:
        """Queries that are computed together: whole ones, about ``_ROWS`` rows."""
        cuts = np.flatnonzero(np.diff(self.starts // _ROWS, prepend=-1, append=-1))
        return [slice(start, end) for start, end in pairwise(cuts)]

    def _block(self, raw: Array, queries: slice) -> tuple[float, Array]:
        rows = slice(self.starts[queries.start], self.ends[queries.stop - 1])
        starts = self.starts[queries] - rows.start
        of = np.repeat(np.arange(len(starts)), self.ends[queries] - self.starts[queries])  # query of each row
        split = len(self.shared)
        shared = self.shared[:, rows].astype(np.float64)
        common, pull, loss = raw[:split] @ shared, np.zeros(len(of)), 0.0
        slopes = np.zeros(len(raw) - split)
        for view, counts in zip(self.views, self.n_relevant, strict=True):
            features = view.features[:, rows].astype(np.float64)
            score = common + raw[split:] @ features
            if view.absent is not None:
                score[view.absent[rows]] = _NEVER
            score -= np.maximum.reduceat(score, starts)[of]
            chance = np.exp(score)
            total = np.add.reduceat(chance, starts)
            n_relevant = counts[queries]
            target = view.relevant[rows] / np.maximum(n_relevant, 1)[of]
            loss -= view.weight * float(target @ (score - np.log(total)[of]))
            residual = view.weight * (chance * ((n_relevant > 0) / total)[of] - target)
            pull += residual
            slopes += features @ residual
        return loss, np.concatenate([shared @ pull, slopes])


def _spread(values: Floats) -> float:
    """Standard deviation; exactly 0 of a constant, whose mean may be rounded."""
    return float(values.std(dtype=np.float64)) if np.ptp(values) > 0 else 0.0
