"""A few numbers of each candidate that say how well it fits whatever has been learned.

Kq · Kp remembers which documents answer such queries, and knows nothing of a document it never saw relevant. How well
the searches liked a candidate carries over to any document.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from haybale.device import device_of, is_sparse, to_device, to_numpy
from haybale.errors import InputError
from haybale.retrieval import Hits, PassageIndex
from haybale.vectors import Floats, Matrix, check_like, normalized, normalized_sparse


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
    passages, searches = to_numpy(candidates.passages), [hits.to_numpy() for hits in searches]
    m, where = len(passages), device_of(index.vectors)
    if any(len(hits) != m for hits in searches) or query_vectors.shape[0] != m:
        raise InputError(f"searches and query vectors must be of the {m} queries that have candidates")
    queries = check_like(to_numpy(query_vectors), "query_vectors", index.vectors)
    unit = normalized_sparse if is_sparse(queries) else normalized
    queries, features = unit(queries), np.zeros((*passages.shape, 1 + len(searches)), dtype=np.float32)
    for i in range(m):
        there = passages[i] >= 0
        near = to_numpy(index.vectors[to_device(passages[i, there], where)]).astype(np.float32)
        cosines = unit(near) @ queries[i].T
        features[i, there, 0] = cosines.toarray().ravel() if is_sparse(cosines) else cosines
        for number, hits in enumerate(searches, start=1):
            found = hits.passages[i] >= 0
            scores = dict(zip(hits.passages[i, found].tolist(), hits.scores[i, found].tolist(), strict=True))
            if scores:
                last, best = min(scores.values()), max(scores.values())
                values = np.array([scores.get(passage, last) for passage in passages[i, there].tolist()])
                features[i, there, number] = values / (best if best > 0 else 1)
    return features
