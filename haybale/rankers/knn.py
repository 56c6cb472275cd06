"""Exact nearest-neighbour search as a ranker, over passages, whole documents or first passages."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from haybale.device import to_numpy
from haybale.embeddings import TfidfEncoder
from haybale.engine import Engine
from haybale.parameters import one_of
from haybale.rankers.explanation import Explanation, Share, by_size, passage_note
from haybale.rankers.query_batch import QueryBatch
from haybale.rankers.ranker import Ranker
from haybale.retrieval import Hits, PassageIndex, Run

_HITS = 1000  # PARM's default n_hits
_PASSAGES_PER_DOCUMENT = 3  # hits that are expected to suffice for each document


@dataclass(eq=False, repr=False)
class KNN(Ranker):
    """Rank documents by the inner product of their vectors with the query's, with exact search.

    Parameters
    ----------
    unit : {"passage", "document", "first passage"}, default "passage"
        Whether a document scores by its nearest passage (MaxP), by one vector of its whole text, or by its first
        passage (FirstP).
    """

    name = "knn"
    variants: ClassVar = {"knn": {}, "knn-doc": {"unit": "document"}, "knn-firstp": {"unit": "first passage"}}
    _parameter_constraints: ClassVar = {"unit": one_of(["passage", "document", "first passage"])}

    unit: str = "passage"

    def _index(self, engine: Engine) -> PassageIndex:
        if self.unit == "document":
            return engine.documents
        return engine.passages if self.unit == "passage" else engine.first_passages

    def passage_hits(self, batch: QueryBatch, k: int) -> Hits:
        """Return the k nearest passages of each query."""
        index = batch.engine.passages
        return index.search(batch.vectors, min(k, len(index)), exclude=batch.own).to_numpy()

    def rank_batch(self, batch: QueryBatch, depth: int) -> Run:
        index, ids = self._index(batch.engine), batch.engine.collection.doc_ids
        _ = batch.vectors  # encoded here, so that the search is timed without it
        # PARM searches the same passages for queries of one paragraph: its hits are reused if there are enough.
        enough = self.unit == "passage" and _PASSAGES_PER_DOCUMENT * depth <= min(_HITS, len(index))
        hits = batch.single_hits(index, _HITS) if enough else None
        with batch.timed(f"search kNN ({self.unit}s)"):
            rows, documents, scores = index.documents(batch.vectors, depth, exclude=batch.own, hits=hits)
            return Run.from_numbers(batch.ids, ids, rows, documents, scores, depth)

    def explain_document(self, batch: QueryBatch, document: int, base: Explanation) -> Explanation:
        index = self._index(batch.engine)
        within = np.asarray(index.similarities(batch.vectors, document))[0]
        passage = int(index.doc_offsets[document]) + int(np.argmax(within))
        notes = [passage_note(batch.engine.collection.passages, passage)] if self.unit == "passage" else []
        what = {"passage": "nearest passage", "document": "whole text", "first passage": "first passage"}[self.unit]
        shares = [Share(f"cosine of the {what}", float(base.score or 0.0))]
        encoder = batch.engine.encoder
        if index.is_sparse and isinstance(encoder, TfidfEncoder):
            terms = list(encoder.vocabulary_)
            both = batch.vectors[0].multiply(to_numpy(index.vectors[passage : passage + 1])).tocoo()
            shares = [
                Share(f"term {terms[column]}", float(value), term=terms[column])
                for column, value in zip(both.col, both.data, strict=True)
            ]
        first = int(batch.engine.collection.passages.doc_offsets[document])
        number = {"passage": passage, "document": None, "first passage": first}[self.unit]
        passage_id = None if number is None else batch.engine.collection.passages.ids[number].as_py()
        return replace(base, shares=by_size(shares), notes=notes, passage_id=passage_id)
