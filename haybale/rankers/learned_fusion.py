"""Fusion of runs by weights that were learned on judged queries.

A document's score is linear in what each run says of it; the weights are those of a conditional logit. Runs are
compared by what does not depend on the scale of their scores: the place between the lowest and the best score of the
query, and the rank.
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
from haybale.rankers.conditional_logit import conditional_logit
from haybale.rankers.judged_pools import JudgedPools, feature_list, pool_run, run_features
from haybale.retrieval import Run
from haybale.retrieval.fusion import Pool, pooled, same_queries
from haybale.vectors import Floats

if TYPE_CHECKING:
    import pandas as pd

FORMAT, VERSION = "haybale fusion", 3  # 1 had other names, 2 drew all weights to 0
_FACTS = ("n_queries", "n_unseen", "best", "loss", "n_iter")

Array = NDArray[np.float64]


@dataclass(eq=False)
class LearnedFusion:
    """Fuses runs by a linear score whose weights make the relevant documents of training queries likely.

    Features of a document, for each run, which is cut to its first ``depth`` documents of a query:

    - ``level``: the min-max normalised score of the query, (score − lowest) / (best − lowest); 1 where all are equal;
    - ``rank``: 61 / (60 + rank);
    - ``first``: 1 / rank;
    - ``score``, of a trained run only: the score itself, because its size says how well the query is known.

    A document that a run does not have gets 0 for all of them. The loss of a query is the mean over its relevant
    documents in the pool of −log softmax(score). To its mean over the n queries ``l2`` / n · |w − w⁰|² is added: w are
    the weights of standardised features, and w⁰ those of the best run (nDCG@10) by itself, others 0. So few queries
    change little about the best run, and another run has to earn its weight. (w⁰ minimises the loss + |w⁰|² / n.) The
    loss is convex: the result depends on nothing but the input, and not on the order of runs or queries.

    Runs that were themselves learned from judged queries (*trained* ones) are blind for documents that no training
    query had relevant, and weights learned from queries that they mostly know let them push those others down. So
    *unseen* queries, new to every trained run, count for a share of the loss however few they are:
    (1 − unseen_share) · mean over all queries + unseen_share · mean over the unseen ones. More of it gains where
    relevant documents are new and loses where they are known. With no unseen query the loss is the mean over all.

    Parameters
    ----------
    depth : int, default 100
        Documents of each run, and query, that are pooled.
    unseen_share : float, default 0.3
        Share of the loss that unseen queries have to themselves, 0 to 1.
    l2 : float, default 100
        Penalty on weights away from the best run's, in nats over all queries.
    max_iter : int, default 50
        Newton steps; a :class:`~sklearn.exceptions.ConvergenceWarning` if they were too few.

    Attributes
    ----------
    coef_ : (f,) float64
        The weights of the features as they are; ``spread_`` are the features' standard deviations over the pools.
    runs_, trained_ : list of str
        Names, sorted.
    n_queries_, n_unseen_ : int
        Training queries that had a relevant document in their pool, and the unseen ones of them.
    best_ : str
        The run that the weights are drawn to; ``prior_coef_`` (f,) are the weights of the raw features that it has
        by itself.
    loss_, n_iter_ : float, int
        The loss with its penalty, and the Newton steps that were taken.

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
        return {each.name: getattr(self, each.name) for each in fields(self)}

    def fit(
        self, runs: Mapping[str, Run], qrels: Frame, *, trained: Collection[str] = (), unseen: Collection[str] = ()
    ) -> Self:
        """Learn the weights.

        Parameters
        ----------
        runs : mapping of str to Run
            By name, all about the same queries.
        qrels : frame with query_id, doc_id, relevance
            Relevant are grades above 0. Queries without one, or with none in the pool, teach nothing.
        trained : collection of str, default none
            Names of the runs that were learned from judged queries. In these, training queries must be ranked as new
            ones are (out of bag or fold, or left out): a run that knows the query itself would be trusted far too much.
        unseen : collection of str, default none
            Ids of the queries that are :func:`~haybale.rankers.unseen_queries` to the trained runs.

        Raises
        ------
        InputError
            For runs about different queries, a name or query id that there is not, or where no query has a relevant
            document in its pool.
        """
        check_parameters("LearnedFusion", self.get_params(), self._parameter_constraints)
        return self.learn(JudgedPools.of(runs, qrels, self.depth, trained=trained, unseen=unseen))

    def learn(self, judged: JudgedPools) -> Self:
        """:meth:`fit` on pools that were made before, from which several fusions are learned.

        Their ``depth`` is this one's.
        """
        check_parameters("LearnedFusion", self.get_params(), self._parameter_constraints)
        counts = np.bincount(judged.pool.query[judged.is_relevant], minlength=len(judged.pool.query_ids))
        met = counts > 0
        if not met.any():
            raise InputError("no query has a relevant document in its pool; there is nothing to learn from")
        of_unseen, n = met & judged.unseen, int(met.sum())
        # The share of each query in the loss; they sum to 1.
        share = self.unseen_share if of_unseen.any() else 0.0
        shares = (1 - share) * met / n + share * of_unseen / max(1, of_unseen.sum())
        target = (judged.is_relevant / np.maximum(counts, 1)[judged.pool.query]) * shares[judged.pool.query]
        self.best_, self.prior_coef_ = judged.alone
        found = conditional_logit(
            judged.pool.query, judged.features, target, self.l2 / n, self.max_iter, self.prior_coef_
        )
        self.coef_, self.spread_, self.loss_, self.n_iter_ = found
        self.runs_, self.trained_ = judged.runs, judged.trained
        self.n_queries_, self.n_unseen_ = n, int(of_unseen.sum())
        return self

    def fuse(self, runs: Mapping[str, Run]) -> Run:
        """All pooled documents by their score, which orders those of one query; its size is no measure.

        ``runs`` have the names they had in :meth:`fit` and are about the same queries; others are refused.
        """
        pool = self._pool(runs, same_queries(list(runs.values())))
        return pool_run(pool, self.scores(run_features(pool, self.runs_, self.trained_)))

    def scores(self, features: Floats) -> Array:
        """(n,) the score of documents by their features (f, n), which are those of :func:`run_features`."""
        found: Array = self._shares(features).sum(axis=0)
        return found

    def explain(self, runs: Mapping[str, Run], query_id: str, doc_id: str) -> pd.DataFrame:
        """A row a run: ``run``, its ``rank`` and ``score``, and the ``share`` it adds to the document's fused score.

        The shares sum to it. Where a run does not have the document, the share is 0, and the others are missing.
        """
        if query_id not in same_queries(list(runs.values())):
            raise InputError(f"runs: unknown query id {query_id!r}")
        pool = self._pool(runs, [query_id])
        places = np.flatnonzero(pool.document == pc.index(pool.doc_ids, doc_id).as_py())
        if not len(places):
            raise InputError(f"no run has document {doc_id!r} among its first {self.depth} for query {query_id!r}")
        shares = self._shares(run_features(pool, self.runs_, self.trained_)[:, places])[:, 0]
        import pandas as pd

        rows = []
        for name, listing, share in zip(self.runs_, pool.listings, shares.tolist(), strict=True):
            at = np.flatnonzero(listing.place == places[0])
            found = (int(listing.rank[at[0]]), float(listing.score[at[0]])) if len(at) else (np.nan, np.nan)
            rows.append((name, *found, share))
        return pd.DataFrame(rows, columns=["run", "rank", "score", "share"])

    @property
    def weights_(self) -> pd.DataFrame:
        """Columns ``run``, ``feature``, ``weight``, ``standardised``, the weight of a standard deviation, and
        ``prior``, the value that the penalty draws it to.
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
            raise InputError(f"fusion was learned for runs {', '.join(self.runs_)}; found {', '.join(sorted(runs))}")
        return pooled([runs[name] for name in self.runs_], query_ids, self.depth)

    def _shares(self, features: Floats) -> Array:
        """(n_runs, n) what each run adds; summed feature by feature, so that no document depends on others."""
        shares = np.zeros((len(self.runs_), features.shape[1]))
        names = [name for name, _ in feature_list(self.runs_, self.trained_)]
        for name, weight, values in zip(names, self.coef_, features, strict=True):
            shares[self.runs_.index(name)] += weight * values
        return shares

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON: ``format``, ``version``, the estimator's ``parameters``, names of ``runs`` and
        ``trained`` ones, ``weights`` (run, feature, weight, spread, towards), ``n_queries``, ``n_unseen``, ``best``,
        ``loss``, ``n_iter``.
        """
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
        return about | {name: getattr(self, f"{name}_") for name in _FACTS}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The fusion of :meth:`to_dict`, which fuses to the same bits; :class:`InputError` says what is wrong."""
        for name, expected in (("format", FORMAT), ("version", VERSION)):
            found = values.get(name) if isinstance(values, Mapping) else None
            if found != expected:
                raise InputError(f"fusion: expected {name} {expected!r}, found {found!r}")
        try:
            fusion = cls(**values["parameters"])
            check_parameters("LearnedFusion", fusion.get_params(), cls._parameter_constraints)
            fusion.runs_, fusion.trained_ = sorted(values["runs"]), sorted(values["trained"])
            fusion.__dict__.update({f"{name}_": values[name] for name in _FACTS})
            names = [(row["run"], row["feature"]) for row in values["weights"]]
            rows = [(row["weight"], row["spread"], row["towards"]) for row in values["weights"]]
            numbers = np.array(rows, dtype=np.float64)
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"fusion: {type(error).__name__}: {error}") from None
        known = {fusion.best_, *fusion.trained_} <= set(fusion.runs_)
        if not known or names != feature_list(fusion.runs_, fusion.trained_) or not np.isfinite(numbers).all():
            raise InputError("fusion: expected a finite weight for each feature of its runs")
        fusion.coef_, fusion.spread_, fusion.prior_coef_ = numbers.T.copy()
        return fusion
