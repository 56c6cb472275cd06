"""The fitted ensemble: support rows of all bags over shared vectors, and scoring as matrix products.

A bag scores a query q against any passage p by Σ_u Kp(p, u) c(q)[u] + intercept, where u runs over the support
passages and c(q)[u] sums coef · Kq(q, ·) over the support rows of u. The mean over bags is linear in the
coefficients, so it costs what one bag costs: the bags' coefficients are added up first.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from haybale.ensemble.kernel import Scaling, rbf
from haybale.ensemble.rows import Ints
from haybale.progress import track
from haybale.retrieval.hits import NO_PASSAGE
from haybale.vectors import Floats

_BATCH = 64  # queries scored at once: their candidates share one Gram matrix
_TILE = 2**25  # kernel values held at once: 128 MiB


@dataclass(frozen=True)
class Support:
    """Support rows of all bags, bag after bag, over the distinct queries and passages among them."""

    queries: Floats  # (n_queries, d), scaled
    passages: Floats  # (n_passages, d), scaled
    query: Ints  # (n_rows,)
    passage: Ints  # (n_rows,)
    coef: NDArray[np.float64]  # (n_rows,)
    offsets: Ints  # (n_bags + 1,) bag b is rows offsets[b]:offsets[b + 1]
    intercept: NDArray[np.float64]  # (n_bags,)
    gamma: tuple[float, float]
    scaling: Scaling

    @property
    def n_bags(self) -> int:
        return len(self.intercept)

    @cached_property
    def _mean(self) -> sparse.csr_matrix:
        return self._matrix(slice(None)) / self.n_bags

    @cached_property
    def _bags(self) -> list[sparse.csr_matrix]:
        return [self._matrix(slice(a, b)) for a, b in pairwise(self.offsets)]

    def _matrix(self, part: slice) -> sparse.csr_matrix:
        """(n_passages, n_queries) the coefficients of some rows, added up where pairs repeat."""
        entries = (self.coef[part].astype(np.float32), (self.passage[part], self.query[part]))
        return sparse.csr_matrix(entries, shape=(len(self.passages), len(self.queries)))

    def mean(self, queries: Floats, passages: Ints, vectors: Floats) -> Floats:
        """(m, k) mean prediction of the bags; meaningless where ``passages`` is -1."""
        scores = self._expansion(queries, passages, vectors, self._mean, self.passages)
        return scores + np.float32(self.intercept.mean())

    def votes(self, queries: Floats, passages: Ints, vectors: Floats, threshold: float) -> Ints:
        """(m, k) how many bags predict more than ``threshold``."""
        count = np.zeros(passages.shape, dtype=np.int64)
        for bag, matrix in enumerate(self._bags):
            # The Gram matrix is taken anew for each bag, but only over that bag's support passages.
            used = np.flatnonzero(np.diff(matrix.indptr))
            scores = self._expansion(queries, passages, vectors, matrix[used], self.passages[used])
            count += scores + np.float32(self.intercept[bag]) > threshold
        return np.where(passages == NO_PASSAGE, 0, count)

    def _expansion(
        self, queries: Floats, passages: Ints, vectors: Floats, coefficients: sparse.csr_matrix, support: Floats
    ) -> Floats:
        """(m, k) Σ_u Kp(p, support_u) Σ_r coefficients[u, r] Kq(q, q_r), without the intercept.

        ``queries`` (m, d) and ``vectors`` (n, d) as the user has them, unscaled; ``passages`` (m, k) numbers of
        rows of ``vectors``, -1 for none (scored 0).
        """
        scores = np.zeros(passages.shape, dtype=np.float32)
        for start in track(range(0, len(queries), _BATCH), "scoring"):
            rows = slice(start, start + _BATCH)
            kq = rbf(self.scaling.queries(queries[rows]), self.queries, self.gamma[0])  # (b, n_queries)
            weights = np.asarray(coefficients @ kq.T)  # (n_support, b)
            row, column = np.nonzero(passages[rows] != NO_PASSAGE)
            distinct, where = np.unique(passages[rows][row, column], return_inverse=True)
            candidates = self.scaling.passages(vectors[distinct])
            totals = np.zeros((len(distinct), len(kq)), dtype=np.float32)
            step = max(1, _TILE // max(1, len(distinct)))
            for left in range(0, len(support), step):
                kp = rbf(candidates, support[left : left + step], self.gamma[1])  # (n_distinct, step)
                totals += kp @ weights[left : left + step]
            scores[rows][row, column] = totals[where, row]
        return scores
