"""BM25 as a ranker: over passages (a document scores by its best ones) or over whole documents."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, ClassVar

import numpy as np

from haybale.analysis import Terms
from haybale.engine import Engine
from haybale.parameters import BM25_RANGES, COUNT, one_of
from haybale.ranking.ranker import Ranker
from haybale.ranking.summed_passages import check_top, summed
from haybale.retrieval import AnyBM25, Hits, Run
from haybale.retrieval.query_saturation import K3_BY_LENGTH, counted_by_length, saturated_by_length
from haybale.search.explanation import Explanation, Share, by_size, passage_note
from haybale.search.query_batch import QueryBatch

# With these parameters, the number of distinct terms that a query and a text share counts more than repetitions in the
# query, which suits long queries. SVR and Learned have such rankers beside those with the defaults.
LONG_QUERIES: dict[str, Any] = {"k1": 6.0, "b": 0.9, "k3": 0.0}


@dataclass(eq=False, repr=False)
class BM25(Ranker):
    """Rank by Lucene's BM25, exact over the whole collection.

    Kamphuis et al., "Which BM25 Do You Mean?", ECIR 2020.

    Parameters
    ----------
    unit : {"passage", "document"}, default "passage"
        Whether a document scores by its best passages or as a whole.
    k1 : float, default 1.2
        Term-frequency saturation, at least 0. The larger it is, the more a repeated term adds.
    b : float, default 0.75
        Length normalisation, from 0 (none) to 1 (full).
    k3 : float, None or "auto", default "auto"
        Saturation of repeated query terms: t occurrences count as (k3 + 1) · t / (k3 + t), so with 0 as one. With None,
        each occurrence counts, as in Lucene. "auto" is, over passages, the number of terms of the query divided by 16,
        and at most 8 (:func:`~haybale.retrieval.query_saturation.k3_of_length`); over documents, it is None.
    top : int, default 1
        Number of passages whose scores are summed, the best ones of a document. With 2 or 3, BM25 over passages ranked
        long documents better where nothing is fused. Only for ``unit="passage"``.
    """

    name = "bm25"
    variants: ClassVar = {"bm25": {}, "bm25-doc": {"unit": "document"}}
    _parameter_constraints: ClassVar = {
        "unit": one_of(["passage", "document"]),
        "top": COUNT,
        **BM25_RANGES,
        "k3": [*BM25_RANGES["k3"], *one_of([K3_BY_LENGTH])],
    }

    unit: str = "passage"
    _: KW_ONLY
    k1: float = 1.2
    b: float = 0.75
    k3: float | str | None = K3_BY_LENGTH
    top: int = 1

    def _check_params(self) -> None:
        super()._check_params()
        check_top(self.unit, self.top)

    @property
    def uses_vectors(self) -> bool:
        """False: BM25 counts terms."""
        return False

    @property
    def _is_by_length(self) -> bool:
        """Whether the length of a query sets its k3."""
        return self.k3 == K3_BY_LENGTH and self.unit == "passage"

    def _index(self, engine: Engine) -> AnyBM25:
        return engine.bm25(self.unit, self.k1, self.b, None if isinstance(self.k3, str) else self.k3)

    def _queries(self, index: AnyBM25, texts: Sequence[str]) -> Sequence[str] | Terms:
        """Return queries as the index searches them."""
        return saturated_by_length(index, texts) if self._is_by_length else texts

    def passage_hits(self, batch: QueryBatch, k: int) -> Hits:
        """Return the k best passages of each query."""
        index = self._index(batch.engine)
        return index.search(self._queries(index, batch.texts), min(k, len(index)), exclude=batch.own)

    def rank_batch(self, batch: QueryBatch, depth: int) -> Run:
        index = self._index(batch.engine)
        with batch.timed(f"search BM25 ({self.unit}s)", "cpu"):
            queries = self._queries(index, batch.texts)
            rows, documents, scores = index.documents(queries, depth, exclude=batch.own, top=self.top)
            return Run.from_numbers(batch.ids, batch.engine.collection.doc_ids, rows, documents, scores, depth)

    def explain_document(self, batch: QueryBatch, document: int, base: Explanation) -> Explanation:
        index, text = self._index(batch.engine), batch.texts[0]
        first, end = (int(edge) for edge in index.doc_offsets[document : document + 2])
        is_by_length = self._is_by_length
        queries = batch.once(("queries", index, is_by_length), lambda: self._queries(index, batch.texts))
        within = index.similarities(queries, document)[0] if end - first > 1 else np.zeros(1, dtype=np.float32)

        def counted_terms() -> list[tuple[str, np.float32]]:
            return counted_by_length(index, text) if is_by_length else index.counted_terms(text)

        counted = batch.once(("terms", index, is_by_length), counted_terms)

        def terms(passage: int) -> list[Share]:
            term_shares = index.shares_of_terms(counted, passage).items()
            return by_size([Share(f"term {term}", share, term=term) for term, share in term_shares])

        if self.top > 1:
            return summed(batch, base, first, within, self.top, terms, index.analyzer)
        passage = first + int(np.argmax(within))
        explanation = replace(base, shares=terms(passage), matcher=index.analyzer)
        if self.unit == "document":
            return explanation
        notes = [passage_note(batch.engine.collection.passages, passage)]
        return replace(explanation, notes=notes, passage_id=index.passage_ids[passage].as_py())
