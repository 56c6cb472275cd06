"""Store an engine in a folder, with a manifest and one writer at a time, or in memory.

    engine.json        format, version, identity, settings, digest of the collection, number of segments, removed
                       documents; of several documents with one id, the last replaces the others
    building.json      settings and digest, while the engine is being built
    judgements/        judgements that were added, in a file named by its SHA-256, which engine.json names
    metadata/          metadata that changed after documents were added, in the same way
    duplicates.json    groups of duplicates, found again if the documents have changed
    ocr/               the words of pages that OCR has recognised, and where they are
    encoder/           the encoder, if it was fitted on the passages; others are loaded by name
    0/                 the documents that the engine was built from
        collection/    documents, queries and judgements
        pieces/        the documents with their passages cut into pieces, if there is a chunking
        bm25-passage/  bm25-document/  passages/  documents/      indexes, each made when it is first needed
        sketches.npz   the sketches of the texts, by which duplicates are found
        parts/  statistics/        with --segments: these indexes by ranges of documents, and statistics of all terms
    1/ …               documents that were added later, in the same layout; small ones are merged to one with a new
                       number (haybale.engine.merging_segments), and engine.json lists the numbers

Dense vectors are in embedding stores (:mod:`haybale.embeddings`), so that an interrupted encoding resumes. All other
folders are written atomically. No file can hold executable code. :mod:`haybale.engine.changes` says in which order a
change writes.
"""

from __future__ import annotations

import errno
import hashlib
import json
import re
import shutil
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from haybale.embeddings.resumable_store import check_same
from haybale.embeddings.store import CHUNKING
from haybale.embeddings.store_files import StoreFiles, writer_lock
from haybale.engine.added_judgements import AddedJudgements
from haybale.engine.changed_metadata import ChangedMetadata
from haybale.errors import FileFormatError, HaybaleError, InputError, OutputExistsError, StoreError
from haybale.folders import replace_json, replaced
from haybale.manifest import MANIFEST, MANY, check_kinds, manifest_bytes, verified_manifest, with_checksum
from haybale.text_files import MAX_TEXT, json_object, read_bytes, read_json, reading
from haybale.timing import timed

FORMAT, VERSION = "haybale engine", 3
# The entries of a manifest that no change of the engine changes.
FIXED = ("id", "identity", "settings", "input", "language", "encoder")
RECOGNISED = "ocr"  # the folder of pages that OCR has recognised (haybale.collections.files.ocr.keeping_pages)
_MANIFEST, _BUILDING = "engine.json", "building.json"
_SETTINGS = {
    "encoder": (str, dict),
    "language": (str, None),
    "analyzer": (dict, None),
    "paragraphs": (str, None),
    "chunking": (CHUNKING, None),
    "store": (str, None),
    "segments": (range(2, 2**40), None),  # the number of parts of the first documents; None for one
}
_MANIFEST_KINDS = {
    "id": str,
    "identity": str,
    "settings": dict,
    "language": str,
    "encoder": bool,
    "segments": (MANY, [range(2**40)]),
    "removed": [str],
    "judgements": (str, None),
    "metadata": (str, None),
}
_NULLABLE = ("judgements", "metadata")  # entries that a manifest leaves out if they are None
_TEMPORARY_NAME = re.compile(r"\..+\.(\d+|[0-9a-f]{12})")  # names of unfinished files, see folders.py


class Storage:
    """The folder of an engine, or memory if ``folder`` is None.

    Threads that make or write a part of the engine hold its reentrant ``lock``. If ``address`` is not None, the folder
    is a copy of the engine on object storage (:mod:`haybale.retrieval.object_storage`), and cannot be changed.
    """

    def __init__(self, folder: Path | None = None, address: str | None = None) -> None:
        self.folder, self.address = folder, address
        self.lock = threading.RLock()
        self._fixed: dict[str, Any] | None = None  # the fixed entries of the manifest of the engine that was opened
        self._marks: dict[int, bytes] = {}  # the marks of its segments, by their numbers
        self.in_use: weakref.WeakSet[Any] = weakref.WeakSet()  # the texts of segments in this process
        self._writes = False  # whether the thread that holds the lock is the folder's writer
        # The bytes of the manifest that was read last, and what they say. Words of compounds make it a megabyte, and
        # its build is checked whenever files are read.
        self._last_read: tuple[bytes, dict[str, Any]] | None = None

    def check_folder(self) -> dict[str, Any] | None:
        """Return the settings of the engine in the folder, which may be unfinished; None if the folder is empty.

        Raises OutputExistsError if the folder has files but no engine, other than recognised pages of its documents.
        """
        assert self.folder is not None
        files = StoreFiles(self.folder)
        if not any(files.exists(name) for name in (_MANIFEST, _BUILDING)):
            taken = [name for name in files.names() if not name.startswith(".") and name != RECOGNISED]
            if taken:
                raise OutputExistsError(
                    f"{self.folder}: not an engine, holds other files ({taken[0]}); give a new folder"
                )
            return None
        manifest = self.read() if files.exists(_MANIFEST) else read_json(self.folder / _BUILDING)
        settings: dict[str, Any] = manifest["settings"]
        return settings

    @contextmanager
    def writing(self, work: str = "this engine") -> Iterator[None]:
        """Hold the folder's writer lock; raise StoreError if another process holds it. Do nothing in memory.

        ``work`` says what is written, for the error of other processes. An engine on object storage raises StoreError.
        """
        if self.address is not None:
            raise StoreError(
                f"{self.address}: an engine on object storage cannot be changed; change it in the folder where it was "
                "built, and copy this folder to the storage again"
            )
        with self.lock:
            if self.folder is None or self._writes:
                yield
                return
            if self._fixed is not None and not self.folder.is_dir():
                self.check_same_build()  # before the lock, which would make the folder
            with writer_lock(StoreFiles(self.folder), work):
                self.check_same_build()
                for folder in [self.folder, *self.folder.glob("*/"), *self.folder.glob("*/parts/*/")]:
                    remove_unfinished(folder)
                self._writes = True
                try:
                    yield
                finally:
                    self._writes = False

    def save_if_writable(self, path: Path | None, save: Callable[[Path], None]) -> None:
        """Save to a path that does not exist, unless the engine is in memory or its folder cannot be written."""
        if path is None or path.exists():
            return
        try:
            with self.writing(f"the index {path.name}, which was missing"), timed(f"write {path.name}"):
                if not path.exists():
                    save(path)
        except (StoreError, PermissionError):  # another process is writing, or the folder is read-only
            return

    def begin_build(self, request: dict[str, Any]) -> bool:
        """Begin or resume a build with the given input and settings; return whether the engine is finished already.

        StoreError is raised if the folder has an engine, or an unfinished one, of other input or with other settings.
        """
        assert self.folder is not None
        if (self.folder / _MANIFEST).exists():
            _check_same(self.folder, self.read(), request)
            return True
        if (self.folder / _BUILDING).exists():
            _check_same(self.folder, read_json(self.folder / _BUILDING), request)
        replace_json(self.folder / _BUILDING, request)
        return False

    def finish_build(self, *, failed: bool = False) -> None:
        """End a build; if it ``failed`` because its settings are impossible, delete what it wrote."""
        assert self.folder is not None
        (self.folder / _BUILDING).unlink(missing_ok=True)
        if failed:
            shutil.rmtree(self.folder / "0")

    def clear_segment(self, number: int) -> None:
        """Delete the folder that a killed addition left where a new segment will be written.

        Raises StoreError if there is a link or a file, which no addition makes.
        """
        assert self.folder is not None
        path = self.folder / str(number)
        if path.is_symlink() or path.is_file():
            kind = "a link" if path.is_symlink() else "a file"
            raise StoreError(f"{path}: expected no such name before documents are added, found {kind}; remove it")
        shutil.rmtree(path, ignore_errors=True)

    def stamp(self) -> tuple[int, int, int] | None:
        """Return numbers that change when the manifest is replaced; None if there is no manifest."""
        assert self.folder is not None
        try:
            status = (self.folder / _MANIFEST).stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_ino, status.st_size

    def mark(self, number: int) -> bytes | None:
        """Return the manifest of a segment's collection, which differs if its documents differ; None in memory."""
        return None if self.folder is None else read_bytes(self.folder / str(number) / "collection" / MANIFEST)

    def remember(self, manifest: dict[str, Any], marks: dict[int, bytes]) -> None:
        """Remember what was opened, so that :meth:`unchanged` notices another engine; ``marks`` is by segment."""
        self._fixed = {name: manifest[name] for name in FIXED}
        self._marks |= marks

    def check_same_build(self, number: int = 0) -> None:
        """Raise StoreError if the folder has another engine than the one that was opened, or none.

        An engine that was moved or copied is the same; one that was built anew is not, even from the same documents.
        ``number`` is the segment that will be read, besides the first.
        """
        if self.folder is None or self._fixed is None:
            return
        is_merged = False
        try:
            manifest = self.read()
            is_same = all(manifest[name] == value for name, value in self._fixed.items())
            marks = {segment: self._marks[segment] for segment in (0, number) if segment in self._marks}
            if is_same and number not in segment_numbers(manifest):
                marks.pop(number, None)  # the segment was merged; its files may still be there
                is_merged = self._marks.get(number) is not None and not self._has(number)
            is_same = is_same and all(self.mark(segment) == mark for segment, mark in marks.items())
        except StoreError as error:
            if error.errno == errno.EMFILE:
                raise
            is_same = False  # the engine is not finished
        except FileFormatError as error:
            if isinstance(error.__cause__, PermissionError):
                raise
            is_same = False
        if is_same and is_merged:
            raise StoreError(
                f"{self.folder}: expected the documents that were opened, found segments that were merged since; call "
                "refresh(), or open it again"
            )
        if not is_same:
            raise StoreError(
                f"{self.folder}: expected the engine that was opened, found none or one that was built since; open it "
                "again"
            )

    def _has(self, number: int) -> bool:
        """Return whether the folder of a segment has the documents that were opened."""
        try:
            return self.mark(number) == self._marks[number]
        except FileFormatError:
            return False

    @contextmanager
    def unchanged(self, number: int = 0) -> Iterator[None]:
        """Read files of a segment in the block; raise StoreError if the folder has another engine by now.

        It is checked before and after the block, so that what was read belongs to the engine that was opened.
        """
        self.check_same_build(number)
        try:
            yield
        except (HaybaleError, OSError):
            self.check_same_build(number)
            raise
        self.check_same_build(number)

    def read(self) -> dict[str, Any]:
        """Read and verify the manifest, whose values must not be changed."""
        assert self.folder is not None
        path = self.folder / _MANIFEST
        with reading(path):
            if not path.is_file() and (self.folder / _BUILDING).exists():
                raise StoreError(f"{self.folder}: this engine is not finished; build it again to resume")
        content = manifest_bytes(self.folder, "engine", _MANIFEST)
        last_read = self._last_read
        if last_read is None or last_read[0] != content:
            self._last_read = last_read = content, self._verified(path, content)
        return dict(last_read[1])

    def _verified(self, path: Path, content: bytes) -> dict[str, Any]:
        """Return the manifest that a file contains, with its entries of today; check it."""
        manifest = verified_manifest(path, content, {"format": FORMAT})
        del manifest["format"]
        version = manifest.pop("version", None)
        if version != VERSION or "identity" not in manifest:
            shown = f"version {version!r}" if version != VERSION else "an engine without identity, of an earlier build"
            raise FileFormatError(
                path,
                None,
                f"expected version {VERSION}, found {shown}; build the engine again in a new folder, and bind its file "
                "of judgements with haybale attach",
            )
        for name in _NULLABLE:
            manifest.setdefault(name, None)
        check_kinds(path, manifest, _MANIFEST_KINDS)
        manifest["settings"] = {"segments": None} | manifest["settings"]
        check_kinds(path, manifest["settings"], _SETTINGS)
        numbers = segment_numbers(manifest)
        if numbers[:1] != [0] or numbers != sorted(set(numbers)):
            raise FileFormatError(
                path, None, f"expected rising numbers of segments from 0, found {numbers}; restore it"
            )
        return manifest

    def write(self, manifest: dict[str, Any]) -> None:
        """Write the manifest with its checksum."""
        assert self.folder is not None
        head = {"format": FORMAT, "version": VERSION}
        manifest = {name: value for name, value in manifest.items() if name not in _NULLABLE or value is not None}
        replace_json(self.folder / _MANIFEST, with_checksum(head | manifest))

    def write_judgements(self, judgements: AddedJudgements, before: str | None) -> str | None:
        """Write judgements, and return the name of their file for the manifest; None if there are none."""
        if not judgements.splits:
            return None
        content = json.dumps(judgements.to_dict(), ensure_ascii=False).encode()
        return self._write_part("judgements", ".json", content, before, "added queries and judgements")

    def write_metadata(self, metadata: ChangedMetadata | None, before: str | None) -> str | None:
        """Write changed metadata, and return the name of their file for the manifest; None if there are none."""
        if metadata is None:
            return None
        return self._write_part("metadata", ".parquet", metadata.to_bytes(), before, "changed metadata")

    def _write_part(self, part: str, suffix: str, content: bytes, before: str | None, what: str) -> str:
        """Write a file that is named by its content, delete older ones, and return its name.

        A reader may have the manifest that names the file ``before``, so this one stays.
        """
        assert self.folder is not None
        if len(content) > MAX_TEXT:
            limit = f"at most {MAX_TEXT:,} bytes of {what}"
            raise InputError(f"{self.folder}: expected {limit}, found {len(content):,}; build the engine with them")
        name = hashlib.sha256(content).hexdigest()
        path = self.folder / part / f"{name}{suffix}"
        for old in path.parent.glob(f"*{suffix}"):
            if old.stem not in (before, name):
                old.unlink()
        if not path.exists():
            with replaced(path) as aside:
                aside.write_bytes(content)
        return name

    def read_all(self) -> tuple[tuple[int, int, int] | None, dict[str, Any], AddedJudgements, ChangedMetadata | None]:
        """Return the stamp of the manifest, the manifest, and the judgements and the metadata that it names."""
        while True:
            stamp, manifest = self.stamp(), self.read()
            try:
                return stamp, manifest, self._judgements(manifest["judgements"]), self._metadata(manifest["metadata"])
            except FileFormatError:
                if stamp == self.stamp():  # otherwise another process has replaced them meanwhile
                    raise

    def _judgements(self, name: str | None) -> AddedJudgements:
        assert self.folder is not None
        if name is None:
            return AddedJudgements()
        path = self.folder / "judgements" / f"{name}.json"
        return AddedJudgements.from_dict(path, json_object(path, _checked(path)))

    def _metadata(self, name: str | None) -> ChangedMetadata | None:
        assert self.folder is not None
        if name is None:
            return None
        path = self.folder / "metadata" / f"{name}.parquet"
        return ChangedMetadata.from_bytes(path, _checked(path))


def segment_numbers(manifest: dict[str, Any]) -> list[int]:
    """Return the numbers of the segments in their order; an engine whose segments were never merged has their count."""
    segments = manifest["segments"]
    return list(range(segments)) if isinstance(segments, int) else list(segments)


def remove_unfinished(folder: Path) -> None:
    """Delete the files and folders with temporary names that a killed writer has left in a folder."""
    for path in folder.glob(".*"):
        if _TEMPORARY_NAME.fullmatch(path.name):
            shutil.rmtree(path, ignore_errors=True) if path.is_dir() and not path.is_symlink() else path.unlink()


def _checked(path: Path) -> bytes:
    """Return the content of a file that is named by its SHA-256."""
    content = read_bytes(path)
    if hashlib.sha256(content).hexdigest() != path.stem:
        raise FileFormatError(path, None, f"expected the SHA-256 {path.stem!r}, found another; restore the file")
    return content


def _check_same(folder: Path, saved: dict[str, Any], request: dict[str, Any]) -> None:
    if saved["input"] != request["input"]:
        raise StoreError(f"{folder}: this engine was not built from the given collection; give a new folder")
    for name, value in request["settings"].items():
        before = saved["settings"].get(name)
        # Compounds are learned for a build in segments after it has begun.
        is_learned_later = name == "analyzer" and before is None and request["settings"].get("segments")
        if before != value and not is_learned_later:
            check_same(folder, before, value, name)
