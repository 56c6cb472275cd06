"""The documents of an engine at one moment, with their indexes: all of them, or a view of some."""

from __future__ import annotations

import hashlib
import json
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial, reduce
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from haybale.arrow import text_array
from haybale.cached import cached_property
from haybale.collections import Collection
from haybale.collections.collection import Ints, Strings
from haybale.collections.ids import latest_with_id, places_of
from haybale.device import to_device
from haybale.engine.added_judgements import AddedJudgements
from haybale.engine.changed_metadata import ChangedMetadata, Metadata
from haybale.engine.document_filter import DocumentFilter
from haybale.engine.document_vectors import documents_with_passages, index_documents
from haybale.engine.indexing_segments import UNITS
from haybale.engine.segment import Segment
from haybale.errors import InputError
from haybale.retrieval import AnyBM25, AnyPassageIndex

_MAX_CACHED_VALUES = 8  # in the cache of rankers

T = TypeVar("T")


class Documents(ABC):
    """Documents that never change, with their indexes, each made by one thread when it is first needed."""

    def __init__(self, device: str | None) -> None:
        self.device = device
        # Held while an index or a collection is made. A thread that also needs the lock of the storage takes that
        # lock second, because a change of the engine holds it.
        self._lock = threading.RLock()
        self._digest: str | None = None
        self._collections: dict[str, Collection] = {}
        self._indexes: dict[str, Any] = {}
        self._cache: dict[Any, Any] = {}  # the most recently used value is last
        self._cache_lock = threading.Lock()
        self.duplicates: Any = None  # haybale.engine.duplicates.Duplicates, when they have been found

    @abstractmethod
    def _make_collection(self) -> Collection:
        """Make :attr:`collection`."""

    @abstractmethod
    def _make_index(self, name: str) -> Any:
        """Make an index of the documents."""

    def digest(self, engine: Sequence[Any]) -> str:
        """Return a digest of the documents of an engine in a folder, and of ``engine``: values that identify it.

        They are the same in every call.
        """
        if self._digest is None:
            self._digest = self._make_digest(engine)
        return self._digest

    @abstractmethod
    def _make_digest(self, engine: Sequence[Any]) -> str:
        """Make the :meth:`digest`."""

    @property
    @abstractmethod
    def whole(self) -> Collection:
        """The documents before passages are cut into pieces."""

    @property
    def collection(self) -> Collection:
        """The documents as indexed."""
        return self._made_once(self._collections, "collection", self._make_collection)

    def index(self, name: str) -> Any:
        """Return an index of segments, or ``"first-passages"``; make it if necessary."""
        make = self._first_passages if name == "first-passages" else partial(self._make_index, name)
        return self._made_once(self._indexes, name, make)

    def bm25(self, unit: str, k1: float | None, b: float | None, k3: float | None) -> AnyBM25:
        """Return the BM25 index of one of the :data:`UNITS`; None stands for the parameter that the index has."""
        if unit not in UNITS:
            raise InputError(f"unit must be 'passage' or 'document', found {unit!r}")
        index: AnyBM25 = self.index(f"bm25-{unit}")
        k1, b = index.k1 if k1 is None else k1, index.b if b is None else b
        if (k1, b) != (index.k1, index.b):
            index = self.cached((unit, k1, b), lambda: index.with_parameters(k1, b))
        return index if k3 is None else self.cached((unit, k1, b, k3), lambda: index.with_parameters(k1, b, k3))

    def _made_once(self, made: dict[str, T], name: str, make: Callable[[], T]) -> T:
        """Return a collection or index by its name, and make it first if necessary; only making it takes the lock."""
        if name not in made:
            with self._lock:
                if name not in made:
                    made[name] = make()
        return made[name]

    @cached_property
    def filter(self) -> DocumentFilter:
        """Finds documents by their metadata."""
        return DocumentFilter(self.whole.documents_table())

    def chosen(self, documents: Sequence[str] | NDArray[np.bool_] | None, where: str | None) -> Ints:
        """Return the ascending numbers (n,) of the documents, given by ids or a mask, that fulfil a condition."""
        n = self.collection.n_documents
        ids_or_mask = np.asarray(np.ones(n, dtype=bool) if documents is None else documents)
        if documents is None or ids_or_mask.dtype == bool:
            if ids_or_mask.shape != (n,):
                raise InputError(f"a mask must have one entry per document, {n}, found shape {ids_or_mask.shape}")
            numbers = np.flatnonzero(ids_or_mask)
        else:
            numbers = np.unique(self.collection.document_numbers(documents))
        if where is not None:
            numbers = np.intersect1d(numbers, self.filter.numbers(where), assume_unique=True)
        if not np.diff(self.collection.passages.doc_offsets)[numbers].any():
            chosen = f"{len(numbers)} chosen documents" + ("" if where is None else f" where {where!r}")
            raise InputError(f"none of the {chosen} has a passage to search within; choose at least one")
        return numbers

    @property
    def made(self) -> set[str]:
        """The names of the indexes that have been made or opened so far."""
        return set(self._indexes)

    def cached(self, key: Any, make: Callable[[], T]) -> T:
        """Return the value cached for a key, or make it. The eight most recently used values are kept."""
        with self._cache_lock:
            if key in self._cache:
                self._cache[key] = value = self._cache.pop(key)
                return value  # type: ignore[no-any-return]
        with self._lock:
            made: T = self._cache[key] if key in self._cache else make()
            with self._cache_lock:
                self._cache[key] = made
                if len(self._cache) > _MAX_CACHED_VALUES:
                    del self._cache[next(iter(self._cache))]
            return made

    def _first_passages(self) -> AnyPassageIndex:
        index = self.index("passages")
        rows = index.doc_offsets[documents_with_passages(self.collection)]
        return index_documents(index.vectors[to_device(rows, index.search_device)], self.collection, self.device)


class Snapshot(Documents):
    """The documents of some segments, without the ``removed`` ones. A change of an engine makes a new snapshot.

    Of several documents with one id, the last replaces the others: they are hidden. ``indexes``, by name, and
    ``all_documents`` contain hidden documents, too, which still count in the statistics of the indexes. ``judgements``
    are those that were added to the engine, ``metadata`` is the metadata that changed after documents were added.
    """

    def __init__(
        self,
        segments: Sequence[Segment],
        removed: Iterable[str] = (),
        indexes: Mapping[str, Any] | None = None,
        all_documents: Collection | None = None,
        judgements: AddedJudgements | None = None,
        metadata: ChangedMetadata | None = None,
    ) -> None:
        super().__init__(segments[0].device)
        self.judgements, self.metadata = judgements or AddedJudgements(), metadata
        self.segments, self.removed = tuple(segments), sorted(set(removed))
        self._unfiltered = dict(indexes or {})
        self.all_documents = all_documents or _joined([segment.texts.whole for segment in segments])
        ids, n_first = self.all_documents.doc_ids, segments[0].texts.whole.n_documents
        self._latest = latest_with_id(ids, n_first)  # the last document with the id of each one; None if no id repeats
        self.kept: Ints | None = None  # numbers of the documents that are not hidden; None for all
        if self.removed or self._latest is not None:
            numbers = np.arange(len(ids))
            hidden = np.flatnonzero(self._latest != numbers) if self._latest is not None else numbers[:0]
            gone = places_of(ids, text_array(self.removed))
            self.kept = np.setdiff1d(numbers, np.concatenate([hidden, gone]))
            if not np.diff(self.all_documents.passages.doc_offsets)[self.kept].any():
                n = len(self.removed)
                raise InputError(f"an engine needs a document with a passage: {n} removals leave none; remove fewer")
        self._whole = self._present(self.all_documents)

    @property
    def whole(self) -> Collection:
        return self._whole

    def _make_collection(self) -> Collection:
        if self.segments[0].texts.chunking is None:
            return self.whole
        return self._present(_joined([segment.texts.indexed for segment in self.segments]))

    def _present(self, documents: Collection) -> Collection:
        """Return the documents that are not hidden, with changed metadata and the judgements that were added."""
        present = documents if self.kept is None else documents.take(self.kept, self._latest)
        return self.judgements.onto(present if self.metadata is None else self.metadata.onto(present))

    @property
    def made(self) -> set[str]:
        """The names of the indexes that have been made or opened so far."""
        return {*self._indexes, *self._unfiltered}

    def _make_digest(self, engine: Sequence[Any]) -> str:
        sha256 = hashlib.sha256(json.dumps([*engine, self.removed], sort_keys=True).encode())
        for segment in self.segments:
            sha256.update(segment.texts.mark or b"")
        return sha256.hexdigest()

    def changed(self, segments: Sequence[Segment], removed: Iterable[str]) -> Snapshot:
        """Return a snapshot with more segments, without the ``removed`` documents; existing indexes are extended."""
        grown, documents = dict(self._unfiltered), self.all_documents
        for segment in segments:
            grown = {name: segment.extend_index(index, name) for name, index in grown.items()}
            documents = documents.extended(segment.texts.whole, distinct=False)
        added = [doc_id for segment in segments for doc_id in segment.texts.whole.doc_ids.to_pylist()]
        metadata = None if self.metadata is None else self.metadata.without(added)
        return Snapshot([*self.segments, *segments], removed, grown, documents, self.judgements, metadata)

    def judged(self, judgements: AddedJudgements) -> Snapshot:
        """Return a snapshot of the same documents with other added judgements; it shares the indexes."""
        return self._same_documents(judgements, self.metadata)

    def described(self, metadata: ChangedMetadata | None) -> Snapshot:
        """Return a snapshot of the same documents with other metadata; it shares the indexes."""
        return self._same_documents(self.judgements, metadata)

    def with_metadata(self, values: Metadata) -> Snapshot:
        """Return a snapshot of the same documents with further metadata, by document id and column."""
        return self.described(ChangedMetadata.of(self.whole, values)) if values else self

    def with_segments(self, segments: Sequence[Segment]) -> Snapshot:
        """Return a snapshot of the same documents in other segments; it shares the indexes.

        Indexes in parts are made anew when they are needed, since they have a part for each addition.
        """
        in_segments = segments[0].texts.n_segments > 1
        indexes = {} if in_segments else self._unfiltered
        snapshot = Snapshot(segments, self.removed, indexes, self.all_documents, self.judgements, self.metadata)
        if not in_segments:
            snapshot._indexes |= self._indexes
        snapshot._collections |= self._collections
        return snapshot

    def _same_documents(self, judgements: AddedJudgements, metadata: ChangedMetadata | None) -> Snapshot:
        snapshot = Snapshot(self.segments, self.removed, self._unfiltered, self.all_documents, judgements, metadata)
        snapshot._indexes |= self._indexes
        snapshot.duplicates = self.duplicates if metadata is self.metadata else None
        return snapshot

    def check_new(self, added: Collection, *, replace: bool) -> Ints:
        """Return the numbers, in :attr:`whole`, of the documents that ``added`` replaces.

        Raises InputError for ids that are taken: those of documents unless ``replace``, and those that passages and
        sections of other documents have.
        """
        whole = self.whole
        replaced = places_of(whole.doc_ids, added.doc_ids)
        if not replace:
            how = "call replace() or use haybale add --replace"
            if len(replaced):
                doc_id = whole.doc_ids[int(replaced[0])].as_py()
                raise InputError(f"expected new document ids, found {doc_id!r} of the engine; {how} to replace it")
            gone = places_of(text_array(self.removed), added.doc_ids)
            if len(gone):
                doc_id = self.removed[int(gone[0])]
                raise InputError(f"expected new document ids, found {doc_id!r} of a removed document; {how} to add it")
        stays = np.ones(whole.n_documents, dtype=bool)
        stays[replaced] = False
        for kind in ("passage", "section"):
            (ids, offsets), (new, _) = (_ids_of(part, kind) for part in (whole, added))
            taken = places_of(ids, new)
            taken = taken[stays[np.searchsorted(offsets, taken, side="right") - 1]]
            if len(taken):
                taken_id = ids[int(taken[0])].as_py()
                raise InputError(f"expected new {kind} ids, found {taken_id!r} of another document; rename it")
        return replaced

    def _make_index(self, name: str) -> Any:
        if name not in self._unfiltered:
            with self.segments[0].texts.storage.lock:
                if name not in self._unfiltered:
                    index = self.segments[0].index(name)
                    for segment in self.segments[1:]:
                        index = segment.extend_index(index, name)
                    self._unfiltered[name] = index
        index = self._unfiltered[name]
        return index if self.kept is None else index.take(self.kept)


class View(Documents):
    """Some documents of a parent, given by their rising ``numbers`` there; their vectors and term weights stay."""

    def __init__(self, parent: Documents, numbers: Ints) -> None:
        super().__init__(parent.device)
        self.parent, self.numbers = parent, numbers

    @property
    def whole(self) -> Collection:
        return self._made_once(self._collections, "whole", lambda: self.parent.whole.take(self.numbers))

    def _make_collection(self) -> Collection:
        return self.parent.collection.take(self.numbers)

    def _make_index(self, name: str) -> Any:
        return self.parent.index(name).take(self.numbers)

    def _make_digest(self, engine: Sequence[Any]) -> str:
        sha256 = hashlib.sha256(self.parent.digest(engine).encode())
        sha256.update(np.ascontiguousarray(self.numbers).data)
        return sha256.hexdigest()

    def numbers_of(self, documents: Ints) -> Ints:
        """Convert document numbers of the parent, (n,), to those of the view; -1 for documents that it lacks."""
        numbers = np.full(self.parent.collection.n_documents + 1, -1)
        numbers[self.numbers] = np.arange(len(self.numbers))
        return numbers[documents]


def _joined(parts: Sequence[Collection]) -> Collection:
    """Return the documents of several collections as one; ids may repeat."""
    return reduce(lambda one, other: one.extended(other, distinct=False), parts)


def _ids_of(documents: Collection, kind: str) -> tuple[Strings, Ints]:
    """Return the ids of passages or sections, and where those of each document begin."""
    part = documents.passages if kind == "passage" else documents.sections
    if part is None:
        return documents.doc_ids[:0], np.zeros(documents.n_documents + 1, dtype=np.int64)
    return part.ids, part.doc_offsets
