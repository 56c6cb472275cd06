"""Search with what the judges of a topic have judged: a ranker fused with the order of the topic's review.

Thirty judgements of a topic improved the ranking of documents that nobody had judged
(benchmarks/results/held-back.md, "both, by RRF").
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from haybale.collections import Collection, Queries
from haybale.rankers import Explanation, QueryBatch, Ranker, Share
from haybale.ranking.ranker import ranks_and_scores
from haybale.retrieval import Run
from haybale.retrieval.fusion import reciprocal_rank_fusion
from haybale.retrieval.run import DEPTH

_RRF_K = 60  # the constant of reciprocal rank fusion
_REVIEW_LABEL = "judgements of the topic"


@dataclass(eq=False)
class TopicSearch:
    """A ranker and the scores of a review, fused by reciprocal rank fusion, as :func:`haybale.search` takes rankers.

    Parameters
    ----------
    ranker : Ranker
        Fitted.
    collection : Collection
        The documents of the review.
    scores : (n_documents,) array
        What :meth:`haybale.Review.scores` returns; a higher one is more likely relevant. Documents with the score NaN
        get nothing from the review.
    """

    ranker: Ranker
    collection: Collection
    scores: NDArray[np.float64]

    def __post_init__(self) -> None:
        self.engine_ = self.ranker.engine_

    def __str__(self) -> str:
        return f"{self.ranker} and {_REVIEW_LABEL}"

    def _check_fitted(self) -> None:
        """Raise :class:`~haybale.NotFittedError` if the ranker has not been fitted."""
        self.ranker._check_fitted()

    def _check_answers(self, queries: Queries | None) -> None:
        """Raise :class:`~haybale.InputError` if the ranker cannot rank queries; None is a new text."""
        self.ranker._check_answers(queries)

    def run(self, batch: QueryBatch, depth: int) -> Run:
        """Return the first ``depth`` documents of the only query of a batch."""
        runs = [self.ranker.run(batch, DEPTH), self._reviewed(batch)]
        return batch.once(("topic", self, depth), lambda: reciprocal_rank_fusion(runs, rrf_k=_RRF_K, k=depth))

    def _reviewed(self, batch: QueryBatch) -> Run:
        """Return the documents of a batch in the order of the review."""

        def made() -> Run:
            doc_ids = batch.engine.collection.doc_ids
            numbers = self.collection.find_documents(doc_ids)  # those of the review; -1 for others
            reviewed = np.flatnonzero((numbers >= 0) & ~np.isnan(self.scores[numbers]))
            rows = np.zeros(len(reviewed), dtype=np.int64)
            return Run.from_numbers(batch.ids, doc_ids, rows, reviewed, self.scores[numbers[reviewed]], DEPTH)

        return batch.once(("reviewed", self), made)

    def explained(self, batch: QueryBatch, document: int) -> Explanation:
        """Explain the score of a document: what the search adds, and what the judgements of the topic add."""
        query, doc_id = batch.ids[0], str(batch.engine.collection.doc_ids[document].as_py())
        shares = []
        rank, _ = ranks_and_scores(self.ranker, batch, DEPTH).get(doc_id, (None, None))
        if rank is not None:
            inner = self.ranker.explained(batch, document)
            shares.append(Share(f"{inner.ranker}, rank {rank:,}", 1 / (_RRF_K + rank), of=inner))
        reviewed = {ranked: n for n, (ranked, _) in enumerate(self._reviewed(batch)[query], 1)}
        if doc_id in reviewed:
            shares.append(Share(f"{_REVIEW_LABEL}, rank {reviewed[doc_id]:,}", 1 / (_RRF_K + reviewed[doc_id])))
        shares.sort(key=lambda share: -share.share)
        fused = {ranked: (n, score) for n, (ranked, score) in enumerate(self.run(batch, 2 * DEPTH)[query], 1)}
        fused_rank, score = fused.get(doc_id, (None, None))
        return Explanation(str(self), query, doc_id, score, fused_rank, shares)
