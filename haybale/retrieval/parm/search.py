"""Search with every paragraph of a query document, and one ranking of what they find."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from haybale.device import CPU, Device, device_of, placed, to_device, to_numpy
from haybale.embeddings import encode_queries
from haybale.errors import InputError
from haybale.retrieval.bm25 import BM25Index
from haybale.retrieval.hits import NO_PASSAGE, Hits, Ints
from haybale.retrieval.index import PassageIndex
from haybale.retrieval.parm.aggregate import find_aggregation, rank_documents, slices
from haybale.retrieval.parm.explanation import ParagraphExplanation, explained
from haybale.retrieval.parm.formulas import Options, Vectors
from haybale.retrieval.passages import Exclude
from haybale.retrieval.run import DEPTH, Run
from haybale.retrieval.sharded import Narrowed, ShardedIndex

Paragraphs = Sequence[str] | NDArray[Any] | Any  # texts, or their vectors (n, d), dense or CSR
_ROWS = 8192  # query paragraphs searched at once: a thousand hits of each take 100 MB


@dataclass(frozen=True)
class ParagraphHits:
    """Hits of every paragraph of some query documents; ``offsets`` (n_queries + 1,) is where documents begin.

    Hits and vectors are on the device of the index.
    """

    hits: Hits  # (n_paragraphs, N)
    offsets: Ints
    vectors: Vectors | None  # None where the index is lexical
    narrowed: Narrowed | None = None  # of a sharded index: the hits have the numbers of the index in it


class ParagraphSearch:
    """Ranks documents for query documents of one or many paragraphs.

    With an index on a device the paragraphs' vectors go there first; search and aggregation stay there, and only
    documents with their scores come back.

    Parameters
    ----------
    index : PassageIndex, ShardedIndex or BM25Index
        The last for the aggregations without vectors.
    aggregation : str, default "vrrf"
        One of :data:`~haybale.retrieval.AGGREGATIONS`.
    encoder : encoder, optional
        Turns paragraphs into vectors where they are given as texts.
    n_hits : int, default 1000
        Passages retrieved for each paragraph (N).
    rrf_k, occurrences : float, default 60; {"all", "best"}, default "all"
        As in :func:`~haybale.retrieval.aggregate`.
    k : int, default 1000
        Documents that stay of a query.

    Examples
    --------
    >>> index = PassageIndex(np.eye(3), np.array([0, 2, 3]), doc_ids=["a", "b"])
    >>> parm = ParagraphSearch(index, "rrf")
    >>> run = parm.rank(["q"], [np.array([[1.0, 0.5, 0.0], [0.0, 0.5, 0.1]])])
    >>> [(doc_id, round(score, 4)) for doc_id, score in run["q"]]
    [('a', 0.0648), ('b', 0.032)]
    """

    def __init__(
        self,
        index: PassageIndex | ShardedIndex | BM25Index,
        aggregation: str = "vrrf",
        *,
        encoder: Any = None,
        n_hits: int = 1000,
        rrf_k: float = 60,
        occurrences: str = "all",
        k: int = DEPTH,
    ) -> None:
        if find_aggregation(aggregation).vectors is not None and isinstance(index, BM25Index):
            raise InputError(f"the aggregation {aggregation!r} needs vectors, which a BM25 index lacks; take 'rrf'")
        Options(n_hits, rrf_k, occurrences)
        self.index = index
        self.aggregation = aggregation
        self.encoder = encoder
        self.n_hits = n_hits
        self.rrf_k = rrf_k
        self.occurrences = occurrences
        self.k = k

    @property
    def options(self) -> dict[str, Any]:
        """How hits are aggregated, as :func:`~haybale.retrieval.aggregate` takes it."""
        return {"rrf_k": self.rrf_k, "n_hits": self.n_hits, "occurrences": self.occurrences}

    def rank(
        self,
        query_ids: Sequence[str],
        paragraphs: Sequence[Paragraphs],
        *,
        weights: Sequence[Sequence[float]] | None = None,
        exclude: Exclude | None = None,
    ) -> Run:
        """The best documents of each query document, in batches.

        Parameters
        ----------
        query_ids : (n_queries,) str
        paragraphs : (n_queries,) sequence
            Of each a sequence of texts (with an encoder), or their vectors (n_i, d); none, or an empty one, is refused.
        weights : (n_queries,) sequence of (n_i,) float, optional
            Of each paragraph; None: 1.
        exclude : (n_queries,), optional
            A document that a query leaves out, such as its own: ids (None for none) or numbers (-1).
        """
        if len(query_ids) != len(paragraphs):
            raise InputError(f"{len(query_ids)} query ids for {len(paragraphs)} query documents")
        if weights is not None and [len(part) for part in weights] != [_length(part) for part in paragraphs]:
            raise InputError("weights must hold one number for each paragraph of each query document")
        excluded = self.index.excluded(exclude, len(paragraphs))
        _check_paragraphs(query_ids, paragraphs)
        runs = []
        for part in slices(np.array([_length(each) for each in paragraphs]), _ROWS):
            found = self._search(paragraphs[part], excluded[part])
            flat = None if weights is None else [weight for each in weights[part] for weight in each]
            runs.append(self.aggregate(query_ids[part], found, weights=flat))
        return Run.joined(runs)

    def search(
        self,
        paragraphs: Sequence[Paragraphs],
        *,
        exclude: Exclude | None = None,
        query_ids: Sequence[str] | None = None,
    ) -> ParagraphHits:
        """The hits of all paragraphs, at once; parameters as in :meth:`rank`. Aggregations may share them."""
        _check_paragraphs([str(i) for i in range(len(paragraphs))] if query_ids is None else query_ids, paragraphs)
        return self._search(paragraphs, self.index.excluded(exclude, len(paragraphs)))

    def _search(self, paragraphs: Sequence[Paragraphs], excluded: Ints) -> ParagraphHits:
        lengths = [_length(each) for each in paragraphs]
        offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int64)
        excluded = np.repeat(excluded, lengths)
        k = min(self.n_hits, len(self.index))
        texts = bool(len(paragraphs)) and isinstance(paragraphs[0][0], str)
        if isinstance(self.index, BM25Index):
            if not texts:
                raise InputError("a BM25 index is searched with the texts of paragraphs, not with vectors")
            hits = self.index.search([text for each in paragraphs for text in each], k, exclude=excluded)
            return ParagraphHits(hits, offsets, None)
        where = self.index.device if isinstance(self.index, PassageIndex) else CPU  # shards take theirs from the host
        vectors = self._vectors(paragraphs, texts, where)
        hits = self.index.search(vectors, k, exclude=excluded)
        if isinstance(self.index, ShardedIndex):  # of its vectors, those that were found are read
            narrowed = self.index.narrowed(hits)
            return ParagraphHits(narrowed.hits, offsets, Vectors(narrowed.index.vectors, vectors), narrowed)
        return ParagraphHits(hits, offsets, Vectors(self.index.vectors, vectors))

    def aggregate(
        self, query_ids: Sequence[str], found: ParagraphHits, *, weights: Sequence[float] | None = None
    ) -> Run:
        """The run that this aggregation makes of hits found before; ``weights`` (n_paragraphs,)."""
        return rank_documents(
            self.index if found.narrowed is None else found.narrowed.index,
            found.hits,
            query_ids,
            self.aggregation,
            found.offsets,
            vectors=found.vectors,
            weights=weights,
            k=self.k,
            **self.options,
        )

    def explain(self, paragraphs: Paragraphs, doc_id: str, **how: Any) -> ParagraphExplanation:
        """On which paragraphs the score of one document rests; ``how`` as in :meth:`explain_all`."""
        return self.explain_all(paragraphs, [doc_id], **how)[0]

    def explain_all(
        self,
        paragraphs: Paragraphs,
        doc_ids: Sequence[str],
        *,
        weights: Sequence[float] | None = None,
        exclude: str | None = None,
        labels: Sequence[str] | None = None,
        passage_texts: Any = None,
        found: ParagraphHits | None = None,
    ) -> list[ParagraphExplanation]:
        """The same for several documents and one query document, which is searched once.

        ``paragraphs`` of the query document; ``labels``, what they are called (default: 0, 1, …, as passages are in
        their ids); ``passage_texts`` (n_passages,), the texts of all passages of the index, for snippets; ``found``,
        its hits, if it has been searched already. The query's paragraphs are shown too where they are given as texts.
        An unknown document raises.
        """
        found = found or self.search([paragraphs], exclude=[exclude], query_ids=["the query document"])
        texts = list(paragraphs) if isinstance(paragraphs[0], str) else None
        index: Any = self.index
        if isinstance(index, ShardedIndex) and found.narrowed is not None and found.vectors is not None:
            hits = Hits(_renamed(found.hits.passages, found.narrowed.numbers), found.hits.scores)
            narrowed = index.narrowed(hits, [index.document_number(doc_id) for doc_id in doc_ids])
            index = narrowed.index
            found = ParagraphHits(narrowed.hits, found.offsets, Vectors(index.vectors, found.vectors.paragraphs))
            if passage_texts is not None:
                passage_texts = [str(passage_texts[int(number)]) for number in narrowed.numbers]
        return [
            explained(
                index,
                self.aggregation,
                found.hits,
                found.vectors,
                texts if found.vectors is None else found.vectors.paragraphs,
                doc_id,
                weights=weights,
                options=self.options,
                labels=labels,
                query_texts=texts,
                passage_texts=passage_texts,
            )
            for doc_id in doc_ids
        ]

    def _vectors(self, paragraphs: Sequence[Paragraphs], texts: bool, device: Device) -> Any:
        if texts:
            if self.encoder is None:
                raise InputError("paragraphs given as texts need an encoder; give PARM one, or vectors")
            vectors = encode_queries(self.encoder, [text for each in paragraphs for text in each])
            return vectors if sparse.issparse(vectors) else to_device(vectors, device)
        if not len(paragraphs):
            return np.empty((0, self.index.dim), dtype=np.float32)  # type: ignore[union-attr]
        if sparse.issparse(paragraphs[0]):
            return sparse.vstack(list(paragraphs), format="csr")
        if all(device_of(each).is_cpu for each in paragraphs):  # then one copy to the device is enough
            return to_device(
                np.concatenate([np.asarray(to_numpy(each), dtype=np.float32) for each in paragraphs]), device
            )
        with device.current():
            placed_there = [placed(each, device, "paragraph vectors") for each in paragraphs]
            return device.xp.concatenate([each.astype(np.float32, copy=False) for each in placed_there])


def _renamed(passages: Ints, numbers: Ints) -> Ints:
    return np.where(passages == NO_PASSAGE, NO_PASSAGE, numbers[passages])


def _length(paragraphs: Paragraphs) -> int:
    return int(paragraphs.shape[0]) if hasattr(paragraphs, "shape") else len(paragraphs)


def _check_paragraphs(query_ids: Sequence[str], paragraphs: Sequence[Paragraphs]) -> None:
    for query_id, each in zip(query_ids, paragraphs, strict=True):
        if isinstance(each, str):
            raise InputError(f"query document {query_id!r}: expected its paragraphs, found one string; split it first")
        if not _length(each):
            raise InputError(f"query document {query_id!r} has no paragraphs")
        if isinstance(each[0], str):
            empty = [number for number, text in enumerate(each) if not text.strip()]
            if empty:
                raise InputError(f"query document {query_id!r}: paragraph {empty[0]} of {len(each)} is empty")
