"""Build, open and change the documents of an engine: what happens in memory and on disk, and in which order.

Documents never change themselves: a change makes a new :class:`Snapshot`, and searches that are running go on with the
old one. In a folder, whose files :mod:`haybale.engine.storage` lists, a change has these steps:

1. Take the writer's lock of the folder. Refuse the change if another process has changed the folder since this engine
   read it.
2. Check what is given. An error here, or in a later step before the last two, leaves the engine as it was.
3. Write added documents to ``N/collection``, where N is the number after that of the last segment. No manifest names
   this segment yet, so that it does not exist for other processes. If this one is killed now, the next addition
   overwrites it.
4. Make the new snapshot. Indexes that are in memory are extended; for those of vectors, the added documents are
   encoded, and their vectors are written to ``N/passages`` and ``N/documents``. Indexes that no ranker has needed yet
   are left to the first one that does, or to :meth:`Engine.write_indexes`.
5. Write judgements that were added and metadata that changed to files that are named by their content. Those that the
   present manifest names stay beside them.
6. Replace ``engine.json``, the manifest, which names all of it. Whoever opens or refreshes the engine from now on finds
   the change; until now, it found the engine as it was before.
7. Replace the snapshot in memory.
8. If there are many small segments, merge them to one with a new number, as steps 3 to 7
   (:mod:`haybale.engine.merging_segments`).

A removal or a replacement deletes no text: the manifest lists removed documents, and of several documents with one id
the last one is the document.
"""

from __future__ import annotations

import errno
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

from haybale.analysis import Analyzer
from haybale.arrow import free_unused
from haybale.cached import cached_property
from haybale.collections import Collection
from haybale.collections.queries import QueriesLike
from haybale.collections.saved import load_collection, save_collection
from haybale.collections.unread import UnreadPart, read_unread, sorted_parts, write_unread
from haybale.device import find_device
from haybale.embeddings.store_files import as_json
from haybale.engine import indexing_segments
from haybale.engine.added_judgements import Judged, Qrels
from haybale.engine.changed_metadata import Metadata
from haybale.engine.encoder_source import describe_encoder
from haybale.engine.merging_segments import merged_documents, n_to_merge, remove_merged, write_vectors
from haybale.engine.reattaching import TextDigests, Unattached, record_renamed, renamed_documents
from haybale.engine.segment import Segment
from haybale.engine.snapshot import Documents, Snapshot
from haybale.engine.storage import FIXED, Storage, segment_numbers
from haybale.errors import DeviceError, FileFormatError, HaybaleError, InputError, MissingExtraError, StoreError
from haybale.retrieval.object_storage import copied_engine, is_address
from haybale.timing import timed

Manifest = dict[str, Any]
Stamp = tuple[int, int, int]


class LiveDocuments:
    """The documents that an engine has now, in memory or in a folder.

    ``snapshot`` has them; each change replaces it. ``manifest`` is what ``engine.json`` held when it was last read or
    written; None in memory. ``first`` is the segment that the engine was made from.
    """

    def __init__(self, snapshot: Snapshot, manifest: Manifest | None = None, stamp: Stamp | None = None) -> None:
        self.snapshot, self.manifest, self._stamp = snapshot, manifest, stamp
        self._digests: tuple[Snapshot, TextDigests] | None = None
        self.first = snapshot.segments[0]
        self.storage = self.first.texts.storage
        self._unread = self.first.texts.whole.unread  # in memory

    @cached_property
    def input_digest(self) -> str:
        """A digest of the collection that the engine was made from."""
        return self.first.texts.whole.digest() if self.manifest is None else str(self.manifest["input"])

    @cached_property
    def id(self) -> str:
        """A digest of this collection and the encoder."""
        if self.manifest is not None:
            return str(self.manifest["id"])
        return _id_of(self.input_digest, as_json(describe_encoder(self.first.source.encoder)))

    @property
    def identity(self) -> str:
        """A random id that the engine got when it was built; :attr:`id` in memory, and of engines without one."""
        return self.id if self.manifest is None else str(self.manifest["identity"])

    @property
    def unread(self) -> list[UnreadPart]:
        """The parts of files whose text is not in the documents, sorted."""
        folder = self.storage.folder
        return sorted_parts(self._unread) if folder is None else read_unread(folder)

    def _record_unread(self, added: Collection) -> None:
        """Record what was not read of added files, in place of what was not read of them before."""
        files = {part.file for part in added.unread}
        if added.metadata is not None and "file" in added.metadata.column_names:
            files.update(filter(None, added.metadata["file"].to_pylist()))
        before = self.unread
        unread = (*(part for part in before if part.file not in files), *added.unread)
        if self.storage.folder is None:
            self._unread = unread
        elif before or unread:
            write_unread(self.storage.folder, unread)

    # build and open ---------------------------------------------------------------------------------------------

    def build(self, folder: Path, settings: Mapping[str, Any], language: str) -> None:
        """Write an engine that is in memory to a folder; after an interruption, write the rest.

        ``building.json`` says that the folder is not finished. The collection, an encoder that was fitted on it, and
        the manifest follow; then ``building.json`` is deleted. Indexes are written when they are first needed, except
        those of an engine in segments (:mod:`haybale.engine.indexing_segments`), which are written before the manifest.
        :meth:`Engine.build` describes the errors.
        """
        source, storage = self.first.source, self.storage
        storage.folder = folder
        in_segments = self.first.texts.n_segments > 1
        if not (folder / "engine.json").exists():
            source.load_model()
        request = self._request(settings)
        with storage.writing():
            if not self.begin_build(folder, settings):
                try:
                    if in_segments:
                        indexing_segments.count_all(self.first.texts)
                    saves_encoder = source.is_saved_with_engine
                    if saves_encoder and not (folder / "encoder").exists():
                        source.encoder.save(folder / "encoder")
                    if in_segments:
                        indexing_segments.index_all(self.first.texts, source)
                    about = {"id": self.id, "identity": uuid4().hex, "language": language, "encoder": saves_encoder}
                    self.manifest = about | request
                    write_unread(folder, self._unread)
                    self._replace_by(self.snapshot)
                except (InputError, MissingExtraError, DeviceError):
                    storage.finish_build(failed=True)
                    raise
            storage.finish_build()

    def begin_build(self, folder: Path, settings: Mapping[str, Any]) -> bool:
        """Begin or resume a build: write the collection. Return whether the engine is finished already."""
        storage = self.storage
        storage.folder = folder
        with storage.writing():
            finished = storage.begin_build(self._request(settings))
            if not finished and not (folder / "0" / "collection").exists():
                with timed("write collection"):
                    save_collection(self.snapshot.all_documents, folder / "0" / "collection")
                free_unused()  # that of the blocks that were compressed
        return finished

    def _request(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        return {"settings": as_json(settings), "input": self.input_digest}

    @classmethod
    def open(cls, folder_or_address: str | Path, encoder: Any, device: str | None) -> LiveDocuments:
        """Read the documents of the engine in a folder or at an address. :meth:`Engine.open` describes the errors."""
        address = str(folder_or_address).rstrip("/") if is_address(folder_or_address) else None
        folder = Path(folder_or_address) if address is None else copied_engine(address)
        storage = Storage(folder, address)
        stamp, manifest, judgements, metadata = storage.read_all()
        find_device(device or "cpu")
        settings = manifest["settings"]
        analyzer = None if settings["analyzer"] is None else Analyzer.from_dict(settings["analyzer"])
        saved = settings["encoder"]
        if encoder is not None and as_json(describe_encoder(encoder)) != saved:
            raise StoreError(f"{folder}: expected the encoder of this engine, {saved!r}, found {encoder!r}")
        numbers = segment_numbers(manifest)
        with timed("read collection"):
            storage.remember(manifest, {number: _mark(storage, number) for number in numbers})
            wholes = [_loaded(storage, number) for number in numbers]
        first = Segment.first(
            wholes[0],
            settings,
            manifest["language"],
            analyzer,
            encoder=saved if encoder is None else encoder,
            storage=storage,
            device=device,
            has_saved_encoder=manifest["encoder"],
        )
        if first.store is not None:
            _check_store(first, manifest)
        later = zip(numbers[1:], wholes[1:], strict=True)
        segments = [first, *(first.later(whole, number) for number, whole in later)]
        snapshot = Snapshot(segments, manifest["removed"], judgements=judgements, metadata=metadata)
        return cls(snapshot, manifest, stamp)

    # change -----------------------------------------------------------------------------------------------------

    def change(
        self,
        added: Collection | None = None,
        *,
        replace: bool = False,
        remove: Sequence[str] = (),
        metadata: Metadata | None = None,
    ) -> int:
        """Add documents, remove some, and set metadata, in one step; return the number of replaced documents.

        An added document may have an id that the engine has or had only with ``replace``. Judgements follow the texts
        that were judged.
        """
        with self._writing():
            snapshot, n_replaced, segments = self.snapshot, 0, []
            snapshot.whole.document_numbers(remove)  # raises for unknown ids
            removed = {*snapshot.removed, *remove}
            if added is not None:
                n_replaced = len(snapshot.check_new(added, replace=replace))
                segments = [self._write_segment(added)]
                removed.difference_update(added.doc_ids.to_pylist())
            changed = snapshot.changed(segments, removed).with_metadata(metadata or {})
            record_renamed(self.storage.folder, renamed_documents(snapshot.whole, remove, added))
            if snapshot.judgements.splits:
                old_texts = self._text_digests(snapshot)
                ids = [*remove, *(() if added is None else added.doc_ids.to_pylist())]
                texts = old_texts.after_change(changed.whole, ids, added)
                changed = changed.judged(snapshot.judgements.followed(old_texts, texts))
                self._digests = changed, texts
            self._replace_by(changed)
            if added is not None:
                self._record_unread(added)
            with suppress(HaybaleError, OSError):  # the change itself is done; the next change tries to merge again
                self._merge_segments()
        return n_replaced

    def _text_digests(self, snapshot: Snapshot) -> TextDigests:
        """Return the digests of the texts of a snapshot; those that the last change computed are reused."""
        if (
            self._digests is None
            or self._digests[0].segments != snapshot.segments
            or (self._digests[0].removed != snapshot.removed)
        ):
            self._digests = snapshot, TextDigests(snapshot.whole)
        return self._digests[1]

    def unattached(self) -> Unattached:
        """Return the documents whose text is not the one that the engine's own judgements are about."""
        snapshot = self.snapshot
        return snapshot.judgements.unattached(self._text_digests(snapshot))

    def has_latest(self, documents: Documents) -> bool:
        """Return whether documents are those that the engine, or another process that changed its folder, has now."""
        snapshot, folder = self.snapshot, self.storage.folder
        is_same = isinstance(documents, Snapshot) and (documents.segments, documents.removed) == (
            snapshot.segments,
            snapshot.removed,
        )
        return is_same and (folder is None or self.storage.stamp() in (None, self._stamp))

    def content_key(self, documents: Documents, digest: str | None) -> str | None:
        """Return a key of documents with their metadata, given their digest; None if they are not the latest ones."""
        is_latest = isinstance(documents, Snapshot) and documents.metadata is self.snapshot.metadata
        if self.manifest is None or digest is None or not is_latest or not self.has_latest(documents):
            return None
        return hashlib.sha256(f"{digest} {self.manifest['metadata']}".encode()).hexdigest()

    def set_metadata(self, values: Metadata) -> None:
        """Set metadata of documents; indexes stay as they are."""
        with self._writing():
            self._replace_by(self.snapshot.with_metadata(values))

    def judge(self, qrels: Qrels, queries: QueriesLike | None, split: str) -> Judged:
        """Add judgements to a split, or replace some; indexes stay as they are."""
        with self._writing():
            snapshot = self.snapshot
            judgements, done = snapshot.judgements.with_given(snapshot.whole, qrels, queries, split)
            self._replace_by(snapshot.judged(judgements))
        return done

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Hold the writer's lock; raise StoreError if another process has changed the folder."""
        with self.storage.writing():
            folder = self.storage.folder
            is_replaced = folder is not None and self.storage.stamp() != self._stamp
            if is_replaced and not self._is_current(self.storage.read()):
                raise StoreError(f"{folder}: another process has changed it; call refresh() before changes")
            yield

    def _merge_segments(self) -> None:
        """Merge the last segments of an engine in a folder if they are many and small; documents stay the same."""
        folder, snapshot = self.storage.folder, self.snapshot
        n = n_to_merge([len(segment.texts.whole.passages) for segment in snapshot.segments[1:]])
        if folder is None or n < 2:
            return
        before, last = [segment.texts.number for segment in snapshot.segments], snapshot.segments[-n:]
        metadata, n_documents = snapshot.all_documents.metadata, sum(part.texts.whole.n_documents for part in last)
        rows = None if metadata is None else metadata.slice(len(metadata) - n_documents)
        with timed("merge segments"):
            merged = self._write_segment(merged_documents(last, rows))
            write_vectors(last, folder / str(merged.texts.number))
            self._replace_by(snapshot.with_segments([*snapshot.segments[:-n], merged]))
        used = {texts.number for texts in self.storage.in_use}
        remove_merged(folder, {*before, merged.texts.number, *used})

    def _write_segment(self, added: Collection) -> Segment:
        """Write documents to a folder of their own, unless the engine is in memory, and return their segment."""
        number, folder = self.snapshot.segments[-1].texts.number + 1, self.storage.folder
        if folder is not None:
            self.storage.clear_segment(number)
            save_collection(added, _collection_folder(folder, number))
            assert self.manifest is not None
            self.storage.remember(self.manifest, {number: _mark(self.storage, number)})
        return self.first.later(added, number)

    def _replace_by(self, snapshot: Snapshot) -> None:
        """Replace the snapshot in the folder and then in memory, or in neither if an error occurs."""
        if self.manifest is not None:
            before, storage = self.manifest, self.storage
            manifest = {name: before[name] for name in FIXED} | {
                "segments": _count_or_numbers([segment.texts.number for segment in snapshot.segments]),
                "removed": snapshot.removed,
                "judgements": storage.write_judgements(snapshot.judgements, before.get("judgements")),
                "metadata": storage.write_metadata(snapshot.metadata, before.get("metadata")),
            }
            storage.write(manifest)
            self.manifest, self._stamp = manifest, storage.stamp()
        self.snapshot = snapshot

    # changes by others ------------------------------------------------------------------------------------------

    def refresh(self) -> bool:
        """Read the changes of other processes or engine objects from the folder; return whether there are any."""
        storage, folder = self.storage, self.storage.folder
        if folder is None:
            return False
        stamp = storage.stamp()
        if stamp is not None and stamp == self._stamp:
            return False
        assert self.manifest is not None
        with storage.lock:
            stamp, manifest, judgements, metadata = storage.read_all()
            if self._is_current(manifest):
                self._stamp = stamp
                return False
            snapshot, numbers = self.snapshot, segment_numbers(manifest)
            before = [segment.texts.number for segment in snapshot.segments]
            n_same = next((n for n, (old, new) in enumerate(zip(before, numbers, strict=False)) if old != new), None)
            n_same = min(len(before), len(numbers)) if n_same is None else n_same
            is_merged = n_same < len(before)
            is_same = all(manifest[name] == value for name, value in self.manifest.items() if name in FIXED)
            if not is_same or numbers[-1] < before[-1] or not self._has_segments(n_same):
                raise StoreError(
                    f"{folder}: expected the engine that was opened, found one that was built since; open it again"
                )
            with timed("read collection"):
                later = [self._read_segment(number) for number in numbers[n_same:]]
            if is_merged:
                snapshot = Snapshot([*snapshot.segments[:n_same], *later], manifest["removed"])
            elif later or manifest["removed"] != snapshot.removed:
                snapshot = snapshot.changed(later, manifest["removed"])
            snapshot = snapshot.judged(judgements).described(metadata)
            self.snapshot, self.manifest, self._stamp = snapshot, manifest, stamp
        return True

    def _read_segment(self, number: int) -> Segment:
        """Return a segment that another process or engine has added to the folder."""
        assert self.manifest is not None
        self.storage.remember(self.manifest, {number: _mark(self.storage, number)})
        return self.first.later(_loaded(self.storage, number), number)

    def _is_current(self, manifest: Manifest) -> bool:
        """Return whether a manifest and its segments are those read last; two additions may have equal manifests."""
        return manifest == self.manifest and self._has_segments()

    def _has_segments(self, n: int | None = None) -> bool:
        """Return whether the folder still has the first ``n`` segments of the snapshot; all by default."""
        added = (segment.texts for segment in self.snapshot.segments[1:n])
        try:
            self.storage.check_same_build()
            return all(self.storage.mark(texts.number) == texts.mark for texts in added)
        except (FileFormatError, StoreError) as error:
            if getattr(error, "errno", None) == errno.EMFILE:
                raise
            return False


def _count_or_numbers(numbers: list[int]) -> int | list[int]:
    """Return the numbers of segments as the manifest has them: their count if none was merged."""
    return len(numbers) if numbers == list(range(len(numbers))) else numbers


def _mark(storage: Storage, number: int) -> bytes:
    mark = storage.mark(number)
    assert mark is not None
    return mark


def _loaded(storage: Storage, number: int) -> Collection:
    """Return the documents of a segment; StoreError if the folder has another engine by now, also for their texts."""
    assert storage.folder is not None
    with storage.unchanged(number):
        return load_collection(_collection_folder(storage.folder, number), partial(storage.unchanged, number))


def _id_of(input_digest: str, described: Any) -> str:
    """Return a digest of a collection and an encoder."""
    return hashlib.sha256(json.dumps([input_digest, described], sort_keys=True).encode()).hexdigest()


def _check_store(first: Segment, manifest: Manifest) -> None:
    """Raise StoreError if the embedding store at the path of an engine has the vectors of another encoder."""
    assert first.store is not None
    expected, described = manifest["id"], first.store.manifest["encoder"]
    if _id_of(manifest["input"], described) == expected:
        return
    if _id_of(manifest["input"], as_json(describe_encoder(first.source.encoder))) != expected:
        raise StoreError(
            f"{first.store.path}: expected the embedding store that the engine was built with, found one of another "
            "encoder; restore it, or build the engine again"
        )


def _collection_folder(folder: Path, number: int) -> Path:
    return folder / str(number) / "collection"
