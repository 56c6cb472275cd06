"""What a comparison searches: a collection as it is cut, its encoder and its indexes, each made once, and timed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np

from haybale.analysis import guess_language
from haybale.collections import Collection, with_paragraphs
from haybale.collections.collection import pick
from haybale.device import find_device
from haybale.embeddings import EmbeddingStore, Encoder, cut, find_encoder
from haybale.embeddings.find import LEXICAL
from haybale.errors import InputError
from haybale.experiments.settings import Settings
from haybale.retrieval import BM25Index, PassageIndex
from haybale.retrieval.hits import Ints
from haybale.vectors import Matrix

P = ParamSpec("P")
T = TypeVar("T")
B = TypeVar("B", bound="Indexes")


def check_device(settings: Settings) -> None:
    """Refuse a device that is not there, and sparse vectors on one, before any work."""
    device = find_device(settings.device)
    if settings.encoder == "tfidf" and settings.store is None and settings.device != "auto" and not device.is_cpu:
        raise InputError(f"tfidf makes sparse vectors, which stay on the CPU, found device {settings.device!r}")


def language_of(collection: Collection) -> str:
    """The collection's language: its own, else guessed from about a thousand of its passages."""
    sample = collection.passages.texts[:: max(1, collection.n_passages // 1000)]
    return collection.language or guess_language(sample.to_pylist())


def kept(method: Callable[Concatenate[B, P], T]) -> Callable[Concatenate[B, P], T]:
    """A method whose results are kept in ``made``, by its name and its arguments: each is made once a workbench."""

    @wraps(method)
    def once(self: B, /, *args: P.args, **kwargs: P.kwargs) -> T:
        key = (method.__name__, *args, *sorted(kwargs.items()))
        if key not in self.made:
            self.made[key] = method(self, *args, **kwargs)
        return self.made[key]  # type: ignore[no-any-return]

    return once


class Indexes:
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
        self.made: dict[tuple[Any, ...], Any] = {}  # by the method's name and its arguments

    @contextmanager
    def stage(self, name: str, part: str | None = None) -> Iterator[None]:
        """Time a stage. What it needs is asked for before it begins, so that each stage counts for itself only.

        ``part``: whose queries it is about; it is named, unless it is the split that is ranked.
        """
        if part not in (None, self.settings.split):
            name = f"{name} ({part})"
        start = time.perf_counter()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start
        self._report(name, self.seconds[name])

    @cached_property
    def language(self) -> str:
        return self.settings.language or language_of(self.collection)

    @kept
    def bm25(self, unit: str) -> BM25Index:
        """Over ``"passage"`` or ``"document"``."""
        # Whole documents are those that were given: pieces may overlap.
        collection = self.whole if unit == "document" else self.collection
        (k1, b), language = self.settings.bm25_parameters(unit), self.language
        with self.stage(f"index BM25 ({unit}s)"):
            return BM25Index.from_collection(collection, unit, k1=k1, b=b, language=language)

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
