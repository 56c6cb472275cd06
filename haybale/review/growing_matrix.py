"""Keep sparse rows to which others can be added, and multiply them by a sparse vector."""

from __future__ import annotations

import numpy as np
from numba import njit
from scipy import sparse

from haybale.collections.collection import Ints
from haybale.review.term_space import TermVector
from haybale.vectors import Floats

_ROWS_PER_SORTED_PART = 5_000  # added rows that are sorted by column at once


class GrowingMatrix:
    """Sparse rows, sorted by column, to which others can be added.

    A product visits only the columns that the vector has. Added rows are collected, and sorted by column as a part of
    their own once there are 5,000 of them. To sort all rows again would take as long as many products.

    Parameters
    ----------
    rows : (n, n_columns) CSR matrix of float32

    Examples
    --------
    >>> matrix = GrowingMatrix(sparse.csr_matrix([[1.0, 0.0], [0.5, 2.0]], dtype=np.float32))
    >>> matrix.append(sparse.csr_matrix([[0.0, 3.0]], dtype=np.float32))
    >>> matrix.product(TermVector(np.array([1]), np.array([2.0], dtype=np.float32)))
    array([0., 4., 6.], dtype=float32)
    """

    def __init__(self, rows: sparse.csr_matrix) -> None:
        self._parts, self._recent = [rows.tocsc()], rows[:0]
        self._dense = np.zeros(rows.shape[1], dtype=np.float32)  # a vector with all of its zeros

    def __len__(self) -> int:
        return int(sum(part.shape[0] for part in self._parts) + self._recent.shape[0])

    def append(self, rows: sparse.csr_matrix) -> None:
        """Add rows (m, n_columns) at the end."""
        self._recent = sparse.vstack([self._recent, rows], format="csr")
        if self._recent.shape[0] >= _ROWS_PER_SORTED_PART:
            self._parts.append(self._recent.tocsc())
            self._recent = rows[:0]

    def product(self, vector: TermVector) -> Floats:
        """Return the products (n,) of the rows with a vector."""
        products, start = np.zeros(len(self), dtype=np.float32), 0
        for part in self._parts:
            end = start + part.shape[0]
            add_products(part, vector, products[start:end])
            start = end
        if start < len(products):
            self._dense[vector.columns] = vector.weights
            products[start:] = self._recent @ self._dense
            self._dense[vector.columns] = 0
        return products


def add_products(by_column: sparse.csc_matrix, vector: TermVector, out: Floats) -> None:
    """Add the products of rows, sorted by column, with a vector to ``out`` (n,)."""
    _add(by_column.indptr, by_column.indices, by_column.data, vector.columns, vector.weights, out)


@njit(nogil=True, cache=True)
def _add(
    indptr: Ints, rows: Ints, data: Floats, columns: Ints, weights: Floats, out: Floats
) -> None:  # pragma: no cover - compiled
    """Add the product of a vector with each row to ``out``."""
    for term in range(len(columns)):
        weight = weights[term]
        for entry in range(indptr[columns[term]], indptr[columns[term] + 1]):
            out[rows[entry]] += weight * data[entry]
