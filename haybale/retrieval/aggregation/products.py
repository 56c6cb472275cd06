"""⟨q̂, p⟩ of every retrieved passage p: all that the linear vector aggregations need of the vectors.

⟨Σ_i q_i, Σ w p⟩ = Σ w ⟨q̂, p⟩, so no document gets a vector, and a passage that many paragraphs of a query retrieved
is multiplied once.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from scipy import sparse

from haybale.errors import InputError
from haybale.retrieval.aggregation.block import Array
from haybale.retrieval.aggregation.kernels import multiply
from haybale.retrieval.aggregation.reduce import on_grid
from haybale.retrieval.hits import Ints
from haybale.vectors import Matrix, array_namespace, check_like

_TILE = 2**22  # float64 values of passage vectors held at once on a device: 32 MiB


@dataclass(frozen=True)
class Vectors:
    """What the vector aggregations read: (n_passages, d), and the paragraphs' own (n_paragraphs, d); CSR if sparse."""

    passages: Matrix
    paragraphs: Matrix

    def checked(self, n_passages: int, n_paragraphs: int) -> Vectors:
        """The same, float32 and fitting the hits; the passages are taken as the index has checked them."""
        paragraphs = check_like(self.paragraphs, "paragraph vectors", self.passages)
        if paragraphs.shape[0] != n_paragraphs:
            raise InputError(f"{paragraphs.shape[0]} paragraph vectors for {n_paragraphs} paragraphs")
        if self.passages.shape[0] != n_passages:
            raise InputError(f"{self.passages.shape[0]} passage vectors for {n_passages} passages")
        return Vectors(self.passages, paragraphs)


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
    for number, (start, end) in enumerate(pairwise(offsets.tolist())):
        out[number] = weighted[start:end].sum(axis=0)
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
    if xp is np:
        wanted = np.zeros((len(q), len(numbers) + 1), dtype=bool)
        place = hits if column is None else np.where(hits >= 0, column[hits], -1)
        wanted[query[:, None], place] = True
        return Products(multiply(wanted, q, passages, numbers), column)
    return Products(by_matrix_product(q, passages, numbers), column)


def by_matrix_product(q: Array, passages: Array, numbers: Array) -> Array:
    """(q, m) float32 products of ``q`` with ``passages[numbers]``, all of them: for arrays on a device."""
    xp = array_namespace(passages)
    table = xp.empty((len(q), numbers.size), dtype=xp.float32)
    step = max(1, _TILE // int(passages.shape[1]))
    for start in range(0, numbers.size, step):
        part = slice(start, start + step)
        table[:, part] = q @ passages[numbers[part]].astype(xp.float64).T
    return table
