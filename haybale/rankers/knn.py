"""Exact nearest-neighbour search as a ranker, over passages, whole documents or first passages."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar

import numpy as np

from haybale.device import to_numpy
from haybale.embeddings import TfidfEncoder
from haybale.engine import Engine
from haybale.parameters import COUNT, one_of
from haybale.ranking.ranker import Ranker
from haybale.ranking.summed_passages import check_top, summed
from haybale.retrieval import AnyPassageIndex, Hits, Run
from haybale.search.explanation import Explanation, Share, by_size, device_notes, passage_note
from haybale.search.query_batch import QueryBatch

_PARM_HITS = 1000  # PARM's default n_hits
_PASSAGES_PER_DOCUMENT = 3  # hits that are expected to suffice for each document


@dataclass(eq=False, repr=False)
class KNN(Ranker):
    """Rank documents by the inner product of their vectors with the query's, with exact search.

    Parameters
    ----------
    unit : {"passage", "document", "first passage"}, default "passage"
        Whether a document scores by its nearest passage (MaxP), by one vector of its whole text, or by its first
        passage (FirstP).
    top : int, default 1
        Number of passages whose scores are summed, the nearest ones of a document. With 2 to 5, it ranked long
        documents better where nothing is fused. Beyond the nearest passage, negative scores add nothing. Only for
        ``unit="passage"``.
    """

    name = "knn"
    variants: ClassVar = {"knn": {}, "knn-doc": {"unit": "document"}, "knn-firstp": {"unit": "first passage"}}
    obeys_cutoffs = True
    _parameter_constraints: ClassVar = {"unit": one_of(["passage", "document", "first passage"]), "top": COUNT}

    unit: str = "passage"
    _: KW_ONLY
    top: int = 1

    def _check_params(self) -> None:
        super()._check_params()
        check_top(self.unit, self.top)

    def _index(self, engine: Engine) -> AnyPassageIndex:
        if self.unit == "document":
            return engine.documents
        return engine.passages if self.unit == "passage" else engine.first_passages

    def passage_hits(self, batch: QueryBatch, k: int) -> Hits:
        """Return the k nearest passages of each query."""
        index = batch.engine.passages
        return index.search(batch.vectors, min(k, len(index)), exclude=batch.exclude).to_numpy()

    def rank_batch(self, batch: QueryBatch, depth: int) -> Run:
        index, ids = self._index(batch.engine), batch.engine.collection.doc_ids
        _ = batch.vectors  # encoded here, so that the search is timed without it
        # PARM searches the same passages for queries of one paragraph: its hits are reused if there are enough.
        enough = (
            self.unit == "passage" and self.top == 1 and _PASSAGES_PER_DOCUMENT * depth <= min(_PARM_HITS, len(index))
        )
        hits = batch.single_hits(index, _PARM_HITS) if enough else None
        with batch.timed(f"search kNN ({self.unit}s)", index.search_device):
            rows, documents, scores = index.documents(
                batch.vectors, depth, exclude=batch.exclude, hits=hits, top=self.top
            )
            return Run.from_numbers(batch.ids, ids, rows, documents, scores, depth)

    def explain_document(self, batch: QueryBatch, document: int, base: Explanation) -> Explanation:
        index = self._index(batch.engine)
        within = np.asarray(index.similarities(batch.vectors, document))[0]
        first, passages = int(index.doc_offsets[document]), batch.engine.collection.passages
        what = {
            "passage": "nearest passage" if self.top == 1 else "passage",
            "document": "whole text",
            "first passage": "first passage",
        }[self.unit]

        def shares(passage: int) -> list[Share]:
            encoder = batch.engine.encoder
            if not (index.is_sparse and isinstance(encoder, TfidfEncoder)):
                return [Share(f"cosine of the {what}", float(within[passage - first]))]
            terms = batch.once("terms of the encoder", lambda: list(encoder.vocabulary_))
            query: Any = batch.vectors
            row: Any = to_numpy(index.vectors[passage : passage + 1])
            columns, in_query, in_row = np.intersect1d(
                query.indices, row.indices, assume_unique=True, return_indices=True
            )
            products = (query.data[in_query] * row.data[in_row]).tolist()
            term_shares = [(terms[column], share) for column, share in zip(columns.tolist(), products, strict=True)]
            return by_size([Share(f"term {term}", share, term=term) for term, share in term_shares])

        if self.top > 1:
            return summed(batch, base, first, within, self.top, shares)
        passage = first + int(np.argmax(within))
        explanation = replace(base, shares=shares(passage), notes=device_notes(index.search_device))
        if self.unit == "document":
            return explanation
        if self.unit == "first passage":
            return replace(explanation, passage_id=passages.ids[int(passages.doc_offsets[document])].as_py())
        return replace(
            explanation,
            notes=[passage_note(passages, passage), *explanation.notes],
            passage_id=passages.ids[passage].as_py(),
        )
