"""How many of some queries are new to rankers that were learned from judged ones, without judgements of theirs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from haybale.errors import InputError
from haybale.retrieval import Run
from haybale.retrieval.fusion import pooled, same_queries
from haybale.retrieval.hits import Ints

_STEPS, _CLOSE = 1000, 1e-6  # of expectation maximisation at most, and the change at which it ends

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class NewQueries:
    """Estimates the share of queries none of whose relevant documents any training query had.

    A logistic regression says of each query how likely it is new, by how sure the trained runs are (the score of their
    first document) and whether the others agree (1 / the rank they give it). It is right about shares like that of its
    training queries only; so the share is the one under which its probabilities are most likely, found by expectation
    maximisation (Saerens, Latinne & Decaestecker, "Adjusting the Outputs of a Classifier to New a Priori
    Probabilities", Neural Computation 2002).

    Attributes
    ----------
    trained, plain : list of str
        Names of the runs that were learned from judged queries, and of the others.
    share : float
        Of training queries that were new.
    weights, intercept : list of float, float
        Of the features as they are.
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
        """Learn from queries (m,) of which this is known; some must be new and some not.

        The trained ``runs`` rank them as if they had not been learned from them.
        """
        from sklearn.linear_model import LogisticRegression

        names = sorted(set(trained)), sorted(set(runs) - set(trained))
        if not names[0] or is_new.all() or not is_new.any():
            raise InputError("needs a trained run, queries that are new to it and queries that are not")
        features = query_features(runs, query_ids, *names)
        spread = features.std(axis=0)
        scale = np.divide(1, spread, out=np.zeros_like(spread), where=spread > 0)
        model = LogisticRegression(max_iter=1000).fit((features - features.mean(axis=0)) * scale, is_new)
        weights = model.coef_[0] * scale
        intercept = float(model.intercept_[0] - features.mean(axis=0) @ weights)
        return cls(*names, float(is_new.mean()), weights.tolist(), intercept)

    def probabilities(self, runs: Mapping[str, Run]) -> Array:
        """(m,) of being new, were as many new as in training."""
        features = query_features(runs, same_queries(list(runs.values())), self.trained, self.plain)
        found: Array = 1 / (1 + np.exp(-(features @ np.array(self.weights) + self.intercept)))
        return found

    def estimate(self, runs: Mapping[str, Run]) -> float:
        """The share of new ones among the queries of ``runs``, which are named as in training."""
        new = self.probabilities(runs)
        share = self.share
        for _ in range(_STEPS):
            odds = new * share / self.share, (1 - new) * (1 - share) / (1 - self.share)
            before, share = share, float(np.mean(odds[0] / (odds[0] + odds[1])))
            if abs(share - before) < _CLOSE:
                break
        return share

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


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
    """(m, f): of each trained run the score of its first document, then 1 / the rank of that in each plain run."""
    pool = pooled([runs[name] for name in (*trained, *plain)], query_ids)
    listings = dict(zip((*trained, *plain), pool.listings, strict=True))
    found = np.zeros((len(query_ids), len(trained) * (1 + len(plain))))
    columns = iter(found.T)
    for name in trained:
        first = listings[name].rank == 1
        query, document = listings[name].query[first], listings[name].place[first]
        next(columns)[query] = listings[name].score[first]
        for other in plain:
            closeness = np.zeros(len(pool))
            closeness[listings[other].place] = 1 / listings[other].rank
            next(columns)[query] = closeness[document]
    return found
