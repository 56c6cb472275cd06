"""Inner products of sparse vectors on the CPU, by term.

The vectors on one side are stored by term. A rare term is a list of vectors and weights. A frequent term is a dense row
with a weight for every vector, 0 where a vector lacks the term: adding a dense row is vectorised, and takes less time
than adding a long list. Products are summed in the order of the terms in either form, and adding 0
changes nothing, so the form changes no bit of the result.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy import sparse

from haybale.vectors import Floats

_DENSE_ROW_RATIO = 6  # a term gets a dense row if at least one in this number of vectors has it
_MIN_VECTORS_FOR_DENSE_ROWS = 64  # for fewer vectors, all terms have lists
_MAX_DENSE_ROWS = 2**15 - 1  # int16 numbers the rows


class TermColumns(NamedTuple):
    """Sparse vectors (m, d) by term."""

    starts: NDArray[Any]  # (d + 1,) unsigned: where the list of each term begins
    vectors: NDArray[Any]  # (n,) unsigned: the vectors of all lists
    weights: Floats  # (n,)
    row_of: NDArray[np.int16]  # (d,) the row of each term, -1 for a list
    rows: Floats  # (n_rows, m) C order

    @classmethod
    def of(cls, vectors: sparse.csr_matrix) -> TermColumns:
        """Return the vectors (m, d), given as CSR, by term."""
        columns, m = vectors.tocsc(), vectors.shape[0]
        counts = np.diff(columns.indptr)
        is_frequent = (counts * _DENSE_ROW_RATIO >= m) & (m >= _MIN_VECTORS_FOR_DENSE_ROWS)
        frequent = np.flatnonzero(is_frequent)[:_MAX_DENSE_ROWS]
        row_of = np.full(vectors.shape[1], -1, dtype=np.int16)
        row_of[frequent] = np.arange(len(frequent))
        rows = np.zeros((len(frequent), m), dtype=columns.dtype)
        # Unsigned, because numba checks whether signed indexes are negative, which takes half of the time.
        starts, numbers = (part.view(f"u{part.itemsize}") for part in (columns.indptr, columns.indices))
        _fill_rows(frequent.astype(np.uint64), starts, numbers, columns.data, rows)
        return cls(starts, numbers, columns.data, row_of, rows)


def add_products(a: sparse.csr_matrix, b: TermColumns, out: Floats) -> None:
    """Add the inner products of the vectors ``a`` (n, d) and ``b`` (m, d) to ``out`` (n, m), in C order."""
    offsets, terms = (part.view(f"u{part.itemsize}") for part in (a.indptr, a.indices))
    _add(offsets, terms, a.data, *b, out)


@njit(nogil=True, cache=True)
def _fill_rows(frequent: Any, starts: Any, vectors: Any, weights: Any, rows: Any) -> None:
    for row in range(len(frequent)):  # pragma: no cover - compiled
        term = frequent[row]
        for posting in range(starts[term], starts[term + np.uint64(1)]):
            rows[row, vectors[posting]] += weights[posting]


@njit(nogil=True, cache=True)
def _add(
    offsets: Any, terms: Any, values: Any, starts: Any, vectors: Any, weights: Any, row_of: Any, rows: Any, out: Any
) -> None:  # pragma: no cover - compiled
    """Compute out[i, j] += Σ_t a[i, t] b[j, t] with ``a`` in CSR form."""
    for i in range(len(offsets) - 1):
        line = out[i]
        for position in range(offsets[i], offsets[i + 1]):
            term, value = terms[position], values[position]
            row = row_of[term]
            if row >= 0:
                of_term = rows[row]
                for j in range(len(of_term)):
                    line[j] += value * of_term[j]
            else:
                for posting in range(starts[term], starts[term + np.uint32(1)]):
                    line[vectors[posting]] += value * weights[posting]
