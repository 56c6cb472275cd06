"""A segment: documents added to an engine at once, with indexes that are opened or made when first needed."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from haybale.analysis import Analyzer
from haybale.arrow import free_unused
from haybale.collections import Collection
from haybale.device import find_device
from haybale.device_memory import free_cached
from haybale.embeddings import (
    Chunking,
    EmbeddingStore,
    LongformerEncoder,
    SentenceTransformerEncoder,
    embed,
    encode_texts,
)
from haybale.embeddings.store import CHUNKING
from haybale.embeddings.store_files import BUILDING, LOCK, MANIFEST
from haybale.engine.document_vectors import (
    document_encoder,
    documents_as_passages,
    documents_with_passages,
    index_documents,
)
from haybale.engine.encoder_source import EncoderSource
from haybale.engine.indexing_segments import INDEXES, open_segments, range_edges
from haybale.engine.storage import Storage
from haybale.engine.texts import Texts
from haybale.errors import InputError, StoreError
from haybale.retrieval import BM25Index, PassageIndex
from haybale.retrieval.passage_index import FILES, check_vectors_fit
from haybale.timing import timed
from haybale.vectors import Matrix


class Segment:
    """Documents added to an engine at once, with their indexes.

    The encoder of ``source`` makes vectors, except that those of passages are read from ``store`` if there is one.
    """

    def __init__(self, texts: Texts, source: EncoderSource, device: str | None, store: EmbeddingStore | None) -> None:
        self.texts, self.source, self.device, self.store = texts, source, device, store
        self._indexes: dict[str, Any] = {}

    @classmethod
    def first(
        cls,
        whole: Collection,
        settings: Mapping[str, Any],
        language: str,
        analyzer: Analyzer | None,
        *,
        encoder: Any,
        storage: Storage,
        device: str | None,
        has_saved_encoder: bool = False,
    ) -> Segment:
        """Return the segment of the documents that an engine is made from, with what all its segments share.

        ``analyzer`` is None for that of the language. ``encoder`` and ``has_saved_encoder`` are those of
        :class:`EncoderSource`.
        """
        n_segments = settings["segments"] or 1
        if n_segments > 1:
            range_edges(whole.passages.doc_offsets, n_segments)  # raises if there are fewer documents
            if settings["store"] is not None:
                raise InputError("'store' has vectors that are not in segments, so 'segments' cannot be set; omit one")
            if not find_device(device or "cpu").is_cpu:
                raise InputError(
                    f"device must be 'cpu' for an engine in {n_segments} segments, found {device!r}; omit it"
                )
        store = None if settings["store"] is None else EmbeddingStore(settings["store"])
        chunked = settings["chunking"] if store is None else store.manifest["input"]["chunking"]
        chunking = None if chunked is None else Chunking(**{name: chunked[name] for name in CHUNKING})
        terms = {"language": language} if analyzer is None else {"language": None, "analyzer": analyzer}
        texts = Texts(whole, 0, storage, analyzer or Analyzer(language), chunking, n_segments=n_segments)
        return cls(texts, EncoderSource(encoder, texts, terms, storage, store, has_saved_encoder), device, store)

    def later(self, whole: Collection, number: int) -> Segment:
        """Return a segment of documents that were added later. In a folder, they have been written already."""
        texts = replace(self.texts, whole=whole, number=number, n_segments=1, mark=self.texts.storage.mark(number))
        return Segment(texts, self.source, self.device, None)

    def index(self, name: str) -> Any:
        """Return one of the :data:`INDEXES`; open or make it if necessary."""
        if name not in self._indexes:
            make: Any = self._bm25 if name.startswith("bm25") else self._vectors
            with self.texts.storage.unchanged(self.texts.number):
                made = open_segments(name, self.texts) if self.texts.n_segments > 1 else make(name)
            self._indexes[name] = made
            if len(self._indexes) == len(INDEXES):
                self.texts.forget_counts()
        return self._indexes[name]

    def write_indexes(self) -> None:
        """Make the missing indexes that are kept in the folder; of added documents, only those of vectors are kept.

        The indexes of parts were written when the engine was built. An index of the first documents leaves memory when
        it has been written, so that one is held at a time.
        """
        if self.texts.n_segments > 1:
            return
        for name in INDEXES[2:] if self.texts.number else INDEXES:
            folder = self.texts.folder(name)
            if folder is not None and not _is_finished(folder):
                free_unused()  # that of the texts of which the engine was built, and of earlier indexes
                self.index(name)
                if not self.texts.number and _is_finished(folder):
                    del self._indexes[name]
        if not self.texts.number:
            self.texts.forget_counts()

    def extend_index(self, index: Any, name: str) -> Any:
        """Append the documents of this segment to an index of earlier segments, whose ids they may repeat."""
        if not name.startswith("bm25"):
            new = self.index(name)
            ids = {"passage_ids": new.passage_ids, "doc_ids": new.doc_ids}
            return index.extended(new.vectors, new.doc_offsets, **ids, distinct=False)
        doc_ids = self.texts.whole.doc_ids
        if name == "bm25-document":
            documents, offsets = self.texts.whole.document_texts(), np.arange(len(doc_ids) + 1)
            return index.extended(documents, offsets, passage_ids=doc_ids, doc_ids=doc_ids, distinct=False)
        passages = self.texts.indexed.passages
        ids = {"passage_ids": passages.ids, "doc_ids": doc_ids}
        return index.extended(passages.texts.to_pylist(), passages.doc_offsets, **ids, distinct=False)

    def _bm25(self, name: str) -> BM25Index:
        texts, by_passage, folder = self.texts, name == "bm25-passage", self.texts.folder(name)
        if folder is not None and folder.exists():
            with timed(f"open {name}"):
                return BM25Index.open(folder)
        unit = "passage" if by_passage else "document"
        part = texts.indexed if by_passage else texts.whole
        ids = {"passage_ids": part.passages.ids if by_passage else part.doc_ids, "doc_ids": part.doc_ids}
        # A document's counts are the sums over its passages, but not over pieces, which may overlap.
        counts = texts.counts(unit) if by_passage or texts.chunking is None else None
        with timed(f"index BM25 ({unit}s)"):
            if counts is not None:
                index = BM25Index(counts, part.passages.doc_offsets if by_passage else None, **ids)
            else:
                index = BM25Index(part.document_texts(), analyzer=texts.analyzer, **ids)
        texts.storage.save_if_writable(folder, index.save)
        return index

    def _vectors(self, name: str) -> PassageIndex:
        folder = self.texts.folder(name)
        if folder is not None and any((folder / file).exists() for file in FILES):  # an index, not an embedding store
            with timed(f"open {name}"):
                return PassageIndex.open(folder, device=self.device)
        part = self.texts.indexed if name == "passages" else self.texts.whole
        vectors: Matrix
        if name == "passages" and self.store is not None:
            with timed("read vectors"):
                vectors = _vectors_of(self.store, part)
        elif self.texts.has_counts_for(encoder := self.source.encoder):
            counts = self.texts.counts(name.removesuffix("s"))
            with timed(f"encode {name}"):
                vectors = encoder.tfidf_rows(counts)
                vectors = vectors if name == "passages" else vectors[documents_with_passages(part)]
        else:
            by_passage = name == "passages"
            self._check_fits(encoder, len(part.passages.texts) if by_passage else len(documents_with_passages(part)))
            source = part if name == "passages" else documents_as_passages(part)
            if folder is None or getattr(encoder, "is_sparse", False):
                with timed(f"encode {name}"):
                    vectors = encode_texts(self._encoder_of(name), source.passages.texts.to_pylist())
            else:
                vectors = self._embed(source, folder)
        device = find_device(self.device or "cpu")
        if not device.is_cpu:
            free_cached()  # memory of the encoder
        with timed(f"index {name}", device):
            if name == "documents":
                index = index_documents(vectors, part, self.device)
            else:
                index = PassageIndex.from_collection(part, vectors, device=self.device)
        if index.is_sparse:  # dense vectors are in an embedding store
            self.texts.storage.save_if_writable(folder, index.save)
        return index

    def _check_fits(self, encoder: Any, n_vectors: int) -> None:
        """Raise DeviceError before texts are encoded if their vectors will not fit the device."""
        device = find_device(self.device or "cpu")
        if not device.is_cpu and isinstance(encoder, SentenceTransformerEncoder | LongformerEncoder):
            check_vectors_fit((n_vectors, encoder.dim), device)

    def _encoder_of(self, name: str) -> Any:
        """Return the encoder for an index; one of documents reuses the vectors of passages, if these have been made."""
        encoder, folder = self.source.encoder, self.texts.folder("passages")
        has_vectors = "passages" in self._indexes or (folder is not None and _is_finished(folder))
        if name == "passages" or not has_vectors or self.store is not None:
            return encoder
        return document_encoder(encoder, self.texts.indexed, lambda: self.index("passages"))

    def _embed(self, source: Collection, folder: Path) -> Matrix:
        """Return dense vectors from an embedding store; complete the store first if necessary."""
        if not _is_finished(folder):
            work = f"the vectors of {folder.name}, which were missing"
            with self.texts.storage.writing(work), timed(f"encode {folder.name}"):
                embed(source, self._encoder_of(folder.name), folder)
        else:
            with suppress(OSError):  # left behind by a writer that was killed before it ended
                (folder / LOCK).unlink(missing_ok=True)
        with timed("read vectors"):
            return EmbeddingStore(folder).vectors_of(source)


def has_finished_index(segment: Segment, name: str) -> bool:
    """Return whether the folder of a segment has a whole index, or embedding store, of a name."""
    folder = segment.texts.folder(name)
    return folder is not None and _is_finished(folder)


def _vectors_of(store: EmbeddingStore, part: Collection) -> Matrix:
    """Return the vectors of a store that the engine opened earlier; StoreError if another is there by now."""
    vectors = store.vectors_of(part)
    if EmbeddingStore(store.path).manifest != store.manifest:
        raise StoreError(f"{store.path}: expected the store that was opened, found another one; open the engine again")
    return vectors


def _is_finished(folder: Path) -> bool:
    """Return whether the folder holds a whole index or embedding store."""
    return (folder / MANIFEST).exists() and not (folder / BUILDING).exists()
