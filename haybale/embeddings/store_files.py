"""Read and write files in a folder at any fsspec address, and lock it for one writer at a time."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from haybale.errors import InputError, OutputExistsError, StoreError
from haybale.text_files import parsed_json, reading

MANIFEST, BUILDING, LOCK = "manifest.json", "building.json", ".lock"


class StoreFiles:
    """A folder at ``path``, which is local or an fsspec address. Files get their names only when they are complete."""

    def __init__(self, path: str | Path) -> None:
        import fsspec
        from fsspec.implementations.local import LocalFileSystem

        self.url = str(path)
        if "\0" in self.url:
            raise InputError(f"{self.url!r} must be a path, but has a NUL character")
        try:
            self.fs, root = fsspec.core.url_to_fs(self.url)
        except ImportError as error:
            raise InputError(
                f"{self.url}: the package for this address is missing on {socket.gethostname()} ({error}); install it "
                "with pip on every machine"
            ) from error
        except ValueError as error:
            raise InputError(
                f"{self.url}: expected an address that fsspec can open, or a folder, found another text ({error}); "
                "check it"
            ) from error
        self.root = str(root).rstrip("/")
        self.is_local = isinstance(self.fs, LocalFileSystem)

    def __str__(self) -> str:
        return self.url

    def at(self, name: str) -> str:
        """Return the full path of a file in the folder."""
        return f"{self.root}/{name}"

    def within(self, name: str) -> StoreFiles:
        """Return a subfolder."""
        return StoreFiles(f"{self.url.rstrip('/')}/{name}")

    def exists(self, name: str) -> bool:
        return bool(self.fs.exists(self.at(name)))

    def is_file(self, name: str) -> bool:
        return bool(self.fs.isfile(self.at(name)))

    def names(self, folder: str = "") -> list[str]:
        """Return the sorted names of the files in the folder, or in a subfolder; none if it does not exist."""
        try:
            paths = self.fs.ls(self.at(folder).rstrip("/"), detail=False, refresh=True)
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(str(name).rstrip("/").rpartition("/")[2] for name in paths)

    def remove(self, name: str) -> None:
        """Remove a file or a subfolder with its contents, if it exists."""
        if self.exists(name):
            self.fs.rm(self.at(name), recursive=True)

    def read(self, name: str) -> bytes:
        return bytes(self.fs.cat_file(self.at(name)))

    @contextmanager
    def whole(self, name: str) -> Iterator[Any]:
        """Open a binary file for writing. It is renamed to ``name`` when it is closed without an error.

        It replaces a file, or a folder that damage left in its place.
        """
        partial = f"{name}.partial"
        try:
            with self.fs.open(self.at(partial), "wb") as file:
                yield file
        except BaseException:
            self.remove(partial)
            raise
        if self.is_local and os.path.isdir(self.at(name)):  # else the file would be moved into that folder
            self.remove(name)
        self.fs.mv(self.at(partial), self.at(name))

    def write(self, name: str, content: bytes) -> None:
        with self.whole(name) as file:
            file.write(content)

    def write_json(self, name: str, value: Any) -> None:
        self.write(name, (json.dumps(value, indent=2, ensure_ascii=False, sort_keys=True) + "\n").encode())

    def read_json(self, name: str) -> Any:
        with reading(self.at(name)):
            return parsed_json(self.at(name), self.read(name))


def as_json(value: Any) -> Any:
    """Return a value as it is after writing and reading it as JSON, where tuples become lists."""
    return json.loads(json.dumps(value))


@contextmanager
def writer_lock(files: StoreFiles, work: str = "this store") -> Iterator[None]:
    """Lock a folder for writing; raise :class:`StoreError`, which names the other process, if it is locked already.

    On a local disk the operating system releases the lock of a process that dies. Elsewhere the lock is a file that
    contains its owner, and remains after a crash. ``work`` says what is written, for the error of other processes.
    """
    if files.is_local and os.path.isfile(files.root):
        raise OutputExistsError(f"{files}: expected a folder, found a file; give another folder, or remove the file")
    files.fs.makedirs(files.root, exist_ok=True)
    owner = json.dumps({"host": socket.gethostname(), "process": os.getpid(), "work": work}).encode()
    try:
        with _flock(files, owner) if files.is_local else _lock_file(files, owner):
            yield
    except BaseException:
        if files.is_local and not files.names():
            os.rmdir(files.root)
        raise


def _locked_error(files: StoreFiles, owner: bytes, hint: str = "") -> StoreError:
    who, work = "another process", "this store"
    with contextlib.suppress(ValueError, KeyError, TypeError):
        held = json.loads(owner)
        who, work = f"process {held['process']} on {held['host']}", held.get("work", work)
    return StoreError(f"{files}: {who} is writing {work}; wait until it ends{hint}")


@contextmanager
def _flock(files: StoreFiles, owner: bytes) -> Iterator[None]:
    import fcntl  # POSIX only

    path = Path(files.at(LOCK))
    if path.is_dir():
        raise StoreError(f"{path}: expected no folder, but the file of a lock or nothing; remove it")
    while True:
        with path.open("a+b", buffering=0) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                raise _locked_error(files, file.read(1000)) from None
            # The previous writer removes the file when it ends, and a lock on a removed file excludes no other writer.
            if not path.exists() or os.fstat(file.fileno()).st_ino != path.stat().st_ino:
                continue
            try:
                file.truncate(0)
                file.write(owner)
                yield
            finally:
                path.unlink(missing_ok=True)
            return


@contextmanager
def _lock_file(files: StoreFiles, owner: bytes) -> Iterator[None]:
    if files.exists(LOCK):
        raise _locked_error(files, files.read(LOCK), f"; if it no longer runs, remove {files.at(LOCK)}")
    files.fs.pipe_file(files.at(LOCK), owner)
    # Not all object stores can create a file exclusively; of two simultaneous writers, the last one keeps the lock.
    if (actual_owner := files.read(LOCK)) != owner:
        raise _locked_error(files, actual_owner)
    try:
        yield
    finally:
        files.remove(LOCK)
