"""What the rankers of a comparison share: indexes, vectors, hits. Each is made when first asked for, timed, kept."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, cached_property
from typing import Any

import numpy as np

from haybale.analysis import guess_language
from haybale.collections import Collection, with_paragraphs
from haybale.collections.collection import pick
from haybale.device import find_device
from haybale.embeddings import EmbeddingStore, Encoder, cut, encode_queries, find_encoder
from haybale.embeddings.find import LEXICAL
from haybale.ensemble import SVREnsemble, pair_features
from haybale.errors import InputError
from haybale.experiments.settings import Settings
from haybale.experiments.training import train
from haybale.retrieval import (
    PARM,
    BM25Index,
    Hits,
    ParagraphHits,
    PassageIndex,
    Run,
    Vectors,
    pool,
    rank_documents,
)
from haybale.retrieval.hits import Ints
from haybale.vectors import Floats, Matrix


def check_device(settings: Settings) -> None:
    """Refuse a device that is not there, and sparse vectors on one, before any work."""
    device = find_device(settings.device)
    if settings.encoder == "tfidf" and settings.store is None and settings.device != "auto" and not device.is_cpu:
        raise InputError(f"tfidf makes sparse vectors, which stay on the CPU, found device {settings.device!r}")


class Workbench:
    """One collection, one configuration. ``report(stage, seconds)`` is called when a stage is done."""

    def __init__(
        self,
        collection: Collection,
        settings: Settings,
        report: Callable[[str, float], None] = lambda stage, seconds: None,
    ) -> None:
        self.settings = settings
        self.store = None if settings.store is None else EmbeddingStore(settings.store)
        if settings.paragraphs is not None:
            collection = with_paragraphs(collection, settings.paragraphs)
        self.whole = collection  # before it is cut
        self.collection = collection  # as it is searched: its passages may be pieces
        if self.store is not None:
            self.collection = self.store.cut(collection)
        elif settings.chunking is not None:
            self.collection = cut(collection, settings.chunking).collection
        check_device(settings)
        self.seconds: dict[str, float] = {}
        self.facts: dict[str, Any] = {}  # what was found on the way and belongs into the results
        self._report = report
        # Cached per workbench, not per class: the caches die with it.
        self.query_vectors = cache(self._query_vectors)
        self.searches = cache(self._searches)
        self.candidates = cache(self._candidates)
        self.features = cache(self._features)
        self.bm25 = cache(self._bm25)
        self.ensemble = cache(self._ensemble)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Time a stage. What it needs is asked for before it begins, so that each stage counts for itself only."""
        start = time.perf_counter()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start
        self._report(name, self.seconds[name])

    # queries ------------------------------------------------------------------------------------------

    def queries(self, split: str) -> Ints:
        """(m,) numbers of the split's queries."""
        return self.collection.split(split).queries

    @cached_property
    def query_ids(self) -> list[str]:
        return pick(self.collection.queries.ids, self.queries(self.settings.split))

    def texts(self, split: str) -> list[str]:
        return self.collection.queries.texts(self.queries(split))

    def own(self, split: str) -> Ints:
        return self.collection.queries.own[self.queries(split)]

    # indexes and vectors ------------------------------------------------------------------------------

    @cached_property
    def language(self) -> str:
        sample = self.collection.passages.texts[:: max(1, self.collection.n_passages // 1000)]
        return self.settings.language or self.collection.language or guess_language(sample.to_pylist())

    def _bm25(self, unit: str) -> BM25Index:
        # Whole documents are those that were given: pieces may overlap.
        collection = self.whole if unit == "document" else self.collection
        with self.stage(f"index BM25 ({unit}s)"):
            return BM25Index.from_collection(
                collection, unit, k1=self.settings.k1, b=self.settings.b, language=self.language
            )

    @cached_property
    def passage_texts(self) -> list[str]:
        return list(self.collection.passages.texts.to_pylist())

    @cached_property
    def encoder(self) -> Encoder:
        settings = self.settings
        with self.stage("load encoder"):
            encoder = (
                self.store.encoder()
                if self.store
                else find_encoder(
                    settings.encoder,
                    width=settings.width,
                    language=self.language,
                    random_state=settings.random_state,
                    query_prompt=settings.query_prompt,
                    passage_prompt=settings.passage_prompt,
                )
            )
        if self.store is None and settings.encoder in LEXICAL:
            texts = self.passage_texts
            with self.stage(f"fit {settings.encoder}"):
                encoder.fit(texts)
        return encoder  # type: ignore[no-any-return]

    @cached_property
    def index(self) -> PassageIndex:
        if self.store is not None:
            with self.stage("read vectors"):
                vectors = self.store.vectors_of(self.collection)
        else:
            encoder, texts = self.encoder, self.passage_texts
            with self.stage("encode passages"):
                vectors = encoder.encode(texts)
        self.facts["vectors"] = list(vectors.shape)
        index = PassageIndex.from_collection(self.collection, vectors, device=self.settings.device)
        self.facts["index"] = {"device": str(index.device), "backend": index.backend_used}
        return index

    @cached_property
    def with_passages(self) -> Ints:
        """The documents that have a passage; the others have no vector."""
        return np.flatnonzero(np.diff(self.collection.passages.doc_offsets) > 0)

    @cached_property
    def first_passages(self) -> PassageIndex:
        """An index of each document's first passage."""
        index, documents = self.index, self.with_passages
        return self._of_documents(index.vectors[index.device.xp.asarray(index.doc_offsets[documents])])

    @cached_property
    def whole_documents(self) -> PassageIndex:
        """An index of each document's text as one vector; an encoder may read no more than its beginning."""
        encoder, texts = self.encoder, self.whole.document_texts()
        with self.stage("encode documents"):
            vectors = encoder.encode([texts[document] for document in self.with_passages])
        return self._of_documents(vectors)

    def _of_documents(self, vectors: Matrix) -> PassageIndex:
        ids = pick(self.collection.doc_ids, self.with_passages)
        return PassageIndex(vectors, passage_ids=ids, doc_ids=ids, device=self.settings.device)

    @cached_property
    def own_with_passages(self) -> Ints:
        """(m,) the place of each query's own document among :attr:`with_passages`, -1 for none."""
        place = np.full(self.collection.n_documents + 1, -1)  # the last is for queries without one
        place[self.with_passages] = np.arange(len(self.with_passages))
        return place[self.own(self.settings.split)]

    def _query_vectors(self, split: str) -> Floats:
        encoder = self.encoder
        with self.stage(f"encode {split} queries"):
            return encode_queries(encoder, self.texts(split))

    # hits ---------------------------------------------------------------------------------------------

    @cached_property
    def neighbours(self) -> Hits:
        """Hits of the ranked split's queries, each query one vector, as deep as a run may need."""
        index, vectors = self.index, self.query_vectors(self.settings.split)
        # MaxP wants `depth` documents; three passages for each find nearly all of them.
        k = min(len(index), max(3 * self.settings.depth, self.settings.candidates))
        with self.stage("search kNN"):
            return index.search(vectors, k, exclude=self.own(self.settings.split))

    @cached_property
    def query_paragraphs(self) -> list[list[str]]:
        """The paragraphs of each query of the ranked split."""
        queries = self.collection.queries
        paragraphs = [queries.paragraphs_of(int(number)) for number in self.queries(self.settings.split)]
        self.facts["query paragraphs"] = sum(map(len, paragraphs))
        return paragraphs

    @cached_property
    def paragraph_hits(self) -> ParagraphHits:
        """Hits of every paragraph of the ranked split's queries, their vectors, and where queries begin."""
        paragraphs, index, encoder = self.query_paragraphs, self.index, self.encoder
        with self.stage("encode query paragraphs"):
            vectors = encode_queries(encoder, [text for part in paragraphs for text in part])
        ends = np.cumsum([len(part) for part in paragraphs])
        each = [vectors[end - len(part) : end] for part, end in zip(paragraphs, ends, strict=True)]
        with self.stage("search query paragraphs"):
            return self._paragraph_hits(index, each)

    @cached_property
    def lexical_paragraph_hits(self) -> ParagraphHits:
        """The same from BM25."""
        paragraphs, index = self.query_paragraphs, self.bm25("passage")
        with self.stage("search query paragraphs (BM25)"):
            return self._paragraph_hits(index, paragraphs)

    def _paragraph_hits(self, index: PassageIndex | BM25Index, paragraphs: Sequence[Any]) -> ParagraphHits:
        parm = PARM(index, "rrf", n_hits=self.settings.parm_hits)
        return parm.search(paragraphs, exclude=self.own(self.settings.split), query_ids=self.query_ids)

    def _searches(self, split: str, k: int) -> tuple[Hits, Hits]:
        """k passages from BM25 and k neighbours of each query."""
        index, bm25, own = self.index, self.bm25("passage"), self.own(split)
        k = min(k, len(index))
        near = self.neighbours.top(k) if split == self.settings.split else None
        vectors = self.query_vectors(split)
        with self.stage(f"search candidates ({split})"):
            if near is None:
                near = index.search(vectors, k, exclude=own)
            return bm25.search(self.texts(split), k, exclude=own), near

    def _candidates(self, split: str, k: int) -> Hits:
        """The candidate pool: what either search found."""
        return pool(*self.searches(split, k))

    def _features(self, split: str, k: int) -> Floats:
        """Pair features of the pool."""
        candidates, searches = self.candidates(split, k), self.searches(split, k)
        index, vectors = self.index, self.query_vectors(split)
        with self.stage(f"pair features ({split})"):
            return pair_features(candidates, searches, index, vectors)

    # scores and runs ----------------------------------------------------------------------------------

    def _ensemble(self, name: str) -> SVREnsemble:
        """A fitted ensemble: ``"svr"`` or ``"svr-paper"``."""
        return train(self, name)

    @cached_property
    def memory(self) -> Hits:
        """The pool of the ranked split with the scores of the ensemble ``svr``, in the order of the pool."""
        settings, ensemble = self.settings, self.ensemble("svr")
        candidates, queries = self.candidates(settings.split, settings.candidates), self.query_vectors(settings.split)
        features = self.features(settings.split, settings.candidates) if ensemble.eta else None
        with self.stage("score svr"):
            return Hits(candidates.passages, ensemble.memory(queries, candidates.passages, features))

    def aggregated(self, name: str, hits: Hits, offsets: Ints | None = None, vectors: Vectors | None = None) -> Run:
        """A run from hits by one aggregation."""
        return rank_documents(
            self.index,
            hits,
            self.query_ids,
            name,
            offsets,
            vectors=vectors,
            n_hits=None if offsets is None else self.settings.parm_hits,
            depth=self.settings.depth,
        )
