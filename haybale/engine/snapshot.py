"""The documents of an engine at one moment, with their indexes: all of them, or a view of some."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, reduce
from typing import Any, TypeVar

import numpy as np

from haybale.collections import Collection
from haybale.collections.collection import Ints
from haybale.engine.segment import Segment, documents_with_passages, index_documents
from haybale.errors import InputError
from haybale.retrieval import PassageIndex

_MAX_CACHED = 8  # number of values in the cache of rankers

T = TypeVar("T")


class Documents(ABC):
    """Documents with their indexes, each made when it is first needed."""

    def __init__(self, lock: threading.RLock, device: str | None) -> None:
        self.lock, self.device = lock, device
        self._indexes: dict[str, Any] = {}
        self._cache: dict[Any, Any] = {}  # the most recently used value is last

    @property
    @abstractmethod
    def whole(self) -> Collection:
        """The documents before passages are cut into pieces."""

    @property
    @abstractmethod
    def collection(self) -> Collection:
        """The documents as indexed."""

    @abstractmethod
    def _make_index(self, name: str) -> Any:
        """Make an index of the documents."""

    def index(self, name: str) -> Any:
        """Return an index of segments, or ``"first-passages"``; make it if necessary."""
        with self.lock:
            if name not in self._indexes:
                self._indexes[name] = self._first_passages() if name == "first-passages" else self._make_index(name)
            return self._indexes[name]

    @property
    def made(self) -> set[str]:
        """The names of the indexes that have been made or opened so far."""
        return set(self._indexes)

    def cached(self, key: Any, make: Callable[[], T]) -> T:
        """Return the value cached for a key, or make it. The eight most recently used values are kept."""
        with self.lock:
            found: T = self._cache.pop(key) if key in self._cache else make()
            self._cache[key] = found
            if len(self._cache) > _MAX_CACHED:
                del self._cache[next(iter(self._cache))]
            return found

    def _first_passages(self) -> PassageIndex:
        index = self.index("passages")
        rows = index.doc_offsets[documents_with_passages(self.collection)]
        return index_documents(index.vectors[index.device.xp.asarray(rows)], self.collection, self.device)


class Snapshot(Documents):
    """All documents of some segments except the ``removed`` ones. Adding and removing make a new snapshot.

    ``indexes``, by name, are over all documents of the segments, including removed ones.
    """

    def __init__(
        self, segments: Sequence[Segment], removed: Iterable[str] = (), indexes: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(segments[0].texts.storage.lock, segments[0].device)
        self.segments, self.removed = tuple(segments), sorted(removed)
        self._unfiltered = dict(indexes or {})
        self.all_documents = reduce(Collection.extended, (segment.texts.whole for segment in segments))
        self._kept: Ints | None = None  # numbers of the documents that are not removed; None for all
        if self.removed:
            numbers = self.all_documents.document_numbers(self.removed)
            self._kept = np.setdiff1d(np.arange(self.all_documents.n_documents), numbers)
            if not np.diff(self.all_documents.passages.doc_offsets)[self._kept].any():
                n = len(self.removed)
                raise InputError(f"an engine needs a document with a passage: {n} removals leave none; remove fewer")

    @cached_property
    def whole(self) -> Collection:
        return self.all_documents if self._kept is None else self.all_documents.take(self._kept)

    @cached_property
    def collection(self) -> Collection:
        if self.segments[0].texts.chunking is None:
            return self.whole
        found = reduce(Collection.extended, (segment.texts.indexed for segment in self.segments))
        return found if self._kept is None else found.take(self._kept)

    @property
    def made(self) -> set[str]:
        """The names of the indexes that have been made or opened so far."""
        return {*self._indexes, *self._unfiltered}

    def with_segment(self, segment: Segment) -> Snapshot:
        """Return a snapshot with one more segment; existing indexes are extended by its documents."""
        grown = {name: segment.extend_index(index, name) for name, index in self._unfiltered.items()}
        return Snapshot([*self.segments, segment], self.removed, grown)

    def with_removed(self, doc_ids: Iterable[str]) -> Snapshot:
        """Return a snapshot without some documents, which still count in the statistics of the indexes."""
        return Snapshot(self.segments, {*self.removed, *doc_ids}, self._unfiltered)

    def _make_index(self, name: str) -> Any:
        if name not in self._unfiltered:
            index = self.segments[0].index(name)
            for segment in self.segments[1:]:
                index = segment.extend_index(index, name)
            self._unfiltered[name] = index
        index = self._unfiltered[name]
        return index if self._kept is None else index.take(self._kept)


class View(Documents):
    """Some documents of a parent, given by their rising ``numbers`` there; their scores are those of the parent."""

    def __init__(self, parent: Documents, numbers: Ints) -> None:
        super().__init__(threading.RLock(), parent.device)
        self.parent, self.numbers = parent, numbers

    @cached_property
    def whole(self) -> Collection:
        return self.parent.whole.take(self.numbers)

    @cached_property
    def collection(self) -> Collection:
        return self.parent.collection.take(self.numbers)

    def _make_index(self, name: str) -> Any:
        return self.parent.index(name).take(self.numbers)
