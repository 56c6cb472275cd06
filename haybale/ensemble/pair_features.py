"""Pair features: the scores and ranks that other searches give a candidate.

Kq · Kp learns which documents answer which queries, and has no information about a document that was never relevant in
training. Pair features are informative for every document. Their linear kernel is added to the product.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from haybale.device import to_numpy
from haybale.ensemble.rows import Ints
from haybale.errors import InputError
from haybale.retrieval import Hits
from haybale.vectors import Floats, reals

SEARCHED, LEARNED = ("level", "rank", "first"), ("score", "log score")


def pair_features(candidates: Hits, searches: Sequence[Hits], learned: Sequence[bool] | None = None) -> Floats:
    """Return the features (m, c, f) of candidates, float32, computed from the results of searches.

    An ordinary search has three features: ``level``, the min-max normalised score within the query, or 1 if all scores
    are equal; ``rank``, 61 / (60 + rank); and ``first``, 1 / rank. A search that was trained on judged queries has two:
    ``score``, which is larger for queries like training queries, and ``log score``, log(1 + score). All features are
    0 for a candidate that the search did not find. Raises :class:`InputError` for results of other queries.

    Parameters
    ----------
    candidates : Hits (m, c)
    searches : sequence of Hits (m, ·)
        Results of each search, by decreasing score.
    learned : sequence of bool, optional
        Whether each search was trained on judged queries, which it must then have ranked out of fold. Default: False
        for all.

    Examples
    --------
    >>> search = Hits(np.array([[4, 2, 9]]), np.array([[3.0, 2.0, 1.0]], dtype=np.float32))
    >>> pair_features(Hits(np.array([[2, 5]]), np.zeros((1, 2))), [search])
    array([[[0.5      , 0.983871..., 0.5      ],
            [0.       , 0.       , 0.       ]]], dtype=float32)
    """
    learned = [False] * len(searches) if learned is None else list(learned)
    passages, m = candidates.to_numpy().passages, len(candidates)
    if any(len(hits) != m for hits in searches) or len(learned) != len(searches):
        sizes = f"{[len(hits) for hits in searches]} queries and {len(learned)} values of learned"
        raise InputError(f"expected searches of {m} queries, each with a value of learned, found {sizes}")
    columns = [
        _search_features(passages, hits.to_numpy(), is_learned)
        for hits, is_learned in zip(searches, learned, strict=True)
    ]
    return np.concatenate([np.zeros((*passages.shape, 0), dtype=np.float32), *columns], axis=2)


def feature_names(names: Sequence[str], learned: Sequence[bool]) -> list[tuple[str, str]]:
    """Return ``(search, kind)`` of each feature.

    >>> feature_names(["bm25", "knn-queries"], [False, True])[2:]
    [('bm25', 'first'), ('knn-queries', 'score'), ('knn-queries', 'log score')]
    """
    kinds = (LEARNED if is_learned else SEARCHED for is_learned in learned)
    return [(name, kind) for name, of in zip(names, kinds, strict=True) for kind in of]


def check_features(features: Any, passages: Ints, width: int | None = None) -> Floats:
    """Return the features of candidates (m, c) as (m·c, f).

    Raises :class:`InputError` for another shape, and for NaN or infinity where there is a candidate.
    """
    values: Floats = reals(to_numpy(features), "features", np.float32)
    if values.ndim != 3 or values.shape[:2] != passages.shape:
        raise InputError(f"features must have three axes, the first two {passages.shape}, found shape {values.shape}")
    broken = ~np.isfinite(values).all(axis=2) & (passages >= 0)
    if broken.any():
        query, candidate = np.argwhere(broken)[0]
        raise InputError(f"features must be finite, found NaN or infinity in query {query}, candidate {candidate}")
    if width not in (None, values.shape[2]):
        raise InputError(f"expected {width} features for each candidate, found {values.shape[2]}")
    return values.reshape(-1, values.shape[2])


def _search_features(candidates: np.ndarray, hits: Hits, learned: bool) -> Floats:
    """Return the features (m, c, 2 or 3) of one search."""
    query, rank, passage, score = hits.flat()
    counts = np.bincount(query, minlength=len(hits))
    if learned:
        columns = [score, np.log1p(np.maximum(score, 0))]
    else:
        ends = np.cumsum(counts)
        lowest = np.repeat(score[ends[counts > 0] - 1], counts[counts > 0])
        best = np.repeat(score[(ends - counts)[counts > 0]], counts[counts > 0])
        level = np.divide(score - lowest, best - lowest, out=np.ones_like(score), where=best > lowest)
        columns = [level, 61 / (60 + rank), 1 / rank]
    # A pair (query, passage) is encoded as one number, so that pairs can be found by a binary search.
    size = 1 + max(int(passage.max(initial=0)), int(candidates.max(initial=0)))
    keys = query * size + passage
    order = np.argsort(keys)
    candidate_keys = np.where(candidates >= 0, np.arange(len(candidates))[:, None] * size + candidates, -1)
    at = np.minimum(np.searchsorted(keys[order], candidate_keys), max(0, len(keys) - 1))
    is_hit = keys[order][at] == candidate_keys if len(keys) else np.zeros(candidates.shape, dtype=bool)
    out = np.zeros((*candidates.shape, len(columns)), dtype=np.float32)
    for number, values in enumerate(columns):
        out[is_hit, number] = values[order][at[is_hit]]
    return out
