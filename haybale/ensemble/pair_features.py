"""What searches say of a candidate: evidence that carries over to any document.

Kq · Kp remembers which documents answer such queries, and knows nothing of a document it never saw relevant. How well
the searches liked a candidate tells of every document, so these numbers have a linear kernel beside it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from haybale.errors import InputError
from haybale.retrieval import Hits
from haybale.vectors import Floats

SEARCHED, LEARNED = ("level", "rank", "first"), ("score", "log score")


def pair_features(candidates: Hits, searches: Sequence[Hits], learned: Sequence[bool] | None = None) -> Floats:
    """(m, c, f) float32 of candidates, from every search that may have found them; no feature looks at labels.

    Of a search: ``level``, (score − lowest) / (best − lowest) of the query, 1 where all are equal; ``rank``,
    61 / (60 + rank); ``first``, 1 / rank. Of one that has learned from judged queries the ``score`` and the ``log
    score``, log(1 + score), since their size says how well the query is known. 0 for what a search did not find.

    Parameters
    ----------
    candidates : Hits (m, c)
    searches : sequence of Hits (m, ·)
        Best first.
    learned : sequence of bool, optional
        Which searches have learned from judged queries, which they must rank as if they had not seen them; default
        none.

    Examples
    --------
    >>> search = Hits(np.array([[4, 2, 9]]), np.array([[3.0, 2.0, 1.0]], dtype=np.float32))
    >>> pair_features(Hits(np.array([[2, 5]]), np.zeros((1, 2))), [search])
    array([[[0.5      , 0.983871..., 0.5      ],
            [0.       , 0.       , 0.       ]]], dtype=float32)
    """
    learned = [False] * len(searches) if learned is None else list(learned)
    wanted, m = candidates.to_numpy().passages, len(candidates)
    if any(len(hits) != m for hits in searches) or len(learned) != len(searches):
        raise InputError(f"expected searches of the {m} queries that have candidates, and of each whether it learned")
    columns = [_of_search(wanted, hits.to_numpy(), known) for hits, known in zip(searches, learned, strict=True)]
    return np.concatenate([np.zeros((*wanted.shape, 0), dtype=np.float32), *columns], axis=2)


def feature_names(names: Sequence[str], learned: Sequence[bool]) -> list[tuple[str, str]]:
    """``(search, kind)`` of each feature.

    >>> feature_names(["bm25", "knn-queries"], [False, True])[2:]
    [('bm25', 'first'), ('knn-queries', 'score'), ('knn-queries', 'log score')]
    """
    kinds = (LEARNED if known else SEARCHED for known in learned)
    return [(name, kind) for name, of in zip(names, kinds, strict=True) for kind in of]


def _of_search(wanted: np.ndarray, hits: Hits, learned: bool) -> Floats:
    """(m, c, 2 or 3)"""
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
    # Found by one number for a query and a passage.
    size = 1 + max(int(passage.max(initial=0)), int(wanted.max(initial=0)))
    keys = query * size + passage
    order = np.argsort(keys)
    asked = np.where(wanted >= 0, np.arange(len(wanted))[:, None] * size + wanted, -1)
    at = np.minimum(np.searchsorted(keys[order], asked), max(0, len(keys) - 1))
    found = keys[order][at] == asked if len(keys) else np.zeros(asked.shape, dtype=bool)
    out = np.zeros((*wanted.shape, len(columns)), dtype=np.float32)
    for number, values in enumerate(columns):
        out[found, number] = values[order][at[found]]
    return out
