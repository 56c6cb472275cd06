"""One writer at a time. On a local disk the lock dies with its process; elsewhere it is a file that names its owner."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from haybale.embeddings.store.files import LOCK, StoreFiles
from haybale.errors import StoreError


@contextmanager
def writer_lock(files: StoreFiles) -> Iterator[None]:
    """Hold the store for writing, or raise :class:`~haybale.errors.StoreError` and name who does."""
    files.make()
    with _flock(files) if files.is_local else _lock_file(files):
        yield


def wait_for_writer(files: StoreFiles, seconds: float) -> None:
    """Return when nobody writes the store, or after so many seconds: whoever takes the lock then says who does."""
    deadline = time.monotonic() + seconds
    while files.exists(LOCK) and time.monotonic() < deadline:
        try:
            with writer_lock(files):
                return
        except StoreError:
            time.sleep(0.2)


def _owner() -> bytes:
    return json.dumps({"host": socket.gethostname(), "process": os.getpid()}).encode()


def _refuse(files: StoreFiles, owner: bytes, hint: str = "") -> StoreError:
    with contextlib.suppress(ValueError, KeyError, TypeError):
        held = json.loads(owner)
        return StoreError(f"{files}: process {held['process']} on {held['host']} is writing this store{hint}")
    return StoreError(f"{files}: another process is writing this store{hint}")


@contextmanager
def _flock(files: StoreFiles) -> Iterator[None]:
    import fcntl  # POSIX; held by the kernel, so a killed writer holds nothing

    path = Path(files.at(LOCK))
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = os.read(handle, 1000)
            os.close(handle)
            raise _refuse(files, owner) from None
        # The writer before us removes the file when it leaves: a lock on a removed file keeps nobody out.
        if path.exists() and os.fstat(handle).st_ino == path.stat().st_ino:
            break
        os.close(handle)
    try:
        os.truncate(handle, 0)
        os.write(handle, _owner())
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(handle)


@contextmanager
def _lock_file(files: StoreFiles) -> Iterator[None]:
    path = files.at(LOCK)
    if files.exists(LOCK):
        hint = f"; if it no longer runs, remove {path}"
        raise _refuse(files, files.fs.cat_file(path), hint)
    files.fs.pipe_file(path, _owner())
    # Object stores have no exclusive create that all of them share; the last of two that came at once keeps it.
    if files.fs.cat_file(path) != _owner():
        raise _refuse(files, files.fs.cat_file(path))
    try:
        yield
    finally:
        files.remove(LOCK)
