"""VMin and VMax: ⟨agg_i q_i, agg p⟩ with the element-wise minimum or maximum on both sides (Li et al., PARADE, 2020).

These do not split into hits: each dimension of a document is given by one passage. A passage retrieved by several
paragraphs counts once, since it changes neither minimum nor maximum.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from haybale import cuda
from haybale.retrieval.aggregation.block import Array, Block
from haybale.retrieval.aggregation.kernels import extremes_of_documents
from haybale.retrieval.hits import Ints
from haybale.vectors import Matrix, array_namespace

_TILE = 2**21  # values of sparse documents held at once: 8 MiB, and their products in float64


def extremes(paragraphs: Matrix, weight: Array, offsets: Ints, ufunc: str) -> Array:
    """(q, d) float64: the element-wise ``"minimum"`` or ``"maximum"`` of each query's paragraphs of weight > 0."""
    xp = array_namespace(weight)
    n = len(offsets) - 1
    out = xp.zeros((n, paragraphs.shape[1]))
    if sparse.issparse(paragraphs):
        for number, (start, end) in enumerate(pairwise(offsets.tolist())):
            rows = paragraphs[start:end][weight[start:end] > 0]
            if rows.shape[0]:  # counts the zeros that are not stored
                out[number] = getattr(rows, ufunc[:3])(axis=0).toarray()[0]
        return out
    kept = weight > 0
    query = xp.asarray(np.repeat(np.arange(n), np.diff(offsets)))[kept]
    rows = paragraphs[kept].astype(xp.float64)
    counts = xp.bincount(query, minlength=n)
    if xp is np:
        filled = np.flatnonzero(counts)
        if len(filled):
            out[filled] = getattr(np, ufunc).reduceat(rows, (np.cumsum(counts) - counts)[filled], axis=0)
        return out
    out[counts > 0] = xp.inf if ufunc == "minimum" else -xp.inf
    getattr(xp, ufunc).at(out, query, rows)
    return out


def elementwise(block: Block, passages: Matrix, q: Array, ufunc: str) -> Array:
    """(n_cells,) ⟨q̂, d̂⟩, 0 for an empty cell; ``q`` (q, d) of :func:`extremes`."""
    if isinstance(passages, np.ndarray):
        wanted = np.zeros((block.n_queries, len(passages) + 1), dtype=bool)
        wanted[block.query[:, None], block.masked(block.passages, len(passages))] = True
        table = extremes_of_documents(wanted, q, passages, block.starts, ufunc == "maximum")
        return np.ravel(table if block.documents is None else table[:, block.documents])
    return _by_segments(block, passages, q, ufunc)


def _by_segments(block: Block, passages: Matrix, q: Array, ufunc: str) -> Array:
    """The same document by document, each with the list of its passages: for vectors on a device, and sparse ones."""
    xp = block.xp
    passage, cell = _distinct(block, int(passages.shape[0]))
    starts = xp.flatnonzero(xp.diff(cell, prepend=-1))
    lengths = xp.diff(starts, append=len(cell))
    filled = cell[starts]
    query = filled // block.width
    score = xp.zeros(block.n_cells)
    if not sparse.issparse(passages):
        score[filled] = _on_device(passages, passage, starts, lengths, q, query, ufunc)
        return score
    step = _step(passages, len(passage) / max(1, len(starts)))
    for left in range(0, len(starts), step):
        part = slice(left, left + step)
        score[filled[part]] = _sparse(passages, passage, starts[part], lengths[part], q, query[part], ufunc)
    return score


def _step(passages: Matrix, mean_length: float) -> int:
    """Sparse documents made at once: all values of their passages are held."""
    return max(1, int(_TILE / max(mean_length * passages.nnz / passages.shape[0], 1)))


def _distinct(block: Block, n: int) -> tuple[Array, Array]:
    """``(passage, cell)`` of every passage that a query retrieved, once, by rising cell and passage."""
    xp = block.xp
    pair = block.masked(block.query[:, None] * n + block.passages, block.n_queries * n)
    cell_of = xp.full(block.n_queries * n + 1, -1)  # equal pairs lie in one cell: whichever is written last
    cell_of[pair] = block.cell
    cell_of = cell_of[:-1]
    pairs = xp.flatnonzero(cell_of >= 0)
    return pairs % n, cell_of[pairs]


def _on_device(
    passages: Array, passage: Array, starts: Array, lengths: Array, q: Array, query: Array, ufunc: str
) -> Array:
    """(s,) scores of documents: document i has the passages ``passage[starts[i] : starts[i] + lengths[i]]``.

    ``query`` (s,) is the row of ``q`` each is scored by.
    """
    from haybale.retrieval.aggregation import cuda_kernels

    out = array_namespace(passages).zeros(len(starts))
    arguments = (passage, starts, lengths, query, q, passages, ufunc == "maximum", out)
    cuda.launch(cuda_kernels.extremes, len(out), cuda_kernels.LANES, *arguments)
    return out


def _sparse(
    passages: Any, passage: Ints, starts: Ints, lengths: Ints, q: Array, query: Ints, ufunc: str
) -> NDArray[np.float64]:
    """The same for CSR: the extreme of the stored values, and of 0 where a passage of the document has none."""
    which = np.repeat(np.arange(len(starts)), lengths)
    within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
    rows = passages[passage[starts[which] + within]]
    key = np.repeat(which, np.diff(rows.indptr)) * passages.shape[1] + rows.indices
    order = np.argsort(key, kind="stable")
    key, values = key[order], rows.data[order]
    first = np.flatnonzero(np.diff(key, prepend=-1))
    if not len(first):
        return np.zeros(len(starts))
    best = getattr(np, ufunc).reduceat(values, first)
    line, term = np.divmod(key[first], passages.shape[1])
    absent = np.diff(first, append=len(key)) < lengths[line]
    best = np.where(absent, getattr(np, ufunc)(best, 0), best)
    return np.asarray(np.bincount(line, weights=best * q[query[line], term], minlength=len(starts)), dtype=np.float64)
