"""Rank many queries in blocks: tasks that run on the machines of a cluster, and whose results can be kept.

A task is a function of an engine's folder, of rankers and of some queries. It opens the engine by its path, and returns
runs as arrays of document numbers and scores.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haybale.cluster import count_jobs, own_threads, shares_memory
from haybale.collections import Queries
from haybale.engine.opened import Address, opened_engine, task_address
from haybale.kept_results import Arrays, kept_results, spread_resumably, task_key
from haybale.parallel import at_most_threads
from haybale.ranking.portable import Portable, made_from, portable
from haybale.ranking.ranker import Ranker
from haybale.retrieval import Run
from haybale.retrieval.hits import Ints
from haybale.search.query_batch import QueryBatch
from haybale.timing import summed_timings
from haybale.vectors import Matrix

_MAX_QUERIES_PER_BLOCK = 2048  # about; the hits of a block fit into memory
_MIN_BLOCKS = 4  # in one process, so that an interruption loses little


def rank_in_blocks(rankers: Sequence[Ranker], batch: QueryBatch, depth: int, *, out_of_fold: bool = False) -> None:
    """Rank the queries of a batch by fitted rankers, in blocks; :meth:`Ranker.run` then finds the runs in the batch.

    With ``out_of_fold``, the queries are ranked by :meth:`Ranker.run_out_of_fold`, which then finds these runs. The
    rankers of one call share the searches of a block. Rankers that rank whole batches are left out: they call this for
    the rankers that they hold. Nothing is done for few queries, and where neither tasks run in other processes nor
    :func:`~haybale.kept_results.resumable` keeps their results.
    """
    if len(batch) <= batch.block:
        return
    engine, depth = batch.engine, batch.deep(depth)
    by_tasks, address = task_address(engine)
    rankers_by_key = {
        ranker.out_of_fold_key() if out_of_fold else ranker.run_key(): ranker
        for ranker in rankers
        if not ranker.ranks_whole_batches
    }
    missing_rankers = {key: ranker for key, ranker in rankers_by_key.items() if not batch.has_run(key, depth)}
    if not by_tasks or not missing_rankers:
        return
    rows = np.array_split(np.arange(len(batch)), _number_of_blocks(len(batch), batch.block))
    with portable(list(missing_rankers.values()), engine, address) as sendable_rankers:

        def keys() -> Iterator[str]:
            work = "rank out of fold" if out_of_fold else "rank"
            ranker_keys = [ranker.key for ranker in sendable_rankers]
            for block in rows:
                queries = batch.queries.take(block)
                columns = queries.ids.to_pylist(), queries.paragraphs.to_pylist(), queries.offsets, queries.own
                yield task_key(work, engine.documents_digest, ranker_keys, depth, *columns)

        with batch.timed("rank in blocks"), summed_timings():
            what = "ranking blocks of queries"
            if address is None:  # only this process has the engine
                rank = partial(_ranked, list(missing_rankers.values()), depth, out_of_fold)
                parts = spread_resumably(rank, [(batch.take(block),) for block in rows], keys, what, n_jobs=1)
            else:
                tasks = [(batch.queries.take(block), _vectors(batch, block)) for block in rows]
                rank = partial(rank_block, address, sendable_rankers, batch.label, depth, out_of_fold)
                parts = spread_resumably(rank, tasks, keys, what)
    for number, key in enumerate(missing_rankers):
        batch.keep_run(key, depth, _joined(parts, number, batch))


def _number_of_blocks(n: int, size: int) -> int:
    """Return the number of blocks of ``n`` queries, the same for a computation that goes on after an interruption.

    Each worker gets equally many blocks; one process, which keeps the results of blocks, gets at least four. ``size``
    queries or fewer are not divided.
    """
    checkpoint, key = kept_results(), task_key("number of blocks", n, size)
    saved = None if checkpoint is None else checkpoint.get(key)
    if saved is not None:
        return int(saved["number"])
    jobs = 1 if shares_memory() else count_jobs(-1)
    parts = jobs if jobs > 1 else _MIN_BLOCKS
    number = min(parts * -(-n // (_MAX_QUERIES_PER_BLOCK * parts)), -(-n // size))
    if checkpoint is not None and jobs > 1:  # a later run may have another number of workers
        checkpoint.put(key, {"number": np.array(number)})
    return number


def rank_block(
    address: Address,
    sendable_rankers: list[Portable],
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
        return _ranked([made_from(ranker, address) for ranker in sendable_rankers], depth, out_of_fold, batch)


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
    """Return the vectors of some queries if the batch has dense ones; a worker makes sparse vectors itself."""
    vectors = vars(batch).get("vectors")
    return None if vectors is None or getattr(batch.engine.encoder, "is_sparse", False) else vectors[rows]
