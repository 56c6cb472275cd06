"""Compare the documents that an engine has with those that it had at an earlier moment.

An engine numbers documents in the order in which they are added, with those that were removed or replaced since, and
keeps their texts. The numbers stay when segments are merged. So the documents of a moment are known by how many had
been added, and by the ids that were removed. Digests of their ids and texts say later whether these documents are still
the ones that the engine has: a backup of an older engine may have been restored, and others added to it.
"""

from __future__ import annotations

import hashlib
import json
import threading
from dataclasses import asdict, dataclass
from typing import Any, Literal, cast

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from haybale.arrow import text_array
from haybale.cached import cached_property
from haybale.collections import Collection
from haybale.collections.collection import Ints, take_strings, utf8_bytes
from haybale.collections.ids import latest_with_id, places_of
from haybale.engine.changed_metadata import ChangedMetadata
from haybale.engine.engine import Engine
from haybale.engine.reattaching import digest_of
from haybale.engine.snapshot import Snapshot

Novelty = Literal["", "new", "changed"]


@dataclass(frozen=True)
class DocumentsState:
    """The documents that an engine had at one moment.

    Parameters
    ----------
    identity : str
        The :attr:`~haybale.Engine.identity` of the engine.
    n_added : int
        The number of documents that had been added, with those that were removed or replaced.
    removed : tuple of str
        The ids that were removed, sorted.
    parts : tuple of (int, str)
        Consecutive ranges of the added documents: their numbers of documents, and the SHA-256 of ids and texts.
    metadata : str or None
        The SHA-256 of metadata that was set after documents were added; None if none was.
    """

    identity: str
    n_added: int
    removed: tuple[str, ...]
    parts: tuple[tuple[int, str], ...]
    metadata: str | None

    def to_json(self) -> str:
        """Return the state as JSON, in which equal states are equal."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> DocumentsState:
        """Return the state that :meth:`to_json` wrote."""
        values = json.loads(text)
        parts = tuple((int(n), str(digest)) for n, digest in values["parts"])
        return cls(**values | {"removed": tuple(values["removed"]), "parts": parts})

    @cached_property
    def digest(self) -> str:
        """The SHA-256 of :meth:`to_json`, in hexadecimal."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()


class DocumentStates:
    """The states of the documents of an engine, whose digests are computed once for each segment.

    Several threads may use it.

    Parameters
    ----------
    engine : Engine

    Examples
    --------
    >>> engine = Engine({"a": "Dogs bark.", "b": "Cats purr."}, language="english", encoder="tfidf(min_df=1)")
    >>> states = DocumentStates(engine)
    >>> before = states.state(engine.snapshot())
    >>> _ = engine.replace({"b": "Cats sleep.", "c": "Cows moo.", "d": "Dogs bark."}, remove=["a"])
    >>> since = states.since(engine.snapshot(), before)
    >>> since.is_certain, since.changed, since.removed, [since.novelty(doc_id) for doc_id in ("b", "c", "d")]
    (True, ['b'], ['a'], ['changed', 'new', ''])
    """

    def __init__(self, engine: Engine) -> None:
        self._engine, self._lock = engine, threading.Lock()
        self._digests: dict[tuple[int, bytes | None], str] = {}  # by the numbers and the marks of segments
        self._metadata: tuple[ChangedMetadata, str] | None = None
        self._latest: tuple[Engine, DocumentsState] | None = None
        self._compared: dict[str, EarlierDocuments] = {}  # with the latest snapshot, by the digests of states

    def state(self, engine: Engine) -> DocumentsState:
        """Return the state of a snapshot of the engine."""
        with self._lock:
            return self._state(engine)

    def since(self, engine: Engine, state: DocumentsState) -> EarlierDocuments:
        """Return what distinguishes the documents of a snapshot of the engine from an earlier state."""
        with self._lock:
            present = self._state(engine)
            if state.digest not in self._compared:
                self._compared[state.digest] = EarlierDocuments(engine, state, _is_certain(engine, present, state))
            return self._compared[state.digest]

    def _state(self, engine: Engine) -> DocumentsState:
        if self._latest is None or self._latest[0] is not engine:
            snapshot = _snapshot_of(engine)
            parts = tuple(
                (segment.texts.whole.n_documents, self._digest(segment.texts)) for segment in snapshot.segments
            )
            n_added = sum(n for n, _ in parts)
            metadata = self._digest_of_metadata(snapshot.metadata)
            state = DocumentsState(engine.identity, n_added, tuple(snapshot.removed), parts, metadata)
            self._latest, self._compared = (engine, state), {}
        return self._latest[1]

    def _digest(self, texts: Any) -> str:
        key = texts.number, texts.mark
        if key not in self._digests:
            self._digests[key] = _digest_of_rows(texts.whole, 0, texts.whole.n_documents)
        return self._digests[key]

    def _digest_of_metadata(self, metadata: ChangedMetadata | None) -> str | None:
        if metadata is None:
            return None
        if self._metadata is None or self._metadata[0] is not metadata:
            self._metadata = metadata, hashlib.sha256(metadata.to_bytes()).hexdigest()
        return self._metadata[1]


class EarlierDocuments:
    """What distinguishes the documents of a snapshot from those of an earlier state.

    Parameters
    ----------
    engine : Engine
        The snapshot.
    state : DocumentsState
    is_certain : bool
        Whether the engine still has the texts of the earlier documents. If not, nothing else is known about them.
    """

    def __init__(self, engine: Engine, state: DocumentsState, is_certain: bool) -> None:
        self.engine, self.state, self.is_certain = engine, state, is_certain
        self._snapshot = _snapshot_of(engine)

    @cached_property
    def _rows(self) -> Ints:
        """The number among all added documents, (n_documents,), of each document of the snapshot."""
        kept = self._snapshot.kept
        return np.arange(self._snapshot.all_documents.n_documents) if kept is None else kept

    @cached_property
    def _earlier_rows(self) -> Ints:
        """The numbers (n,), among all added documents, of those that the engine had then."""
        if not self.is_certain:
            return np.empty(0, dtype=np.int64)
        ids = self._snapshot.all_documents.doc_ids.slice(0, self.state.n_added)
        rows = np.arange(self.state.n_added)
        latest = latest_with_id(ids, self.state.parts[0][0])
        hidden = rows[:0] if latest is None else rows[latest != rows]
        return np.setdiff1d(rows, np.concatenate([hidden, places_of(ids, text_array(self.state.removed))]))

    @property
    def was_there(self) -> NDArray[np.bool_]:
        """Whether each document (n_documents,) of the snapshot was in the engine then, with its text."""
        return np.isin(self._rows, self._earlier_rows)

    @property
    def n_added_since(self) -> int:
        """The number of documents of the snapshot that the engine did not have then, or with another text."""
        return int((~self.was_there).sum())

    @cached_property
    def changed(self) -> list[str]:
        """The ids that have another text now, sorted."""
        return sorted(self._texts_then_and_now[0])

    @cached_property
    def removed(self) -> list[str]:
        """The ids that the engine no longer has, sorted."""
        return sorted(self._texts_then_and_now[1])

    @cached_property
    def _texts_then_and_now(self) -> tuple[list[str], list[str]]:
        everything, whole = self._snapshot.all_documents, self._snapshot.whole
        gone = np.setdiff1d(self._earlier_rows, self._rows)
        ids = take_strings(everything.doc_ids, gone)
        changed, removed = [], []
        for doc_id, row, number in zip(ids, gone.tolist(), whole.find_documents(ids).tolist(), strict=True):
            if number < 0:
                removed.append(doc_id)
            elif digest_of(everything, row) != digest_of(whole, number):
                changed.append(doc_id)
        return changed, removed

    def novelty(self, doc_id: str) -> Novelty:
        """Return whether the text of a document was not in the engine then: of a new document, or of a changed one.

        A text that the engine had under another id is not new. Call it for certain states only.
        """
        whole, everything = self._snapshot.whole, self._snapshot.all_documents
        (number,) = whole.document_numbers([doc_id]).tolist()
        row = int(self._rows[number])
        if row < self.state.n_added:
            return ""
        same_length = self._earlier_rows[self._earlier_lengths == _lengths_of(everything, row, row + 1)[0]]
        digest = digest_of(everything, row)
        if any(digest_of(everything, earlier) == digest for earlier in same_length.tolist()):
            return ""
        return "changed" if doc_id in self._earlier_ids else "new"

    @cached_property
    def _earlier_lengths(self) -> Ints:
        return _lengths_of(self._snapshot.all_documents, 0, self.state.n_added)[self._earlier_rows]

    @cached_property
    def _earlier_ids(self) -> frozenset[str]:
        return frozenset(take_strings(self._snapshot.all_documents.doc_ids, self._earlier_rows))


def _snapshot_of(engine: Engine) -> Snapshot:
    return cast(Snapshot, engine.snapshot()._documents)


def _is_certain(engine: Engine, present: DocumentsState, state: DocumentsState) -> bool:
    """Return whether the documents that had been added are the first ones that the engine has."""
    if state.identity != present.identity or state.n_added > present.n_added:
        return False
    n_same = next(
        (n for n, (one, other) in enumerate(zip(state.parts, present.parts, strict=False)) if one != other), None
    )
    start = 0
    for number, (n, digest) in enumerate(state.parts):
        is_same = number < (len(present.parts) if n_same is None else n_same)
        if not is_same and _digest_of_rows(_snapshot_of(engine).all_documents, start, start + n) != digest:
            return False
        start += n
    return True


def _digest_of_rows(documents: Collection, start: int, end: int) -> str:
    """Return the SHA-256 of the ids and texts of consecutive documents, however their columns are chunked."""
    sha, offsets = hashlib.sha256(), documents.passages.doc_offsets[start : end + 1]
    first, last = int(offsets[0]), int(offsets[-1])
    sha.update(np.diff(offsets).astype("<i8").data)
    for column in (documents.doc_ids.slice(start, end - start), documents.passages.texts.slice(first, last - first)):
        for chunk in column.chunks:  # lengths first, so that "ab", "c" differs from "a", "bc"
            sha.update(pc.binary_length(chunk).to_numpy().astype("<i8", copy=False).data)
        for chunk in column.chunks:
            sha.update(utf8_bytes(chunk))
    return sha.hexdigest()


def _lengths_of(documents: Collection, start: int, end: int) -> Ints:
    """Return the bytes (n,) of the texts of consecutive documents, with a line feed between two passages."""
    offsets = documents.passages.doc_offsets[start : end + 1]
    first, last = int(offsets[0]), int(offsets[-1])
    texts = documents.passages.texts.slice(first, last - first)
    sums = np.concatenate([[0], np.cumsum(pc.binary_length(texts).to_numpy().astype(np.int64))])
    n_passages = np.diff(offsets)
    lengths: Ints = np.diff(sums[offsets - first]) + np.maximum(n_passages - 1, 0)
    return lengths
