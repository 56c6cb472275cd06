"""BM25 over passages, on bm25s; documents rank by their best passage, or as wholes."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from haybale.analysis import Analyzer, Terms, guess_language
from haybale.collections import Collection
from haybale.embeddings import EmbeddingStore
from haybale.errors import InputError
from haybale.extras import require
from haybale.progress import track
from haybale.retrieval.hits import NO_PASSAGE, Hits, Ints, select
from haybale.retrieval.passages import Exclude, Ids, PassageTable, document_offsets
from haybale.retrieval.term_counts import TermCounts
from haybale.vectors import Floats


class BM25Index(PassageTable):
    """Lucene's BM25 (Kamphuis et al., "Which BM25 Do You Mean?", ECIR 2020) over passages of documents.

    Parameters: ``texts`` (n,); ``doc_offsets`` (n_documents + 1,), where documents begin (default: every text
    its own document); ``passage_ids`` and ``doc_ids`` (default: the numbers as strings); ``k1``, ``b``;
    ``language`` of stop words and stemmer (None: guessed from the texts); ``keep_counts``, also keep how often each
    term occurs in each text, for :meth:`with_parameters`.

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
        keep_counts: bool = False,
    ) -> None:
        super().__init__(len(texts), doc_offsets, passage_ids, doc_ids)
        self.analyzer = Analyzer(language or guess_language(texts[:: max(1, len(texts) // 1000)]))
        terms = self.analyzer(texts)
        if not terms.vocabulary:
            raise InputError("no text holds a word that is not a stop word")
        self._bm25 = require("bm25s").BM25(k1=k1, b=b)
        self._bm25.index((terms.ids, terms.vocabulary), create_empty_token=False, show_progress=False)
        self._vocabulary = terms.vocabulary
        self._counts = TermCounts.of(terms) if keep_counts else None

    @classmethod
    def from_collection(
        cls,
        collection: Collection,
        unit: str = "passage",
        *,
        k1: float = 1.2,
        b: float = 0.75,
        language: str | None = None,
        keep_counts: bool = False,
    ) -> BM25Index:
        """Index a collection's passages, or with ``unit="document"`` its documents as wholes."""
        settings: dict[str, Any] = {"k1": k1, "b": b, "language": language or collection.language}
        settings["keep_counts"] = keep_counts
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

    def with_parameters(self, k1: float, b: float) -> BM25Index:
        """The same texts with another ``k1`` and ``b``, without a second analysis: only the weights are new.

        >>> texts = ["dog dog dog", "a dog and a cat"]
        >>> index = BM25Index(texts, language="english", keep_counts=True).with_parameters(0.5, 0.9)
        >>> index.search(["cat"], k=2).passages
        array([[ 1, -1]])
        """
        if self._counts is None:
            raise InputError("other parameters need the counts of terms; make the index with keep_counts=True")
        other = copy.copy(self)
        other._bm25 = copy.copy(self._bm25)
        other._bm25.k1, other._bm25.b = k1, b
        counts = self._counts
        columns = {"indices": counts.text, "indptr": counts.offsets, "num_docs": len(counts.lengths)}
        other._bm25.scores = {"data": counts.weights(k1, b), **columns}
        return other

    def analysed(self, queries: Sequence[str]) -> Terms:
        """The terms of queries, for :meth:`documents` to take many times; terms that no text has are left out."""
        for i, query in enumerate(queries):
            if not query.strip():
                raise InputError(f"query {i} of {len(queries)} is empty")
        return self.analyzer(queries, self._vocabulary)

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
        self, queries: Sequence[str] | Terms, depth: int, *, exclude: Exclude | None = None
    ) -> tuple[Ints, Ints, Floats]:
        """Documents by their best passage (MaxP over the whole collection, not over a cut-off list).

        Flat ``(query row, document, score)``: of each query, every document that scores at least as high as
        its ``depth``-th best, so that ties at the end are for the :class:`Run` to break. ``queries`` are texts, or
        what :meth:`analysed` made of them.
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

    def _scores(self, queries: Sequence[str] | Terms, exclude: Exclude | None) -> Iterator[Floats]:
        """(n,) scores of every passage, query by query; -inf for no common term and for the excluded document."""
        terms = queries if isinstance(queries, Terms) else self.analysed(queries)
        own = self.excluded(exclude, len(terms.ids))
        for ids, document in track(zip(terms.ids, own, strict=True), "BM25", len(terms.ids)):
            scores: Floats = self._bm25.get_scores_from_ids(ids)
            scores[scores <= 0] = -np.inf
            if document >= 0:
                scores[self.doc_offsets[document] : self.doc_offsets[document + 1]] = -np.inf
            yield scores
