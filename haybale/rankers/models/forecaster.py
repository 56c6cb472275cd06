"""Forecast how well a ranker will rank queries without judgements, from its out-of-fold rankings in training."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import NormalDist
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from haybale.cached import cached_property
from haybale.rankers.models.judged_pools import ndcg
from haybale.rankers.models.new_queries import NewQueries
from haybale.rankers.models.query_performance import PerformanceModel, performance_features
from haybale.retrieval import Run
from haybale.retrieval.fusion import same_queries
from haybale.retrieval.hits import Ints

_MIN_OF_EACH_KIND = 10  # unseen training queries, and others, from which the share of unseen queries is estimated
_RANDOM_STATE = 0

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Forecast:
    """An interval for the mean nDCG@10 of queries to be ranked, from training alone.

    Attributes
    ----------
    low, estimate, high : float
        The interval and the expected mean nDCG@10, from 0 to 1.
    level : float
        The share of such intervals that should contain the mean, such as 0.95.
    n_queries, n_training : int
        Numbers of the queries to be ranked, and of the training queries that were learned from.
    share : dict of str to float
        The estimated shares of ``"seen"`` and of ``"unseen"`` queries among those to be ranked. A query is unseen if
        none of its relevant documents was relevant to a training query.
    in_training : dict of str to float
        The mean nDCG@10 of the seen and of the unseen training queries, out of fold; a kind without queries has none.
    """

    low: float
    estimate: float
    high: float
    level: float
    n_queries: int
    n_training: int
    share: dict[str, float]
    in_training: dict[str, float]

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        """Return a sentence."""
        kinds = ", ".join(f"{value:.3f} on {kind} queries" for kind, value in self.in_training.items())
        return (
            f"nDCG@10 {self.estimate:.3f}, {self.level:.0%} interval {self.low:.3f} to {self.high:.3f}, for "
            f"{self.n_queries:,} queries of which an estimated {self.share['unseen']:.0%} are unseen; out of fold, "
            f"{self.n_training:,} training queries have {kinds}"
        )


@dataclass(frozen=True, eq=False)
class Forecaster:
    """Forecast the mean nDCG@10 of a ranker from features of queries that need no judgements.

    :class:`PerformanceModel` predicts the value of each query. The forecast is the mean prediction, and its standard
    error is s √(1/m + 1/n), with m queries to be ranked, n training queries, and s the root mean square of the
    out-of-bag residuals: the first term is the chance in the queries at hand, the second that in the training queries.
    It presumes that queries with equal features are ranked equally well in training and at hand.

    Attributes
    ----------
    target : str
        Name of the run that is forecast.
    trained, plain : list of str
        Names of the other runs that learned which documents are relevant, and of those that did not.
    features, values, groups, is_unseen : array
        Of the training queries: features (n, f), nDCG@10 (n,), the group (n,) from 0, and whether each is unseen (n,).
    new_queries : NewQueries or None
        The estimate of the share of unseen queries; None with too few queries of one kind, or no such run.
    """

    target: str
    trained: list[str]
    plain: list[str]
    features: Array
    values: Array
    groups: Ints
    is_unseen: NDArray[np.bool_]
    new_queries: NewQueries | None

    @classmethod
    def fit(
        cls,
        runs: Mapping[str, Run],
        target: str,
        trained: Sequence[str],
        relevant: Sequence[Sequence[str]],
        groups: Ints,
        is_unseen: NDArray[np.bool_],
    ) -> Self:
        """Learn from out-of-fold runs (m queries) by name; queries without relevant documents are left out.

        ``relevant``, ``groups`` and ``is_unseen`` are of the queries of the runs. ``trained`` names the runs that
        learned which documents are relevant.
        """
        rows = np.flatnonzero([bool(len(documents)) for documents in relevant])
        query_ids = [same_queries(list(runs.values()))[row] for row in rows]
        qrels = pd.DataFrame({"query_id": query_ids, "doc_id": [relevant[row] for row in rows.tolist()]}).explode(
            "doc_id"
        )
        judged_runs = {name: run.take(query_ids) for name, run in runs.items()}
        others = sorted(set(trained) - {target}), sorted(set(runs) - set(trained) - {target})
        unseen, new_queries = is_unseen[rows], None
        if trained and min(unseen.sum(), (~unseen).sum()) >= _MIN_OF_EACH_KIND:
            kinds = {name: run for name, run in judged_runs.items() if name != target or target in trained}
            new_queries = NewQueries.fit(kinds, query_ids, unseen, trained)
        return cls(
            target,
            *others,
            performance_features(judged_runs, query_ids, target, *others),
            ndcg(judged_runs[target], query_ids, qrels.drop_duplicates()),
            np.unique(groups[rows], return_inverse=True)[1],
            unseen,
            new_queries,
        )

    @cached_property
    def model(self) -> PerformanceModel:
        """The model of the value of a query, learned on first use."""
        return PerformanceModel.fit(self.features, self.values, self.groups, _RANDOM_STATE)

    def forecast(self, runs: Mapping[str, Run], level: float) -> Forecast:
        """Return the forecast for the queries of runs, which are named as in :meth:`fit`."""
        features = performance_features(runs, same_queries(list(runs.values())), self.target, self.trained, self.plain)
        unseen = float(self.is_unseen.mean()) if self.new_queries is None else self.new_queries.estimate(runs)
        return self._interval(float(self.model.predict(features).mean()), len(features), unseen, level)

    def forecast_as_trained(self, n_queries: int, level: float) -> Forecast:
        """Return the forecast for queries of which only the number is known, drawn as the training queries were."""
        return self._interval(float(self.values.mean()), n_queries, float(self.is_unseen.mean()), level, by_query=False)

    def _interval(self, estimate: float, m: int, unseen: float, level: float, *, by_query: bool = True) -> Forecast:
        residuals = self.model.residuals if by_query else self.values - self.values.mean()
        error = np.sqrt(np.mean(residuals**2) * (1 / m + 1 / len(self.values)))
        half = NormalDist().inv_cdf((1 + level) / 2) * float(error)
        kinds = {"seen": ~self.is_unseen, "unseen": self.is_unseen}
        in_training = {kind: float(self.values[rows].mean()) for kind, rows in kinds.items() if rows.any()}
        low, high = max(0.0, estimate - half), min(1.0, estimate + half)
        share = {"seen": 1 - unseen, "unseen": unseen}
        return Forecast(low, estimate, high, level, m, len(self.values), share, in_training)

    def tensors(self) -> dict[str, NDArray[Any]]:
        """Return the arrays that are saved."""
        arrays = {name: getattr(self, name) for name in ("features", "values", "groups")}
        return arrays | {"unseen": self.is_unseen.astype(np.uint8)}

    def to_dict(self) -> dict[str, Any]:
        """Return the plain values that are saved."""
        new_queries = None if self.new_queries is None else asdict(self.new_queries)
        return {name: getattr(self, name) for name in ("target", "trained", "plain")} | {"new queries": new_queries}

    @classmethod
    def from_saved(cls, saved: Mapping[str, Any], tensors: Mapping[str, NDArray[Any]]) -> Self:
        """Return what :meth:`to_dict` and :meth:`tensors` describe."""
        new_queries = None if saved["new queries"] is None else NewQueries(**saved["new queries"])
        arrays = tensors["features"], tensors["values"], tensors["groups"], tensors["unseen"].astype(bool)
        return cls(saved["target"], list(saved["trained"]), list(saved["plain"]), *arrays, new_queries)
