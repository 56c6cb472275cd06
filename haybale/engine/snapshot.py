"""The documents that an engine has at one moment, with their indexes: all of them, or a view of some."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, reduce
from typing import Any, TypeVar

import numpy as np

from haybale.collections import Collection
from haybale.collections.collection import Ints
from haybale.engine.segment import Segment, one_each, with_passages
from haybale.errors import InputError
from haybale.retrieval import PassageIndex

_DERIVED = 8  # of what rankers derive from the indexes, the most recently used are kept

T = TypeVar("T")


class Documents(ABC):
    """Documents with the indexes over them, which are made when they are first needed, and kept."""

    def __init__(self, lock: threading.RLock, device: str | None) -> None:
        self.lock, self.device = lock, device
        self._indexes: dict[str, Any] = {}
        self._derived: dict[Any, Any] = {}

    @property
    @abstractmethod
    def whole(self) -> Collection:
        """The documents before passages are cut into pieces."""

    @property
    @abstractmethod
    def collection(self) -> Collection:
        """The documents as indexed."""

    @abstractmethod
    def _made(self, name: str) -> Any:
        """Make an index over the documents."""

    def index(self, name: str) -> Any:
        """Return an index: one that segments have, or ``"first-passages"``."""
        with self.lock:
            if name not in self._indexes:
                self._indexes[name] = self._first_passages() if name == "first-passages" else self._made(name)
            return self._indexes[name]

    @property
    def made(self) -> set[str]:
        """The names of the indexes that have been made or opened so far."""
        return set(self._indexes)

    def cached(self, key: Any, make: Callable[[], T]) -> T:
        """Return what was made for a key, or make it; the eight most recently used values are kept."""
        with self.lock:
            found: T = self._derived.pop(key) if key in self._derived else make()
            self._derived[key] = found  # puts it last
            if len(self._derived) > _DERIVED:
                del self._derived[next(iter(self._derived))]
            return found

    def _first_passages(self) -> PassageIndex:
        index = self.index("passages")
        rows = index.doc_offsets[with_passages(self.collection)]
        return one_each(index.vectors[index.device.xp.asarray(rows)], self.collection, self.device)


class Snapshot(Documents):
    """All documents of some segments but the ``removed`` ones. Adding and removing make a new snapshot.

    ``indexes`` are over all documents of the segments, removed ones included, by name.
    """

    def __init__(
        self, segments: Sequence[Segment], removed: Iterable[str] = (), indexes: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(segments[0].texts.storage.lock, segments[0].device)
        self.segments, self.removed = tuple(segments), sorted(removed)
        self._over_all = dict(indexes or {})
        self.everything = reduce(Collection.extended, (segment.texts.whole for segment in segments))
        self._kept: Ints | None = None  # the numbers of the documents that are not removed; None: all
        if self.removed:
            gone = self.everything.document_numbers(self.removed)
            self._kept = np.setdiff1d(np.arange(self.everything.n_documents), gone)
            if not np.diff(self.everything.passages.doc_offsets)[self._kept].any():
                raise InputError("an engine without a document that has a passage cannot be searched")

    @cached_property
    def whole(self) -> Collection:
        return self.everything if self._kept is None else self.everything.take(self._kept)

    @cached_property
    def collection(self) -> Collection:
        if self.segments[0].texts.chunking is None:
            return self.whole
        found = reduce(Collection.extended, (segment.texts.cut for segment in self.segments))
        return found if self._kept is None else found.take(self._kept)

    @property
    def made(self) -> set[str]:
        """The names of the indexes that have been made or opened so far."""
        return {*self._indexes, *self._over_all}

    def added(self, segment: Segment) -> Snapshot:
        """Return a snapshot with one more segment; indexes that are made are extended by its documents."""
        grown = {name: segment.behind(index, name) for name, index in self._over_all.items()}
        return Snapshot([*self.segments, segment], self.removed, grown)

    def without(self, doc_ids: Iterable[str]) -> Snapshot:
        """Return a snapshot without some documents, whose statistics still count in the indexes."""
        return Snapshot(self.segments, {*self.removed, *doc_ids}, self._over_all)

    def _made(self, name: str) -> Any:
        if name not in self._over_all:
            first, *others = self.segments
            self._over_all[name] = reduce(lambda index, added: added.behind(index, name), others, first.index(name))
        index = self._over_all[name]
        return index if self._kept is None else index.take(self._kept)


class View(Documents):
    """Some documents of others, by their rising ``numbers`` there, found with the scores that they have there."""

    def __init__(self, parent: Documents, numbers: Ints) -> None:
        super().__init__(threading.RLock(), parent.device)
        self.parent, self.numbers = parent, numbers

    @cached_property
    def whole(self) -> Collection:
        return self.parent.whole.take(self.numbers)

    @cached_property
    def collection(self) -> Collection:
        return self.parent.collection.take(self.numbers)

    def numbers_of(self, documents: Ints) -> Ints:
        """Return the (n,) numbers here of documents given by their numbers in the parent; -1 for those not here."""
        place = np.full(self.parent.collection.n_documents + 1, -1)
        place[self.numbers] = np.arange(len(self.numbers))
        return place[documents]

    def _made(self, name: str) -> Any:
        return self.parent.index(name).take(self.numbers)
