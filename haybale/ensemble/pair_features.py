"""A few numbers of each candidate that say how well it fits whatever has been learned.

Kq · Kp remembers which documents answer such queries, and knows nothing of a document it never saw relevant. How well
the searches liked a candidate carries over to any document.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from haybale.device import device_of, is_sparse, to_device, to_numpy
from haybale.ensemble.rows import Ints
from haybale.errors import InputError
from haybale.machine import in_tiles
from haybale.retrieval import Hits, PassageIndex
from haybale.retrieval.sparse_search import paired_products
from haybale.vectors import Floats, Matrix, check_like, check_sparse, normalized, normalized_sparse

_GATHERED = 2**24  # vector elements held at once for the cosines


def pair_features(candidates: Hits, searches: Sequence[Hits], index: PassageIndex, query_vectors: Matrix) -> Floats:
    """The cosine, and for each search the score as a share of the query's best; no feature looks at labels.

    (m, c, 1 + number of searches) float32 in NumPy, zero where there is no candidate.

    Parameters
    ----------
    candidates : Hits (m, c)
    searches : sequence of Hits (m, ·)
        What the candidates were pooled of. What a search did not find has its last hit's score.
    index : PassageIndex
    query_vectors : (m, d)
    """
    candidates, searches = candidates.to_numpy(), [hits.to_numpy() for hits in searches]
    m = len(candidates)
    if any(len(hits) != m for hits in searches) or query_vectors.shape[0] != m:
        raise InputError(f"searches and query vectors must be of the {m} queries that have candidates")
    columns = [_cosines(candidates.passages, query_vectors, index)]
    columns += [_scores(candidates.passages, hits, len(index)) for hits in searches]
    return np.where(candidates.passages[:, :, None] >= 0, np.stack(columns, axis=2), np.float32(0))


def _cosines(passages: Ints, queries: Matrix, index: PassageIndex) -> Floats:
    """(m, c) cosines of queries (m, d) with their candidates, on the CPU; 0 for a zero vector."""
    queries = check_like(to_numpy(queries), "query_vectors", index.vectors)
    queries = (normalized_sparse if is_sparse(queries) else normalized)(queries)
    row, column = np.nonzero(passages >= 0)
    number = passages[row, column]
    used, place = np.unique(number, return_inverse=True)
    vectors = to_numpy(index.vectors[to_device(used, device_of(index.vectors))])
    cosines = np.zeros(passages.shape, dtype=np.float32)
    if is_sparse(vectors):
        cosines[row, column] = paired_products(
            queries, row, normalized_sparse(check_sparse(vectors, "passages")), place
        )
        return cosines
    vectors = normalized(vectors.astype(np.float32))
    size = _GATHERED // max(1, vectors.shape[1])
    parts = in_tiles(len(row), size, lambda part: np.vecdot(queries[row[part]], vectors[place[part]]))
    cosines[row, column] = np.concatenate([np.zeros(0), *parts])
    return cosines


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
