"""⟨q̂, p⟩ of every retrieved passage p: all that the linear vector aggregations need of the vectors.

⟨Σ_i q_i, Σ w p⟩ = Σ w ⟨q̂, p⟩, so no document gets a vector, and a passage that many paragraphs of a query retrieved
is multiplied once.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from scipy import sparse

from haybale.errors import InputError
from haybale.retrieval.aggregation.block import Array
from haybale.retrieval.aggregation.reduce import on_grid
from haybale.retrieval.hits import Ints
from haybale.vectors import Matrix, array_namespace, check_like

_WASTE = 16  # a product in a matrix product costs so much less than one of a row fetched for it
_TILE = 2**22  # float64 values of passage vectors held at once: 32 MiB


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
    """⟨q̂, p⟩ for the summed paragraphs ``q`` (q, d) of some queries, summed in float64 and rounded to float32.

    Equal passages have equal products, as in the index. With a ``table`` (q, m) all queries have been multiplied with
    all m passages that any of them retrieved; without one, each pair is when it is asked for.
    """

    passages: Matrix  # (n, d)
    q: Array
    table: Array | None = None
    column: Array | None = None  # (n,) where a passage stands in the table; None: at its number

    def of(self, passages: Array, query: Array) -> Array:
        """(r, N) float64 for hits (r, N) of the queries (r,); anything where there is no hit."""
        if self.table is not None:
            place = passages if self.column is None else self.column[passages]
            return self.table[query[:, None], place].astype(np.float64)
        xp = array_namespace(passages)
        n = int(self.passages.shape[0])
        pairs, place = xp.unique(query[:, None] * n + xp.maximum(passages, 0), return_inverse=True)
        found = xp.empty(len(pairs), dtype=xp.float32)
        step = max(1, _TILE // int(self.q.shape[1]))
        for start in range(0, len(pairs), step):
            row, passage = xp.divmod(pairs[start : start + step], n)
            found[start : start + step] = (self.passages[passage] * self.q[row]).sum(axis=1)
        return found[place.reshape(passages.shape)].astype(np.float64)


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


def products(passages: Matrix, q: Array, retrieved: Array, n_hits: int) -> Products:
    """Products of summed paragraphs ``q`` (q, d) with the passages ``retrieved`` (m,), rising, of ``n_hits`` hits."""
    n, d = passages.shape
    if sparse.issparse(passages):
        chosen = passages[retrieved].astype(np.float64)
        table = np.ascontiguousarray((chosen @ q.T).T, dtype=np.float32)
        return Products(passages, q, table, _columns(retrieved, n))
    xp = array_namespace(passages)
    everything = 2 * retrieved.size > n  # then gathering costs more than the products nobody asked for
    m = n if everything else int(retrieved.size)
    if len(q) * m > _WASTE * n_hits:
        return Products(passages, q)
    table = xp.empty((len(q), m), dtype=xp.float32)
    step = max(1, _TILE // d)
    for start in range(0, m, step):
        part = slice(start, start + step)
        tile = passages[part] if everything else passages[retrieved[part]]
        table[:, part] = q @ tile.astype(xp.float64).T
    return Products(passages, q, table, None if everything else _columns(retrieved, n))


def _columns(retrieved: Array, n: int) -> Any:
    xp = array_namespace(retrieved)
    column = xp.zeros(n, dtype=xp.int64)
    column[retrieved] = xp.arange(retrieved.size)
    return column
