"""Inner products of sparse vectors on the CPU, by term.

The vectors on one side are kept by term. A term that few of them have is a list of vectors and weights. A term that
many of them have is a row with a weight for every vector, 0 where a vector lacks it: adding a whole row is vectorised,
and takes less time than adding a long list. Products are summed in the order of the terms in either form, and adding 0
changes nothing, so the form changes no bit of the result.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy import sparse

from haybale.vectors import Floats

_FREQUENT = 6  # a term is a row if one in so many vectors has it
_VECTORS = 64  # fewer vectors have lists only
_MOST = 2**15 - 1  # rows, which int16 can number


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
        frequent = np.flatnonzero(counts * _FREQUENT >= m) if m >= _VECTORS else np.zeros(0, dtype=np.int64)
        frequent = frequent[:_MOST]
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
        for place in range(starts[term], starts[term + np.uint64(1)]):
            rows[row, vectors[place]] += weights[place]


@njit(nogil=True, cache=True)
def _add(
    offsets: Any, terms: Any, values: Any, starts: Any, vectors: Any, weights: Any, row_of: Any, rows: Any, out: Any
) -> None:  # pragma: no cover - compiled
    """Compute out[i, j] += Σ_t a[i, t] b[j, t] with ``a`` in CSR form."""
    for i in range(len(offsets) - 1):
        line = out[i]
        for place in range(offsets[i], offsets[i + 1]):
            term, value = terms[place], values[place]
            row = row_of[term]
            if row >= 0:
                of_term = rows[row]
                for j in range(len(of_term)):
                    line[j] += value * of_term[j]
            else:
                for posting in range(starts[term], starts[term + np.uint32(1)]):
                    line[vectors[posting]] += value * weights[posting]
