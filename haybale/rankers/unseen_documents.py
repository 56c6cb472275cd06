"""The documents of a ranking that were relevant to no training query."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from haybale.rankers.popularity import Popularity
from haybale.ranking.out_of_fold import OutOfFold
from haybale.ranking.ranker import Ranker
from haybale.retrieval import Run
from haybale.search.explanation import Explanation, Share
from haybale.search.query_batch import QueryBatch

_MORE = 50  # documents that the ranker within ranks at first, beyond those that were asked for


@dataclass(eq=False, repr=False)
class UnseenDocuments(OutOfFold, Ranker):
    """Rank as another ranker does, without the documents that were relevant to a training query.

    A document that was relevant before is ranked well by rankers that learn from judgements, if it is relevant again;
    for other documents, only their texts speak. Beside its inner ranker in a fusion, this ranker lets the fusion weigh
    the texts of the two kinds of documents separately (:class:`~haybale.Learned`).

    Out of fold, judgements of the query itself do not count, nor those of queries that were taken from the same
    document or are nearly the same. With ``before=``, training queries that are later than a query do not count.

    Parameters
    ----------
    ranker : Ranker
        The ranker whose documents and scores are kept. It ranks more documents until there are enough unseen ones.

    Examples
    --------
    >>> from haybale import BM25
    >>> UnseenDocuments(BM25("document"))
    UnseenDocuments(ranker=BM25(unit='document'))
    """

    name = "unseen"
    variants: ClassVar = {"unseen": {}}
    learns_documents = True
    may_answer_nothing = True
    obeys_cutoffs = True
    _parameter_constraints: ClassVar = {"ranker": [Ranker]}

    ranker: Ranker

    @property
    def uses_vectors(self) -> bool:
        """False: only the ranker within may use vectors."""
        return False

    @property
    def _ranks_whole_batches(self) -> bool:
        """Whether the ranker within ranks whole batches; leaving out documents is little work."""
        return self.rankers_[0]._ranks_whole_batches

    def nested(self) -> Sequence[Ranker]:
        """Return the ranker within, and the one that counts how often documents were relevant."""
        return [self.ranker, Popularity()]

    def rank_batch(self, batch: QueryBatch, depth: int) -> Run:
        return self._ranked(batch, depth, out_of_fold=False)

    def out_of_fold_batch(self, batch: QueryBatch, depth: int) -> Run:
        return self._ranked(batch, depth, out_of_fold=True)

    def _ranked(self, batch: QueryBatch, depth: int, *, out_of_fold: bool) -> Run:
        inner, popularity = self.rankers_
        assert isinstance(popularity, Popularity)
        n_documents, n_ranked = batch.engine.collection.n_documents, depth + _MORE
        while True:
            run = inner.run(batch, n_ranked, out_of_fold=out_of_fold)
            rows, _, documents = run.numbers_in(batch.engine.collection)
            is_unseen = popularity.counts(batch, rows, documents, out_of_fold=out_of_fold) == 0
            n_unseen = np.bincount(rows[is_unseen], minlength=len(batch.ids))
            is_cut = np.bincount(rows, minlength=len(batch.ids)) >= n_ranked
            if n_ranked >= n_documents or not (is_cut & (n_unseen < depth)).any():
                break
            n_ranked *= 2
        scores = run.coded()[-1]
        columns = rows[is_unseen], documents[is_unseen], scores[is_unseen]
        return Run.from_numbers(batch.ids, batch.engine.collection.doc_ids, *columns, depth)

    def explain_document(self, batch: QueryBatch, document: int, base: Explanation) -> Explanation:
        inner = self.rankers_[0].explained(batch, document)
        share = Share(f"{inner.ranker}, rank {inner.rank:,}", base.score or 0.0, of=inner)
        return replace(base, shares=[share], notes=["relevant to no training query"])
