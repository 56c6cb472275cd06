"""Sparse vectors, never densified: exact search, and inner products of rows.

On the CPU an inverted index is read by compiled loops, whose sums do not depend on the rows around a row; on a device
there are products of sparse matrices.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit
from scipy import sparse

from haybale.device import device_of, to_device
from haybale.parallel import batch_size_for_memory, iter_chunks
from haybale.retrieval.hits import Ints, select
from haybale.retrieval.inverted import Values, frozen, to_columns, to_hits, top_k
from haybale.vectors import Floats

_PAIRS = 2**12  # pairs a thread takes at once


class InvertedIndex:
    """The passages of each term, and search in them.

    ``postings``, (n, d) float32 CSC, are passages by term; ``doc_offsets`` (n_documents + 1,) where documents begin.
    """

    name = "inverted index"

    def __init__(self, postings: sparse.csc_matrix, doc_offsets: Ints) -> None:
        self.postings, self.doc_offsets = postings, doc_offsets

    def search(self, queries: sparse.csr_matrix, k: int, excluded: Ints) -> tuple[Ints, Floats]:
        """``(numbers, scores)``, (m, k) each, in the total order; -1 and -inf where there are fewer hits.

        ``queries`` (m, d) are float32 CSR in canonical form; ``excluded`` (m,) the document to leave out (-1: none).
        Scores are summed in float64, terms in rising order, and rounded to float32. A passage without a common term
        is no hit.
        """
        return to_hits(self._best(queries, k, excluded), k, _floats)

    def documents(self, queries: sparse.csr_matrix, k: int, excluded: Ints, doc_of: Ints) -> tuple[Ints, Ints, Floats]:
        """Documents by their best passage, over all passages: ``(query row, document, score)``, flat, rows rising.

        Of each query, every document is found that scores at least as high as its ``k``-th best; ``doc_of`` (n,) is
        the document of each passage; the rest as in :meth:`search`.
        """
        return to_columns(self._best(queries, k, excluded, doc_of), _floats)

    def _best(
        self, queries: sparse.csr_matrix, k: int, excluded: Ints, doc_of: Ints | None = None
    ) -> list[tuple[Values, Values]]:
        n = self.postings.shape[0]
        index = [frozen(getattr(self.postings, part)) for part in ("indptr", "indices", "data")]

        def scorer() -> Callable[[int], Values]:
            sums, seen, values = np.zeros(n), np.zeros(n, dtype=bool), np.empty(n, dtype=np.uint32)

            def values_of(row: int) -> Values:
                part = slice(queries.indptr[row], queries.indptr[row + 1])
                _sum(queries.indices[part], queries.data[part], *index, sums, seen, values)  # type: ignore[call-arg]
                return values

            return values_of

        return top_k(queries.shape[0], k, self.doc_offsets, excluded, scorer, doc_of)


def _floats(values: Values) -> Floats:
    """The scores whose values :func:`_sum` has made."""
    return np.where(values >> 31, values ^ 0x80000000, ~values).view(np.float32)


class ProductSearch:
    """The same search on a CUDA device: products of sparse passages (n, d) with tiles of queries, summed in float64."""

    name = "cupyx"

    def __init__(self, vectors: Any, doc_offsets: Ints, memory: float | None = None) -> None:
        self.device, self.memory = device_of(vectors), memory
        self._vectors = vectors.astype(np.float64)
        # Where nothing is negative, a shared term is a score above 0; else products of the magnitudes tell.
        self._magnitudes = None if not vectors.nnz or bool(vectors.data.min() >= 0) else self._positive(self._vectors)
        self._doc_of = to_device(np.repeat(np.arange(len(doc_offsets) - 1), np.diff(doc_offsets)), self.device)

    def search(self, queries: Any, k: int, excluded: Ints) -> tuple[Any, Any]:
        """As :meth:`InvertedIndex.search`, on the device."""
        xp, (n, width) = self.device.xp, self._vectors.shape
        left_out = to_device(excluded, self.device)
        memory = self.device.half_of_memory() if self.memory is None else self.memory

        def search(rows: slice) -> tuple[Any, Any]:
            asked = queries[rows].astype(np.float64)
            scores = self._scores(self._vectors, asked)
            if self._magnitudes is None and not bool((asked.data < 0).any()):
                shared = scores > 0
            else:
                magnitudes = self._vectors if self._magnitudes is None else self._magnitudes
                shared = self._scores(magnitudes, self._positive(asked)) > 0
            shared &= self._doc_of[None, :] != left_out[rows][:, None]
            return select(xp.where(shared, scores.astype(np.float32), np.float32(-np.inf)), k)

        size = batch_size_for_memory(memory, 8 * width + 64 * n)
        found = list(iter_chunks(int(queries.shape[0]), size, search, what="queries"))
        return xp.concatenate([part[0] for part in found]), xp.concatenate([part[1] for part in found])

    def _scores(self, passages: Any, queries: Any) -> Any:
        """(m, n) inner products; only the queries are densified."""
        return (passages @ queries.toarray().T).T

    def _positive(self, matrix: Any) -> Any:
        parts = self.device.xp.abs(matrix.data), matrix.indices, matrix.indptr
        return self.device.sparse.csr_matrix(parts, shape=matrix.shape)


def add_products(a: sparse.csr_matrix, b: sparse.csc_matrix, out: Floats) -> None:
    """Add the inner products of the rows of ``a`` (n, d) and of ``b`` (m, d) to ``out`` (n, m)."""
    # Unsigned, since numba checks signed indexes for being negative: half of the time.
    parts = (a.indptr, a.indices, b.indptr, b.indices)
    offsets, terms, starts, rows = (part.view(f"u{part.itemsize}") for part in parts)
    _add(offsets, terms, a.data, starts, rows, b.data, out)


@njit(nogil=True, cache=True)
def _sum(
    terms: Any, weights: Any, starts: Any, passages: Any, entries: Any, sums: Any, seen: Any, values: Any
) -> None:  # pragma: no cover - compiled
    """The values of passages for one query's terms; ``sums`` and ``seen`` are left clean."""
    for place in range(len(terms)):
        term, weight = terms[place], float(weights[place])
        for posting in range(starts[term], starts[term + 1]):
            seen[passages[posting]] = True
            sums[passages[posting]] += weight * float(entries[posting])
    bits = (sums.astype(np.float32) + np.float32(0)).view(np.uint32)  # -0.0 + 0.0 is 0.0
    for passage in range(len(sums)):  # float32 read as an integer rises as it does, and falls where its sign is set
        value = bits[passage]
        rising = ~value if value >> np.uint32(31) else value | np.uint32(0x80000000)
        values[passage] = rising if seen[passage] else 0
        sums[passage] = 0.0
        seen[passage] = False


@njit(nogil=True, cache=True)
def _add(offsets: Any, terms: Any, values: Any, starts: Any, rows: Any, weights: Any, out: Any) -> None:
    """out[i, j] += Σ_t a[i, t] b[j, t]: a by rows, b by terms."""  # pragma: no cover - compiled
    for i in range(len(offsets) - 1):
        line = out[i]
        for place in range(offsets[i], offsets[i + 1]):
            term, value = terms[place], values[place]
            for posting in range(starts[term], starts[term + np.uint32(1)]):
                line[rows[posting]] += value * weights[posting]
