"""Fusion of runs by weights that were learned on judged queries.

A document's score is linear in what each run says of it (:mod:`haybale.ensemble.run_features`); the weights are those
of a conditional logit (:mod:`haybale.ensemble.conditional_logit`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from numbers import Integral, Real
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils._param_validation import Interval
from sklearn.utils.validation import check_is_fitted

from haybale.ensemble.conditional_logit import Array, ConditionalLogit
from haybale.ensemble.fusion_files import from_plain, read_fusion, to_plain
from haybale.ensemble.run_features import Pool, feature_list, pooled
from haybale.errors import InputError, UnknownNameError
from haybale.folders import replace_json
from haybale.retrieval import Run
from haybale.vectors import Floats


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

    Parameters:
        depth: documents of each run, and query, that are pooled.
        cold: share of the loss that novel queries have to themselves, 0 to 1.
        l2: penalty on the weights, in units of the loss (nats a query).
        max_iter: Newton steps; a :class:`ConvergenceWarning` if they were too few.

    Fitted: ``coef_`` (f,), the weights of the features as they are; ``spread_`` (f,), standard deviations of the
    features over the training pools; ``runs_`` and ``memories_``, names, sorted; ``n_queries_`` that had a relevant
    document in their pool, and ``n_novel_`` of them; ``loss_``, with the penalty; ``n_iter_``; and :attr:`weights_`.

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

    def fit(
        self,
        runs: Mapping[str, Run],
        relevant: Mapping[str, Sequence[str]],
        *,
        memories: Collection[str] = (),
        novel: Collection[str] = (),
    ) -> Self:
        """Learn the weights.

        ``runs``, by name, are all about the same queries; ``relevant`` has the ids of the relevant documents by query
        id. Queries without one, or with none in the pool, teach nothing and are ignored. ``memories`` names the runs
        that were learned from judged queries. In these, training queries must be ranked as new ones are: out of bag,
        or with the query left out (``leave_out`` of :class:`~haybale.retrieval.QueryNeighbours`); a memory that knows
        the query itself would be trusted far too much. ``novel`` are the ids of the queries none of whose relevant
        documents was relevant to another query that the memories learned from
        (:func:`~haybale.ensemble.novel_queries`). Errors: :class:`InputError` for runs about different queries,
        a novel query that they are not about, or where no query has a relevant document in its pool,
        :class:`UnknownNameError` for a memory that is no run.
        """
        self._validate_params()
        query_ids = _queries(runs)
        known, new = _names(memories), _names(novel)
        for name in sorted(known - set(runs)):
            raise UnknownNameError("run", name, sorted(runs))
        for query in sorted(new - set(query_ids)):
            raise InputError(f"novel: unknown query id {query!r}")
        judged = sorted(query for query in query_ids if len(relevant.get(query, ())))
        if any(isinstance(relevant[query], str) for query in judged):
            raise InputError("relevant must hold a sequence of document ids for each query, found a string")
        pool = pooled(runs, judged, self.depth)
        right = pool.relevant(relevant)
        if not right.any():
            raise InputError("no query has a relevant document in its pool; there is nothing to learn from")
        counts = np.bincount(pool.query[right], minlength=len(judged))
        met = counts > 0
        blind = met & np.array([query in new for query in judged])
        per_document = _loss_shares(met, blind, self.cold) / np.maximum(counts, 1)
        target = right * per_document[pool.query]
        fitted = ConditionalLogit(pool.query, pool.features(known), target, self.l2).fit(self.max_iter)
        self.runs_, self.memories_ = sorted(runs), sorted(known)
        self.coef_, self.spread_ = fitted.weights, fitted.spread
        self.n_queries_, self.n_novel_ = int(met.sum()), int(blind.sum())
        self.loss_, self.n_iter_ = fitted.loss, fitted.n_iter
        return self

    def fuse(self, runs: Mapping[str, Run]) -> Run:
        """All pooled documents by their score; ``runs`` have the names they had in :meth:`fit`.

        Queries are in the order of the first run. Scores order the documents of one query; their size is no measure.
        """
        pool = self._pool(runs, _queries(runs))
        scores = self._shares(pool.features(frozenset(self.memories_))).sum(axis=0)
        return Run.from_numbers(pool.query_ids, pool.doc_ids, pool.query, pool.document, scores, depth=len(scores))

    @property
    def weights_(self) -> pd.DataFrame:
        """Columns ``run``, ``feature``, ``weight`` and ``standardised``, the weight of a standard deviation."""
        check_is_fitted(self, "coef_")
        frame = pd.DataFrame(self._features, columns=["run", "feature"])
        return frame.assign(weight=self.coef_, standardised=self.coef_ * self.spread_)

    def explain(self, runs: Mapping[str, Run], query_id: str, doc_id: str) -> pd.DataFrame:
        """What each run adds to a document's score: columns ``run``, ``rank``, ``score`` (its own) and ``share``.

        The shares sum to the fused score. ``rank`` and ``score`` are missing, and the share is 0, where the run does
        not have the document. A document that no run has, and an unknown query, raise.
        """
        if query_id not in _queries(runs):
            raise InputError(f"runs: unknown query id {query_id!r}")
        pool = self._pool(runs, [query_id])
        at = pool.row_of(doc_id)
        if at is None:
            raise InputError(f"no run has document {doc_id!r} among its first {self.depth} for query {query_id!r}")
        shares = self._shares(pool.features(frozenset(self.memories_))[:, [at]])[:, 0]
        rows = []
        for name, share in zip(self.runs_, shares.tolist(), strict=True):
            listing = pool.listings[name]
            place = np.flatnonzero(listing.place == at)
            found = (int(place[0]) + 1, float(listing.score[place[0]])) if len(place) else (np.nan, np.nan)
            rows.append((name, *found, share))
        return pd.DataFrame(rows, columns=["run", "rank", "score", "share"])

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON: format, version, parameters, weights."""
        check_is_fitted(self, "coef_")
        return to_plain(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The fusion of :meth:`to_dict`; fuses to the same bits."""
        return from_plain(cls, values)

    def save(self, path: Path | str) -> None:
        """Write a JSON file, aside first, then renamed."""
        replace_json(Path(path), self.to_dict())

    @classmethod
    def load(cls, path: Path | str) -> Self:
        """A fusion that was saved; :class:`FileFormatError` for any other file."""
        return read_fusion(cls, Path(path))

    @property
    def _features(self) -> list[tuple[str, str]]:
        return feature_list(dict.fromkeys(self.runs_), frozenset(self.memories_))

    def _pool(self, runs: Mapping[str, Run], query_ids: Sequence[str]) -> Pool:
        check_is_fitted(self, "coef_")
        if set(runs) != set(self.runs_):
            raise InputError(f"fusion was learned for runs {', '.join(self.runs_)}; found {', '.join(sorted(runs))}")
        return pooled(runs, query_ids, self.depth)

    def _shares(self, features: Floats) -> Array:
        """(n_runs, n) what each run adds; summed feature by feature, so that no document depends on others."""
        shares = np.zeros((len(self.runs_), features.shape[1]))
        for (name, _), weight, values in zip(self._features, self.coef_, features, strict=True):
            shares[self.runs_.index(name)] += weight * values
        return shares


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


def _queries(runs: Mapping[str, Run]) -> list[str]:
    """The queries of the first run; all must have the same."""
    if not runs:
        raise InputError("fusion needs at least one run")
    first, *others = runs.values()
    if any(set(run.query_ids) != set(first.query_ids) for run in others):
        raise InputError("fusion needs runs about the same queries")
    return first.query_ids
