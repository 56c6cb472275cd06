"""One writer of an engine's folder at a time."""

from __future__ import annotations

import re
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from haybale.embeddings.store import StoreFiles
from haybale.embeddings.writing import writer_lock

_ASIDE = re.compile(r"\..+\.\d+")


class _Held(threading.local):
    """The folders that this thread writes."""

    def __init__(self) -> None:
        self.folders: set[Path] = set()


_held = _Held()


@contextmanager
def writing(folder: Path) -> Iterator[None]:
    """Hold the folder for writing; held by this thread already, it is held on.

    Raises
    ------
    StoreError
        Somebody else writes it; the message names who.
    """
    if folder in _held.folders:
        yield
        return
    with writer_lock(StoreFiles(folder)):
        _sweep(folder)
        _held.folders.add(folder)
        try:
            yield
        finally:
            _held.folders.discard(folder)


def _sweep(folder: Path) -> None:
    """Remove what writers that were killed had written aside; nobody else writes while the folder is held."""
    for path in [*folder.glob(".*"), *folder.glob("*/.*")]:
        if _ASIDE.fullmatch(path.name):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
