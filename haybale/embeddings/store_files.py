"""The files of a folder at any address that fsspec knows, and a lock that admits one writer at a time."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from haybale.errors import InputError, StoreError
from haybale.text_files import parsed_json, reading

MANIFEST, BUILDING, LOCK = "manifest.json", "building.json", ".lock"


class StoreFiles:
    """One folder of a file system. A file appears under its name only when it is complete.

    Parameters
    ----------
    path : str or Path
        A local folder or an fsspec address.
    """

    def __init__(self, path: str | Path) -> None:
        import fsspec
        from fsspec.implementations.local import LocalFileSystem

        self.url = str(path)
        if "\0" in self.url:
            raise InputError(f"{self.url!r} is no path: it holds a NUL")
        try:
            self.fs, root = fsspec.core.url_to_fs(self.url)
        except (ImportError, ValueError) as error:
            raise InputError(f"{self.url}: {error}") from error
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

    def names(self, folder: str = "") -> list[str]:
        """Return the sorted names of what lies in the folder, or in a subfolder; none if that does not exist."""
        try:
            found = self.fs.ls(self.at(folder).rstrip("/"), detail=False, refresh=True)
        except (FileNotFoundError, NotADirectoryError):
            return []
        return sorted(str(name).rstrip("/").rpartition("/")[2] for name in found)

    def remove(self, name: str) -> None:
        """Remove a file, or a subfolder with all it holds, if it exists."""
        if self.exists(name):
            self.fs.rm(self.at(name), recursive=True)

    def read(self, name: str) -> bytes:
        return bytes(self.fs.cat_file(self.at(name)))

    @contextmanager
    def whole(self, name: str) -> Iterator[Any]:
        """Open a binary file for writing; it gets its name when it is closed without an error."""
        aside = f"{name}.partial"
        try:
            with self.fs.open(self.at(aside), "wb") as file:
                yield file
        except BaseException:
            self.remove(aside)
            raise
        self.fs.mv(self.at(aside), self.at(name))

    def write(self, name: str, content: bytes) -> None:
        with self.whole(name) as file:
            file.write(content)

    def write_json(self, name: str, value: Any) -> None:
        self.write(name, (json.dumps(value, indent=2, ensure_ascii=False, sort_keys=True) + "\n").encode())

    def read_json(self, name: str) -> Any:
        with reading(self.at(name)):
            return parsed_json(self.at(name), self.read(name))


def as_json(value: Any) -> Any:
    """Return a value as JSON gives it back: tuples become lists."""
    return json.loads(json.dumps(value))


@contextmanager
def writer_lock(files: StoreFiles) -> Iterator[None]:
    """Hold a folder for writing; :class:`~haybale.errors.StoreError` names the process that holds it already.

    On a local disk the operating system releases the lock of a process that dies. Elsewhere the lock is a file that
    names its owner, and stays after a crash.
    """
    files.fs.makedirs(files.root, exist_ok=True)
    owner = json.dumps({"host": socket.gethostname(), "process": os.getpid()}).encode()
    try:
        with _flock(files, owner) if files.is_local else _lock_file(files, owner):
            yield
    except BaseException:
        if files.is_local and not files.names():  # nothing was written
            os.rmdir(files.root)
        raise


def _held_error(files: StoreFiles, owner: bytes, hint: str = "") -> StoreError:
    who = "another process"
    with contextlib.suppress(ValueError, KeyError, TypeError):
        held = json.loads(owner)
        who = f"process {held['process']} on {held['host']}"
    return StoreError(f"{files}: {who} is writing this store{hint}")


@contextmanager
def _flock(files: StoreFiles, owner: bytes) -> Iterator[None]:
    import fcntl  # POSIX only

    path = Path(files.at(LOCK))
    while True:
        with path.open("a+b", buffering=0) as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                file.seek(0)
                raise _held_error(files, file.read(1000)) from None
            # The previous writer removes the file when it leaves: a lock on a removed file excludes nobody.
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
        raise _held_error(files, files.read(LOCK), f"; if it no longer runs, remove {files.at(LOCK)}")
    files.fs.pipe_file(files.at(LOCK), owner)
    # Object stores share no exclusive create; of two writers that came at once, the last one keeps the lock.
    if (found := files.read(LOCK)) != owner:
        raise _held_error(files, found)
    try:
        yield
    finally:
        files.remove(LOCK)
