"""What the rankers of a comparison share: indexes, vectors, hits. Each is made when first asked for, timed, kept."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, cached_property
from typing import Any

import numpy as np

from haybale.analysis import guess_language
from haybale.collections import Collection
from haybale.collections.collection import pick
from haybale.embeddings import EmbeddingStore, Encoder, cut, encode_queries, find_encoder
from haybale.embeddings.find import LEXICAL
from haybale.ensemble import SVREnsemble, feature_names, pair_features
from haybale.errors import InputError
from haybale.experiments.settings import Settings
from haybale.retrieval import BM25Index, Hits, PassageIndex, Run, Vectors, pool, rank_documents
from haybale.retrieval.hits import Ints
from haybale.vectors import Floats


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
        self.whole = collection  # as it was given
        self.collection = collection  # as it is searched: its passages may be pieces
        if self.store is not None:
            self.collection = self.store.cut(collection)
        elif settings.chunking is not None:
            self.collection = cut(collection, settings.chunking).collection
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
        return PassageIndex.from_collection(self.collection, vectors)

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
    def paragraph_hits(self) -> tuple[Hits, Vectors, Ints]:
        """Hits of every paragraph of the ranked split's queries, their vectors, and where queries begin."""
        queries, numbers = self.collection.queries, self.queries(self.settings.split)
        paragraphs = [queries.paragraphs_of(int(number)) for number in numbers]
        lengths = np.array([len(part) for part in paragraphs])
        index, encoder = self.index, self.encoder
        with self.stage("encode query paragraphs"):
            vectors = encode_queries(encoder, [text for part in paragraphs for text in part])
        self.facts["query paragraphs"] = int(lengths.sum())
        with self.stage("search query paragraphs"):
            own = np.repeat(self.own(self.settings.split), lengths)
            hits = index.search(vectors, min(len(index), self.settings.parm_hits), exclude=own)
        return hits, Vectors(index.vectors, vectors), np.concatenate(([0], np.cumsum(lengths)))

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

    # the ensemble -------------------------------------------------------------------------------------

    def check_training(self, name: str) -> None:
        """Refuse to train a ranker where there is nothing to train on but the queries it is measured with."""
        settings = self.settings
        if settings.train_split == settings.split:
            raise InputError(f"{name} would be trained and evaluated on the same split, {settings.split!r}")
        if settings.train_split not in self.collection.splits:
            raise InputError(
                f"{name} needs a split to learn from: {self.collection.name} has no split "
                f"{settings.train_split!r}, only {', '.join(self.collection.splits)}; leave {name} out"
            )

    def _ensemble(self, name: str) -> SVREnsemble:
        """A fitted ensemble: ``"svr"`` with the pool and our settings, ``"svr-paper"`` as published."""
        self.check_training(name)
        settings = self.settings
        common = {
            "rows_per_bag": settings.rows_per_bag,
            "random_state": settings.random_state,
            "n_jobs": settings.n_jobs,
            "protocol": settings.protocol,
        } | settings.ensemble
        published = name == "svr-paper"
        if not published and any("svr-blend" in ranker for ranker in settings.rankers):
            common["blend"] = True
        ensemble = SVREnsemble.as_published(**common) if published else SVREnsemble(**common)
        index, train = self.index, settings.train_split
        queries, own = self.query_vectors(train), self.own(train)
        given: dict[str, Any] = {"exclude": own}
        if not published:
            given["candidates"] = self.candidates(train, settings.train_candidates)
            if ensemble.blend or ensemble.eta:
                given["features"] = self.features(train, settings.train_candidates)
        with self.stage(f"train {name}"):
            ensemble.fit(index, queries, self.collection.relevant_ids(train), **given)
        self.facts[name] = {
            "training queries": int(queries.shape[0]),
            "candidate rows": ensemble.n_rows_,
            "bags": ensemble.n_bags,
            "rows a bag is trained on (mean)": float(np.mean(ensemble.bag_sizes_)),
            "support rows": len(ensemble.support_.coef),
            "gamma": list(ensemble.gamma_),
        }
        if ensemble.blend_ is not None:
            self.facts["svr-blend"] = {
                "out-of-bag MRR@10 of memory alone": ensemble.blend_.mrr[0],
                "out-of-bag MRR@10 with evidence": max(ensemble.blend_.mrr),
                "weights of " + ", ".join(feature_names()): ensemble.blend_.weights.tolist(),
            }
        return ensemble

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
            self.index, hits, self.query_ids, name, offsets, vectors=vectors, depth=self.settings.depth
        )
