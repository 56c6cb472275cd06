"""Features of the documents in a ranking that tell how likely each of them is relevant."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from haybale.retrieval import Run
from haybale.retrieval.fusion import PooledRun, pooled

TOP_RANKS = (1, 3, 10)  # the agreement of rankers is counted within these ranks
SOFTMAX_DEPTH = 10
OF_RANKING = (
    "score",
    "score relative to first and last",
    "log softmax over first ten",
    "log rank",
    "1 / rank",
    "gap to first",
    "gap to previous",
    "gap to next",
    "score of first",
    "gap of first to second",
)

Array = NDArray[np.float64]


def candidate_feature_names(parts: Sequence[str], trained: Collection[str] = ()) -> list[str]:
    """Return the names of the features of :func:`candidate_features`, for parts with these names."""
    agreement = ["mean 1 / rank of parts", *(f"parts with rank {n} or less" for n in TOP_RANKS)] if parts else []
    of_parts = [
        f"{kind} of {part}"
        for part in parts
        for kind in ("1 / rank", "relative score", *(["score"] if part in trained else []))
    ]
    return [*OF_RANKING, *agreement, *of_parts]


def candidate_features(run: Run, parts: Mapping[str, Run], trained: Collection[str] = ()) -> Array:
    """Return the features (n, f) of the documents of a run, in its order.

    The features of a query's documents do not depend on other queries. The features of a part are 0 for a document that
    the part lacks.

    Parameters
    ----------
    run : Run
        The ranking whose documents are described, by scores, ranks, and gaps between scores.
    parts : mapping of str to Run
        Rankings of the same queries by the rankers that the ranking is made of. Each adds its rank and its score, and
        all together their agreement.
    trained : collection of str, default none
        Names of the parts that learn which documents are relevant, whose raw scores are comparable between queries.
    """
    pool = pooled([run, *parts.values()], run.query_ids)
    listing, *part_listings = pool.listings
    columns = _of_ranking(listing)
    ranks = []
    for (name, part), part_listing in zip(parts.items(), part_listings, strict=True):
        reciprocal, level, score = (np.zeros(len(pool)) for _ in range(3))
        reciprocal[part_listing.place] = 1 / part_listing.rank
        level[part_listing.place] = _minmax(part_listing, len(part))
        score[part_listing.place] = part_listing.score
        ranks.append(reciprocal[listing.place])
        columns += [values[listing.place] for values in (reciprocal, level, *([score] if name in trained else []))]
    if ranks:
        reciprocals = np.stack(ranks)
        agreement = [reciprocals.mean(axis=0), *((reciprocals >= 1 / n).sum(axis=0) for n in TOP_RANKS)]
        columns[len(OF_RANKING) : len(OF_RANKING)] = agreement
    return np.stack(columns, axis=1).astype(np.float64)


def _of_ranking(listing: PooledRun) -> list[Array]:
    """Return the features (n,) of :data:`OF_RANKING`."""
    score, n = listing.score, len(listing.score)
    starts = np.flatnonzero(listing.rank == 1)
    counts = np.diff(np.append(starts, n))
    first = np.repeat(score[starts], counts)
    second = np.repeat(score[np.minimum(starts + 1, starts + counts - 1)], counts)
    is_last = np.append(listing.rank[1:] == 1, True)[:n]
    previous = np.where(listing.rank == 1, score, np.roll(score, 1))
    following = np.where(is_last, score, np.roll(score, -1))
    # Over ten documents, because a ranking may have fewer than others, which would change the softmax over all.
    weight = np.where(listing.rank <= SOFTMAX_DEPTH, np.exp(score - first), 0)
    log_softmax = score - first - np.log(np.repeat(np.add.reduceat(weight, starts) if n else weight, counts))
    return [
        score,
        _minmax(listing, int(listing.query.max(initial=-1)) + 1),
        log_softmax,
        np.log(listing.rank),
        1 / listing.rank,
        first - score,
        previous - score,
        score - following,
        first,
        first - second,
    ]


def _minmax(listing: PooledRun, n_queries: int) -> Array:
    """Return (score − lowest) / (best − lowest) within each query, 1 where all scores are equal."""
    lowest, best = np.zeros(n_queries), np.zeros(n_queries)
    lowest[listing.query] = listing.score  # the last score written for a query is its lowest
    best[listing.query[::-1]] = listing.score[::-1]
    span, above = (best - lowest)[listing.query], listing.score - lowest[listing.query]
    return np.divide(above, span, out=np.ones_like(above), where=span > 0)
