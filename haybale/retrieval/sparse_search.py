"""Exact search over sparse vectors, which are never densified.

On the CPU, compiled loops traverse an inverted index. On a CUDA device, sparse matrices are multiplied.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy import sparse

from haybale.cached import cached_property
from haybale.device import device_of, to_device
from haybale.parallel import batch_size_for_memory, iter_chunks
from haybale.retrieval.hits import Ints, select
from haybale.retrieval.id_order import IdOrder
from haybale.retrieval.inverted import Query, TermLists, top_documents, top_passages
from haybale.vectors import Floats


class InvertedIndex:
    """Exact search over sparse vectors on the CPU.

    Products are rounded to float32. They are summed in float64 by rising term, and the sum is rounded to float32. Only
    passages that share a term with the query are hits.

    Parameters
    ----------
    postings : (n, d) float32 CSC matrix
        The passages of each term.
    doc_offsets : (n_documents + 1,) int64
        Where the passages of each document begin.
    order : IdOrder
        The order of passages with equal scores.
    """

    name = "inverted index"

    def __init__(self, postings: sparse.csc_matrix, doc_offsets: Ints, order: IdOrder) -> None:
        self.postings, self.doc_offsets, self.order = postings, doc_offsets, order

    def search(self, queries: sparse.csr_matrix, k: int, excluded: Ints) -> tuple[Ints, Floats]:
        """Return the numbers and scores of the best passages, (m, k), padded with -1 and -inf.

        ``queries`` (m, d) are float32 CSR in canonical form; ``excluded`` (m,) has the document that each query
        excludes, -1 for none.
        """
        return top_passages(self._lists, _rows(queries), k, excluded, self.order)

    def documents(
        self, queries: sparse.csr_matrix, k: int, excluded: Ints, doc_of: Ints, top: int = 1
    ) -> tuple[Ints, Ints, Floats]:
        """Return the best documents by their ``top`` best passages; see :func:`top_documents`."""
        return top_documents(self._lists, _rows(queries), k, excluded, doc_of, top)

    @cached_property
    def _lists(self) -> TermLists:
        parts = self.postings.indptr, self.postings.indices, self.postings.data
        return TermLists(*parts, self.doc_offsets, np.float64, np.uint32(1))


def _rows(queries: sparse.csr_matrix) -> Callable[[int], Query]:
    """Return a function that returns the terms of a row, and their weights."""

    def of(row: int) -> Query:
        part = slice(queries.indptr[row], queries.indptr[row + 1])
        return queries.indices[part], queries.data[part]

    return of


class ProductSearch:
    """Exact search over sparse vectors (n, d) on a CUDA device, by float64 products with tiles of queries."""

    name = "cupyx"

    def __init__(self, vectors: Any, doc_offsets: Ints, order: IdOrder) -> None:
        self.device, self.order = device_of(vectors), order
        self._vectors = vectors.astype(np.float64)
        # A product of non-negative vectors is positive if they share a term. With signs, magnitudes are multiplied too.
        self._magnitudes = None if not vectors.nnz or bool(vectors.data.min() >= 0) else self._absolute(self._vectors)
        self._doc_of = to_device(np.repeat(np.arange(len(doc_offsets) - 1), np.diff(doc_offsets)), self.device)

    def search(self, queries: Any, k: int, excluded: Ints) -> tuple[Any, Any]:
        """Search as :meth:`InvertedIndex.search` does; the arrays are on the device."""
        xp, (n, width) = self.device.xp, self._vectors.shape
        excluded = to_device(excluded, self.device)

        def search(rows: slice) -> tuple[Any, Any]:
            some = queries[rows].astype(np.float64)
            scores = self._scores(self._vectors, some)
            if self._magnitudes is None and not bool((some.data < 0).any()):
                shared = scores > 0
            else:
                magnitudes = self._vectors if self._magnitudes is None else self._magnitudes
                shared = self._scores(magnitudes, self._absolute(some)) > 0
            shared &= self._doc_of[None, :] != excluded[rows][:, None]
            return select(xp.where(shared, scores.astype(np.float32), np.float32(-np.inf)), k, order=self.order)

        size = batch_size_for_memory(self.device.half_of_memory(), 8 * width + 64 * n)
        found = list(iter_chunks(int(queries.shape[0]), size, search, what="queries"))
        return xp.concatenate([part[0] for part in found]), xp.concatenate([part[1] for part in found])

    def _scores(self, passages: Any, queries: Any) -> Any:
        """Return the (m, n) inner products; only the queries are densified."""
        if not queries.shape[0]:
            return self.device.xp.empty((0, passages.shape[0]))
        return (passages @ queries.toarray().T).T

    def _absolute(self, matrix: Any) -> Any:
        parts = self.device.xp.abs(matrix.data), matrix.indices, matrix.indptr
        return self.device.sparse.csr_matrix(parts, shape=matrix.shape)
