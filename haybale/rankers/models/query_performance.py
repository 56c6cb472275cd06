"""Predict, without judgements, how well a ranker ranks each query: query performance prediction.

The features say how sure the ranker and the rankers within it are of their first documents, and whether they agree.
Carmel & Yom-Tov, "Estimating the Query Difficulty for Information Retrieval", 2010, review such predictors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from haybale.retrieval import Run
from haybale.retrieval.fusion import pooled
from haybale.retrieval.hits import Ints

if TYPE_CHECKING:
    from sklearn.tree import DecisionTreeRegressor

_DEPTH = 10  # documents of each run that are looked at
_GAPS = (2, 5, 10)  # ranks whose scores are compared with the first
_OVERLAP = 5  # first documents that two runs may share
_N_TREES = 100
_TREES: dict[str, Any] = {"min_samples_leaf": 10, "max_features": 0.3}

Array = NDArray[np.float64]


def performance_features(
    runs: Mapping[str, Run], query_ids: Sequence[str], target: str, trained: Sequence[str], plain: Sequence[str]
) -> Array:
    """Return features (m, f) of queries, 0 where a run lacks the document.

    For the run ``target`` and each that learned which documents are relevant: the first score and its distances to the
    scores of later ranks. For each of those, its score of the first document of ``target``. For each run but
    ``target``: 1 / the rank of that document and the share of the first five documents that both have; for the
    ``plain`` runs also the second score divided by the first.
    """
    others = [name for name in (*trained, *plain) if name != target]
    names = [target, *others]
    pool = pooled([runs[name].top(_DEPTH) for name in names], query_ids)
    m, listings = len(query_ids), dict(zip(names, pool.listings, strict=True))
    target_listing = listings[target]
    is_first = target_listing.rank == 1
    first_rows, first_places = target_listing.query[is_first], target_listing.place[is_first]
    in_target = np.zeros(len(pool), dtype=bool)
    in_target[target_listing.place[target_listing.rank <= _OVERLAP]] = True
    columns = []
    for name in names:
        listing = listings[name]
        scores = np.zeros((m, _DEPTH))
        scores[listing.query, listing.rank - 1] = listing.score
        if name == target or name in trained:
            columns += [scores[:, 0], *(scores[:, 0] - scores[:, rank - 1] for rank in _GAPS)]
        else:
            first, second = scores[:, 0], scores[:, 1]
            columns.append(np.divide(second, first, out=np.ones(m), where=first > 0))
        if name == target:
            continue
        reciprocal_rank, score = np.zeros(len(pool)), np.zeros(len(pool))
        reciprocal_rank[listing.place], score[listing.place] = 1 / listing.rank, listing.score
        values = [reciprocal_rank, score] if name in trained else [reciprocal_rank]
        for value in values:
            of_first = np.zeros(m)
            of_first[first_rows] = value[first_places]
            columns.append(of_first)
        shared = in_target[listing.place] & (listing.rank <= _OVERLAP)
        columns.append(np.bincount(listing.query[shared], minlength=m) / _OVERLAP)
    return np.stack(columns, axis=1)


@dataclass(frozen=True, eq=False)
class PerformanceModel:
    """Bagged regression trees that predict the nDCG@10 (n,) of queries from their features (n, f).

    Each tree learns from groups of queries drawn with replacement. ``residuals`` (n,) are the values of the training
    queries minus their out-of-bag predictions, by the trees that learned from no query of their group (Breiman,
    "Random Forests", Machine Learning 2001).
    """

    trees: list[DecisionTreeRegressor]
    residuals: Array

    @classmethod
    def fit(cls, features: Array, values: Array, groups: Ints, random_state: int) -> Self:
        """Learn from training queries (n,), whose groups are numbered from 0."""
        from sklearn.tree import DecisionTreeRegressor

        rng, n_groups = np.random.default_rng(random_state), int(groups.max()) + 1
        trees, sums, counts = [], np.zeros(len(values)), np.zeros(len(values))
        for _ in range(_N_TREES):
            weights = np.bincount(rng.integers(n_groups, size=n_groups), minlength=n_groups)[groups]
            tree = DecisionTreeRegressor(**_TREES, random_state=int(rng.integers(2**31)))
            in_bag, outside = weights > 0, weights == 0
            tree.fit(features[in_bag], values[in_bag], sample_weight=weights[in_bag])
            if outside.any():
                sums[outside] += tree.predict(features[outside])
                counts += outside
            trees.append(tree)
        predicted = np.divide(sums, counts, out=np.full(len(values), values.mean()), where=counts > 0)
        return cls(trees, values - predicted)

    def predict(self, features: Array) -> Array:
        """Return the mean prediction (m,) of the trees."""
        total: Array = np.sum([tree.predict(features) for tree in self.trees], axis=0)
        return total / len(self.trees)
