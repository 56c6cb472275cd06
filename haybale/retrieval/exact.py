"""Exact search over dense vectors: a backend proposes candidates, which are ranked by inner products in float64.

The same code runs on NumPy and CuPy. The error of a float64 sum of d products is at most d · 2^-53 · |q| · |p|, before
the sum is rounded to float32. Two devices add in different orders, so their scores may differ by 1 float32 ulp, or by
more where products cancel to less than that bound. On one device, equal vectors get equal scores.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np

from haybale.cached import cached_property
from haybale.device import Device, to_device
from haybale.parallel import batch_size_for_memory, iter_chunks
from haybale.retrieval.backends import Backend, tiles_on
from haybale.retrieval.hits import NO_PASSAGE, Ints, select
from haybale.retrieval.id_order import IdOrder
from haybale.vectors import squared_lengths

SLACK = 24  # candidates beyond k, so that most searches need only one proposal
_RESCORED = 2**18  # float64 values gathered at once on the CPU: 2 MiB, which fit into a cache
_GATHERED = 2**30  # maximum bytes gathered at once on a device


class ExactSearch:
    """Exact search over float32 ``vectors`` (n, d) on ``device``, with candidates proposed by ``backend``.

    ``doc_offsets`` (n_documents + 1,), a NumPy array, says where the passages of each document begin, and ``order`` how
    passages with equal scores are ordered.
    """

    def __init__(self, vectors: Any, doc_offsets: Ints, device: Device, backend: Backend, order: IdOrder) -> None:
        self.vectors, self.device, self.backend, self.order = vectors, device, backend, order
        self._sizes = np.append(np.diff(doc_offsets), 0)  # the last size is for -1, no document
        self._doc_of = to_device(np.repeat(np.arange(len(self._sizes)), self._sizes), device)

    def search(self, queries: Any, k: int, excluded: Ints) -> tuple[Any, Any]:
        """Return the numbers and scores of the nearest passages, (m, k), padded with -1 and -inf.

        ``queries`` (m, d) are float32 on the device; ``excluded`` (m,), a NumPy array, has the document that each query
        excludes, -1 for none.
        """
        xp, n = self.device.xp, len(self.vectors)
        passages = xp.full((len(queries), k), NO_PASSAGE, dtype=np.int64)
        scores = xp.full((len(queries), k), -np.inf, dtype=np.float32)
        depth = min(n, k + int(self._sizes[excluded].max(initial=0)) + SLACK)
        excluded = to_device(excluded, self.device)
        rows = xp.flatnonzero(queries.any(axis=1))
        while len(rows):
            found, proposed, exact, bound = self._propose(queries[rows], depth)
            exact = xp.where(self._doc_of[found] == excluded[rows][:, None], np.float32(-np.inf), exact)
            passages[rows], scores[rows] = select(exact, k, found, self.order)
            if depth == n:
                break
            # A passage that was not proposed scores at most the worst proposal plus twice the error bound.
            rows = rows[scores[rows, -1] <= proposed.min(axis=1) + 2 * bound]
            depth = min(n, 2 * depth)
        return passages, scores

    def _propose(self, queries: Any, depth: int) -> tuple[Any, Any, Any, Any]:
        """Return candidates (m, depth), their proposed and exact scores, and a bound on the proposals' errors (m,)."""
        xp, width = self.device.xp, int(self.vectors.shape[1])
        backend = self.backend if depth <= self.backend.most else tiles_on(self.device)
        lengths = xp.sqrt((queries.astype(np.float64) ** 2).sum(axis=1))
        # Each product may lose up to 2^-126 by underflow.
        bound = backend.error(width) * lengths * self._max_length + width * 2.0**-126
        found, proposed = backend.propose(queries, self.vectors, depth)
        exact = self.inner_products(queries, found)
        if backend.is_checked and bool((xp.abs(proposed - exact) > 2 * bound[:, None]).any()):
            self.backend = tiles_on(self.device)
            warnings.warn(
                f"index backend {backend.name!r} returned scores outside its error bound, so {self.backend.name!r} is "
                f"used instead; set backend={self.backend.name!r}",
                RuntimeWarning,
                stacklevel=2,
            )
            return self._propose(queries, depth)
        return found, proposed, exact, bound

    def inner_products(self, queries: Any, found: Any) -> Any:
        """Return the inner products with the candidates, (m, c), summed in float64 and rounded to float32."""
        xp, (m, depth), width = self.device.xp, found.shape, max(1, int(self.vectors.shape[1]))
        scores, wide = xp.empty((m, depth), dtype=np.float32), queries.astype(np.float64)
        if self.device.is_cpu:
            step = max(1, _RESCORED // width)
            for row, left in np.ndindex(m, -(-depth // step)):
                part = slice(left * step, (left + 1) * step)
                scores[row, part] = np.vecdot(self.vectors[found[row, part]].astype(np.float64), wide[row])
            return scores
        flat = found.ravel()

        def score(tile: slice) -> Any:
            near = self.vectors[flat[tile]].astype(np.float64)
            near *= wide[xp.arange(tile.start, tile.stop) // depth]
            return near.sum(axis=1).astype(np.float32)

        size = batch_size_for_memory(min(self.device.half_of_memory(), _GATHERED), width * 20)
        tiles = iter_chunks(flat.size, size, score, what="candidates")
        return xp.concatenate(list(tiles)).reshape(m, depth)

    @cached_property
    def _max_length(self) -> float:
        """Return an upper bound on the length of the longest passage, as squares below 2^-126 underflow."""
        squares = float(squared_lengths(self.vectors).max())
        return math.sqrt(squares) + math.sqrt(self.vectors.shape[1]) * 2.0**-63
