"""A few numbers of each candidate that say how well it fits whatever has been learned.

Kq · Kp remembers which documents answer such queries, and knows nothing of a document it never saw relevant. How well
the searches liked a candidate carries over to any document.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haybale.device import device_of, is_sparse, placed, to_device, to_numpy
from haybale.ensemble.rows import Ints
from haybale.errors import InputError
from haybale.machine import fitting, in_tiles
from haybale.retrieval import Hits, PassageIndex
from haybale.retrieval.sparse_search import paired_products
from haybale.vectors import Floats, Matrix, check_like, check_sparse

_GATHERED = 2**24  # vector elements held at once for the cosines


def feature_names(searches: Sequence[str] = ("bm25", "knn"), *, spaces: int = 0) -> list[str]:
    """What the columns of :func:`pair_features` are.

    >>> feature_names(["bm25"], spaces=1)
    ['cosine', 'cosine in space 1', 'bm25 score']
    """
    further = [f"cosine in space {number + 1}" for number in range(spaces)]
    return ["cosine", *further, *(f"{name} score" for name in searches)]


def pair_features(
    candidates: Hits,
    searches: Sequence[Hits],
    index: PassageIndex,
    query_vectors: Matrix,
    *,
    spaces: Sequence[tuple[Matrix, Matrix]] = (),
) -> Floats:
    """The cosine, and for each search the score as a share of the query's best; no feature looks at labels.

    (m, c, f) float32 in NumPy, zero where there is no candidate.

    Parameters
    ----------
    candidates : Hits (m, c)
    searches : sequence of Hits (m, ·)
        What the candidates were pooled of. What a search did not find has its last hit's score.
    index : PassageIndex
    query_vectors : (m, d)
    spaces : sequence of (query matrix, passage matrix), default none
        Cosines in further spaces, dense or sparse, as well.
    """
    candidates, searches = candidates.to_numpy(), [hits.to_numpy() for hits in searches]
    m = len(candidates)
    if any(len(hits) != m for hits in searches) or query_vectors.shape[0] != m:
        raise InputError(f"searches and query vectors must be of the {m} queries that have candidates")
    given = [("query_vectors", query_vectors, index.vectors)]
    given += [("a space's query vectors", *space) for space in spaces]
    columns = [_cosines(candidates.passages, *space) for space in given]
    columns += [_scores(candidates.passages, hits, len(index)) for hits in searches]
    return np.where(candidates.passages[:, :, None] >= 0, np.stack(columns, axis=2), np.float32(0))


def _cosines(passages: Ints, what: str, queries: Matrix, vectors: Matrix) -> Floats:
    """(m, c) cosines of queries (m, d) with their candidates among vectors (n, d); 0 for a zero vector."""
    where = device_of(vectors)
    queries = check_like(placed(queries, where, what), what, vectors)
    row, column = np.nonzero(passages >= 0)
    number = passages[row, column]
    cosines = np.zeros(passages.shape, dtype=np.float32)
    if is_sparse(vectors):  # on the CPU: compiled loops over the terms that two rows share
        used, place = np.unique(number, return_inverse=True)
        a, b = check_sparse(queries, what), check_sparse(vectors[to_device(used, where)], "a space's passage vectors")
        length = np.sqrt(_squares(a)[row]) * np.sqrt(_squares(b)[place])
        cosines[row, column] = paired_products(a, row, b, place) / np.where(length > 0, length, 1)
        return cosines

    def part_of(part: slice) -> Any:
        near = vectors[to_device(number[part], where)].astype(np.float32)
        here = queries[to_device(row[part], where)].astype(np.float32)
        products, near_squares = (near * here).sum(axis=1), (near * near).sum(axis=1)
        squares = near_squares * (here * here).sum(axis=1)
        return to_numpy(products / where.xp.sqrt(where.xp.where(squares > 0, squares, np.float32(1))))

    width = int(vectors.shape[1])
    size = max(1, _GATHERED // max(1, width)) if where.is_cpu else fitting(where.half_of_memory() / 4, 20 * width)
    with where.current():
        parts = list(in_tiles(len(row), size, part_of, what="candidates"))
    cosines[row, column] = np.concatenate(parts) if parts else 0
    return cosines


def _squares(matrix: Any) -> NDArray[np.float64]:
    """(n,) squared lengths of sparse rows."""
    return np.asarray(matrix.multiply(matrix).sum(axis=1), dtype=np.float64).ravel()


def _scores(passages: Ints, hits: Hits, n: int) -> Floats:
    """(m, c) the scores of candidates in a search, as shares of the query's best."""
    row, _, found, score = hits.flat()
    if not len(row):
        return np.zeros(passages.shape, dtype=np.float32)
    key = row * n + found
    order = np.argsort(key)
    wanted = np.arange(len(passages))[:, None] * n + np.maximum(passages, 0)
    place = order[np.minimum(np.searchsorted(key, wanted, sorter=order), len(key) - 1)]
    real = hits.passages >= 0
    last = np.where(real.any(axis=1), np.min(np.where(real, hits.scores, np.inf), axis=1), 0)[:, None]
    best = np.where(real[:, :1], hits.scores[:, :1], 1)
    share = np.where(key[place] == wanted, score[place], last) / np.where(best > 0, best, 1)
    return share.astype(np.float32)
