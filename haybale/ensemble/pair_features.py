"""A few numbers of each candidate that say how well it fits whatever has been learned: evidence beside memory.

Kq · Kp remembers which documents answer such queries, and knows nothing of a document it never saw relevant. How well
the searches liked a candidate carries over to any document.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from haybale.device import device_of, to_device, to_numpy
from haybale.ensemble.placing import matrix_on
from haybale.ensemble.rows import Ints
from haybale.errors import InputError
from haybale.machine import fitting, in_tiles
from haybale.retrieval import Hits, PassageIndex
from haybale.retrieval.sparse_search import paired_products
from haybale.vectors import Floats, Matrix, check_like, check_sparse

_GATHERED = 2**24  # vector elements held at once for the cosines


def feature_names(
    searches: Sequence[str] = ("bm25", "knn"), *, ranks: bool = False, spaces: int = 0, lengths: bool = False
) -> list[str]:
    """What the columns of :func:`pair_features` are.

    >>> feature_names(["bm25"], ranks=True, spaces=1, lengths=True)
    ['cosine', 'cosine in space 1', 'bm25 score', 'bm25 rank', 'length']
    """
    columns = ("score", "rank") if ranks else ("score",)
    names = ["cosine", *(f"cosine in space {number + 1}" for number in range(spaces))]
    names += [f"{name} {what}" for name in searches for what in columns]
    return [*names, "length"] if lengths else names


def pair_features(
    candidates: Hits,
    searches: Sequence[Hits],
    index: PassageIndex,
    query_vectors: Matrix,
    *,
    ranks: bool = False,
    spaces: Sequence[tuple[Matrix, Matrix]] = (),
    lengths: NDArray[Any] | None = None,
) -> Floats:
    """(m, c, f) float32 features of candidates (m, c), zero where there is none; NumPy.

    Cosines are taken where the passages' vectors are, and query vectors are brought there; hits on a device are read
    on the CPU.

    The cosine, also in further ``spaces`` (query matrix, passage matrix), dense or sparse; for each search that the
    pool was made of, the score as a share of the query's best, with ``ranks`` also the reciprocal rank; and the
    logarithm of the passage's length if ``lengths`` (n_passages,) are given, in whatever unit. What a search did not
    find has its last hit's score and reciprocal rank 0. No feature looks at labels.

    Ranks, unlike scores, say how deep the pool is: with pools of 20 in training and of 60 after, they did harm
    (gesetze, dev), so they are for pools of one depth.
    """
    candidates, searches = candidates.to_numpy(), [hits.to_numpy() for hits in searches]
    queries = matrix_on(query_vectors, device_of(index.vectors), "query_vectors")
    queries = check_like(queries, "query_vectors", index.vectors)
    m = len(candidates)
    if any(len(hits) != m for hits in searches) or queries.shape[0] != m:
        raise InputError(f"searches and query vectors must be of the {m} queries that have candidates")
    columns = [_cosines(candidates.passages, queries, index.vectors)]
    columns += [_cosines(candidates.passages, *space) for space in spaces]
    for hits in searches:
        score, rank = _found(candidates.passages, hits, len(index))
        columns += [score, rank] if ranks else [score]
    if lengths is not None:
        columns.append(np.log1p(np.asarray(lengths, dtype=np.float32))[candidates.passages])
    return np.where(candidates.passages[:, :, None] >= 0, np.stack(columns, axis=2), np.float32(0))


def _cosines(passages: Ints, queries: Matrix, vectors: Matrix) -> Floats:
    """(m, c) cosines of queries (m, d) with their candidates among vectors (n, d); 0 for a zero vector."""
    where = device_of(vectors)
    queries = matrix_on(queries, where, "a space's query vectors")
    if not where.is_cpu:
        with where.current():
            return _cosines_on_device(passages, queries, vectors)
    if sparse.issparse(vectors):
        return _sparse_cosines(passages, check_like(queries, "a space's query vectors", vectors), vectors)
    cosines = np.empty(passages.shape, dtype=np.float32)
    step = max(1, _GATHERED // max(1, passages.shape[1] * int(vectors.shape[1])))
    for start in range(0, len(passages), step):
        part = slice(start, start + step)
        numbers = passages[part].ravel()  # -1 takes some vector, which is masked later
        near, here = vectors[numbers], queries[np.repeat(np.arange(len(passages))[part], passages.shape[1])]
        products, squares = np.vecdot(near, here), np.vecdot(near, near) * np.vecdot(here, here)
        cosines[part] = (products / np.sqrt(np.where(squares > 0, squares, 1))).reshape(-1, passages.shape[1])
    return cosines


def _cosines_on_device(passages: Ints, queries: Any, vectors: Any) -> Floats:
    where = device_of(vectors)
    xp, (m, c) = where.xp, passages.shape
    numbers = passages.ravel()

    def cosines(part: slice) -> Any:
        row = np.arange(part.start, part.stop) // c
        near = vectors[to_device(numbers[part], where)].astype(np.float32)
        here = queries[to_device(row, where)].astype(np.float32)
        products, squares = ((a * b).sum(axis=1) for a, b in ((near, here), (near, near)))
        squares *= (here * here).sum(axis=1)
        return products / xp.sqrt(xp.where(squares > 0, squares, np.float32(1)))

    size = fitting(where.half_of_memory() / 4, 20 * int(vectors.shape[1]))
    parts = list(in_tiles(m * c, size, cosines, what="candidates"))
    found = to_numpy(xp.concatenate(parts)) if parts else np.zeros(0, dtype=np.float32)
    return np.asarray(found.reshape(m, c))


def _sparse_cosines(passages: Ints, queries: sparse.csr_matrix, vectors: sparse.csr_matrix) -> Floats:
    vectors = check_sparse(vectors, "a space's passage vectors")
    row, column = np.nonzero(passages >= 0)
    number = passages[row, column]
    lengths = [np.sqrt(_squares(matrix)[of]) for matrix, of in ((queries, row), (vectors, number))]
    length = lengths[0] * lengths[1]
    cosines = np.zeros(passages.shape, dtype=np.float32)
    cosines[row, column] = paired_products(queries, row, vectors, number) / np.where(length > 0, length, 1)
    return cosines


def _squares(matrix: sparse.csr_matrix) -> NDArray[np.float64]:
    """(n,) squared lengths of the rows."""
    return np.asarray(matrix.multiply(matrix).sum(axis=1), dtype=np.float64).ravel()


def _found(passages: Ints, hits: Hits, n: int) -> tuple[Floats, Floats]:
    """``(score / best score, 1 / rank)`` of candidates (m, c) in a search."""
    row, rank, found, score = hits.flat()
    if not len(row):
        return np.zeros(passages.shape, dtype=np.float32), np.zeros(passages.shape, dtype=np.float32)
    key = row * n + found
    order = np.argsort(key)
    wanted = np.arange(len(passages))[:, None] * n + np.maximum(passages, 0)
    place = order[np.minimum(np.searchsorted(key, wanted, sorter=order), len(key) - 1)]
    there = key[place] == wanted
    real = hits.passages >= 0
    last = np.where(real.any(axis=1), np.min(np.where(real, hits.scores, np.inf), axis=1), 0)[:, None]
    best = np.where(real[:, :1], hits.scores[:, :1], 1)
    share = np.where(there, score[place], last) / np.where(best > 0, best, 1)
    return share.astype(np.float32), np.where(there, 1 / rank[place], 0).astype(np.float32)
