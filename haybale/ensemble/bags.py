"""Bags: overlapping subsets of the candidate rows, one SVR each.

Each of s bags holds (1 + overlap)/s of the training set: s disjoint parts would hold 1/s, the rest is shared
with other bags. The ensemble paper has s = 35 and an overlap of 0.6.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.cluster import KMeans

from haybale.device import to_numpy
from haybale.ensemble.rows import CandidateRows, Ints
from haybale.errors import InputError, UnknownNameError
from haybale.vectors import Matrix

STRATEGIES = ("queries", "rows", "regions")
_EVEN = 1.5  # times its even share is the most queries a cell of `regions` holds


def make_bags(
    rows: CandidateRows,
    strategy: str,
    n_bags: int,
    overlap: float,
    rng: np.random.Generator,
    queries: Matrix | None = None,
) -> list[Ints]:
    """Row numbers of each bag, ascending, with repetitions in the ``rows`` strategy.

    ``queries``: the queries are dealt out to the bags, and each bag is filled up with queries of other bags, so
    that every query is in at least one bag and all candidates of a query stay together.

    ``rows``: rows drawn with replacement, as the authors' code does.

    ``regions``: k-means cells of the query vectors, one a bag, each grown by the queries nearest to its centroid
    among those outside, ``overlap`` times as many as the cell has: so the bags together hold 1 + overlap times the
    queries. A cell holds at most 1.5 times its even share, queries beyond it go to their next nearest cell, so
    that no bag takes many times as long as the others. Looks at the vectors ``queries`` (m, d), on the CPU.
    """
    if strategy not in STRATEGIES:
        raise UnknownNameError("bag strategy", strategy, STRATEGIES)
    if n_bags < 1 or not 0 <= overlap <= n_bags - 1:
        raise InputError(f"expected n_bags >= 1 and 0 <= overlap <= n_bags - 1, found {n_bags} and {overlap}")
    distinct, starts = np.unique(rows.query, return_index=True)
    units = len(rows) if strategy == "rows" else len(distinct)
    if units < n_bags:
        kind = "rows" if strategy == "rows" else "queries"
        raise InputError(f"{n_bags} bags need at least as many {kind} to share out, found {units}")
    if strategy == "rows":
        size = max(1, round(len(rows) * (1 + overlap) / n_bags))
        return [np.sort(rng.integers(len(rows), size=size)) for _ in range(n_bags)]
    if strategy == "queries":
        members = _dealt(len(distinct), n_bags, overlap, rng)
    elif queries is None:
        raise InputError("strategy 'regions' needs the query vectors")
    else:
        members = _regions(to_numpy(queries)[distinct], n_bags, overlap, rng)
    ends = np.append(starts[1:], len(rows))
    return [np.concatenate([np.arange(starts[q], ends[q]) for q in chosen]) for chosen in members]


def _dealt(n: int, n_bags: int, overlap: float, rng: np.random.Generator) -> list[Ints]:
    size = min(n, max(1, round(n * (1 + overlap) / n_bags)))
    bags = []
    for part in np.array_split(rng.permutation(n), n_bags):
        others = np.setdiff1d(np.arange(n), part)
        extra = rng.choice(others, size=max(0, size - len(part)), replace=False)
        bags.append(np.sort(np.concatenate((part, extra))))
    return bags


def _regions(vectors: Matrix, n_bags: int, overlap: float, rng: np.random.Generator) -> list[Ints]:
    """Members of each region, ascending."""
    n = int(vectors.shape[0])
    means = KMeans(n_bags, n_init=1, random_state=int(rng.integers(2**31))).fit(vectors)
    distances = means.transform(vectors)  # (n, n_bags)
    room = np.full(n_bags, int(np.ceil(_EVEN * n / n_bags)))
    cell = np.full(n, -1)
    for near in np.argsort(distances, axis=None, kind="stable"):
        query, region = divmod(int(near), n_bags)
        if cell[query] < 0 and room[region] > 0:
            cell[query] = region
            room[region] -= 1
    members = []
    for region in range(n_bags):
        inside = cell == region
        nearest = np.argsort(np.where(inside, np.inf, distances[:, region]), kind="stable")
        extra = nearest[: min(round(overlap * inside.sum()), n - int(inside.sum()))]
        members.append(np.sort(np.concatenate((np.flatnonzero(inside), extra))))
    # A cell that the limit left empty would be an empty bag; its nearest query makes it one.
    return [part if len(part) else np.array([np.argmin(distances[:, i])]) for i, part in enumerate(members)]


def thinned(rows: CandidateRows, bag: Ints, limit: int | None, rng: np.random.Generator) -> Ints:
    """The bag cut to ``limit`` rows: every positive stays, negatives are drawn without replacement.

    More positives than ``limit`` all stay, without a negative they could not teach anything, so at least as
    many negatives as positives are kept where there are that many.
    """
    if limit is None or len(bag) <= limit:
        return bag
    positive = rows.label[bag] > 0
    negatives = bag[~positive]
    wanted = min(len(negatives), max(limit - int(positive.sum()), int(positive.sum())))
    return np.sort(np.concatenate((bag[positive], rng.choice(negatives, size=wanted, replace=False))))


def seen_by(query: NDArray[Any], bags: list[Ints], n_queries: int) -> NDArray[np.bool_]:
    """(n_queries, n_bags) whether a bag holds any row of a query; ``query`` (n_rows,) is each row's.

    >>> seen_by(np.array([0, 0, 2]), [np.array([0, 1]), np.array([1, 2])], 3).tolist()
    [[True, True], [False, False], [False, True]]
    """
    seen = np.zeros((n_queries, len(bags)), dtype=bool)
    for number, bag in enumerate(bags):
        seen[query[bag], number] = True
    return seen
