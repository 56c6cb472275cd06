"""Exact search over sparse vectors, which are never densified, by compiled loops over an inverted index on the CPU."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy import sparse

from haybale.cached import cached_property
from haybale.retrieval.exclusion import Exclusion
from haybale.retrieval.hits import Ints
from haybale.retrieval.id_order import IdOrder
from haybale.retrieval.inverted import Query, TermLists, top_documents, top_passages
from haybale.vectors import Floats


class InvertedIndex:
    """Exact search over sparse vectors.

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

    def search(self, queries: sparse.csr_matrix, k: int, excluded: Exclusion) -> tuple[Ints, Floats]:
        """Return the numbers and scores of the best passages, (m, k), padded with -1 and -inf.

        ``queries`` (m, d) are float32 CSR in canonical form; ``excluded`` (m,) says what each query
        excludes.
        """
        return top_passages(self._lists, _rows(queries), k, excluded, self.order)

    def documents(
        self, queries: sparse.csr_matrix, k: int, excluded: Exclusion, doc_of: Ints, top: int = 1
    ) -> tuple[Ints, Ints, Floats]:
        """Return the best documents by their ``top`` best passages; see :func:`top_documents`."""
        return top_documents(self._lists, _rows(queries), k, excluded, doc_of, top)

    @cached_property
    def _lists(self) -> TermLists:
        parts = self.postings.indptr, self.postings.indices, self.postings.data
        return TermLists(*parts, self.doc_offsets, np.float64, np.uint32(1))


def _rows(queries: sparse.csr_matrix) -> Callable[[int], Query]:
    """Return a function that returns the terms of a row, and their weights."""

    def query_of(row: int) -> Query:
        part = slice(queries.indptr[row], queries.indptr[row + 1])
        return queries.indices[part], queries.data[part]

    return query_of
