"""Exact search over dense vectors: a backend proposes candidates, which are ranked by inner products in float64.

A backend may also search exactly by itself; proposals then serve the queries that it leaves. The same code runs on
NumPy and CuPy. The error of a float64 sum of d products is at most d · 2^-53 · |q| · |p|, before the sum is rounded to
float32. Two devices add in different orders, so their scores may differ by 1 float32 ulp, or by more where products
cancel to less than that bound. On one device, equal vectors get equal scores.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np

from haybale.cached import cached_property
from haybale.device import Device, to_device
from haybale.parallel import in_threads
from haybale.retrieval.backends import Backend, BackendSearch, Proposal, SearchResult, tiles_on
from haybale.retrieval.device_search import exact_scores, length_of_longest
from haybale.retrieval.hits import NO_PASSAGE, Ints, select
from haybale.retrieval.id_order import IdOrder
from haybale.returned_values import method_of, wrong_value
from haybale.vectors import squared_lengths

SLACK = 24  # candidates beyond k, so that most searches need only one proposal
_VALUES_PER_RESCORING = 2**18  # float64 values of passages gathered at once on the CPU: 2 MiB, which fit into a cache


class ExactSearch:
    """Exact search over float32 ``vectors`` (n, d) on ``device``, with candidates proposed by ``backend``.

    ``doc_offsets`` (n_documents + 1,), a NumPy array, says where the passages of each document begin, and ``order`` how
    passages with equal scores are ordered.
    """

    def __init__(self, vectors: Any, doc_offsets: Ints, device: Device, backend: Backend, order: IdOrder) -> None:
        self.vectors, self.device, self.backend, self.order = vectors, device, backend, order
        self._sizes = np.append(np.diff(doc_offsets), 0)  # the last size is for -1, no document
        self._first_passages = doc_offsets

    def queries_at_once(self, k: int) -> int:
        """Return the number of queries to search in one batch."""
        return self.backend.queries_at_once(self.vectors, k)

    def search(self, queries: Any, k: int, excluded: Ints) -> tuple[Any, Any]:
        """Return the numbers and scores of the nearest passages, (m, k), padded with -1 and -inf.

        ``queries`` (m, d) are float32 on the device; ``excluded`` (m,), a NumPy array, has the document that each query
        excludes, -1 for none.
        """
        xp, n = self.device.xp, len(self.vectors)
        result = self._search_by_backend(queries, k, excluded)
        if result is None:
            passages = xp.full((len(queries), k), NO_PASSAGE, dtype=np.int64)
            scores = xp.full((len(queries), k), -np.inf, dtype=np.float32)
            rows = xp.flatnonzero(queries.any(axis=1))
        else:
            passages, scores, rows = result.passages, result.scores, to_device(result.unfinished, self.device)
        if not len(rows):
            return passages, scores
        depth = min(n, k + int(self._sizes[excluded].max(initial=0)) + SLACK)
        excluded = to_device(excluded, self.device)
        while len(rows):
            candidates, proposed, exact, bound = self._propose(queries[rows], depth)
            exact = xp.where(self._doc_of[candidates] == excluded[rows][:, None], np.float32(-np.inf), exact)
            passages[rows], scores[rows] = select(exact, k, candidates, self.order)
            if depth == n:
                break
            # A passage that was not proposed scores at most the worst proposal plus twice the error bound.
            rows = rows[scores[rows, -1] <= proposed.min(axis=1) + 2 * bound]
            depth = min(n, 2 * depth)
        return passages, scores

    def _search_by_backend(self, queries: Any, k: int, excluded: Ints) -> SearchResult | None:
        """Return the result of a backend that searches exactly, or None."""
        if self.device.is_cpu:
            return None
        ranges = np.stack([self._first_passages[excluded], self._first_passages[excluded] + self._sizes[excluded]], 1)
        result = self.backend.search(BackendSearch(queries, self.vectors, k, ranges, self._max_length, self.order))
        if result is None or result.is_within_bound:
            return result
        self._replace_backend()
        return None

    def _propose(self, queries: Any, depth: int) -> tuple[Any, Any, Any, Any]:
        """Return candidates (m, depth), their proposed and exact scores, and a bound on the proposals' errors (m,)."""
        xp, width = self.device.xp, int(self.vectors.shape[1])
        backend = self.backend if depth <= self.backend.most else tiles_on(self.device)
        lengths = xp.sqrt((queries.astype(np.float64) ** 2).sum(axis=1))
        # Each product may lose up to 2^-126 by underflow.
        bound = backend.error(width) * lengths * self._max_length + width * 2.0**-126
        proposal = backend.propose(queries, self.vectors, depth)
        candidates, proposed = checked_proposal(proposal, (len(queries), depth), method_of(backend, "propose"))
        exact = self.inner_products(queries, candidates)
        if backend.is_checked and bool((xp.abs(proposed - exact) > 2 * bound[:, None]).any()):
            self._replace_backend()
            return self._propose(queries, depth)
        return candidates, proposed, exact, bound

    def _replace_backend(self) -> None:
        """Replace the backend by haybale's own from now on, and warn of it."""
        name, self.backend = self.backend.name, tiles_on(self.device)
        warnings.warn(
            f"index backend {name!r} returned scores outside its error bound, so {self.backend.name!r} is used "
            f"instead; set backend={self.backend.name!r}",
            RuntimeWarning,
            stacklevel=3,
        )

    def inner_products(self, queries: Any, candidates: Any) -> Any:
        """Return the inner products of queries with their candidates, (m, c), summed in float64, rounded to float32."""
        if not self.device.is_cpu:
            return exact_scores(self.device, queries, self.vectors, candidates)
        m, depth = candidates.shape
        scores, wide = np.empty((m, depth), dtype=np.float32), queries.astype(np.float64)
        step = max(1, _VALUES_PER_RESCORING // max(1, int(self.vectors.shape[1])))

        def of_part(row_and_part: tuple[int, ...]) -> None:
            row, number = row_and_part
            part = slice(number * step, (number + 1) * step)
            scores[row, part] = np.vecdot(self.vectors[candidates[row, part]].astype(np.float64), wide[row])

        in_threads(of_part, np.ndindex(m, -(-depth // step)))
        return scores

    @cached_property
    def _doc_of(self) -> Any:
        """The document of each passage, (n,), on the device."""
        return to_device(np.repeat(np.arange(len(self._sizes)), self._sizes), self.device)

    @cached_property
    def _max_length(self) -> float:
        """An upper bound on the length of the longest passage."""
        if not self.device.is_cpu:
            return length_of_longest(self.device, self.vectors)
        squares = float(squared_lengths(self.vectors).max())  # squares below 2^-126 underflow
        return math.sqrt(squares) + math.sqrt(self.vectors.shape[1]) * 2.0**-63


def checked_proposal(proposal: Any, shape: tuple[int, int], method: str) -> Proposal:
    """Return what a backend proposes; raise InputError unless it is two arrays of a shape, numbers and scores."""
    is_pair = isinstance(proposal, tuple) and len(proposal) == 2
    for part in proposal if is_pair else [proposal]:
        if not is_pair or getattr(part, "shape", None) != shape:
            expected = f"passage numbers and scores, two arrays of shape {shape}"
            raise wrong_value(part, method, expected, "return a tuple of both")
    candidates, scores = proposal
    return candidates, scores
