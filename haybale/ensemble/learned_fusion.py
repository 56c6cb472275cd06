"""Fusion of runs by weights that were learned on judged queries.

A document's score is linear in what each run says of it; the weights are those of a conditional logit
(:mod:`haybale.ensemble.conditional_logit`). Runs are compared by what does not depend on the scale of their scores:
the place between the lowest and the best score of the query, and the rank.

A fusion on disk is a JSON file:

format, version     "haybale fusion", 1
parameters          those of the estimator
runs, memories      names
weights             run, feature, weight and spread (the feature's standard deviation), one object a feature
n_queries, n_novel, loss, n_iter
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from numbers import Integral, Real
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, clone
from sklearn.utils import check_random_state
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import check_is_fitted

from haybale.collections.ids import as_ids
from haybale.ensemble.conditional_logit import Array, ConditionalLogit
from haybale.errors import FileFormatError, InputError, UnknownNameError
from haybale.folders import replace_json
from haybale.retrieval import Run
from haybale.retrieval.fusion import Listing, Pool, pooled, same_queries
from haybale.vectors import Floats

RUN_FEATURES = ("level", "rank", "first")
MEMORY_FEATURES = (*RUN_FEATURES, "score")
FORMAT, VERSION = "haybale fusion", 1
_FACTS = ("n_queries", "n_novel", "loss", "n_iter")

Relevant = Mapping[str, Sequence[str]]  # ids of relevant documents by query id


class LearnedFusion(BaseEstimator):  # type: ignore[misc]
    """Fuses runs by a linear score whose weights make the relevant documents of training queries likely.

    Features of a document, for each run, which is cut to its first ``depth`` documents of a query:

    - ``level``: (score − lowest) / (best − lowest) of the query; 1 where all scores are equal;
    - ``rank``: 61 / (60 + rank);
    - ``first``: 1 / rank;
    - ``score``, of a memory only: the score itself, because its size says how well the query is known.

    A document that a run does not have gets 0 for all of them. The loss of a query is the mean over its relevant
    documents in the pool of −log softmax(score); to its mean over the queries ``l2`` · |w|² is added, w the weights of
    standardised features. The loss is convex: the result depends on nothing but the input, and not on the order of
    runs or queries.

    Runs that were themselves learned from judged queries are *memories*. A memory is blind for documents that no
    training query had relevant, and weights learned from queries that it mostly knows let it push those others down.
    So queries that are *novel*, new to every memory, count for a share ``cold`` of the loss however few they are:
    (1 − cold) · mean over all queries + cold · mean over the novel ones. More of it gains where relevant documents
    are new and loses where they are known. With no novel query the loss is the mean over all.

    Parameters
    ----------
    depth : documents of each run, and query, that are pooled; at least 1, default 100.
    cold : share of the loss that novel queries have to themselves; 0 to 1, default 0.3.
    l2 : penalty on the weights, in units of the loss (nats a query); from 0 on, default 1e-3.
    max_iter : Newton steps; a :class:`ConvergenceWarning` if they were too few. Default 50.

    Attributes
    ----------
    coef_ : (f,) float64, the weights of the features as they are.
    spread_ : (f,) float64, standard deviations of the features over the training pools.
    runs_, memories_ : names, sorted.
    n_queries_, n_novel_ : training queries that had a relevant document in their pool, and the novel ones of them.
    loss_ : with the penalty.
    n_iter_ : Newton steps that were taken.

    >>> good = pd.DataFrame({"query_id": ["q", "q", "r", "r"], "doc_id": ["a", "b", "b", "c"], "score": [2, 1, 2, 1]})
    >>> bad = good.assign(score=[1, 2, 1, 2])
    >>> runs = {"good": Run.from_frame(good), "bad": Run.from_frame(bad)}
    >>> fusion = LearnedFusion().fit(runs, {"q": ["a"], "r": ["b"]})
    >>> [doc for doc, _ in fusion.fuse(runs)["q"]]
    ['a', 'b']
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "depth": [Interval(Integral, 1, None, closed="left")],
        "cold": [Interval(Real, 0, 1, closed="both")],
        "l2": [Interval(Real, 0, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
    }

    coef_: Array
    spread_: Array
    runs_: list[str]
    memories_: list[str]
    n_queries_: int
    n_novel_: int
    loss_: float
    n_iter_: int

    def __init__(self, *, depth: int = 100, cold: float = 0.3, l2: float = 1e-3, max_iter: int = 50) -> None:
        self.depth = depth
        self.cold = cold
        self.l2 = l2
        self.max_iter = max_iter

    # learning ---------------------------------------------------------------------------------------------

    def fit(
        self,
        runs: Mapping[str, Run],
        relevant: Relevant,
        *,
        memories: Collection[str] = (),
        novel: Collection[str] = (),
    ) -> Self:
        """Learn the weights.

        Parameters
        ----------
        runs : by name, all about the same queries.
        relevant : the ids of the relevant documents by query id. Queries without one, or with none in the pool, teach
            nothing and are ignored.
        memories : names of the runs that were learned from judged queries. In these, training queries must be ranked
            as new ones are: out of bag, or with the query left out (``leave_out`` of
            :class:`~haybale.retrieval.QueryNeighbours`); a memory that knows the query itself would be trusted far
            too much.
        novel : ids of the queries none of whose relevant documents was relevant to another query that the memories
            learned from (:func:`~haybale.ensemble.novel_queries`).

        Returns
        -------
        The fusion itself.

        Raises
        ------
        InputError
            For runs about different queries, a novel query that they are not about, or where no query has a relevant
            document in its pool.
        UnknownNameError
            For a memory that is no run.
        """
        names, judged, new = self._checked(runs, relevant, memories, novel)
        pool = pooled([runs[name] for name in names], judged, self.depth)
        right = relevant_rows(pool, relevant)
        return self._fit(names, memories, pool.query, run_features(pool, names, memories), right, judged, new)

    def out_of_fold(
        self,
        runs: Mapping[str, Run],
        relevant: Relevant,
        *,
        memories: Collection[str] = (),
        novel: Collection[str] = (),
        n_folds: int = 5,
        random_state: int | np.random.RandomState | None = 0,
    ) -> Run:
        """Fuse every query with weights that were learned on others: what fusing new queries would give.

        The queries are dealt at random into folds of nearly equal size. Those of a fold are fused by the weights of
        :meth:`fit` on all others. Pools and features are computed once. Neither the order of runs nor that of queries
        matters, and the fusion itself is not fitted.

        Parameters
        ----------
        runs, relevant, memories, novel : as for :meth:`fit`. Queries without a relevant document are fused as well.
        n_folds : from 2 to the number of queries, default 5.
        random_state : of the dealing.

        Returns
        -------
        The fused run, of all pooled documents, with the queries in the order of the first run. Scores of queries of
        different folds cannot be compared.

        Raises
        ------
        InputError, UnknownNameError
            As :meth:`fit`, for every fold; and for a number of folds out of range.
        """
        names, judged, new = self._checked(runs, relevant, memories, novel)
        query_ids = sorted(same_queries(list(runs.values())))
        m = len(query_ids)
        if not 2 <= n_folds <= m:
            raise InputError(f"n_folds must lie between 2 and the number of queries, {m}; found {n_folds}")
        pool = pooled([runs[name] for name in names], query_ids, self.depth)
        features, right = run_features(pool, names, memories), relevant_rows(pool, relevant)
        is_judged = np.isin(query_ids, judged)
        fold = np.empty(m, dtype=np.int64)
        fold[check_random_state(random_state).permutation(m)] = np.arange(m) % n_folds
        scores = np.empty(len(pool))
        for number in range(n_folds):
            taught = is_judged & (fold != number)
            rows = taught[pool.query]
            fusion = clone(self)._fit(
                names,
                memories,
                (np.cumsum(taught) - 1)[pool.query[rows]],
                features[:, rows],
                right[rows],
                [query for query, learned in zip(query_ids, taught, strict=True) if learned],
                new,
            )
            fused = (fold == number)[pool.query]
            scores[fused] = fusion._shares(features[:, fused]).sum(axis=0)
        return _ranked(pool, scores).reindexed(next(iter(runs.values())).query_ids)

    def _checked(
        self, runs: Mapping[str, Run], relevant: Relevant, memories: Collection[str], novel: Collection[str]
    ) -> tuple[list[str], list[str], frozenset[str]]:
        """Names of runs and judged queries, both sorted, and the novel queries."""
        self._validate_params()
        query_ids, new = same_queries(list(runs.values())), _names(novel)
        for name in sorted(_names(memories) - set(runs)):
            raise UnknownNameError("run", name, sorted(runs))
        for query in sorted(new - set(query_ids)):
            raise InputError(f"novel: unknown query id {query!r}")
        judged = sorted(query for query in query_ids if len(relevant.get(query, ())))
        if any(isinstance(relevant[query], str) for query in judged):
            raise InputError("relevant must hold a sequence of document ids for each query, found a string")
        return sorted(runs), judged, new

    def _fit(
        self,
        names: list[str],
        memories: Collection[str],
        query: NDArray[np.int64],
        features: Floats,
        right: NDArray[np.bool_],
        query_ids: Sequence[str],
        novel: frozenset[str],
    ) -> Self:
        """From features (f, n), and whether a document is relevant to its query (n,), which is one of (m,)."""
        if not right.any():
            raise InputError("no query has a relevant document in its pool; there is nothing to learn from")
        counts = np.bincount(query[right], minlength=len(query_ids))
        met = counts > 0
        blind = met & np.array([query_id in novel for query_id in query_ids])
        per_document = _loss_shares(met, blind, self.cold) / np.maximum(counts, 1)
        fitted = ConditionalLogit(query, features, right * per_document[query], self.l2).fit(self.max_iter)
        self.runs_, self.memories_ = list(names), sorted(_names(memories))
        self.coef_, self.spread_ = fitted.weights, fitted.spread
        self.n_queries_, self.n_novel_ = int(met.sum()), int(blind.sum())
        self.loss_, self.n_iter_ = fitted.loss, fitted.n_iter
        return self

    # fusing -----------------------------------------------------------------------------------------------

    def fuse(self, runs: Mapping[str, Run]) -> Run:
        """All pooled documents by their score.

        Parameters
        ----------
        runs : with the names they had in :meth:`fit`.

        Returns
        -------
        The fused run, with the queries in the order of the first run. Scores order the documents of one query; their
        size is no measure.

        Raises
        ------
        InputError
            For other names, and runs about different queries.
        """
        pool = self._pool(runs, same_queries(list(runs.values())))
        return _ranked(pool, self._shares(run_features(pool, self.runs_, self.memories_)).sum(axis=0))

    def explain(self, runs: Mapping[str, Run], query_id: str, doc_id: str) -> pd.DataFrame:
        """What each run adds to a document's score.

        Parameters
        ----------
        runs : those that were fused.
        query_id, doc_id : a ranked document of a query.

        Returns
        -------
        A row a run: ``run``, ``rank``, ``score`` (its own) and ``share``. The shares sum to the fused score. ``rank``
        and ``score`` are missing, and the share is 0, where the run does not have the document.

        Raises
        ------
        InputError
            For an unknown query, and a document that no run has.
        """
        if query_id not in same_queries(list(runs.values())):
            raise InputError(f"runs: unknown query id {query_id!r}")
        pool = self._pool(runs, [query_id])
        places = np.flatnonzero(pool.document == pc.index(pool.doc_ids, doc_id).as_py())
        if not len(places):
            raise InputError(f"no run has document {doc_id!r} among its first {self.depth} for query {query_id!r}")
        shares = self._shares(run_features(pool, self.runs_, self.memories_)[:, places])[:, 0]
        rows = []
        for name, listing, share in zip(self.runs_, pool.listings, shares.tolist(), strict=True):
            at = np.flatnonzero(listing.place == places[0])
            found = (int(listing.rank[at[0]]), float(listing.score[at[0]])) if len(at) else (np.nan, np.nan)
            rows.append((name, *found, share))
        return pd.DataFrame(rows, columns=["run", "rank", "score", "share"])

    @property
    def weights_(self) -> pd.DataFrame:
        """Columns ``run``, ``feature``, ``weight`` and ``standardised``, the weight of a standard deviation."""
        check_is_fitted(self, "coef_")
        frame = pd.DataFrame(feature_list(self.runs_, self.memories_), columns=["run", "feature"])
        return frame.assign(weight=self.coef_, standardised=self.coef_ * self.spread_)

    def _pool(self, runs: Mapping[str, Run], query_ids: Sequence[str]) -> Pool:
        check_is_fitted(self, "coef_")
        if set(runs) != set(self.runs_):
            raise InputError(f"fusion was learned for runs {', '.join(self.runs_)}; found {', '.join(sorted(runs))}")
        return pooled([runs[name] for name in self.runs_], query_ids, self.depth)

    def _shares(self, features: Floats) -> Array:
        """(n_runs, n) what each run adds; summed feature by feature, so that no document depends on others."""
        shares = np.zeros((len(self.runs_), features.shape[1]))
        names = [name for name, _ in feature_list(self.runs_, self.memories_)]
        for name, weight, values in zip(names, self.coef_, features, strict=True):
            shares[self.runs_.index(name)] += weight * values
        return shares

    # files ------------------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, see the head of this module."""
        check_is_fitted(self, "coef_")
        features = feature_list(self.runs_, self.memories_)
        return {
            "format": FORMAT,
            "version": VERSION,
            "parameters": {name: _plain(value) for name, value in self.get_params().items()},
            "runs": list(self.runs_),
            "memories": list(self.memories_),
            "weights": [
                {"run": run, "feature": feature, "weight": weight, "spread": spread}
                for (run, feature), weight, spread in zip(
                    features, self.coef_.tolist(), self.spread_.tolist(), strict=True
                )
            ],
            **{name: _plain(getattr(self, f"{name}_")) for name in _FACTS},
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The fusion of :meth:`to_dict`; fuses to the same bits.

        Raises
        ------
        InputError
            Says what is not as expected.
        """
        for name, expected in (("format", FORMAT), ("version", VERSION)):
            found = values.get(name) if isinstance(values, Mapping) else None
            if found != expected:
                raise InputError(f"fusion: expected {name} {expected!r}, found {found!r}")
        try:
            fusion = cls(**values["parameters"])
            fusion._validate_params()
            fusion.runs_, fusion.memories_ = sorted(values["runs"]), sorted(values["memories"])
            for name in _FACTS:
                setattr(fusion, f"{name}_", values[name])
            names = [(row["run"], row["feature"]) for row in values["weights"]]
            numbers = [(float(row["weight"]), float(row["spread"])) for row in values["weights"]]
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"fusion: {type(error).__name__}: {error}") from None
        if names != feature_list(fusion.runs_, fusion.memories_) or not set(fusion.memories_) <= set(fusion.runs_):
            raise InputError("fusion: weights are not those of the features of its runs")
        if not all(math.isfinite(value) for pair in numbers for value in pair):
            raise InputError("fusion: a weight is no finite number")
        fusion.coef_, fusion.spread_ = np.array(numbers, dtype=np.float64).reshape(-1, 2).T.copy()
        return fusion

    def save(self, path: Path | str) -> None:
        """Write a JSON file, aside first, then renamed."""
        replace_json(Path(path), self.to_dict())

    @classmethod
    def load(cls, path: Path | str) -> Self:
        """A fusion that was saved; :class:`FileFormatError` for any other file."""
        path = Path(path)
        if not path.is_file():
            raise FileFormatError(path, None, "not found")
        try:
            return cls.from_dict(json.loads(path.read_text(encoding="utf-8")))
        except UnicodeDecodeError as error:
            raise FileFormatError(path, None, f"expected UTF-8: {error}") from None
        except json.JSONDecodeError as error:
            raise FileFormatError(path, error.lineno, f"expected JSON: {error.msg}") from None
        except InputError as error:
            raise FileFormatError(path, None, str(error)) from None


def feature_list(runs: Sequence[str], memories: Collection[str]) -> list[tuple[str, str]]:
    """``(run, feature)`` of every feature.

    >>> feature_list(["bm25"], [])
    [('bm25', 'level'), ('bm25', 'rank'), ('bm25', 'first')]
    """
    known = _names(memories)
    return [(name, kind) for name in runs for kind in (MEMORY_FEATURES if name in known else RUN_FEATURES)]


def run_features(pool: Pool, runs: Sequence[str], memories: Collection[str]) -> Floats:
    """(f, n) float32, the features of :func:`feature_list`; 0 for documents that a run does not have."""
    known = _names(memories)
    table = np.zeros((len(feature_list(runs, known)), len(pool)), dtype=np.float32)
    row = 0
    for name, listing in zip(runs, pool.listings, strict=True):
        columns = [_level(listing), 61 / (60 + listing.rank), 1 / listing.rank]
        for values in [*columns, listing.score] if name in known else columns:
            table[row, listing.place] = values
            row += 1
    return table


def _level(listing: Listing) -> Array:
    """(k,) the place of each score between the lowest, 0, and the best, 1, of its query; 1 where these are equal."""
    starts = np.flatnonzero(listing.rank == 1)
    counts = np.diff(np.append(starts, len(listing.rank)))
    best, lowest = listing.score[starts], listing.score[starts + counts - 1]
    span = np.repeat(best - lowest, counts)
    above = listing.score - np.repeat(lowest, counts)
    return np.divide(above, span, out=np.ones_like(above), where=span > 0)


def relevant_rows(pool: Pool, relevant: Relevant) -> NDArray[np.bool_]:
    """(n,) whether a document of the pool is among its query's relevant ones."""
    pairs = [(row, document) for row, query in enumerate(pool.query_ids) for document in relevant.get(query, ())]
    ids = pa.array(as_ids([document for _, document in pairs], "relevant"), type=pa.large_string()).dictionary_encode()
    table = pool.doc_ids.cast(pa.large_string())
    found = pc.fill_null(pc.index_in(table, value_set=ids.dictionary), -1).to_numpy()
    codes = np.full(len(ids.dictionary), -1)
    codes[found[found >= 0]] = np.flatnonzero(found >= 0)
    documents, n = codes[ids.indices.to_numpy()], len(table)
    keys = (np.array([row for row, _ in pairs], dtype=np.int64) * n + documents)[documents >= 0]
    return np.isin(pool.query * n + pool.document, keys)


def _ranked(pool: Pool, scores: Array) -> Run:
    """All documents of the pool by their score."""
    return Run.from_numbers(pool.query_ids, pool.doc_ids, pool.query, pool.document, scores, k=len(pool))


def _names(given: Collection[str]) -> frozenset[str]:
    return frozenset([given] if isinstance(given, str) else given)


def _loss_shares(met: NDArray[np.bool_], novel: NDArray[np.bool_], cold: float) -> Array:
    """(m,) each query's share of the loss, summing to 1; ``met`` have one, ``novel`` are some of them.

    >>> _loss_shares(np.array([True, True, False, True]), np.array([True, False, False, False]), 0.4).round(9).tolist()
    [0.6, 0.2, 0.0, 0.2]
    """
    share = cold if novel.any() else 0.0
    shares: Array = (1 - share) * met / met.sum() + share * novel / max(1, novel.sum())
    return shares


def _plain(value: Any) -> Any:
    """NumPy numbers as Python's."""
    return value.item() if isinstance(value, np.generic) else value
