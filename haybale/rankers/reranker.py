"""The base class of re-rankers, which re-order the first documents of another ranker."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haybale.ranking.ranker import Ranker
from haybale.retrieval import Run
from haybale.retrieval.hits import Ints
from haybale.search.explanation import Explanation, Share
from haybale.search.query_batch import QueryBatch


class Reranker(Ranker):
    """The base of rankers that re-order the first ``n_documents`` of ``ranker``, their first parameter.

    Other documents, and documents without a passage, keep their order below the re-ordered ones.
    """

    ranker: Ranker
    n_documents: int

    @abstractmethod
    def rescore(
        self, batch: QueryBatch, rows: Ints, documents: Ints, scores: Any, out_of_fold: bool
    ) -> NDArray[np.float64]:
        """Return new scores (n,) of candidates, which are given in the order of the run with their ``scores``."""

    @abstractmethod
    def document_shares(self, batch: QueryBatch, document: int, first: Run, inner: Explanation) -> list[Share]:
        """Return the shares of a re-scored document.

        ``first`` is the run of all re-scored candidates, and ``inner`` explains the score by the first ranker.
        """

    def rank_batch(self, batch: QueryBatch, depth: int) -> Run:
        return self._reordered(batch, self.rankers_[0].run(batch, max(depth, self.n_documents)), depth, False)

    def out_of_fold_batch(self, batch: QueryBatch, depth: int) -> Run:
        return self._reordered(
            batch, self.rankers_[0].run(batch, max(depth, self.n_documents), out_of_fold=True), depth, True
        )

    def _reordered(self, batch: QueryBatch, first: Run, depth: int, out_of_fold: bool) -> Run:
        rows, ranks, documents = first.numbers_in(batch.engine.collection)
        read = self._is_read(batch, ranks, documents)
        scores = np.empty(len(rows))
        if read.any():
            with batch.timed(f"re-order ({self.name})"):
                before = first.coded()[-1][read]
                scores[read] = self.rescore(batch, rows[read], documents[read], before, out_of_fold)
        # Documents that were not read follow in their order, below those of the same query that were.
        lowest = np.zeros(len(batch))
        np.minimum.at(lowest, rows[read], scores[read])
        scores[~read] = lowest[rows[~read]] - ranks[~read]
        return Run.from_numbers(batch.ids, batch.engine.collection.doc_ids, rows, documents, scores, depth)

    def _is_read(self, batch: QueryBatch, ranks: Ints, documents: Ints) -> NDArray[np.bool_]:
        has_passage = np.diff(batch.engine.collection.passages.doc_offsets)[documents] > 0
        return (ranks <= self.n_documents) & has_passage

    def explain_document(self, batch: QueryBatch, document: int, base: Explanation) -> Explanation:
        first = self.rankers_[0].run(batch, max(self.n_documents, base.rank or 1))
        before = list(dict(first[batch.ids[0]])).index(base.doc_id) + 1
        inner = self.rankers_[0].explained(batch, document)
        notes = [f"rank {before:,} by {self.rankers_[0]} before re-ranking"]
        if not self._is_read(batch, np.array([before]), np.array([document])).all():
            return replace(base, shares=[Share("not re-ranked", base.score or 0.0, of=inner)], notes=notes)
        shares = self.document_shares(batch, document, first.top(self.n_documents), inner)
        if all(share.of is not inner for share in shares):
            notes += inner.text(top=2).splitlines()[1:]
        return replace(base, shares=shares, notes=notes)
