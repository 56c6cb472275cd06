"""Engines on object storage, such as S3: every machine copies the files that it needs to a cache.

A process that opens an engine by its address copies all files except the indexes of its segments. The index of a
segment is copied when it is first searched: on a cluster, by the workers that search it. An address is one of fsspec's,
such as ``s3://bucket/engine``, whose package (s3fs, gcsfs, adlfs) must be installed on every machine; the
configuration of fsspec has the credentials and endpoints.

The cache is the folder that the variable ``HAYBALE_CACHE`` names, by default ``~/.cache/haybale``. The name of a copy
depends on its address and on the content of its manifest, so an engine that was replaced on the storage is copied
again. Copies are compared with the SHA-256 in the manifests. Nothing is deleted. The folder may be deleted while no
process has an engine from it open.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path, PurePosixPath
from uuid import uuid4

from haybale.embeddings.store_files import StoreFiles
from haybale.errors import FileFormatError, HaybaleError, OutputExistsError, StoreError
from haybale.folders import replaced, whole_folder
from haybale.manifest import MANIFEST, digest
from haybale.timing import timed

_CACHE_VARIABLE = "HAYBALE_CACHE"
_ENGINE_FILE = "engine.json"
_COLLECTION_MANIFEST = f"0/collection/{MANIFEST}"
_PARTS_FOLDER = "/parts/"  # in the path of a segment's index
_INDEX_FOLDERS = ("bm25-passage", "bm25-document", "passages", "documents")  # of each segment
_FILES_AT_ONCE = 8
_INCOMPLETE = (
    "{}: expected the file that belongs to the engine, found {}; copy all files of the engine to the storage, and open "
    "it again"
)


def is_address(location: object) -> bool:
    """Return whether a path or address is an address on object storage.

    >>> is_address("s3://bucket/engine"), is_address("engines/one")
    (True, False)
    """
    return "://" in str(location)


def copied_engine(address: str) -> Path:
    """Return the local folder of an engine, with all files except the indexes of its segments.

    Raises
    ------
    InputError
        If the address is not one of fsspec's, or the package for it is missing.
    FileFormatError
        If there is no engine.
    StoreError
        If the storage does not answer, or refuses access, or has not all files of the engine.
    """
    files = StoreFiles(address)
    manifest = _read(files, _ENGINE_FILE)
    if manifest is None:
        raise FileFormatError(
            address, None, f"expected an engine with a file {_ENGINE_FILE!r}, found none; check the address"
        )
    # This manifest has haybale's version, so it differs in an engine that was built again.
    collection = _read(files, _COLLECTION_MANIFEST)
    if collection is None:
        raise StoreError(_INCOMPLETE.format(f"{address}/{_COLLECTION_MANIFEST}", "none"))
    folder = _copy_of(address, manifest + collection)
    if not (folder / _ENGINE_FILE).exists():
        with timed("copy engine"):
            names = [name for name in _names(files) if _PARTS_FOLDER not in name or name.endswith(f"/{MANIFEST}")]
            names.remove(_ENGINE_FILE)
            missing = _missing(names, manifest)
            if missing is not None:
                raise StoreError(_INCOMPLETE.format(f"{address}/{missing}", "none"))
            _copy(files, [name for name in names if not (folder / name).exists()], folder)
            _check(address, folder, names)
            # This file is written last, with the content read above: the storage may have another file now.
            with replaced(folder / _ENGINE_FILE) as aside:
                aside.write_bytes(manifest)
    return folder


def copied_index(address: str, manifest: str) -> Path:
    """Return the local folder of the index of a segment; raise StoreError if it has another manifest by now."""
    folder = _copy_of(address, manifest.encode())
    if not folder.exists():
        files = StoreFiles(address)
        if _read(files, MANIFEST) != manifest.encode():
            raise StoreError(
                f"{address}: expected the index of the engine that was opened, found one that has replaced it; "
                "open the engine again"
            )
        with timed("copy index"), suppress(OutputExistsError), whole_folder(folder) as aside:
            names = _names(files)
            _copy(files, names, aside)  # if another process was first, its copy is taken
            _check(address, aside, names)
    return folder


def files_in_cache(name: str, files: Iterable[tuple[str, bytes]]) -> Path:
    """Return the folder in the cache that has the files, given as names and contents; write them if it is missing.

    Equal names must stand for equal files.
    """
    folder = _copy_of(name, b"")
    if not folder.exists():
        with suppress(OutputExistsError), whole_folder(folder) as aside:  # another process may be first
            for path, content in files:
                (aside / path).parent.mkdir(parents=True, exist_ok=True)
                (aside / path).write_bytes(content)
    return folder


def _copy_of(address: str, manifest: bytes) -> Path:
    """Return the path in the cache of the copy of an address whose manifest has this content."""
    cache_path = os.environ.get(_CACHE_VARIABLE)
    cache = Path(cache_path) if cache_path else Path.home() / ".cache" / "haybale"
    return cache / hashlib.sha256(address.encode() + b"\0" + manifest).hexdigest()[:32]


def _read(files: StoreFiles, name: str) -> bytes | None:
    """Return the content of a file, None if it does not exist."""
    with _storage_errors(files):
        try:
            return files.read(name)
        except FileNotFoundError:
            return None


def _names(files: StoreFiles) -> list[str]:
    """Return the paths of all files, also in subfolders, relative to the address, sorted."""
    with _storage_errors(files):
        files.fs.invalidate_cache(files.root)
        names = sorted(str(path)[len(files.root) + 1 :] for path in files.fs.find(files.root))
    for name in names:
        if ".." in PurePosixPath(name).parts:
            raise StoreError(f"{files}: expected files of an engine, found {name!r}; remove it from the storage")
    return names


def _copy(files: StoreFiles, names: list[str], folder: Path) -> None:
    """Copy files to a folder; a file is complete as soon as it has its name there."""

    def copy(name: str) -> None:
        path = Path(aside, uuid4().hex)
        files.fs.get_file(files.at(name), str(path))
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        os.replace(path, folder / name)

    folder.parent.mkdir(parents=True, exist_ok=True)
    with (
        _storage_errors(files),
        tempfile.TemporaryDirectory(prefix=".copying-", dir=folder.parent) as aside,
        ThreadPoolExecutor(_FILES_AT_ONCE) as threads,
    ):
        list(threads.map(copy, names))


def _missing(names: Sequence[str], manifest: bytes) -> str | None:
    """Return the first manifest that the engine must have but that is not among the names of its files, if any."""
    file_names = set(names)
    try:
        engine = json.loads(manifest)
        folders: list[Iterable[str]] = [["encoder"] if engine["encoder"] else []]
        segments = engine["segments"]
        folders.append(
            f"{number}/collection" for number in (range(segments) if isinstance(segments, int) else segments)
        )
        n_segments = engine["settings"].get("segments")
        if n_segments is not None:
            folders.append(["0/statistics"])
            folders.append(f"0/parts/{number}/{kind}" for number in range(n_segments) for kind in _INDEX_FOLDERS)
    except (ValueError, LookupError, TypeError, AttributeError):  # opening the engine says what is wrong with it
        return None
    needed = (f"{folder}/{MANIFEST}" for folder in chain(*folders))
    return next((name for name in needed if name not in file_names), None)


def _check(address: str, folder: Path, names: Sequence[str]) -> None:
    """Raise StoreError if a file that a copied manifest lists is missing or has other content; delete both copies.

    ``names`` are the copied files, including those that were copied before an interruption.
    """
    copied_names = set(names)
    for manifest in [name for name in names if PurePosixPath(name).name == MANIFEST and _PARTS_FOLDER not in name]:
        try:
            listed = dict(json.loads((folder / manifest).read_bytes()).get("files", {}))
        except (ValueError, TypeError, AttributeError):  # opening the folder says what is wrong with it
            continue
        for entry, expected in listed.items():
            name = (PurePosixPath(manifest).parent / entry).as_posix()
            if name not in copied_names or digest(folder / name) != expected:
                (folder / manifest).unlink()
                if name in copied_names:
                    (folder / name).unlink(missing_ok=True)
                content = "another content" if name in copied_names else "none"
                raise StoreError(_INCOMPLETE.format(f"{address}/{name}", content))


@contextmanager
def _storage_errors(files: StoreFiles) -> Iterator[None]:
    """Raise the errors of clients of object storage, which may have any class, as StoreError."""
    try:
        yield
    except (HaybaleError, MemoryError):
        raise
    except Exception as error:
        why = " ".join(str(error).split()) or type(error).__name__
        raise StoreError(
            f"{files} could not be read on {socket.gethostname()} ({why:.300}); check the address, the credentials and "
            f"the disk of the cache ({_CACHE_VARIABLE})"
        ) from error
