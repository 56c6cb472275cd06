"""Bags: overlapping subsets of the candidate rows; one SVR is trained on each.

Each of s bags holds (1 + overlap)/s of the training set: 1/s of its own, and overlap/s that it shares with other bags.
Bönisch & Mehler (2024) use s = 35 and an overlap of 0.6.
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
_MAX_SIZE_OF_REGION = 1.5  # maximum number of queries of a cell of `regions`, relative to an even share of all queries


def make_bags(
    rows: CandidateRows,
    strategy: str,
    n_bags: int,
    overlap: float,
    random_state: int | None,
    queries: Matrix | None = None,
    groups: Ints | None = None,
    rows_per_bag: int | None = None,
) -> list[Ints]:
    """Return the row numbers of each bag, ascending; with the strategy ``rows``, some are repeated.

    Raises :class:`InputError` for fewer queries (or rows, or groups) than bags and for an overlap above n_bags - 1, and
    warns of bags without a relevant row.

    Parameters
    ----------
    rows : CandidateRows
    strategy : {"queries", "rows", "regions"}
        ``"queries"`` divides the queries among the bags and fills each bag with queries of other bags. Every query is
        in at least one bag, and all candidates of a query stay together.

        ``"rows"`` draws rows with replacement (a bootstrap sample), as in the authors' code.

        ``"regions"`` makes each bag from a k-means cell of the query vectors, and adds the queries outside the cell
        that are nearest to its centroid: ``overlap`` times the size of the cell. A cell holds at most 1.5 times an even
        share of the queries, so that no bag takes much longer than the others. Further queries go to the next nearest
        cell.
    n_bags, overlap : int, float
        As in the module's documentation.
    random_state : int or None
        Seed.
    queries : (m, d), optional
        Query vectors, for ``"regions"``.
    groups : (m,) int, optional
        Group of each query; the strategy ``"queries"`` then divides whole groups.
    rows_per_bag : int, optional
        Maximum size of a bag; see :func:`thinned`.
    """
    if overlap > n_bags - 1:
        raise InputError(f"overlap must be at most n_bags - 1 = {n_bags - 1}, found {overlap}")
    distinct, starts = np.unique(rows.query, return_index=True)
    units = distinct if groups is None or strategy != "queries" else groups[distinct]
    group = np.unique(units, return_inverse=True)[1]  # (n_distinct,)
    n = len(rows) if strategy == "rows" else int(group.max(initial=-1)) + 1
    if n < n_bags:
        kind = "rows" if strategy == "rows" else "queries" if n == len(distinct) else "groups of queries"
        raise InputError(f"n_bags={n_bags} needs at least {n_bags} {kind}, found {n}")
    size = max(1, round(n * (1 + overlap) / n_bags))
    rng, *bag_rngs = map(np.random.default_rng, np.random.SeedSequence(random_state).spawn(n_bags + 1))
    if strategy == "rows":
        bags = [np.sort(rng.integers(n, size=size)) for _ in range(n_bags)]
    else:
        if strategy == "regions":
            assert queries is not None
            members = _regions(queries[distinct], n_bags, overlap, rng)
        else:
            members = []
            for part in np.array_split(rng.permutation(n), n_bags):
                is_other = np.ones(n, dtype=bool)
                is_other[part] = False
                extra = rng.choice(np.flatnonzero(is_other), size=max(0, min(n, size) - len(part)), replace=False)
                members.append(np.flatnonzero(np.isin(group, np.concatenate((part, extra)))))
        ends = np.append(starts[1:], len(rows))
        bags = [np.concatenate([np.arange(starts[q], ends[q]) for q in chosen]) for chosen in members]
    if empty := sum(not rows.label[bag].any() for bag in bags):
        message = f"{empty} of {n_bags} bags have no relevant row and predict about 0; use fewer bags or more queries"
        warnings.warn(message, stacklevel=4)
    return [thinned(rows, bag, rows_per_bag, bag_rng) for bag, bag_rng in zip(bags, bag_rngs, strict=True)]


def _regions(vectors: Matrix, n_bags: int, overlap: float, rng: np.random.Generator) -> list[Ints]:
    """Return the rows of ``vectors`` (n, d) that are in each region, ascending."""
    from sklearn.cluster import KMeans

    n = int(vectors.shape[0])
    means = KMeans(n_bags, n_init=1, random_state=int(rng.integers(2**31))).fit(vectors)
    distances = means.transform(vectors)  # (n, n_bags)
    room = np.full(n_bags, int(np.ceil(_MAX_SIZE_OF_REGION * n / n_bags)))
    cell = np.full(n, -1)
    for near in np.argsort(distances, axis=None, kind="stable"):
        query, region = divmod(int(near), n_bags)
        if cell[query] < 0 and room[region] > 0:
            cell[query] = region
            room[region] -= 1
    members = []
    for region, to_centre in enumerate(distances.T):
        inside = cell == region
        # A cell that the size limit left empty gets its nearest query, because a bag must not be empty.
        wanted = round(overlap * inside.sum()) if inside.any() else 1
        nearest = np.argsort(np.where(inside, np.inf, to_centre), kind="stable")[: n - int(inside.sum())]
        members.append(np.sort(np.append(np.flatnonzero(inside), nearest[:wanted])))
    return members


def thinned(rows: CandidateRows, bag: Ints, limit: int | None, rng: np.random.Generator) -> Ints:
    """Cut a bag to about ``limit`` rows: keep all positives, and sample at least as many negatives if it has them."""
    if limit is None or len(bag) <= limit:
        return bag
    positive = rows.label[bag] > 0
    negatives = bag[~positive]
    wanted = min(len(negatives), max(limit - int(positive.sum()), int(positive.sum())))
    return np.sort(np.concatenate((bag[positive], rng.choice(negatives, size=wanted, replace=False))))


def seen_by(query: NDArray[Any], bags: list[Ints], groups: Ints) -> NDArray[np.bool_]:
    """Return (m, n_bags) whether each bag holds a row of the query or of another query in its group.

    ``query`` (n_rows,) is the query of each row, and ``groups`` (m,) is the group of each query.
    """
    return np.stack([np.isin(groups, groups[query[bag]]) for bag in bags], axis=1)


def out_of_bag_weights(seen: NDArray[np.bool_], numbers: Ints, m: int) -> NDArray[np.float64]:
    """Return (m, n_bags) weights of the bags: each query is scored by the mean of the bags not trained on it.

    ``seen`` (n_training_queries, n_bags) is from :func:`seen_by`. ``numbers`` (m,) are the numbers of the training
    queries, or -1 for a new query.
    """
    if numbers.shape != (m,) or not np.isin(numbers, np.arange(-1, len(seen))).all():
        raise InputError(f"query_numbers must be {m} integers from -1 to {len(seen) - 1}; give -1 for a new query")
    outside = ~seen[numbers] | (numbers < 0)[:, None]
    counts = outside.sum(axis=1)
    if not counts.all():
        in_all = f"{(counts == 0).sum()} of {m} queries are in every bag, the first is {numbers[counts.argmin()]}"
        raise InputError(
            f"out-of-bag scores need a bag without the query, but {in_all}; use more bags, less overlap, or "
            "strategy='queries'"
        )
    return np.asarray(outside / counts[:, None])
