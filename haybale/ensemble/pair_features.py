"""A few numbers of each candidate that say how well it fits whatever has been learned: evidence beside memory.

Kq · Kp remembers which documents answer such queries, and knows nothing of a document it never saw relevant. How well
the searches liked a candidate carries over to any document.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from haybale.ensemble.rows import Ints
from haybale.errors import InputError
from haybale.retrieval import Hits, PassageIndex
from haybale.vectors import Floats, check_vectors

_GATHERED = 2**24  # vector elements held at once for the cosines


def feature_names(searches: Sequence[str] = ("bm25", "knn"), ranks: bool = False) -> list[str]:
    """What the columns of :func:`pair_features` are.

    >>> feature_names(["bm25"], ranks=True)
    ['cosine', 'bm25 score', 'bm25 rank']
    """
    columns = ("score", "rank") if ranks else ("score",)
    return ["cosine", *(f"{name} {what}" for name in searches for what in columns)]


def pair_features(
    candidates: Hits, searches: Sequence[Hits], index: PassageIndex, query_vectors: Floats, *, ranks: bool = False
) -> Floats:
    """(m, c, f) float32 features of candidates (m, c), zero where there is none.

    The cosine; and for each search that the pool was made of, the score as a share of the query's best, with ``ranks``
    also the reciprocal rank. What a search did not find has its last hit's score and reciprocal rank 0. No feature
    looks at labels. Ranks, unlike scores, say how deep the pool is: with pools of 20 in training and of 60 after, they
    did harm (gesetze, dev), so they are for pools of one depth.
    """
    queries = check_vectors(query_vectors, "query_vectors", index.width)
    m = len(candidates)
    if any(len(hits) != m for hits in searches) or len(queries) != m:
        raise InputError(f"searches and query vectors must be of the {m} queries that have candidates")
    columns = [_cosines(candidates.passages, index, queries)]
    for hits in searches:
        score, rank = _found(candidates.passages, hits, len(index))
        columns += [score, rank] if ranks else [score]
    return np.where(candidates.passages[:, :, None] >= 0, np.stack(columns, axis=2), np.float32(0))


def _cosines(passages: Ints, index: PassageIndex, queries: Floats) -> Floats:
    lengths = np.linalg.norm(queries, axis=1)
    cosines = np.empty(passages.shape, dtype=np.float32)
    step = max(1, _GATHERED // max(1, passages.shape[1] * index.width))
    for start in range(0, len(queries), step):
        part = slice(start, start + step)
        near = index.vectors[passages[part]]  # (b, c, d); -1 takes some vector, which is masked later
        products = np.vecdot(near, queries[part, None])
        scale = np.linalg.norm(near, axis=2) * lengths[part, None]
        cosines[part] = products / np.where(scale > 0, scale, 1)
    return cosines


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
