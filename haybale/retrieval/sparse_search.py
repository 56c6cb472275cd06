"""Exact search over sparse vectors: an inverted index, read term by term (Turtle & Flood 1995), never densified."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from scipy import sparse

from haybale.machine import in_threads
from haybale.retrieval.hits import NO_PASSAGE, Ints, select
from haybale.vectors import Floats

_QUERIES = 32  # a thread takes at once; they share its sums


@njit(nogil=True, cache=True)
def _score(
    terms: Any, values: Any, starts: Any, passages: Any, weights: Any, sums: Any, seen: Any, found: Any, scores: Any
) -> int:  # pragma: no cover - compiled
    """How many passages share a term with the query; which, and their scores. ``sums``, ``seen`` are left clean."""
    n = 0
    for place in range(len(terms)):
        term, value = terms[place], float(values[place])
        for posting in range(starts[term], starts[term + 1]):
            passage = passages[posting]
            if not seen[passage]:
                seen[passage] = True
                found[n] = passage
                n += 1
            sums[passage] += value * float(weights[posting])
    for hit in range(n):
        passage = found[hit]
        scores[hit] = np.float32(sums[passage])
        sums[passage] = 0.0
        seen[passage] = False
    return n


def search_sparse(
    queries: sparse.csr_matrix, postings: sparse.csc_matrix, k: int, own: Ints, doc_offsets: Ints
) -> tuple[Ints, Floats]:
    """The k best passages of each query in the total order: ``(numbers, scores)``, (m, k) each.

    ``queries`` (m, d); ``postings`` (n, d), the passages by term; ``own`` (m,) documents left out (-1: none), which
    are passages ``doc_offsets[d]:doc_offsets[d + 1]``. Scores are summed in float64, terms in rising order, and
    rounded to float32. A passage without a common term is no hit.
    """
    m, n = queries.shape[0], postings.shape[0]
    numbers = np.full((m, k), NO_PASSAGE, dtype=np.int64)
    best = np.full((m, k), -np.inf, dtype=np.float32)

    def search(rows: range) -> None:
        sums, seen = np.zeros(n), np.zeros(n, dtype=bool)
        found, scores = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.float32)
        index = postings.indptr, postings.indices, postings.data
        for row in rows:
            query = slice(queries.indptr[row], queries.indptr[row + 1])
            terms, values = queries.indices[query], queries.data[query]
            hits = _score(terms, values, *index, sums, seen, found, scores)
            if own[row] >= 0:
                first, end = doc_offsets[own[row]], doc_offsets[own[row] + 1]
                scores[:hits][(found[:hits] >= first) & (found[:hits] < end)] = -np.inf
            if hits:
                chosen, highest = select(scores[None, :hits], k, found[None, :hits])
                numbers[row, : chosen.shape[1]], best[row, : chosen.shape[1]] = chosen[0], highest[0]

    in_threads(search, [range(start, min(start + _QUERIES, m)) for start in range(0, m, _QUERIES)])
    return numbers, best
