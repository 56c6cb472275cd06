"""Rank many queries in blocks: tasks that run on the machines of a cluster, and whose results can be kept.

A task is a function of an engine's folder, of rankers and of some queries. It opens the engine by its path, and returns
runs as arrays of document numbers and scores.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from haybale.cluster import count_jobs, own_threads, shares_memory
from haybale.collections import Queries
from haybale.engine import Engine
from haybale.engine.opened import Address, opened_engine, task_address
from haybale.kept_results import RANKER, Arrays, kept_results, spread_resumably, task_key
from haybale.manifest import digest
from haybale.parallel import at_most_threads
from haybale.rankers.grammar import from_spec
from haybale.rankers.loading import load
from haybale.rankers.query_batch import QueryBatch
from haybale.rankers.ranker import MANIFEST, Ranker
from haybale.rankers.training import Training
from haybale.retrieval import Run
from haybale.retrieval.hits import Ints
from haybale.timing import summed_timings
from haybale.vectors import Matrix

_LARGEST = 4096  # queries of a block, about: their hits and the kernel values of an ensemble fit into memory
_KEPT = 4  # blocks in one process, at least, so that an interruption loses little


class Portable(NamedTuple):
    """A fitted ranker in a form that every process can make it from.

    ``text`` has a ranker without training as JSON. A trained one is saved in ``folder``, whose manifest has ``digest``.
    """

    text: str = ""
    folder: str = ""
    digest: str = ""


def rank_in_blocks(rankers: Sequence[Ranker], batch: QueryBatch, depth: int, *, out_of_fold: bool = False) -> None:
    """Rank the queries of a batch by fitted rankers, in blocks; :meth:`Ranker.run` then finds the runs in the batch.

    With ``out_of_fold``, the queries are ranked by :meth:`Ranker.run_out_of_fold`, which then finds these runs. The
    rankers of one call share the searches of a block. Nothing is done for few queries, and where neither tasks run in
    other processes nor :func:`~haybale.kept_results.resumable` keeps their results.
    """
    if len(batch) <= batch.block:
        return
    engine, depth = batch.engine, batch.deep(depth)
    by_tasks, address = task_address(engine)
    keyed = {each.out_of_fold_key() if out_of_fold else each.run_key(): each for each in rankers}
    wanted = {key: each for key, each in keyed.items() if not batch.has_run(key, depth)}
    if not by_tasks or not wanted:
        return
    rows = np.array_split(np.arange(len(batch)), _number_of_blocks(len(batch), batch.block))
    with _portable(list(wanted.values()), engine) as given:

        def keys() -> Iterator[str]:
            work = "rank out of fold" if out_of_fold else "rank"
            known = [ranker.text or ranker.digest for ranker in given]
            for block in rows:
                queries = batch.queries.take(block)
                asked = queries.ids.to_pylist(), queries.paragraphs.to_pylist(), queries.offsets, queries.own
                yield task_key(work, engine.documents_digest, known, depth, *asked)

        with batch.timed("rank in blocks"), summed_timings():
            what = "ranking blocks of queries"
            if address is None:  # functions of this process, which cannot be sent to others, share its engine
                rank = partial(_ranked, list(wanted.values()), depth, out_of_fold)
                parts = spread_resumably(rank, [(batch.take(block),) for block in rows], keys, what, n_jobs=1)
            else:
                tasks = [(batch.queries.take(block), _vectors(batch, block)) for block in rows]
                rank = partial(rank_block, address, given, batch.label, depth, out_of_fold)
                parts = spread_resumably(rank, tasks, keys, what)
    for number, key in enumerate(wanted):
        batch.keep_run(key, depth, _joined(parts, number, batch))


def _number_of_blocks(n: int, size: int) -> int:
    """Return the number of blocks of ``n`` queries, the same for a computation that goes on after an interruption.

    Large blocks take less work, because an ensemble computes the kernel values of a candidate once for all queries of a
    block. There are equally many blocks for each worker, or at least four in one process, which keeps their results.
    ``size`` queries or fewer are not divided.
    """
    kept, key = kept_results(), task_key("number of blocks", n, size)
    known = None if kept is None else kept.get(key)
    if known is not None:
        return int(known["number"])
    jobs = 1 if shares_memory() else count_jobs(-1)
    parts = jobs if jobs > 1 else _KEPT
    number = min(parts * -(-n // (_LARGEST * parts)), -(-n // size))
    if kept is not None and jobs > 1:  # the number of workers may be another one then
        kept.put(key, {"number": np.array(number)})
    return number


def rank_block(
    address: Address,
    given: list[Portable],
    label: str,
    depth: int,
    out_of_fold: bool,
    queries: Queries,
    vectors: Matrix | None,
) -> Arrays:
    """Return the runs of rankers for some queries on the engine at an address, in any process."""
    with at_most_threads(own_threads()):
        batch = QueryBatch(opened_engine(*address), queries, label)
        if vectors is not None:
            batch.vectors = vectors
        return _ranked([_made(each, address) for each in given], depth, out_of_fold, batch)


def _ranked(rankers: Sequence[Ranker], depth: int, out_of_fold: bool, batch: QueryBatch) -> Arrays:
    """Return runs as arrays: for each ranker, the number of documents of each query, the documents and the scores."""
    arrays: dict[str, NDArray[Any]] = {}
    for number, ranker in enumerate(rankers):
        run = ranker.run_out_of_fold(batch, depth) if out_of_fold else ranker.run(batch, depth)
        rows, _, documents = run.numbers_in(batch.engine.collection)
        arrays[f"{number} counts"] = np.bincount(rows, minlength=len(batch))
        arrays[f"{number} documents"], arrays[f"{number} scores"] = documents, run.coded()[-1]
    return arrays


def _joined(parts: Sequence[Arrays], number: int, batch: QueryBatch) -> Run:
    """Return the run of a ranker over all blocks."""
    counts, documents, scores = (
        np.concatenate([part[f"{number} {name}"] for part in parts]) for name in ("counts", "documents", "scores")
    )
    rows = np.repeat(np.arange(len(batch)), counts)
    return Run(batch.ids, rows, documents, batch.engine.collection.doc_ids, scores)


def _vectors(batch: QueryBatch, rows: Ints) -> Matrix | None:
    """Return the vectors of some queries if they exist and took long; a worker makes sparse ones itself."""
    known = vars(batch).get("vectors")
    return None if known is None or getattr(batch.engine.encoder, "is_sparse", False) else known[rows]


@contextmanager
def _portable(rankers: Sequence[Ranker], engine: Engine) -> Iterator[list[Portable]]:
    """Yield fitted rankers in a form that can be sent; trained ones that are not saved are saved within the block."""
    kept, made = kept_results(), list[Path]()

    def portable(ranker: Ranker) -> Portable:
        if not ranker.needs_training:
            return Portable(text=json.dumps(ranker.to_dict()))
        folder = ranker.saved_in()
        if folder is None:  # where workers reach it, or beside the results that are kept
            parent = Path(str(engine.folder)).parent if kept is None else kept.folder
            parent.mkdir(parents=True, exist_ok=True)
            made.append(Path(tempfile.mkdtemp(prefix=RANKER, dir=parent)))
            folder = made[-1] / "ranker"
            ranker.save(folder)
        return Portable(folder=str(folder), digest=digest(folder / MANIFEST))

    try:
        yield [portable(ranker) for ranker in rankers]
    finally:
        for folder in made:
            shutil.rmtree(folder, ignore_errors=True)


@lru_cache(maxsize=32)
def _made(given: Portable, address: Address) -> Ranker:
    """Return a ranker on the engine at an address, once in each process."""
    engine = opened_engine(*address)
    if given.folder:
        return load(given.folder, engine)
    untrained = Training(QueryBatch(engine, engine.collection.queries.take([])), [])
    return from_spec(json.loads(given.text)).fit_on(untrained)
