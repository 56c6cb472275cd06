"""Bags: overlapping subsets of the candidate rows, one SVR each.

Each of s bags holds (1 + overlap)/s of the training set: s disjoint parts would hold 1/s each, and the rest is shared
with other bags. The ensemble paper has s = 35 and an overlap of 0.6.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haybale.ensemble.rows import CandidateRows, Ints
from haybale.errors import InputError
from haybale.vectors import Matrix

STRATEGIES = ("queries", "rows", "regions")
_EVEN = 1.5  # a cell of `regions` holds at most this many times its even share of the queries


def draw_bags(
    rows: CandidateRows,
    strategy: str,
    n_bags: int,
    overlap: float,
    rows_per_bag: int | None,
    random_state: int | None,
    queries: Matrix,
    groups: Ints,
) -> list[Ints]:
    """Return the row numbers of each bag of :func:`make_bags`, with at most ``rows_per_bag`` rows each."""
    first, *others = map(np.random.default_rng, np.random.SeedSequence(random_state).spawn(n_bags + 1))
    bags = make_bags(rows, strategy, n_bags, overlap, first, queries, groups)
    barren = sum(not rows.label[bag].any() for bag in bags)
    if barren:
        message = f"{barren} of {n_bags} bags have no relevant row; they are trained and predict about 0"
        warnings.warn(message, stacklevel=5)
    return [thinned(rows, bag, rows_per_bag, rng) for bag, rng in zip(bags, others, strict=True)]


def make_bags(
    rows: CandidateRows,
    strategy: str,
    n_bags: int,
    overlap: float,
    rng: np.random.Generator,
    queries: Matrix | None = None,
    groups: Ints | None = None,
) -> list[Ints]:
    """Return the row numbers of each bag, ascending, with repetitions for the strategy ``rows``.

    ``queries``: the queries are distributed over the bags, and each bag is filled up with queries of other bags. So
    every query is in at least one bag, and all candidates of a query stay together. With ``groups`` (m,), the group of
    every query, whole groups are distributed: queries of one document have much in common.

    ``rows``: rows are drawn with replacement, as in the authors' code.

    ``regions``: each bag is a k-means cell of the query vectors ``queries`` (m, d), grown by the queries outside it
    that are nearest to its centroid, ``overlap`` times as many as the cell has. So the bags together hold 1 + overlap
    times the queries. A cell holds at most 1.5 times its even share, and further queries go to their next nearest
    cell, so that no bag takes many times as long as the others.
    """
    if overlap > n_bags - 1:
        raise InputError(f"expected overlap <= n_bags - 1, found {overlap} and {n_bags} bags")
    distinct, starts = np.unique(rows.query, return_index=True)
    dealt = distinct if groups is None or strategy != "queries" else groups[distinct]
    group = np.unique(dealt, return_inverse=True)[1]  # (n_distinct,)
    n = len(rows) if strategy == "rows" else int(group.max(initial=-1)) + 1
    if n < n_bags:
        kind = "rows" if strategy == "rows" else "queries" if n == len(distinct) else "groups of queries"
        raise InputError(f"{n_bags} bags need at least as many {kind} to share out, found {n}")
    size = max(1, round(n * (1 + overlap) / n_bags))
    if strategy == "rows":
        return [np.sort(rng.integers(n, size=size)) for _ in range(n_bags)]
    if strategy == "regions":
        assert queries is not None
        members = _regions(queries[distinct], n_bags, overlap, rng)
    else:
        members = []
        for part in np.array_split(rng.permutation(n), n_bags):
            others = np.setdiff1d(np.arange(n), part)
            extra = rng.choice(others, size=max(0, min(n, size) - len(part)), replace=False)
            members.append(np.flatnonzero(np.isin(group, np.concatenate((part, extra)))))
    ends = np.append(starts[1:], len(rows))
    return [np.concatenate([np.arange(starts[q], ends[q]) for q in chosen]) for chosen in members]


def _regions(vectors: Matrix, n_bags: int, overlap: float, rng: np.random.Generator) -> list[Ints]:
    """Return the members of each region, ascending."""
    from sklearn.cluster import KMeans

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
    for region, to_centre in enumerate(distances.T):
        inside = cell == region
        # A cell that the limit left empty gets its nearest query, because a bag must not be empty.
        wanted = round(overlap * inside.sum()) if inside.any() else 1
        nearest = np.argsort(np.where(inside, np.inf, to_centre), kind="stable")[: n - int(inside.sum())]
        members.append(np.sort(np.append(np.flatnonzero(inside), nearest[:wanted])))
    return members


def thinned(rows: CandidateRows, bag: Ints, limit: int | None, rng: np.random.Generator) -> Ints:
    """Cut a bag to ``limit`` rows: keep every positive, and a sample of at least as many negatives."""
    if limit is None or len(bag) <= limit:
        return bag
    positive = rows.label[bag] > 0
    negatives = bag[~positive]
    wanted = min(len(negatives), max(limit - int(positive.sum()), int(positive.sum())))
    return np.sort(np.concatenate((bag[positive], rng.choice(negatives, size=wanted, replace=False))))


def seen_by(query: NDArray[Any], bags: list[Ints], groups: Ints) -> NDArray[np.bool_]:
    """Return (m, n_bags) whether a bag holds any row of a query, or of another query of its group.

    ``query`` (n_rows,) is the query of each row, ``groups`` (m,) the group of each query.
    """
    return np.stack([np.isin(groups, groups[query[bag]]) for bag in bags], axis=1)


def out_of_bag_weights(seen: NDArray[np.bool_], numbers: Ints, m: int) -> NDArray[np.float64]:
    """Return (m, n_bags) weights that average, for each query, over the bags that were not trained on it.

    ``seen`` (n_training_queries, n_bags) is from :func:`seen_by`; ``numbers`` (m,) are the training queries, or -1.
    """
    if numbers.shape != (m,) or not np.isin(numbers, np.arange(-1, len(seen))).all():
        raise InputError(f"query_numbers: expected {m} numbers of the {len(seen)} training queries, or -1")
    outside = ~seen[numbers] | (numbers < 0)[:, None]
    counts = outside.sum(axis=1)
    if not counts.all():
        first = f"{(counts == 0).sum()} of {m} queries, the first is {numbers[counts.argmin()]}"
        raise InputError(f"out-of-bag scores: every bag saw {first}; take more bags or less overlap")
    return np.asarray(outside / counts[:, None])
