"""Fitted rankers in a form from which other processes make them.

Trained rankers are read from folders that all workers reach. If the engine is on object storage, there may be no such
folder: their files are sent with the task.
"""

from __future__ import annotations

import json
import shutil
import socket
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from haybale.engine import Engine
from haybale.engine.opened import Address, opened_engine
from haybale.errors import StoreError
from haybale.kept_results import RANKER, kept_results
from haybale.manifest import digest
from haybale.rankers.grammar import from_spec
from haybale.rankers.loading import load
from haybale.rankers.query_batch import QueryBatch
from haybale.rankers.ranker import MANIFEST, Ranker
from haybale.rankers.training import Training
from haybale.retrieval.object_storage import files_in_cache, is_address


class Portable(NamedTuple):
    """A fitted ranker in a form that every process can make it from.

    ``text`` has a ranker without training as JSON. A trained one is saved in ``folder``, whose manifest has ``digest``;
    ``files`` are the names and contents of its files, for processes that do not reach the folder. ``outside`` is
    :meth:`Ranker.outside_state` as JSON: what the models and engines that it reads by their paths must be.
    """

    text: str = ""
    folder: str = ""
    digest: str = ""
    files: tuple[tuple[str, bytes], ...] = ()
    outside: str = ""

    @property
    def key(self) -> list[str]:
        """What tells it from other rankers on the same engine."""
        return [self.text, self.digest, self.outside]


@contextmanager
def portable(rankers: Sequence[Ranker], engine: Engine, address: Address | None) -> Iterator[list[Portable]]:
    """Yield fitted rankers in a form that can be sent; trained ones that are not saved are saved within the block.

    ``address`` is that of the engine for other processes, None if only this process uses them.
    """
    kept, made = kept_results(), list[Path]()
    sends_files = address is not None and is_address(address[0])

    def form_of(ranker: Ranker) -> Portable:
        outside = _outside(ranker)
        if not ranker.needs_training:
            return Portable(text=json.dumps(ranker.to_dict()), outside=outside)
        folder = ranker.saved_in()
        if folder is None:  # where workers reach it, or beside the results that are kept
            parent = Path(str(engine.folder)).parent if kept is None else kept.folder
            parent.mkdir(parents=True, exist_ok=True)
            made.append(Path(tempfile.mkdtemp(prefix=RANKER, dir=parent)))
            folder = made[-1] / "ranker"
            ranker.save(folder)
        files = tuple((name, (folder / name).read_bytes()) for name in _file_names(folder)) if sends_files else ()
        return Portable(folder=str(folder), digest=digest(folder / MANIFEST), files=files, outside=outside)

    try:
        yield [form_of(ranker) for ranker in rankers]
    finally:
        for folder in made:
            shutil.rmtree(folder, ignore_errors=True)


def _file_names(folder: Path) -> list[str]:
    """Return the paths of all files in a folder, also in subfolders, relative to it."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def made_from(given: Portable, address: Address) -> Ranker:
    """Return a ranker on the engine at an address, once in each process."""
    if given.files:
        folder = files_in_cache(f"ranker {given.digest}", given.files)
        given = given._replace(folder=str(folder), files=())
    return _loaded(given, address)


@lru_cache(maxsize=32)
def _loaded(given: Portable, address: Address) -> Ranker:
    """Return a ranker without ``files`` on the engine at an address, once in each process."""
    engine = opened_engine(*address)
    if given.folder:
        if digest(Path(given.folder, MANIFEST)) != given.digest:
            raise StoreError(
                f"{given.folder}: expected the ranker that ranks, found another that was saved there since; rank again"
            )
        ranker = load(given.folder, engine)
    else:
        untrained = Training(QueryBatch(engine, engine.collection.queries.take([])), [])
        ranker = from_spec(json.loads(given.text)).fit_on(untrained)
    if _outside(ranker) != given.outside:
        raise StoreError(
            f"{ranker}: on {socket.gethostname()}, expected the models and engines that it was fitted with, found "
            "others at their paths; use shared storage, or fit the ranker again"
        )
    return ranker


def _outside(ranker: Ranker) -> str:
    """Return what tells apart the models and engines that a ranker reads by their paths, as JSON."""
    return json.dumps(ranker.outside_state(), sort_keys=True)
