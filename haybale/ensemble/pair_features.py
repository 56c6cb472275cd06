"""A few numbers of each candidate that say how well it fits whatever has been learned: evidence beside memory.

Kq · Kp remembers which documents answer such queries, and knows nothing of a document it never saw relevant. Scores
and ranks of the searches that found a candidate carry over to any document; an RBF over them, added to the kernel
(``SVREnsemble(eta=…)``), learns how far to trust them.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from haybale.ensemble.rows import Ints
from haybale.errors import InputError
from haybale.retrieval import Hits, PassageIndex
from haybale.vectors import Floats, check_vectors

_GATHERED = 2**24  # vector elements held at once for the cosines


def feature_names(searches: Sequence[str] = ("bm25", "knn")) -> list[str]:
    """What the columns of :func:`pair_features` are.

    >>> feature_names(["bm25"])
    ['cosine', 'passages of the document', 'bm25 score', 'bm25 rank']
    """
    return [
        "cosine",
        "passages of the document",
        *(f"{name} {what}" for name in searches for what in ("score", "rank")),
    ]


def pair_features(candidates: Hits, searches: Sequence[Hits], index: PassageIndex, query_vectors: Floats) -> Floats:
    """(m, c, 2 + 2 · n_searches) float32 features of candidates (m, c), zero where there is none.

    The cosine; the logarithm of how many candidates of the query belong to the same document; and for each search
    that the pool was made of, the score as a share of the query's best, and the reciprocal rank. What a search did not
    find has its last hit's score and reciprocal rank 0, so nothing depends on why a passage is a candidate; use
    the same searches for training queries and new ones. No feature looks at labels.
    """
    queries = check_vectors(query_vectors, "query_vectors", index.width)
    m, c = candidates.passages.shape
    if any(len(hits) != m for hits in searches) or len(queries) != m:
        raise InputError(f"searches and query vectors must be of the {m} queries that have candidates")
    real = candidates.passages >= 0
    features = np.zeros((m, c, 2 + 2 * len(searches)), dtype=np.float32)
    features[:, :, 0] = _cosines(candidates.passages, index, queries)
    features[:, :, 1] = np.log(_of_same_document(candidates.passages, index.doc_of))
    for number, hits in enumerate(searches):
        features[:, :, 2 + 2 * number], features[:, :, 3 + 2 * number] = _found(candidates.passages, hits, len(index))
    features[~real] = 0
    return features


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


def _of_same_document(passages: Ints, doc_of: Ints) -> Ints:
    """(m, c) how many candidates of the query belong to the document of each."""
    documents = np.where(passages >= 0, doc_of[passages], -1)
    counts = np.empty(passages.shape, dtype=np.int64)
    for row, of_row in enumerate(documents):
        _, where, number = np.unique(of_row, return_inverse=True, return_counts=True)
        counts[row] = number[where]
    return counts


def _found(passages: Ints, hits: Hits, n: int) -> tuple[Floats, Floats]:
    """``(score / best score, 1 / rank)`` of candidates (m, c) in a search."""
    row, rank, found, score = hits.flat()
    key = row * n + found
    order = np.argsort(key)
    wanted = np.arange(len(passages))[:, None] * n + np.maximum(passages, 0)
    place = np.minimum(np.searchsorted(key, wanted, sorter=order), max(0, len(key) - 1))
    if not len(key):
        return np.zeros(passages.shape, dtype=np.float32), np.zeros(passages.shape, dtype=np.float32)
    there = key[order[place]] == wanted
    scores = np.where(hits.passages >= 0, hits.scores, np.inf)
    last = np.where(np.isfinite(scores).any(axis=1), np.min(scores, axis=1), 0)[:, None]
    best = np.where(hits.passages[:, :1] >= 0, hits.scores[:, :1], 1)
    share = np.where(there, score[order[place]], last) / np.where(best > 0, best, 1)
    return share.astype(np.float32), np.where(there, 1 / rank[order[place]], 0).astype(np.float32)
