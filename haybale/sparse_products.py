"""Inner products of sparse rows, by compiled loops over the terms that rows share.

SciPy's product of two sparse matrices makes a sparse matrix; here the results are dense tiles or single numbers, so
nothing has to be sorted, joined or converted. Terms are taken in rising order: a product does not depend on the
rows around it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy import sparse

from haybale.machine import in_threads
from haybale.vectors import Floats

_PAIRS = 2**16  # pairs a thread takes at once


@njit(nogil=True, cache=True)
def _add(offsets: Any, terms: Any, values: Any, starts: Any, rows: Any, weights: Any, out: Any) -> None:
    """out[i, j] += Σ_t a[i, t] b[j, t]: a by rows, b by terms."""  # pragma: no cover - compiled
    for i in range(len(offsets) - 1):
        line = out[i]
        for place in range(offsets[i], offsets[i + 1]):
            term, value = terms[place], values[place]
            for posting in range(starts[term], starts[term + 1]):
                line[rows[posting]] += value * weights[posting]


def add_products(a: sparse.csr_matrix, b: sparse.csc_matrix, out: Floats) -> None:
    """Add the inner products of the rows of ``a`` (n, d) and of ``b`` (m, d) to ``out`` (n, m).

    >>> a = sparse.csr_matrix(np.array([[1, 0, 2]], dtype=np.float32))
    >>> out = np.zeros((1, 1), dtype=np.float32)
    >>> add_products(a, a.tocsc(), out)
    >>> out
    array([[5.]], dtype=float32)
    """
    _add(a.indptr, a.indices, a.data, b.indptr, b.indices, b.data, out)


@njit(nogil=True, cache=True)
def _pair(
    offsets_a: Any, terms_a: Any, values_a: Any, offsets_b: Any, terms_b: Any, values_b: Any, i: Any, j: Any, out: Any
) -> None:  # pragma: no cover - compiled
    """out[n] = <a[i[n]], b[j[n]]>, by walking both rows at once."""
    for n in range(len(out)):
        total = 0.0
        x, end_x = offsets_a[i[n]], offsets_a[i[n] + 1]
        y, end_y = offsets_b[j[n]], offsets_b[j[n] + 1]
        while x < end_x and y < end_y:
            if terms_a[x] == terms_b[y]:
                total += float(values_a[x]) * float(values_b[y])
                x += 1
                y += 1
            elif terms_a[x] < terms_b[y]:
                x += 1
            else:
                y += 1
        out[n] = total


def paired_products(
    a: sparse.csr_matrix, i: NDArray[Any], b: sparse.csr_matrix, j: NDArray[Any]
) -> NDArray[np.float64]:
    """(n,) inner products of rows ``i`` of ``a`` with rows ``j`` of ``b``, summed in float64.

    Both in canonical form, as :func:`haybale.vectors.check_sparse` gives them.

    >>> paired_products(*2 * (sparse.identity(3, format="csr", dtype=np.float32), np.array([0, 2])))
    array([1., 1.])
    """
    out = np.empty(len(i))

    def fill(part: slice) -> None:
        _pair(a.indptr, a.indices, a.data, b.indptr, b.indices, b.data, i[part], j[part], out[part])

    in_threads(fill, [slice(start, start + _PAIRS) for start in range(0, len(out), _PAIRS)])
    return out
