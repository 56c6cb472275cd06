"""BM25 over passages, on bm25s; documents rank by their best passage, or as wholes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from haybale.analysis import Analyzer, guess_language
from haybale.collections import Collection
from haybale.embeddings import EmbeddingStore
from haybale.errors import InputError
from haybale.extras import require
from haybale.progress import track
from haybale.retrieval.hits import NO_PASSAGE, Hits, Ints, select
from haybale.retrieval.passages import Exclude, Ids, PassageTable, document_offsets
from haybale.vectors import Floats


class BM25Index(PassageTable):
    """Lucene's BM25 (Kamphuis et al., "Which BM25 Do You Mean?", ECIR 2020) over passages of documents.

    Parameters: ``texts`` (n,); ``doc_offsets`` (n_documents + 1,), where documents begin (default: every text
    its own document); ``passage_ids`` and ``doc_ids`` (default: the numbers as strings); ``k1``, ``b``;
    ``language`` of stop words and stemmer (None: guessed from the texts).

    >>> index = BM25Index(["a lead for dogs", "taxes are due", "the dog tax"], language="english")
    >>> index.search(["dog taxes"], k=3).passages
    array([[2, 0, 1]])
    """

    def __init__(
        self,
        texts: Sequence[str],
        doc_offsets: Ints | None = None,
        *,
        passage_ids: Ids | None = None,
        doc_ids: Ids | None = None,
        k1: float = 1.2,
        b: float = 0.75,
        language: str | None = None,
    ) -> None:
        super().__init__(len(texts), doc_offsets, passage_ids, doc_ids)
        self.analyzer = Analyzer(language or guess_language(texts[:: max(1, len(texts) // 1000)]))
        terms = self.analyzer(texts)
        if not terms.vocabulary:
            raise InputError("no text holds a word that is not a stop word")
        self._bm25 = require("bm25s").BM25(k1=k1, b=b)
        self._bm25.index((terms.ids, terms.vocabulary), create_empty_token=False, show_progress=False)
        self._vocabulary = terms.vocabulary

    @classmethod
    def from_collection(
        cls,
        collection: Collection,
        unit: str = "passage",
        *,
        k1: float = 1.2,
        b: float = 0.75,
        language: str | None = None,
    ) -> BM25Index:
        """Index a collection's passages, or with ``unit="document"`` its documents as wholes."""
        settings: dict[str, Any] = {"k1": k1, "b": b, "language": language or collection.language}
        passages, documents = collection.passages, collection.doc_ids
        if unit == "passage":
            ids = {"passage_ids": passages.ids, "doc_ids": documents}
            return cls(passages.texts.to_pylist(), passages.doc_offsets, **ids, **settings)
        if unit == "document":
            return cls(collection.document_texts(), passage_ids=documents, doc_ids=documents, **settings)
        raise InputError(f"unit must be 'passage' or 'document', found {unit!r}")

    @classmethod
    def from_store(
        cls, store: EmbeddingStore, *, k1: float = 1.2, b: float = 0.75, language: str | None = None
    ) -> BM25Index:
        """Index the texts that a store of embeddings keeps beside its vectors."""
        offsets, doc_ids = document_offsets(store.doc_ids)
        ids: dict[str, Any] = {"passage_ids": store.passage_ids, "doc_ids": doc_ids}
        return cls(store.texts().to_pylist(), offsets, k1=k1, b=b, language=language, **ids)

    def search(self, queries: Sequence[str], k: int, *, exclude: Exclude | None = None) -> Hits:
        """The k best passages of each query text; those without a common term are no hits.

        ``exclude`` (m,) a document to leave out of each row: its id (None for none) or its number (-1).
        """
        self._check_k(k)
        passages = np.full((len(queries), k), NO_PASSAGE, dtype=np.int64)
        best = np.full((len(queries), k), -np.inf, dtype=np.float32)
        for row, scores in enumerate(self._scores(queries, exclude)):
            numbers, values = select(scores[None], k)
            passages[row], best[row] = numbers[0], values[0]
        return Hits(passages, best)

    def documents(
        self, queries: Sequence[str], depth: int, *, exclude: Exclude | None = None
    ) -> tuple[Ints, Ints, Floats]:
        """Documents by their best passage (MaxP over the whole collection, not over a cut-off list).

        Flat ``(query row, document, score)``: of each query, every document that scores at least as high as
        its ``depth``-th best, so that ties at the end are for the :class:`Run` to break.
        """
        starts = self.doc_offsets[:-1]
        full = np.flatnonzero(np.diff(self.doc_offsets) > 0)  # documents without passages cannot be found
        rows, documents, values = [], [], []
        for row, scores in enumerate(self._scores(queries, exclude)):
            best = np.maximum.reduceat(scores, starts[full])
            threshold = np.partition(best, -depth)[-depth] if depth < len(best) else -np.inf
            kept = np.flatnonzero((best >= threshold) & np.isfinite(best))
            rows.append(np.full(len(kept), row))
            documents.append(full[kept])
            values.append(best[kept])
        empty: list[Ints] = [np.empty(0, dtype=np.int64)]
        return np.concatenate(rows or empty), np.concatenate(documents or empty), np.concatenate(values or empty)

    def similarities(self, queries: Sequence[str], document: int) -> Floats:
        """(m, passages of the document) scores of its passages for query texts; 0 for no common term."""
        part = slice(*self.doc_offsets[document : document + 2])
        rows = [np.maximum(scores[part], 0) for scores in self._scores(queries, None)]
        return np.asarray(rows, dtype=np.float32).reshape(len(queries), -1)

    def _scores(self, queries: Sequence[str], exclude: Exclude | None) -> Iterator[Floats]:
        """(n,) scores of every passage, query by query; -inf for no common term and for the excluded document."""
        for i, query in enumerate(queries):
            if not query.strip():
                raise InputError(f"query {i} of {len(queries)} is empty")
        own = self.excluded(exclude, len(queries))
        terms = self.analyzer(queries, self._vocabulary)
        for ids, document in track(zip(terms.ids, own, strict=True), "BM25", len(queries)):
            scores: Floats = self._bm25.get_scores_from_ids(ids)
            scores[scores <= 0] = -np.inf
            if document >= 0:
                scores[self.doc_offsets[document] : self.doc_offsets[document + 1]] = -np.inf
            yield scores
