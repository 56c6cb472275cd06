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
from haybale.ranking.loading import load
from haybale.ranking.ranker import MANIFEST, Ranker
from haybale.ranking.ranker_texts import from_spec
from haybale.ranking.training import Training
from haybale.retrieval.object_storage import files_in_cache, is_address
from haybale.search.query_batch import QueryBatch


class Portable(NamedTuple):
    """A fitted ranker in a form that every process can make it from.

    ``text`` is an untrained ranker as JSON. A trained ranker is saved in ``folder``, and ``digest`` is the SHA-256 of
    the manifest there; ``files`` are the names and contents of its files, for processes that do not reach the folder.
    ``outside`` is :meth:`Ranker.outside_state` as JSON: the digests of the models and engines that the ranker reads by
    their paths.
    """

    text: str = ""
    folder: str = ""
    digest: str = ""
    files: tuple[tuple[str, bytes], ...] = ()
    outside: str = ""

    @property
    def key(self) -> list[str]:
        """The values that distinguish the ranker from others on the same engine."""
        return [self.text, self.digest, self.outside]


@contextmanager
def portable(rankers: Sequence[Ranker], engine: Engine, address: Address | None) -> Iterator[list[Portable]]:
    """Yield fitted rankers in a form that can be sent; unsaved trained rankers are saved until the block ends.

    ``address`` is where other processes open the engine, None if only this process uses the rankers.
    """
    checkpoint, new_folders = kept_results(), list[Path]()
    sends_files = address is not None and is_address(address[0])

    def form_of(ranker: Ranker) -> Portable:
        outside = _outside(ranker)
        if not ranker.needs_training:
            return Portable(text=json.dumps(ranker.to_dict()), outside=outside)
        folder = ranker.saved_in()
        if folder is None:  # where workers reach it, or beside the results that are kept
            parent = Path(str(engine.folder)).parent if checkpoint is None else checkpoint.folder
            parent.mkdir(parents=True, exist_ok=True)
            new_folders.append(Path(tempfile.mkdtemp(prefix=RANKER, dir=parent)))
            folder = new_folders[-1] / "ranker"
            ranker.save(folder)
        files = tuple((name, (folder / name).read_bytes()) for name in _file_names(folder)) if sends_files else ()
        return Portable(folder=str(folder), digest=digest(folder / MANIFEST), files=files, outside=outside)

    try:
        yield [form_of(ranker) for ranker in rankers]
    finally:
        for folder in new_folders:
            shutil.rmtree(folder, ignore_errors=True)


def _file_names(folder: Path) -> list[str]:
    """Return the paths of all files in a folder, also in subfolders, relative to it."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def made_from(sendable_ranker: Portable, address: Address) -> Ranker:
    """Return a ranker on the engine at an address, once in each process."""
    if sendable_ranker.files:
        folder = files_in_cache(f"ranker {sendable_ranker.digest}", sendable_ranker.files)
        sendable_ranker = sendable_ranker._replace(folder=str(folder), files=())
    return _loaded(sendable_ranker, address)


@lru_cache(maxsize=32)
def _loaded(sendable_ranker: Portable, address: Address) -> Ranker:
    """Return a ranker without ``files`` on the engine at an address, once in each process."""
    engine = opened_engine(*address)
    if folder := sendable_ranker.folder:
        if digest(Path(folder, MANIFEST)) != sendable_ranker.digest:
            raise StoreError(
                f"{folder}: expected the ranker that ranks, found another that was saved there since; rank again"
            )
        ranker = load(folder, engine)
    else:
        untrained = Training(QueryBatch(engine, engine.collection.queries.take([])), [])
        ranker = from_spec(json.loads(sendable_ranker.text)).fit_on(untrained)
    if _outside(ranker) != sendable_ranker.outside:
        raise StoreError(
            f"{ranker}: on {socket.gethostname()}, expected the models and engines that it was fitted with, found "
            "others at their paths; use shared storage, or fit the ranker again"
        )
    return ranker


def _outside(ranker: Ranker) -> str:
    """Return :meth:`Ranker.outside_state` as JSON."""
    return json.dumps(ranker.outside_state(), sort_keys=True)
