"""Bags: overlapping subsets of the candidate rows, one SVR each.

Each of s bags holds (1 + overlap)/s of the training set: s disjoint parts would hold 1/s, the rest is shared
with other bags. The ensemble paper has s = 35 and an overlap of 0.6.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from haybale.ensemble.rows import CandidateRows, Ints
from haybale.errors import InputError, UnknownNameError


def make_bags(rows: CandidateRows, strategy: str, n_bags: int, overlap: float, rng: np.random.Generator) -> list[Ints]:
    """Row numbers of each bag, ascending; with repetitions in the ``rows`` strategy.

    ``rows``: rows drawn with replacement, as the authors' code does. ``queries``: the queries are dealt out to
    the bags, and each bag is filled up with queries of other bags, so that every query is in at least one bag
    and all candidates of a query stay together.
    """
    if strategy not in STRATEGIES:
        raise UnknownNameError("bag strategy", strategy, STRATEGIES)
    if n_bags < 1 or not 0 <= overlap <= n_bags - 1:
        raise InputError(f"expected n_bags >= 1 and 0 <= overlap <= n_bags - 1, found {n_bags} and {overlap}")
    units = len(rows) if strategy == "rows" else len(np.unique(rows.query))
    if units < n_bags:
        raise InputError(f"{n_bags} bags need at least as many {strategy} to share out, found {units}")
    return STRATEGIES[strategy](rows, n_bags, overlap, rng)


def _by_rows(rows: CandidateRows, n_bags: int, overlap: float, rng: np.random.Generator) -> list[Ints]:
    size = max(1, round(len(rows) * (1 + overlap) / n_bags))
    return [np.sort(rng.integers(len(rows), size=size)) for _ in range(n_bags)]


def _by_queries(rows: CandidateRows, n_bags: int, overlap: float, rng: np.random.Generator) -> list[Ints]:
    queries, starts = np.unique(rows.query, return_index=True)
    ends = np.append(starts[1:], len(rows))
    size = min(len(queries), max(1, round(len(queries) * (1 + overlap) / n_bags)))
    dealt = np.array_split(rng.permutation(len(queries)), n_bags)
    bags = []
    for part in dealt:
        others = np.setdiff1d(np.arange(len(queries)), part)
        extra = rng.choice(others, size=max(0, size - len(part)), replace=False)
        members = np.sort(np.concatenate((part, extra)))
        bags.append(np.concatenate([np.arange(starts[q], ends[q]) for q in members]))
    return bags


STRATEGIES: dict[str, Callable[[CandidateRows, int, float, np.random.Generator], list[Ints]]] = {
    "queries": _by_queries,
    "rows": _by_rows,
}


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
