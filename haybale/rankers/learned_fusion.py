"""Fusion of runs by weights that were learned on judged queries.

A document's score is linear in what each run says of it; the weights are those of a conditional logit. Runs are
compared by what does not depend on the scale of their scores: the place between the lowest and the best score of the
query, and the rank.
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from haybale.collections.qrels import judgements
from haybale.errors import InputError, UnknownNameError
from haybale.frames import Frame
from haybale.parallel import in_threads, one_blas_thread
from haybale.parameters import COUNT, NOT_NEGATIVE, SHARE, check_parameters
from haybale.retrieval import Run
from haybale.retrieval.fusion import Pool, pooled, same_queries
from haybale.retrieval.hits import Ints
from haybale.retrieval.run import Scores
from haybale.vectors import Floats

FEATURES = ("level", "rank", "first")
FORMAT, VERSION = "haybale fusion", 3  # 1 had other names, 2 drew all weights to 0
_FACTS = ("n_queries", "n_unseen", "best", "loss", "n_iter")
_STEPS = 50  # Newton's, of the weights that others are drawn to
_FIRST = 10  # documents that tell which run is best
_ROWS = 2**12  # turned to float64 at once: with 20 features they and their product stay in a core's cache

Array = NDArray[np.float64]


@dataclass(eq=False, repr=False)
class LearnedFusion(BaseEstimator):  # type: ignore[misc]
    """Fuses runs by a linear score whose weights make the relevant documents of training queries likely.

    Features of a document, for each run, which is cut to its first ``depth`` documents of a query:

    - ``level``: (score − lowest) / (best − lowest) of the query; 1 where all scores are equal;
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
        Newton steps; a :class:`ConvergenceWarning` if they were too few.

    Attributes
    ----------
    coef_ : (f,) float64
        The weights of the features as they are; ``spread_`` are the features' standard deviations over the pools.
    runs_, trained_ : list of str
        Names, sorted.
    n_queries_, n_unseen_ : int
        Training queries that had a relevant document in their pool, and the unseen ones of them.
    best_ : str
        The run that the weights are drawn to; ``towards_`` (f,) are the weights it has by itself, of features as they
        are.
    loss_, n_iter_ : float, int
        The loss with its penalty, and the Newton steps that were taken.

    Examples
    --------
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
            Ids of the queries that are :func:`~haybale.ensemble.unseen_queries` to the trained runs.

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
        counts = np.bincount(judged.pool.query[judged.right], minlength=len(judged.pool.query_ids))
        met = counts > 0
        if not met.any():
            raise InputError("no query has a relevant document in its pool; there is nothing to learn from")
        of_unseen, n = met & judged.unseen, int(met.sum())
        # The share of each query in the loss; they sum to 1.
        share = self.unseen_share if of_unseen.any() else 0.0
        shares = (1 - share) * met / n + share * of_unseen / max(1, of_unseen.sum())
        target = (judged.right / np.maximum(counts, 1)[judged.pool.query]) * shares[judged.pool.query]
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
        rows = []
        for name, listing, share in zip(self.runs_, pool.listings, shares.tolist(), strict=True):
            at = np.flatnonzero(listing.place == places[0])
            found = (int(listing.rank[at[0]]), float(listing.score[at[0]])) if len(at) else (np.nan, np.nan)
            rows.append((name, *found, share))
        return pd.DataFrame(rows, columns=["run", "rank", "score", "share"])

    @property
    def weights_(self) -> pd.DataFrame:
        """Columns ``run``, ``feature``, ``weight``, ``standardised``, the weight of a standard deviation, and
        ``towards``, what that is drawn to.
        """
        check_is_fitted(self, "coef_")
        frame = pd.DataFrame(feature_list(self.runs_, self.trained_), columns=["run", "feature"])
        standardised, towards = self.coef_ * self.spread_, self.prior_coef_ * self.spread_
        return frame.assign(weight=self.coef_, standardised=standardised, towards=towards)

    def _pool(self, runs: Mapping[str, Run], query_ids: Sequence[str]) -> Pool:
        check_is_fitted(self, "coef_")
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
        check_is_fitted(self, "coef_")
        numbers = np.stack([self.coef_, self.spread_, self.prior_coef_], axis=1).tolist()
        weights = [
            {"run": run, "feature": feature, "weight": weight, "spread": spread, "towards": towards}
            for (run, feature), (weight, spread, towards) in zip(
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


@dataclass(frozen=True, eq=False)
class JudgedPools:
    """What weights are learned from: the pools of judged queries, their features and their relevant documents."""

    runs: list[str]  # sorted
    trained: list[str]  # sorted
    pool: Pool
    features: Floats  # (f, n) float32
    right: NDArray[np.bool_]  # (n,) the relevant ones
    unseen: NDArray[np.bool_]  # (m,) queries
    ndcg: Mapping[str, Array]  # (m,) of each run

    @classmethod
    def of(
        cls,
        runs: Mapping[str, Run],
        qrels: Frame,
        depth: int,
        *,
        trained: Collection[str] = (),
        unseen: Collection[str] = (),
    ) -> JudgedPools:
        """Of what :meth:`LearnedFusion.fit` takes."""
        known, names, new = set(same_queries(list(runs.values()))), sorted(runs), set(unseen)
        for name in sorted(set(trained) - set(runs)):
            raise UnknownNameError("run", name, names)
        for query in sorted(new - known):
            raise InputError(f"unseen: unknown query id {query!r}")
        judged = judgements(qrels)
        judged = judged[judged["relevance"] > 0]
        query_ids = sorted(known.intersection(judged["query_id"]))
        pool = pooled([runs[name] for name in names], query_ids, depth)
        features, right = run_features(pool, names, trained), relevant_rows(pool, judged)
        is_new = np.array([query_id in new for query_id in query_ids], dtype=bool)
        values = {name: ndcg(runs[name], query_ids, judged) for name in names}
        return cls(names, sorted(set(trained)), pool, features, right, is_new, values)

    def take(self, chosen: NDArray[np.bool_]) -> JudgedPools:
        """Of some queries, (m,) bool."""
        rows = chosen[self.pool.query]
        query_ids = [query for query, there in zip(self.pool.query_ids, chosen, strict=True) if there]
        query, document = (np.cumsum(chosen) - 1)[self.pool.query[rows]], self.pool.document[rows]
        pool = Pool(query_ids, self.pool.doc_ids, query, document, [])
        values = {name: each[chosen] for name, each in self.ndcg.items()}
        return replace(
            self,
            pool=pool,
            features=self.features[:, rows],
            right=self.right[rows],
            unseen=self.unseen[chosen],
            ndcg=values,
        )

    @cached_property
    def alone(self) -> tuple[str, Array]:
        """The best run, and the weights (f,) it has by itself, of features as they are."""
        counts = np.bincount(self.pool.query[self.right], minlength=len(self.pool.query_ids))
        n = int((counts > 0).sum())
        best = max(self.runs, key=lambda name: self.ndcg[name].mean())
        own = np.array([name == best for name, _ in feature_list(self.runs, self.trained)])
        target = self.right / np.maximum(counts, 1)[self.pool.query] / n
        towards = np.zeros(len(own))
        towards[own] = conditional_logit(self.pool.query, self.features[own], target, 1 / n, _STEPS)[0]
        return best, towards


def unseen_queries(relevant: Sequence[Sequence[str]], groups: Ints | None = None) -> NDArray[np.bool_]:
    """(m,) bool: queries with relevant documents, given as a list of ids each, none of which another query has.

    With ``groups`` (m,), the group of each query: none of which a query of another group has.

    >>> unseen_queries([["a", "b"], ["b"], ["c", "c"], []]).tolist()
    [False, False, True, False]
    >>> unseen_queries([["a"], ["a"]], np.array([7, 7])).tolist()
    [True, True]
    """
    group = pd.Series(np.arange(len(relevant)) if groups is None else groups)
    pairs = pd.DataFrame({"query": np.arange(len(relevant)), "group": group, "doc": pd.Series(map(list, relevant))})
    pairs = pairs.explode("doc").dropna()
    shared = pairs.loc[pairs.groupby("doc")["group"].transform("nunique") > 1, "query"]
    return np.isin(np.arange(len(relevant)), np.setdiff1d(pairs["query"], shared))


def feature_list(runs: Sequence[str], trained: Collection[str]) -> list[tuple[str, str]]:
    """``(run, feature)`` of every feature."""
    return [(name, kind) for name in runs for kind in (*FEATURES, *(["score"] if name in trained else []))]


def run_features(pool: Pool, runs: Sequence[str], trained: Collection[str]) -> Floats:
    """(f, n) float32, the features of :func:`feature_list`; 0 for documents that a run does not have."""
    table = np.zeros((len(feature_list(runs, trained)), len(pool)), dtype=np.float32)
    rows = iter(table)
    for name, listing in zip(runs, pool.listings, strict=True):
        starts = np.flatnonzero(listing.rank == 1)
        counts = np.diff(np.append(starts, len(listing.rank)))
        lowest = listing.score[starts + counts - 1]
        span, above = np.repeat(listing.score[starts] - lowest, counts), listing.score - np.repeat(lowest, counts)
        level = np.divide(above, span, out=np.ones_like(above), where=span > 0)
        columns = [level, 61 / (60 + listing.rank), 1 / listing.rank, *([listing.score] if name in trained else [])]
        for values, row in zip(columns, rows, strict=False):
            row[listing.place] = values
    return table


def pool_run(pool: Pool, scores: Scores) -> Run:
    """All of a pool's documents by their scores (n,)."""
    return Run.from_numbers(pool.query_ids, pool.doc_ids, pool.query, pool.document, scores, len(pool))


def ndcg(run: Run, query_ids: Sequence[str], judged: pd.DataFrame) -> Array:
    """(n,) nDCG@10 of judged queries, every relevant document of which is as good as another.

    Järvelin & Kekäläinen, "Cumulated gain-based evaluation of IR techniques", TOIS 2002.
    """
    pool = pooled([run], query_ids, _FIRST)
    [listing] = pool.listings
    right = relevant_rows(pool, judged)[listing.place]
    terms = 1 / np.log2(listing.rank[right] + 1)
    gains = np.bincount(listing.query[right], terms, minlength=len(query_ids))
    counts = judged.groupby("query_id").size().reindex(list(query_ids)).to_numpy()
    ideal = np.cumsum(1 / np.log2(np.arange(_FIRST) + 2))[np.minimum(counts, _FIRST) - 1]
    found: Array = gains / ideal
    return found


def relevant_rows(pool: Pool, judged: pd.DataFrame) -> NDArray[np.bool_]:
    """(n,) whether a document of the pool is among its query's relevant ones: ``query_id`` and ``doc_id``."""
    row = pd.Index(pool.query_ids).get_indexer(pd.Index(judged["query_id"]))
    wanted, table = pa.array(judged["doc_id"], type=pa.large_string()), pool.doc_ids.cast(pa.large_string())
    document = pc.fill_null(pc.index_in(wanted, value_set=table), -1).to_numpy()
    there = (row >= 0) & (document >= 0)
    return np.isin(pool.query * len(table) + pool.document, (row * len(table) + document)[there])


@one_blas_thread()
def conditional_logit(
    query: Ints, features: Floats, target: Array, l2: float, max_iter: int, towards: Array | None = None
) -> tuple[Array, Array, float, int]:
    """``(weights, spread, loss, steps)`` of the minimum: of features (f, n) as they are, and their deviations.

    loss = −Σ over documents d of target_d · log softmax(x·w)_d, the softmax over the documents of the query,
    + l2·|w − w⁰|² of the weights of standardised features; a constant one has weight 0. w⁰ are ``towards`` (f,), of
    features as they are; default 0. ``query`` (n,) rises; ``target`` (n,) sums to each query's share of the loss. By
    Newton's method from w⁰, whose steps are halved until they lower the loss. The
    same bits whatever the number of threads, on processors of one kind: blocks of queries are computed apart, by one
    thread each, and added in their order.

    McFadden, "Conditional Logit Analysis of Qualitative Choice Behavior", 1974; as a loss of rankings, ListNet's of Cao
    et al., "Learning to Rank: From Pairwise Approach to Listwise Approach", ICML 2007.
    """
    # Exactly 0 of a constant, whose mean may be rounded.
    spread = np.array(in_threads(lambda x: float(x.std(dtype=np.float64)) if np.ptp(x) > 0 else 0.0, features))
    scale = np.divide(1, spread, out=np.zeros_like(spread), where=spread > 0)
    starts = np.flatnonzero(np.diff(query, prepend=-1))
    counts, share = np.diff(np.append(starts, len(query))), np.add.reduceat(target, starts)
    if not (counted := share > 0).all():
        rows = np.repeat(counted, counts)
        features, target, counts, share = features[:, rows], target[rows], counts[counted], share[counted]
    ends = np.append(0, np.cumsum(counts))
    cuts = np.append(np.flatnonzero(np.diff(ends[:-1] // _ROWS, prepend=-1)), len(counts))

    def of_block(raw: Array, first: int, last: int) -> tuple[float, Array, Array]:
        """What whole queries, about _ROWS rows, add to loss, gradient and Hessian in the weights as they are."""
        part = slice(ends[first], ends[last])
        starts, of = ends[first:last] - ends[first], np.repeat(np.arange(last - first), counts[first:last])
        some = features[:, part].astype(np.float64, order="C")
        score = raw @ some
        score -= np.maximum.reduceat(score, starts)[of]
        chance = np.exp(score)
        total = np.add.reduceat(chance, starts)
        loss = -float(target[part] @ (score - np.log(total)[of]))
        chance *= (share[first:last] / total)[of]
        weighted = some * chance
        mean = np.add.reduceat(weighted, starts, axis=1)  # (f, queries), times the query's share
        return loss, mean.sum(axis=1) - some @ target[part], weighted @ some.T - (mean / share[first:last]) @ mean.T

    def at(weights: Array) -> tuple[float, Array, Array]:
        """The loss at standardised weights (f,), its gradient (f,) and its Hessian (f, f)."""
        loss, gradient, hessian = 0.0, np.zeros_like(scale), np.zeros((len(scale), len(scale)))
        for added, slope, bend in in_threads(lambda block: of_block(weights * scale, *block), pairwise(cuts)):
            loss, gradient, hessian = loss + added, gradient + slope, hessian + bend
        hessian = hessian * scale[:, None] * scale + 2 * l2 * np.eye(len(scale))
        away = weights - centre
        return float(loss + l2 * away @ away), gradient * scale + 2 * l2 * away, hessian

    centre = np.zeros(len(scale)) if towards is None else towards * spread
    weights = centre.copy()
    loss, gradient, hessian = at(weights)
    for n_iter in range(max_iter):
        step = -np.linalg.lstsq(hessian, gradient, rcond=None)[0]  # singular without l2, if features are collinear
        slope, length = float(gradient @ step), 1.0
        if -slope <= 1e-12 * max(1.0, abs(loss)):
            return weights * scale, spread, loss, n_iter
        following = at(weights + step)
        while following[0] > loss + 1e-4 * length * slope and length > 1e-6:
            length /= 2
            following = at(weights + length * step)
        weights, (loss, gradient, hessian) = weights + length * step, following
    warnings.warn(f"no minimum after max_iter={max_iter} steps", ConvergenceWarning, stacklevel=5)
    return weights * scale, spread, loss, max_iter
