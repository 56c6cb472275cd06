"""Linear fusion of runs with weights that a conditional logit learns from judged queries.

The features of a document do not depend on the scale of a run's scores: they are min-max normalised scores and ranks.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, fields
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from haybale.errors import InputError, NotFittedError
from haybale.frames import Frame
from haybale.parameters import COUNT, NOT_NEGATIVE, SHARE, check_parameters
from haybale.rankers.models.conditional_logit import conditional_logit
from haybale.rankers.models.judged_pools import JudgedPools, feature_list, pool_run, run_features
from haybale.retrieval import Run
from haybale.retrieval.fusion import Pool, pooled, same_queries
from haybale.vectors import Floats

if TYPE_CHECKING:
    import pandas as pd

FORMAT, VERSION = "haybale fusion", 3  # version 1 had other names, version 2 a penalty towards 0
_SAVED_ATTRIBUTES = ("n_queries", "n_unseen", "best", "loss", "n_iter")

Array = NDArray[np.float64]


@dataclass(eq=False)
class LearnedFusion:
    """Fuse runs by a weighted sum of features, with weights learned on judged queries.

    Each run contributes its first ``depth`` documents of a query to a pool, with these features:

    - ``level``: the min-max normalised score, (score − lowest) / (best − lowest), or 1 if all scores are equal;
    - ``rank``: 61 / (60 + rank);
    - ``first``: 1 / rank;
    - ``score``, for trained runs only: the raw score, which is larger for queries that resemble training queries.

    All features of a run are 0 for a document that the run lacks. The loss of a query is the mean of
    −log softmax(score) over its relevant documents in the pool. The weights minimise the mean loss of the n queries
    plus ``l2`` / n · |w − w⁰|². Here w are the weights of standardised features, and w⁰ those learned from the best run
    (by nDCG@10) alone: they minimise the loss + |w⁰|² / n, and are 0 for other runs. So with few queries, the fusion
    stays close to the best run. The loss is convex, and the result does not depend on the order of runs or queries.

    *Trained* runs, which were learned from judged queries themselves, have learned nothing about documents that were
    relevant to no training query. *Unseen* queries have only such relevant documents. However few they are, they have a
    fixed share of the loss: (1 − unseen_share) · mean over all queries + unseen_share · mean over unseen queries. A
    larger share improves the ranking of unseen queries and worsens that of others. Without unseen queries, the loss is
    the mean over all queries.

    Parameters
    ----------
    depth : int, default 100
        Documents of each run that are pooled for a query.
    unseen_share : float, default 0.3
        Share of the loss that is reserved for unseen queries, from 0 to 1.
    l2 : float, default 100
        Strength of the penalty, in nats summed over all queries. Raise it to stay closer to the best run.
    max_iter : int, default 50
        Largest number of Newton steps; a :class:`~sklearn.exceptions.ConvergenceWarning` is given if they are too few.

    Attributes
    ----------
    coef_ : (f,) float64
        Weights of the raw features.
    spread_ : (f,) float64
        Standard deviations of the features over the pools.
    runs_, trained_ : list of str
        Sorted names of the runs, and of the trained runs.
    n_queries_, n_unseen_ : int
        Number of training queries with a relevant document in their pool, and of the unseen ones among them.
    best_ : str
        Name of the best run.
    prior_coef_ : (f,) float64
        w⁰ as weights of the raw features.
    loss_, n_iter_ : float, int
        The loss with its penalty, and the number of Newton steps.

    Examples
    --------
    >>> import pandas as pd
    >>> good = pd.DataFrame({"query_id": ["q", "q", "r", "r"], "doc_id": ["a", "b", "b", "c"], "score": [2, 1, 2, 1]})
    >>> bad = good.assign(score=[1, 2, 1, 2])
    >>> runs = {"good": Run.from_frame(good), "bad": Run.from_frame(bad)}
    >>> qrels = pd.DataFrame({"query_id": ["q", "r"], "doc_id": ["a", "b"], "relevance": 1})
    >>> fusion = LearnedFusion().fit(runs, qrels)
    >>> [doc for doc, _ in fusion.fuse(runs)["q"]]
    ['a', 'b']
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "depth": COUNT,
        "unseen_share": SHARE,
        "l2": NOT_NEGATIVE,
        "max_iter": COUNT,
    }

    _: KW_ONLY
    depth: int = 100
    unseen_share: float = 0.3
    l2: float = 100.0
    max_iter: int = 50

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name, as scikit-learn's estimators do."""
        return {parameter.name: getattr(self, parameter.name) for parameter in fields(self)}

    def fit(
        self, runs: Mapping[str, Run], qrels: Frame, *, trained: Collection[str] = (), unseen: Collection[str] = ()
    ) -> Self:
        """Learn the weights.

        Parameters
        ----------
        runs : mapping of str to Run
            Runs of the same queries, by name.
        qrels : frame with query_id, doc_id, relevance
            Judgements; grades above 0 are relevant. Queries without a relevant document in the pool are ignored.
        trained : collection of str, default none
            Names of the runs that were learned from judged queries. They must rank training queries out of fold: a run
            that was trained on a query itself would get far too much weight.
        unseen : collection of str, default none
            Ids of the queries that are unseen to the trained runs, see :func:`~haybale.rankers.unseen_queries`.

        Raises
        ------
        InputError
            If the runs rank different queries, a name or query id is unknown, or no query has a relevant document in
            its pool.
        """
        check_parameters("LearnedFusion", self.get_params(), self._parameter_constraints)
        return self.learn(JudgedPools.of(runs, qrels, self.depth, trained=trained, unseen=unseen))

    def learn(self, judged: JudgedPools) -> Self:
        """Learn the weights as :meth:`fit` does, from pools of the same ``depth`` that several fusions share."""
        check_parameters("LearnedFusion", self.get_params(), self._parameter_constraints)
        counts = np.bincount(judged.pool.query[judged.is_relevant], minlength=len(judged.pool.query_ids))
        has_target = counts > 0
        if not has_target.any():
            raise InputError(
                f"no relevant document is among the first {self.depth} of a run; check qrels or raise depth"
            )
        is_unseen, n = has_target & judged.unseen, int(has_target.sum())
        share = self.unseen_share if is_unseen.any() else 0.0
        shares = (1 - share) * has_target / n + share * is_unseen / max(1, is_unseen.sum())  # of queries; they sum to 1
        target = (judged.is_relevant / np.maximum(counts, 1)[judged.pool.query]) * shares[judged.pool.query]
        self.best_, self.prior_coef_ = judged.prior
        self.coef_, self.spread_, self.loss_, self.n_iter_ = conditional_logit(
            judged.pool.query, judged.features, target, self.l2 / n, self.max_iter, self.prior_coef_
        )
        self.runs_, self.trained_ = judged.runs, judged.trained
        self.n_queries_, self.n_unseen_ = n, int(is_unseen.sum())
        return self

    def fuse(self, runs: Mapping[str, Run]) -> Run:
        """Rank all pooled documents by their fused score, which is comparable within a query only.

        Raises :class:`~haybale.InputError` unless ``runs`` have the names that they had in :meth:`fit`, and all rank
        the same queries.
        """
        pool = self._pool(runs, same_queries(list(runs.values())))
        return pool_run(pool, self.scores(run_features(pool, self.runs_, self.trained_)))

    def scores(self, features: Floats) -> Array:
        """Return the scores (n,) of documents with the features (f, n) of :func:`run_features`."""
        scores: Array = self._shares(features).sum(axis=0)
        return scores

    def explain(self, runs: Mapping[str, Run], query_id: str, doc_id: str) -> pd.DataFrame:
        """Return a row for each run: ``run``, its ``rank`` and ``score``, and the ``share`` that it adds.

        The shares sum to the fused score of the document. A run without the document has share 0 and no rank or score.
        Raises :class:`~haybale.InputError` for a query that the runs lack, and a document that is not in the pool.
        """
        import pandas as pd

        frame = pd.DataFrame(self.contributions(runs, query_id, doc_id), columns=["run", "rank", "score", "share"])
        return frame.astype({"rank": float, "score": float})

    def contributions(
        self, runs: Mapping[str, Run], query_id: str, doc_id: str
    ) -> list[tuple[str, int | None, float | None, float]]:
        """Return the rows of :meth:`explain`; a run without the document has None for its rank and score."""
        if query_id not in same_queries(list(runs.values())):
            raise InputError(f"runs: unknown query id {query_id!r}; give a query of the runs")
        pool = self._pool(runs, [query_id])
        places = np.flatnonzero(pool.document == pc.index(pool.doc_ids, doc_id).as_py())
        if not len(places):
            raise InputError(
                f"no run has document {doc_id!r} among its first {self.depth} for query {query_id!r}; "
                "give a document of the fused run"
            )
        shares = self._shares(run_features(pool, self.runs_, self.trained_)[:, places])[:, 0]
        rows = []
        for name, listing, share in zip(self.runs_, pool.listings, shares.tolist(), strict=True):
            at = np.flatnonzero(listing.place == places[0])
            rank, score = (int(listing.rank[at[0]]), float(listing.score[at[0]])) if len(at) else (None, None)
            rows.append((name, rank, score, share))
        return rows

    @property
    def weights_(self) -> pd.DataFrame:
        """The weights with columns ``run``, ``feature``, ``weight`` (of the raw feature), ``standardised`` (of the
        standardised feature) and ``prior`` (its w⁰).
        """
        self._check_fitted()
        import pandas as pd

        frame = pd.DataFrame(feature_list(self.runs_, self.trained_), columns=["run", "feature"])
        standardised, prior = self.coef_ * self.spread_, self.prior_coef_ * self.spread_
        return frame.assign(weight=self.coef_, standardised=standardised, prior=prior)

    def _check_fitted(self) -> None:
        if not hasattr(self, "coef_"):
            raise NotFittedError("this LearnedFusion is not fitted: call fit(runs, qrels) first")

    def _pool(self, runs: Mapping[str, Run], query_ids: Sequence[str]) -> Pool:
        self._check_fitted()
        if set(runs) != set(self.runs_):
            raise InputError(f"the fusion needs runs {', '.join(self.runs_)}, found {', '.join(sorted(runs))}")
        return pooled([runs[name] for name in self.runs_], query_ids, self.depth)

    def _shares(self, features: Floats) -> Array:
        """Return the shares (n_runs, n) of the runs in the scores.

        They are summed feature by feature, so that the bits of a document's score do not depend on other documents.
        """
        shares = np.zeros((len(self.runs_), features.shape[1]))
        names = [name for name, _ in feature_list(self.runs_, self.trained_)]
        for name, weight, values in zip(names, self.coef_, features, strict=True):
            shares[self.runs_.index(name)] += weight * values
        return shares

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON, which :meth:`from_dict` reads."""
        self._check_fitted()
        numbers = np.stack([self.coef_, self.spread_, self.prior_coef_], axis=1).tolist()
        weights = [
            {"run": run, "feature": feature, "weight": weight, "spread": spread, "towards": prior}
            for (run, feature), (weight, spread, prior) in zip(
                feature_list(self.runs_, self.trained_), numbers, strict=True
            )
        ]
        about = {
            "format": FORMAT,
            "version": VERSION,
            "parameters": {name: np.asarray(value).item() for name, value in self.get_params().items()},
        }
        about |= {"runs": list(self.runs_), "trained": list(self.trained_), "weights": weights}
        return about | {name: getattr(self, f"{name}_") for name in _SAVED_ATTRIBUTES}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Make a fusion from the values of :meth:`to_dict`; :class:`~haybale.InputError` for any others."""
        for name, expected in (("format", FORMAT), ("version", VERSION)):
            saved = values.get(name) if isinstance(values, Mapping) else None
            if saved != expected:
                raise InputError(f"fusion: expected {name} {expected!r}, found {saved!r}")
        try:
            fusion = cls(**values["parameters"])
            check_parameters("LearnedFusion", fusion.get_params(), cls._parameter_constraints)
            fusion.runs_, fusion.trained_ = sorted(values["runs"]), sorted(values["trained"])
            fusion.__dict__.update({f"{name}_": values[name] for name in _SAVED_ATTRIBUTES})
            names = [(row["run"], row["feature"]) for row in values["weights"]]
            rows = [(row["weight"], row["spread"], row["towards"]) for row in values["weights"]]
            numbers = np.array(rows, dtype=np.float64)
        except (KeyError, TypeError, ValueError) as error:
            message = f"fusion: the values cannot be read ({type(error).__name__}: {error}); give those of to_dict()"
            raise InputError(message) from None
        has_runs = {fusion.best_, *fusion.trained_} <= set(fusion.runs_)
        if not has_runs or names != feature_list(fusion.runs_, fusion.trained_) or not np.isfinite(numbers).all():
            raise InputError(
                f"fusion: expected a finite weight for each feature of {fusion.runs_}; give those of to_dict()"
            )
        fusion.coef_, fusion.spread_, fusion.prior_coef_ = numbers.T.copy()
        return fusion
