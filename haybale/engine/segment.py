"""Documents that came to an engine at once, and their indexes: each opened, or made and kept, when it is asked for."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from scipy import sparse

from haybale.analysis import Analyzer, as_analyzer
from haybale.collections import Collection, Passages
from haybale.collections.collection import Ints, take_strings
from haybale.collections.saved import load_collection, save_collection
from haybale.embeddings import Chunking, EmbeddingStore, TfidfEncoder, cut, embed
from haybale.embeddings.counting import TermCounts
from haybale.embeddings.store_files import BUILDING, LOCK, MANIFEST
from haybale.errors import StoreError
from haybale.retrieval import BM25Index, PassageIndex
from haybale.retrieval.index import FILES
from haybale.timing import timed
from haybale.vectors import Matrix

INDEXES = ("bm25-passage", "bm25-document", "passages", "documents")


class Making(Protocol):
    """What the segments of an engine share."""

    folder: Path | None
    device: str | None
    store: EmbeddingStore | None

    @property
    def chunking(self) -> Chunking | None: ...
    @property
    def analyzer(self) -> Analyzer: ...
    @property
    def encoder(self) -> Any: ...
    def writing(self, folder: Path) -> AbstractContextManager[None]: ...


class Segment:
    """One batch of documents of an engine: number 0 is what it was built from."""

    def __init__(self, whole: Collection, number: int, engine: Making) -> None:
        self.whole = whole
        self.number = number
        self._engine = engine
        self._cut: Collection | None = None
        self._counts: TermCounts | None = None
        self._made: dict[str, Any] = {}

    @property
    def folder(self) -> Path | None:
        """Where it is kept; None for an engine in memory."""
        return None if self._engine.folder is None else self._engine.folder / str(self.number)

    @property
    def cut(self) -> Collection:
        """The collection as it is searched: its passages may be pieces."""
        chunking = self._engine.chunking
        if chunking is None:
            return self.whole
        if self._cut is None:
            if self.folder is not None and (self.folder / "pieces").exists():
                self._cut = load_collection(self.folder / "pieces")
            else:
                with timed("cut passages"):
                    self._cut = found = cut(self.whole, chunking)
                self._keep("pieces", lambda folder: save_collection(found, folder))
        return self._cut

    def index(self, name: str) -> Any:
        """One of the :data:`INDEXES`."""
        if name not in self._made:
            folder = None if self.folder is None else self.folder / name
            device = self._engine.device
            if folder is not None and _is_saved(folder, name):
                with timed(f"open {name}"):
                    lexical = name.startswith("bm25")
                    found = BM25Index.open(folder) if lexical else PassageIndex.open(folder, device=device)
            else:
                found = self._bm25(name) if name.startswith("bm25") else self._vectors(name)
            self._made[name] = found
            if len(self._made) == len(INDEXES):
                self._counts = None  # all that could be made of them is
        return self._made[name]

    def behind(self, index: Any, name: str) -> Any:
        """An index of the documents before with those of this segment behind them."""
        if not name.startswith("bm25"):
            new = self.index(name)
            return index.extended(new.vectors, new.doc_offsets, passage_ids=new.passage_ids, doc_ids=new.doc_ids)
        ids = self.whole.doc_ids
        if name == "bm25-document":
            texts, offsets = self.whole.document_texts(), np.arange(len(ids) + 1)
            return index.extended(texts, offsets, passage_ids=ids, doc_ids=ids)
        passages = self.cut.passages
        return index.extended(passages.texts.to_pylist(), passages.doc_offsets, passage_ids=passages.ids, doc_ids=ids)

    def counts(self, unit: str) -> TermCounts:
        """How often terms occur in each ``"passage"`` or ``"document"``: counted once, for BM25 and for TF-IDF."""
        if self._counts is None:
            with timed("count terms"):
                self._counts = TermCounts.of(self.cut.passages.texts, self._engine.analyzer)
        return self._counts if unit == "passage" else self._counts.merged(self.cut.passages.doc_offsets)

    def _bm25(self, name: str) -> BM25Index:
        unit, by_passage = name.removeprefix("bm25-"), name == "bm25-passage"
        part = self.cut if by_passage else self.whole
        ids = {"passage_ids": part.passages.ids if by_passage else part.doc_ids, "doc_ids": part.doc_ids}
        # A document's terms are those of its passages, unless these are pieces, which may overlap.
        counts = self.counts(unit) if by_passage or self._engine.chunking is None else None
        with timed(f"index BM25 ({unit}s)"):
            if counts is not None:
                index = BM25Index(counts, part.passages.doc_offsets if by_passage else None, **ids)
            else:
                index = BM25Index(part.document_texts(), analyzer=self._engine.analyzer, **ids)
        self._keep(name, index.save)
        return index

    def counted(self, encoder: Any) -> bool:
        """Whether :meth:`counts` are what an encoder would count: the same texts, analysed the same way."""
        return (
            self.number == 0
            and self._engine.chunking is None
            and type(encoder) is TfidfEncoder
            and encoder.char_ngrams is None
            and as_analyzer(encoder.analyzer or encoder.language or "none") == self._engine.analyzer
        )

    def _vectors(self, name: str) -> PassageIndex:
        part = self.cut if name == "passages" else self.whole
        encoder, store = self._engine.encoder, self._engine.store
        vectors: Matrix
        if name == "passages" and store is not None and self.number == 0:
            with timed("read vectors"):
                vectors = store.vectors_of(part)
        elif self.counted(encoder):
            counts = self.counts(name.removesuffix("s"))
            with timed(f"encode {name}"):
                vectors = encoder.encode_counts(counts)
                vectors = vectors if name == "passages" else vectors[with_passages(part)]
        elif self.folder is None or isinstance(encoder, TfidfEncoder):
            with timed(f"encode {name}"):
                vectors = encoder.encode(_texts(part, name))
        else:
            vectors = self._embedded(part, name)
        device = self._engine.device
        with timed(f"index {name}"):
            if name == "documents":
                index = one_each(vectors, part, device)
            else:
                index = PassageIndex.from_collection(part, vectors, device=device)
        if sparse.issparse(vectors):  # others are in a store
            self._keep(name, index.save)
        return index

    def _embedded(self, part: Collection, name: str) -> Matrix:
        """Dense vectors, by way of a store of embeddings in the engine's folder."""
        assert self.folder is not None
        source = part if name == "passages" else _as_passages(part)
        store = self.folder / name  # whole once it has a manifest, and ended when it is no longer building
        if not (store / MANIFEST).exists() or (store / BUILDING).exists():
            with self._engine.writing(self.folder.parent), timed(f"encode {name}"):
                embed(source, self._engine.encoder, store)
        else:
            with suppress(OSError):  # of a writer that was killed at its very end
                (store / LOCK).unlink(missing_ok=True)
        with timed("read vectors"):
            return EmbeddingStore(store).vectors_of(source)

    def _keep(self, name: str, save: Callable[[Path], None]) -> None:
        """Save into the folder, if there is one that can be written; somebody else may have been faster."""
        if self.folder is None or (self.folder / name).exists():  # an index, or a store
            return
        try:
            with self._engine.writing(self.folder.parent), timed(f"write {name}"):
                if not (self.folder / name).exists():
                    save(self.folder / name)
        except (StoreError, PermissionError):
            return  # another process writes, or nobody may: the index is in memory


def one_each(vectors: Matrix, part: Collection, device: str | None) -> PassageIndex:
    """An index of documents with one vector each; those without a passage have none."""
    offsets = np.concatenate(([0], np.cumsum(np.diff(part.passages.doc_offsets) > 0)))
    ids = {"passage_ids": take_strings(part.doc_ids, with_passages(part)), "doc_ids": part.doc_ids}
    return PassageIndex(vectors, offsets, device=device, **ids)


def with_passages(part: Collection) -> Ints:
    """The documents that have a passage; the others have no vector."""
    return np.flatnonzero(np.diff(part.passages.doc_offsets) > 0)


def _is_saved(folder: Path, name: str) -> bool:
    """Whether an index was saved there, whole or damaged since; a store of embeddings, perhaps unfinished, is none."""
    return folder.exists() and (name.startswith("bm25") or any(map(Path.exists, map(folder.joinpath, FILES))))


def _texts(part: Collection, name: str) -> list[str]:
    if name == "passages":
        return list(part.passages.texts.to_pylist())
    texts = part.document_texts()
    return [texts[document] for document in with_passages(part)]


def _as_passages(part: Collection) -> Collection:
    """The documents as a collection whose passages they are."""
    full = with_passages(part)
    ids = pa.chunked_array([pa.array(take_strings(part.doc_ids, full), type=pa.large_string())])
    texts = pa.chunked_array([pa.array(_texts(part, "documents"), type=pa.large_string())])
    passages = Passages(ids, texts, np.arange(len(full) + 1))
    titles, queries = part.doc_titles.take(pa.array(full)), part.queries.take(np.empty(0, dtype=np.int64))
    return Collection(part.name, ids, titles, passages, queries, {}, language=part.language)
