"""Estimate, without judgements, how many queries are unseen to rankers that were trained on judged queries."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from haybale.errors import InputError
from haybale.retrieval import Run
from haybale.retrieval.fusion import pooled, same_queries
from haybale.retrieval.hits import Ints

# The inverse penalty of the logistic regression. On five collections, 1 and .01 estimate the share less well.
_REGRESSION_C = 0.1
_MAX_EM_STEPS, _SHARE_TOLERANCE = 1000, 1e-6  # expectation maximisation stops when the share changes less

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class NewQueries:
    """Estimate the share of queries whose relevant documents were relevant to no training query.

    A logistic regression predicts whether a query is unseen from the score that each run that learned documents gives
    to its first document and to the first document of every other run, and from 1 / the rank of its first document in
    each run that did not. Its probabilities presume the share of unseen queries in training. Expectation maximisation
    corrects them, and estimates the share with the largest likelihood (Saerens, Latinne & Decaestecker, "Adjusting the
    Outputs of a Classifier to New a Priori Probabilities", Neural Computation 2002).

    Attributes
    ----------
    trained, plain : list of str
        Names of the runs that learned which documents were relevant to training queries, and of the others.
    share : float
        Share of unseen queries in training.
    weights, intercept : list of float, float
        Of the logistic regression on raw features.
    """

    trained: list[str]
    plain: list[str]
    share: float
    weights: list[float]
    intercept: float

    @classmethod
    def fit(
        cls, runs: Mapping[str, Run], query_ids: Sequence[str], is_new: NDArray[np.bool_], trained: Collection[str]
    ) -> Self:
        """Learn from out-of-fold runs of training queries (m,); some queries must be unseen, and some must not."""
        from sklearn.linear_model import LogisticRegression

        names = sorted(set(trained)), sorted(set(runs) - set(trained))
        if not names[0] or is_new.all() or not is_new.any():
            raise InputError(
                f"NewQueries needs trained runs, unseen queries and others; found {len(names[0])} trained runs and "
                f"{int(is_new.sum())} unseen of {len(is_new)} queries"
            )
        features = query_features(runs, query_ids, *names)
        spread = features.std(axis=0)
        scale = np.divide(1, spread, out=np.zeros_like(spread), where=spread > 0)
        standardised = (features - features.mean(axis=0)) * scale
        model = LogisticRegression(C=_REGRESSION_C, max_iter=1000).fit(standardised, is_new)
        weights = model.coef_[0] * scale
        intercept = float(model.intercept_[0] - features.mean(axis=0) @ weights)
        return cls(*names, float(is_new.mean()), weights.tolist(), intercept)

    def probabilities(self, runs: Mapping[str, Run]) -> Array:
        """Return the probability (m,) that each query is unseen, given the share of unseen queries in training."""
        features = query_features(runs, same_queries(list(runs.values())), self.trained, self.plain)
        probability: Array = 1 / (1 + np.exp(-(features @ np.array(self.weights) + self.intercept)))
        return probability

    def estimate(self, runs: Mapping[str, Run]) -> float:
        """Return the estimated share of unseen queries in ``runs``, which are named as in :meth:`fit`."""
        new = self.probabilities(runs)
        share = self.share
        for _ in range(_MAX_EM_STEPS):
            odds = new * share / self.share, (1 - new) * (1 - share) / (1 - self.share)
            before, share = share, float(np.mean(odds[0] / (odds[0] + odds[1])))
            if abs(share - before) < _SHARE_TOLERANCE:
                break
        return share


def unseen_queries(relevant: Sequence[Sequence[str]], groups: Ints | None = None) -> NDArray[np.bool_]:
    """Return whether each query (m,) has relevant documents none of which is relevant to another query.

    ``relevant`` lists the ids of each query's relevant documents. With ``groups`` (m,), only queries of other groups
    count as others.

    >>> unseen_queries([["a", "b"], ["b"], ["c", "c"], []]).tolist()
    [False, False, True, False]
    >>> unseen_queries([["a"], ["a"]], np.array([7, 7])).tolist()
    [True, True]
    """
    import pandas as pd

    group = pd.Series(np.arange(len(relevant)) if groups is None else groups)
    pairs = pd.DataFrame({"query": np.arange(len(relevant)), "group": group, "doc": pd.Series(map(list, relevant))})
    pairs = pairs.explode("doc").dropna()
    shared = pairs.loc[pairs.groupby("doc")["group"].transform("nunique") > 1, "query"]
    return np.isin(np.arange(len(relevant)), np.setdiff1d(pairs["query"], shared))


def query_features(
    runs: Mapping[str, Run], query_ids: Sequence[str], trained: Sequence[str], plain: Sequence[str]
) -> Array:
    """Return features (m, f) of queries, 0 where a run lacks the document.

    The first columns belong to the trained runs, in their order: the score of the run's first document, and 1 / the
    rank of this document in each plain run. Then follow, for each trained run again, the scores that it gives to the
    first documents of the other runs.
    """
    names = [*trained, *plain]
    pool = pooled([runs[name] for name in names], query_ids)
    listings = dict(zip(names, pool.listings, strict=True))

    def of_first(name: str, values: Array) -> Array:
        """Return the value (m,) of the first document of each query in a run, from the values of the pool (n,)."""
        listing, first_values = listings[name], np.zeros(len(query_ids))
        first = listing.rank == 1
        first_values[listing.query[first]] = values[listing.place[first]]
        return first_values

    def in_pool(name: str, values: Array) -> Array:
        """Spread the values of a run's documents over the documents of the pool (n,), 0 for others."""
        pool_values = np.zeros(len(pool))
        pool_values[listings[name].place] = values
        return pool_values

    scores = {name: in_pool(name, listings[name].score) for name in trained}
    reciprocal_ranks = {name: in_pool(name, 1 / listings[name].rank) for name in plain}
    columns = []
    for name in trained:
        columns += [of_first(name, values) for values in (scores[name], *reciprocal_ranks.values())]
    for name in trained:
        columns += [of_first(other, scores[name]) for other in names if other != name]
    return np.stack(columns, axis=1)
