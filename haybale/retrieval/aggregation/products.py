"""⟨q̂, p⟩ of every retrieved passage p: all that the linear vector aggregations need of the vectors.

⟨Σ_i q_i, Σ w p⟩ = Σ w ⟨q̂, p⟩, so no document gets a vector, and a passage that many paragraphs of a query retrieved
is multiplied once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from haybale import cuda
from haybale.device import CPU, Device, placed
from haybale.errors import DeviceError, InputError
from haybale.retrieval.aggregation.block import Array
from haybale.retrieval.aggregation.kernels import multiply
from haybale.retrieval.aggregation.reduce import on_grid
from haybale.retrieval.hits import Ints
from haybale.vectors import Matrix, array_namespace, check_like


@dataclass(frozen=True)
class Vectors:
    """What the vector aggregations read: (n_passages, d), and the paragraphs' own (n_paragraphs, d); CSR if sparse.

    float32, or float16 for passages.
    """

    passages: Matrix
    paragraphs: Matrix

    def checked(self, n_passages: int, n_paragraphs: int, device: Device = CPU) -> Vectors:
        """The same, fitting the hits and on their device; the passages are taken as the index has checked them."""
        if sparse.issparse(self.passages) and not device.is_cpu:
            raise DeviceError(
                f"sparse vectors are in main memory only, and the hits are on {device}; give the hits as NumPy arrays"
            )
        passages, paragraphs = (
            matrix if sparse.issparse(matrix) else placed(matrix, device, what)
            for matrix, what in ((self.passages, "passage vectors"), (self.paragraphs, "paragraph vectors"))
        )
        paragraphs = check_like(paragraphs, "paragraph vectors", passages)
        if paragraphs.shape[0] != n_paragraphs:
            raise InputError(f"{paragraphs.shape[0]} paragraph vectors for {n_paragraphs} paragraphs")
        if passages.shape[0] != n_passages:
            raise InputError(f"{passages.shape[0]} passage vectors for {n_passages} passages")
        return Vectors(passages, paragraphs)


@dataclass(frozen=True)
class Products:
    """(q, m) float32 products of the summed paragraphs of some queries with m passages that they retrieved.

    Summed in float64 and rounded, as in the index. What no query retrieved of them may be missing.
    """

    table: Array
    column: Array | None  # (n,) where a passage stands in the table; None: at its number

    def of(self, passages: Array, query: Array) -> Array:
        """(r, N) for hits (r, N) of the queries (r,); anything where there is no hit."""
        place = passages if self.column is None else self.column[passages]
        return self.table[query[:, None], place]


def summed(paragraphs: Matrix, weight: Array, offsets: Ints) -> Array:
    """(q, d) float64, dense: q̂ = Σ_i w_i q_i of each query's paragraphs, in whatever order to the same bits.

    ``offsets`` (q + 1,) where the queries begin.
    """
    n = len(offsets) - 1
    xp = array_namespace(weight)
    query, count = xp.asarray(np.repeat(np.arange(n), np.diff(offsets))), xp.asarray(np.diff(offsets))
    out = xp.zeros((n, paragraphs.shape[1]))
    if sparse.issparse(paragraphs):  # few queries are held at once, so their sums may be dense
        stored = np.diff(paragraphs.indptr)
        values = paragraphs.data.astype(np.float64) * np.repeat(weight, stored)
        row = np.repeat(query, stored)
        np.add.at(out, (row, paragraphs.indices), on_grid(values[:, None], row, n, count)[:, 0])
        return out
    weighted = on_grid(paragraphs.astype(xp.float64) * weight[:, None], query, n, count)
    if xp is np:
        filled = np.flatnonzero(np.diff(offsets))
        out[filled] = np.add.reduceat(weighted, offsets[filled], axis=0) if len(filled) else 0
    else:
        xp.add.at(out, query, weighted)
    return out


def products(passages: Matrix, q: Array, hits: Array, query: Array) -> Products:
    """Products of summed paragraphs ``q`` (q, d) with what ``hits`` (r, N), -1 for none, of ``query`` (r,) name."""
    n = int(passages.shape[0])
    xp = array_namespace(hits)
    mark = xp.zeros(n + 1, dtype=bool)
    mark[hits] = True  # padding marks the place behind the last
    numbers, column = xp.flatnonzero(mark[:-1]), None
    if 2 * numbers.size > n and not sparse.issparse(passages):
        numbers = xp.arange(n)  # spares a look-up for each hit
    else:
        column = xp.zeros(n, dtype=xp.int64)
        column[numbers] = xp.arange(numbers.size)
    if sparse.issparse(passages):
        chosen = passages[numbers].astype(np.float64)
        return Products(np.ascontiguousarray((chosen @ q.T).T, dtype=np.float32), column)
    # One column more than there are passages: the padding.
    wanted = xp.zeros((len(q), int(numbers.size) + 1), dtype=bool)
    place = hits if column is None else xp.where(hits >= 0, column[hits], -1)
    wanted[query[:, None], place] = True
    return Products((multiply if xp is np else multiply_on_device)(wanted, q, passages, numbers), column)


def multiply_on_device(wanted: Array, q: Array, passages: Array, numbers: Array) -> Array:
    """:func:`multiply` for CuPy arrays: the passages are read where they lie, and no pair that is not wanted."""
    from haybale.retrieval.aggregation import cuda_kernels

    xp = array_namespace(passages)
    m = int(numbers.size)
    out = xp.zeros((len(q), m), dtype=xp.float32)
    if out.size:
        several = max(1, min(len(q), cuda_kernels.ENOUGH // m))
        cuda.launch(cuda_kernels.multiply, (m, several), cuda_kernels.LANES, wanted, q, passages, numbers, out)
    return out
