"""The pooled documents of judged queries, with their features and relevance, from which fusion weights are learned."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from haybale.cached import cached_property
from haybale.collections.qrels import judgements
from haybale.errors import InputError, UnknownNameError
from haybale.frames import Frame
from haybale.rankers.models.conditional_logit import conditional_logit
from haybale.retrieval import Run
from haybale.retrieval.fusion import Pool, pooled, same_queries
from haybale.retrieval.run import Scores
from haybale.vectors import Floats

if TYPE_CHECKING:
    import pandas as pd

FEATURES = ("level", "rank", "first")
_MAX_NEWTON_STEPS = 50  # for the prior weights
_NDCG_CUTOFF = 10  # documents of a run that nDCG counts when it selects the best run

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class JudgedPools:
    """The pools of judged queries, with the features and relevance of their documents."""

    runs: list[str]  # sorted
    trained: list[str]  # sorted
    pool: Pool
    features: Floats  # (f, n) float32
    is_relevant: NDArray[np.bool_]  # (n,) of the documents
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
        """Make pools from the arguments of :meth:`~haybale.LearnedFusion.fit`, which documents the errors."""
        run_queries, names, new = set(same_queries(list(runs.values()))), sorted(runs), set(unseen)
        for name in sorted(set(trained) - set(runs)):
            raise UnknownNameError("run", name, names)
        for query in sorted(new - run_queries):
            raise InputError(f"unseen: unknown query id {query!r}; give queries of the runs")
        judged = judgements(qrels)
        judged = judged[judged["relevance"] > 0]
        query_ids = sorted(run_queries.intersection(judged["query_id"]))
        pool = pooled([runs[name] for name in names], query_ids, depth)
        features, is_relevant = run_features(pool, names, trained), relevant_rows(pool, judged)
        is_new = np.array([query_id in new for query_id in query_ids], dtype=bool)
        values = {name: ndcg(runs[name], query_ids, judged) for name in names}
        return cls(names, sorted(set(trained)), pool, features, is_relevant, is_new, values)

    def take(self, chosen: NDArray[np.bool_]) -> JudgedPools:
        """Return the pools of some queries, given as (m,) bool."""
        rows = chosen[self.pool.query]
        query_ids = [query for query, is_chosen in zip(self.pool.query_ids, chosen, strict=True) if is_chosen]
        query, document = (np.cumsum(chosen) - 1)[self.pool.query[rows]], self.pool.document[rows]
        pool = Pool(query_ids, self.pool.doc_ids, query, document, [])
        values = {name: run_ndcg[chosen] for name, run_ndcg in self.ndcg.items()}
        return replace(
            self,
            pool=pool,
            features=self.features[:, rows],
            is_relevant=self.is_relevant[rows],
            unseen=self.unseen[chosen],
            ndcg=values,
        )

    @cached_property
    def prior(self) -> tuple[str, Array]:
        """The best run, and the weights (f,) of the raw features that are learned from this run alone."""
        counts = np.bincount(self.pool.query[self.is_relevant], minlength=len(self.pool.query_ids))
        n = int((counts > 0).sum())
        best = max(self.runs, key=lambda name: self.ndcg[name].mean())
        is_best = np.array([name == best for name, _ in feature_list(self.runs, self.trained)])
        target = self.is_relevant / np.maximum(counts, 1)[self.pool.query] / n
        coef = np.zeros(len(is_best))
        coef[is_best] = conditional_logit(self.pool.query, self.features[is_best], target, 1 / n, _MAX_NEWTON_STEPS)[0]
        return best, coef


def feature_list(runs: Sequence[str], trained: Collection[str]) -> list[tuple[str, str]]:
    """Return the name of each feature: ``(run, feature)``."""
    return [(name, kind) for name in runs for kind in (*FEATURES, *(["score"] if name in trained else []))]


def run_features(pool: Pool, runs: Sequence[str], trained: Collection[str]) -> Floats:
    """Return the features (f, n) of :func:`feature_list` as float32; 0 for documents that a run lacks."""
    table = np.zeros((len(feature_list(runs, trained)), len(pool)), dtype=np.float32)
    rows = iter(table)
    for name, listing in zip(runs, pool.listings, strict=True):
        starts = np.flatnonzero(listing.rank == 1)
        counts = np.diff(np.append(starts, len(listing.rank)))
        lowest = listing.score[starts + counts - 1]
        span, above = np.repeat(listing.score[starts] - lowest, counts), listing.score - np.repeat(lowest, counts)
        minmax_score = np.divide(above, span, out=np.ones_like(above), where=span > 0)
        columns = [minmax_score, 61 / (60 + listing.rank), 1 / listing.rank]
        columns += [listing.score] if name in trained else []
        for values, row in zip(columns, rows, strict=False):
            row[listing.place] = values
    return table


def pool_run(pool: Pool, scores: Scores) -> Run:
    """Rank all documents of a pool by their scores (n,)."""
    return Run.from_numbers(pool.query_ids, pool.doc_ids, pool.query, pool.document, scores, len(pool))


def ndcg(run: Run, query_ids: Sequence[str], judged: pd.DataFrame) -> Array:
    """Return nDCG@10 (n,) of judged queries, with binary relevance.

    Järvelin & Kekäläinen, "Cumulated gain-based evaluation of IR techniques", TOIS 2002.
    """
    pool = pooled([run], query_ids, _NDCG_CUTOFF)
    [listing] = pool.listings
    is_relevant = relevant_rows(pool, judged)[listing.place]
    terms = 1 / np.log2(listing.rank[is_relevant] + 1)
    gains = np.bincount(listing.query[is_relevant], terms, minlength=len(query_ids))
    counts = judged.groupby("query_id").size().reindex(list(query_ids)).to_numpy()
    ideal = np.cumsum(1 / np.log2(np.arange(_NDCG_CUTOFF) + 2))[np.minimum(counts, _NDCG_CUTOFF) - 1]
    values: Array = gains / ideal
    return values


def relevant_rows(pool: Pool, judged: pd.DataFrame) -> NDArray[np.bool_]:
    """Return whether each document (n,) of the pool is judged relevant to its query."""
    import pandas as pd

    row = pd.Index(pool.query_ids).get_indexer(pd.Index(judged["query_id"]))
    judged_ids, pool_ids = pa.array(judged["doc_id"], type=pa.large_string()), pool.doc_ids.cast(pa.large_string())
    document = pc.fill_null(pc.index_in(judged_ids, value_set=pool_ids), -1).to_numpy()
    in_pool = (row >= 0) & (document >= 0)
    return np.isin(pool.query * len(pool_ids) + pool.document, (row * len(pool_ids) + document)[in_pool])
