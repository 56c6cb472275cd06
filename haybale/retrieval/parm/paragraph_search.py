"""Search with every paragraph of a query document, and rank the documents by all hits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from haybale.device import device_of, placed, to_device, to_numpy
from haybale.embeddings import encode_queries
from haybale.errors import InputError
from haybale.parameters import check_parameters
from haybale.retrieval.exclusion import Exclusion
from haybale.retrieval.hits import Hits, Ints
from haybale.retrieval.parm.aggregate import CONSTRAINTS, find_aggregation, rank_documents, slices
from haybale.retrieval.parm.formulas import Vectors
from haybale.retrieval.parm.paragraph_explanation import ParagraphExplanation, explain_document, scored_blocks
from haybale.retrieval.passages import Exclude
from haybale.retrieval.run import DEPTH, Run
from haybale.retrieval.segmented_indexes import AnyBM25, AnyPassageIndex, SegmentedPassages

Paragraphs = Sequence[str] | NDArray[Any] | Any  # texts, or vectors (n, d), dense or CSR
# Query paragraphs for whose hits on an index in parts the vectors are loaded at once.
_PARAGRAPHS_IN_MEMORY = 64
_PARAGRAPHS_PER_SEARCH = 8192  # with 1,000 hits each they take 100 MB


@dataclass(frozen=True)
class ParagraphHits:
    """The hits of the paragraphs of query documents, on the device of the index."""

    hits: Hits  # (n_paragraphs, N)
    offsets: Ints  # (n_queries + 1,) where the paragraphs of each query document begin
    vectors: Vectors | None  # None for a BM25 index
    index: AnyPassageIndex | AnyBM25  # that the hits refer to

    def loaded(self, queries: slice, documents: Sequence[int] = ()) -> ParagraphHits:
        """Return the hits of some queries on an index in parts, with the vectors of the passages that they retrieved.

        The new index also has all passages of ``documents``.
        """
        assert isinstance(self.index, SegmentedPassages)
        assert self.vectors is not None
        rows = slice(*self.offsets[[queries.start, queries.stop]].tolist())
        index, hits = self.index.index_of_hits(Hits(self.hits.passages[rows], self.hits.scores[rows]), documents)
        offsets = self.offsets[queries.start : queries.stop + 1] - rows.start
        return ParagraphHits(hits, offsets, Vectors(index.vectors, self.vectors.paragraphs[rows]), index)


class ParagraphSearch:
    """Rank documents for query documents of one or many paragraphs.

    Search and aggregation run on the device of the index; only documents and scores are copied back.

    Parameters
    ----------
    index : PassageIndex or BM25Index
        With a BM25 index, only aggregations without vectors are possible.
    aggregation : str, default "vrrf"
        How hits become scores of documents: one of :data:`~haybale.retrieval.AGGREGATIONS`.
    encoder : encoder, optional
        Encodes paragraphs that are given as texts.
    n_hits : int, default 1000
        Number of passages retrieved for each paragraph (N).
    rrf_k, occurrences : float, default 60; {"all", "best"}, default "all"
        As in :func:`~haybale.retrieval.aggregate`.
    k : int, default 1000
        Number of documents kept for each query.

    Raises
    ------
    UnknownNameError, InputError
        If the aggregation is unknown or does not fit the index, or a parameter is out of range.

    Examples
    --------
    >>> from haybale import PassageIndex
    >>> index = PassageIndex(np.eye(3), np.array([0, 2, 3]), doc_ids=["a", "b"])
    >>> parm = ParagraphSearch(index, "rrf")
    >>> run = parm.rank(["q"], [np.array([[1.0, 0.5, 0.0], [0.0, 0.5, 0.1]])])
    >>> [(doc_id, round(score, 4)) for doc_id, score in run["q"]]
    [('a', 0.0648), ('b', 0.032)]
    """

    def __init__(
        self,
        index: AnyPassageIndex | AnyBM25,
        aggregation: str = "vrrf",
        *,
        encoder: Any = None,
        n_hits: int = 1000,
        rrf_k: float = 60,
        occurrences: str = "all",
        k: int = DEPTH,
    ) -> None:
        if find_aggregation(aggregation).vectors is not None and isinstance(index, AnyBM25):
            raise InputError(f"the aggregation {aggregation!r} needs vectors, which a BM25 index lacks; use 'rrf'")
        self.index, self.aggregation, self.encoder, self.k = index, aggregation, encoder, k
        self.options: dict[str, Any] = {"n_hits": n_hits, "rrf_k": rrf_k, "occurrences": occurrences}
        check_parameters("ParagraphSearch", {**self.options, "k": k}, CONSTRAINTS)

    def rank(
        self, query_ids: Sequence[str], paragraphs: Sequence[Paragraphs], *, exclude: Exclude | None = None
    ) -> Run:
        """Rank documents for each query document, in batches.

        Parameters
        ----------
        query_ids : (n_queries,) str
        paragraphs : (n_queries,) sequence
            The paragraphs of each query document: at least one non-empty text, or vectors (n_i, d).
        exclude : (n_queries,), optional
            The document that each query must not find, such as its own: ids (None for none) or numbers (-1 for none).

        Raises
        ------
        InputError
            If arguments do not fit together, a query document or paragraph is empty, or a document is unknown.
        """
        if len(query_ids) != len(paragraphs):
            raise InputError(f"expected {len(paragraphs)} query_ids, one per query document, found {len(query_ids)}")
        excluded = self.index.excluded(exclude, len(paragraphs))
        _check_paragraphs(query_ids, paragraphs)
        parts = slices(np.array([_length(query) for query in paragraphs]), _PARAGRAPHS_PER_SEARCH)
        return Run.joined(
            [self.aggregate(query_ids[part], self._search(paragraphs[part], excluded[part])) for part in parts]
        )

    def search(
        self,
        paragraphs: Sequence[Paragraphs],
        *,
        exclude: Exclude | None = None,
        query_ids: Sequence[str] | None = None,
    ) -> ParagraphHits:
        """Return the hits of all paragraphs, for several aggregations; parameters as in :meth:`rank`."""
        _check_paragraphs([str(i) for i in range(len(paragraphs))] if query_ids is None else query_ids, paragraphs)
        return self._search(paragraphs, self.index.excluded(exclude, len(paragraphs)))

    def _search(self, paragraphs: Sequence[Paragraphs], excluded: Exclusion) -> ParagraphHits:
        lengths = [_length(query) for query in paragraphs]
        offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
        excluded, index = excluded[np.repeat(np.arange(len(lengths)), lengths)], self.index
        k = min(self.options["n_hits"], len(index))
        texts = [text for query in paragraphs for text in query] if _are_texts(paragraphs) else None
        if isinstance(index, AnyBM25):
            if texts is None:
                raise InputError("a BM25 index needs 'paragraphs' as texts, found vectors")
            return ParagraphHits(index.search(texts, k, exclude=excluded), offsets, None, index)
        vectors = self._vectors(index, paragraphs, texts)
        hits = index.search(vectors, k, exclude=excluded)
        return ParagraphHits(hits, offsets, Vectors(index.vectors, vectors), index)

    def _vectors(self, index: AnyPassageIndex, paragraphs: Sequence[Paragraphs], texts: list[str] | None) -> Any:
        if texts is not None:
            if self.encoder is None:
                raise InputError("paragraphs as texts need an encoder; give ParagraphSearch(encoder=…), or vectors")
            vectors = encode_queries(self.encoder, texts)
            return vectors if sparse.issparse(vectors) else to_device(vectors, index.device)
        if not len(paragraphs):
            return np.empty((0, index.dim), dtype=np.float32)
        if sparse.issparse(paragraphs[0]):
            return sparse.vstack(list(paragraphs), format="csr")
        if all(device_of(query).is_cpu for query in paragraphs):
            arrays = [to_numpy(query).astype(np.float32, copy=False) for query in paragraphs]
            return to_device(np.concatenate(arrays), index.device)
        with index.device.current():
            on_device = [placed(query, index.device, "paragraph vectors") for query in paragraphs]
            return index.device.xp.concatenate([query.astype(np.float32, copy=False) for query in on_device])

    def aggregate(self, query_ids: Sequence[str], found: ParagraphHits) -> Run:
        """Aggregate the hits of :meth:`search` to a run."""
        if isinstance(found.index, SegmentedPassages) and find_aggregation(self.aggregation).vectors is not None:
            parts = slices(np.diff(found.offsets), _PARAGRAPHS_IN_MEMORY)
            return Run.joined([self.aggregate(query_ids[part], found.loaded(part)) for part in parts])
        options = {"vectors": found.vectors, "k": self.k, **self.options}
        return rank_documents(found.index, found.hits, query_ids, self.aggregation, found.offsets, **options)

    def explain(
        self,
        paragraphs: Paragraphs,
        doc_id: str,
        *,
        exclude: str | None = None,
        passage_texts: Any = None,
        found: ParagraphHits | None = None,
        scored: Any = None,
    ) -> ParagraphExplanation:
        """Explain the score of a document for one query document.

        Parameters
        ----------
        paragraphs, exclude
            The query document, as in :meth:`rank`.
        doc_id : str
        passage_texts : (n_passages,) sequence of str, optional
            The texts of all passages of the index, to be shown in the explanation.
        found : ParagraphHits, optional
            The hits of the query document, to save a search.
        scored : optional
            What :meth:`score` returns for these hits, to save that too.
        """
        document = int(self.index.document_numbers([doc_id])[0])
        if found is None:
            _check_paragraphs(["the query document"], [paragraphs])
            found = self._search([paragraphs], self.index.excluded([exclude], 1))
        if isinstance(found.index, SegmentedPassages):
            found, scored = found.loaded(slice(0, 1), [document]), None
        if passage_texts is not None:
            part = passage_texts[slice(*self.index.doc_offsets[document : document + 2].tolist())]
            passage_texts = [str(text) for text in part]
        texts = list(paragraphs) if _are_texts([paragraphs]) else None
        queries = texts if found.vectors is None else found.vectors.paragraphs
        options = {"query_texts": texts, "passage_texts": passage_texts, "scored": scored, **self.options}
        return explain_document(found.index, self.aggregation, found.hits, found.vectors, queries, doc_id, **options)

    def score(self, found: ParagraphHits) -> Any:
        """Return the scores of all documents for the hits of one query document, which :meth:`explain` takes."""
        if isinstance(found.index, SegmentedPassages):
            found = found.loaded(slice(0, 1))
        with device_of(found.hits.passages).current():
            return scored_blocks(found.hits, self.aggregation, found.index, found.vectors, **self.options)


def _length(paragraphs: Paragraphs) -> int:
    return int(paragraphs.shape[0]) if hasattr(paragraphs, "shape") else len(paragraphs)


def _are_texts(paragraphs: Sequence[Paragraphs]) -> bool:
    return bool(len(paragraphs)) and isinstance(paragraphs[0][0], str)


def _check_paragraphs(query_ids: Sequence[str], paragraphs: Sequence[Paragraphs]) -> None:
    for query_id, query in zip(query_ids, paragraphs, strict=True):
        if isinstance(query, str):
            raise InputError(f"query document {query_id!r}: expected its paragraphs, found one string; split it first")
        if not _length(query):
            raise InputError(f"query document {query_id!r} must have at least one paragraph, found none")
        if isinstance(query[0], str):
            empty = [number for number, text in enumerate(query) if not text.strip()]
            if empty:
                raise InputError(
                    f"query document {query_id!r}: paragraph {empty[0]} of {len(query)} has no text; remove it"
                )
