"""Fitted rankers in a form that can be sent, from which other processes make them.

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
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

from haybale.engine.workers import Address, Sendable, Workers, opened_engine
from haybale.errors import StoreError
from haybale.kept_results import RANKER, kept_results
from haybale.manifest import digest
from haybale.ranking.contract import RankerContract
from haybale.ranking.saved_rankers import MANIFEST, innermost_first, read_ranker_manifest, restored, save, saved_in
from haybale.ranking.training import Training
from haybale.retrieval.object_storage import files_in_cache, is_address
from haybale.search.query_batch import QueryBatch


@dataclass(frozen=True)
class _SentRanker:
    """What is sent of a ranker.

    ``unfitted`` are copies of the ranker and of those in it, nested rankers first. ``text`` is an untrained ranker as
    JSON. A trained ranker is saved in ``folder``, and ``digest`` is the SHA-256 of the manifest there; ``files`` are
    the names and contents of its files, for processes that do not reach the folder. ``outside`` is
    :attr:`Ranker.outside_state` as JSON: the digests of the models and engines that the ranker reads by their paths.
    """

    unfitted: list[RankerContract] = field(compare=False)
    text: str = ""
    folder: str = ""
    digest: str = ""
    files: tuple[tuple[str, bytes], ...] = ()
    outside: str = ""


@contextmanager
def sendable_rankers(
    rankers: Sequence[RankerContract], workers: Workers
) -> Iterator[tuple[Sendable, list[tuple[str, str, str]]]]:
    """Yield a list of fitted rankers as an argument of tasks, and what distinguishes each from others on the engine.

    Unsaved trained rankers are saved until the block ends.
    """
    checkpoint, new_folders = kept_results(), list[Path]()
    sends_files = workers.address is not None and is_address(workers.address[0])

    def form_of(ranker: RankerContract) -> _SentRanker:
        outside = _outside(ranker)
        if not ranker.needs_training:
            return _SentRanker([ranker.clone()], text=json.dumps(ranker.to_dict()), outside=outside)
        folder = saved_in(ranker)
        if folder is None:  # where workers reach it, or beside the results that are kept
            parent = Path(str(workers.engine.folder)).parent if checkpoint is None else checkpoint.folder
            parent.mkdir(parents=True, exist_ok=True)
            new_folders.append(Path(tempfile.mkdtemp(prefix=RANKER, dir=parent)))
            folder = new_folders[-1] / "ranker"
            save(ranker, folder)
        paths = sorted(path for path in folder.rglob("*") if path.is_file()) if sends_files else []
        files = tuple((path.relative_to(folder).as_posix(), path.read_bytes()) for path in paths)
        unfitted = [inner.clone() for inner in innermost_first(ranker)]
        return _SentRanker(unfitted, "", str(folder), digest(folder / MANIFEST), files, outside)

    try:
        sent = [form_of(ranker) for ranker in rankers]
        keys = [(form.text, form.digest, form.outside) for form in sent]
        yield Sendable(list(rankers), _rankers_at, lambda: tuple(sent)), keys
    finally:
        for folder in new_folders:
            shutil.rmtree(folder, ignore_errors=True)


def _rankers_at(address: Address, *sent: _SentRanker) -> list[RankerContract]:
    """Return rankers on the engine at an address, each made once in each process."""
    rankers = []
    for form in sent:
        if form.files:
            form = replace(form, folder=str(files_in_cache(f"ranker {form.digest}", form.files)), files=())
        rankers.append(_loaded(address, form))
    return rankers


@lru_cache(maxsize=32)
def _loaded(address: Address, sent: _SentRanker) -> RankerContract:
    """Return a ranker without ``files`` on the engine at an address, once in each process."""
    engine = opened_engine(address)
    if sent.folder:
        folder = Path(sent.folder)
        if digest(folder / MANIFEST) != sent.digest:
            raise StoreError(
                f"{folder}: expected the ranker that ranks, found another that was saved there since; rank again"
            )
        unfitted = (ranker.clone() for ranker in sent.unfitted)  # threads of one process may share the form
        ranker = restored(unfitted, folder, read_ranker_manifest(folder), engine)
    else:
        untrained = Training(QueryBatch(engine, engine.collection.queries.take([])), [])
        ranker = sent.unfitted[-1].clone()._fit_on(untrained)
    if _outside(ranker) != sent.outside:
        raise StoreError(
            f"{ranker}: on {socket.gethostname()}, expected the models and engines that it was fitted with, found "
            "others at their paths; use shared storage, or fit the ranker again"
        )
    return ranker


def _outside(ranker: RankerContract) -> str:
    """Return :attr:`Ranker.outside_state` as JSON."""
    return json.dumps(ranker.outside_state, sort_keys=True)
