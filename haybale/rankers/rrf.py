"""Reciprocal rank fusion of rankers."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

from haybale.parameters import COUNT, NOT_NEGATIVE
from haybale.ranking.fusion_ranker import Fusion, in_blocks
from haybale.ranking.ranker import Ranker, ranks_and_scores
from haybale.retrieval import Run, reciprocal_rank_fusion
from haybale.search.explanation import Explanation, Share, by_size
from haybale.search.query_batch import QueryBatch


class RRF(Fusion):
    """Reciprocal rank fusion: score(d) = Σ 1/(k + rank of d), over the rankers with d among their first ``depth``.

    Cormack et al., "Reciprocal Rank Fusion outperforms Condorcet and individual Rank Learning Methods", SIGIR 2009.

    Parameters
    ----------
    *rankers : Ranker
        The rankers to fuse.
    k : float, default 60
        Constant added to each rank. The larger it is, the less the first ranks stand out.
    depth : int, default 1000
        Documents of each ranker that are fused.
    """

    name = "rrf"
    variants: ClassVar = {"rrf": {}}
    _parameter_constraints: ClassVar = {"k": NOT_NEGATIVE, "depth": COUNT}

    def __init__(self, *rankers: Ranker, k: float = 60, depth: int = 1000) -> None:
        self.rankers = rankers
        self.k = k
        self.depth = depth

    def rank_batch(self, batch: QueryBatch, depth: int) -> Run:
        return self._fused(batch, self._runs(batch), depth)

    def out_of_fold_batch(self, batch: QueryBatch, depth: int) -> Run:
        return self._fused(batch, self._runs(batch, out_of_fold=True), depth)

    def _fused(self, batch: QueryBatch, runs: dict[str, Run], depth: int) -> Run:
        with batch.timed("fuse"):
            return in_blocks(runs, lambda part: reciprocal_rank_fusion(list(part.values()), rrf_k=self.k, k=depth))

    def explain_document(self, batch: QueryBatch, document: int, base: Explanation) -> Explanation:
        shares = []
        for ranker in self.rankers_:
            rank, _ = ranks_and_scores(ranker, batch, self.depth).get(base.doc_id, (None, None))
            if rank is not None:
                inner = ranker.explained(batch, document)
                shares.append(Share(f"{inner.ranker}, rank {rank:,}", 1 / (self.k + rank), of=inner))
        return replace(base, shares=by_size(shares))
