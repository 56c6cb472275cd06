"""Runs of fitted rankers for a batch of queries; many queries are ranked in blocks, each by a task.

A task returns runs as arrays of document numbers and scores. The rankers of one call share the searches of a block.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haybale.embeddings.lineage import check_unseen
from haybale.engine.workers import Workers
from haybale.errors import InputError
from haybale.kept_results import Arrays, kept_results, task_key
from haybale.ranking.contract import RankerContract
from haybale.ranking.sendable_rankers import sendable_rankers
from haybale.retrieval import Run
from haybale.returned_values import method_of, returned
from haybale.search.query_batch import QueryBatch, sendable_batch
from haybale.timing import summed_timings

_MAX_QUERIES_PER_BLOCK = 2048  # about; the hits of a block fit into memory
_MIN_BLOCKS = 4  # in one process, so that an interruption loses little


def runs_of(
    rankers: Sequence[RankerContract], batch: QueryBatch, depth: int, *, out_of_fold: bool = False
) -> list[Run]:
    """Return the first ``depth`` documents of each query of a batch by each ranker; the batch caches the runs.

    With ``out_of_fold``, training queries are ranked as if the rankers had not seen them. Rankers that rank whole
    batches call this for the rankers that they hold.
    """
    if out_of_fold:
        for ranker in rankers:
            check_unseen(batch.ids, ranker.twins_.with_twins(ranker.encoder_queries), ranker)
    keys = [_run_key(ranker, out_of_fold) for ranker in rankers]
    by_key = dict(zip(keys, rankers, strict=True))
    in_blocks = dict[Any, Run]()
    if len(batch) > batch.block and (workers := Workers(batch.engine)).divide:
        deep = batch.deep(depth)
        missing = [
            key for key, ranker in by_key.items() if not (ranker._ranks_whole_batches or batch.has_run(key, deep))
        ]
        ranked = rank_in_blocks([by_key[key] for key in missing], batch, deep, out_of_fold, workers) if missing else []
        in_blocks = dict(zip(missing, ranked, strict=True))

    def run_of(key: Any) -> Run:
        def make(batch: QueryBatch, depth: int) -> Run:
            ranker = by_key[key]
            if key in in_blocks:
                return in_blocks[key]
            is_learned = out_of_fold and ranker.needs_training
            run = ranker.out_of_fold_batch(batch, depth) if is_learned else ranker.rank_batch(batch, depth)
            return checked_run(run, batch, method_of(ranker, "out_of_fold_batch" if is_learned else "rank_batch"))

        return batch.cached_run(key, depth, make)

    return [run_of(key) for key in keys]


def checked_run(run: Any, batch: QueryBatch, method: str) -> Run:
    """Return what a ranker's method returned; raise InputError unless it is a run of the queries of the batch."""
    advice = "return Run.from_numbers(batch.ids, …)"
    checked = returned(run, Run, method, advice)
    if checked.query_ids != batch.ids:
        raise InputError(
            f"{method} must return a run of the {len(batch):,} queries of the batch, in their order, found one of "
            f"{len(checked):,} queries or others; {advice}"
        )
    return checked


def _run_key(ranker: RankerContract, out_of_fold: bool) -> tuple[Any, ...]:
    """Return the key of a run in the cache of a batch."""
    return "out of fold" if out_of_fold and ranker.needs_training else "run", ranker._cache_key()


def rank_in_blocks(
    rankers: Sequence[RankerContract], batch: QueryBatch, depth: int, out_of_fold: bool, workers: Workers
) -> list[Run]:
    """Return the run of each ranker for a batch, whose queries are divided into blocks."""
    rows = np.array_split(np.arange(len(batch)), _number_of_blocks(len(batch), batch.block, workers))
    with sendable_rankers(rankers, workers) as (argument, ranker_keys):

        def keys() -> Iterator[tuple[Any, ...]]:
            for block in rows:
                queries = batch.queries.take(block)
                columns = queries.ids.to_pylist(), queries.paragraphs.to_pylist(), queries.offsets, queries.own
                yield ranker_keys, depth, out_of_fold, *columns

        with batch.timed("rank in blocks"), summed_timings():
            blocks = [(sendable_batch(batch.take(block)),) for block in rows]
            common = argument, depth, out_of_fold
            results = workers.run(rank_block, common, blocks, keys, "ranking blocks of queries")
    return [_joined(results, number, batch) for number in range(len(rankers))]


def _number_of_blocks(n: int, size: int, workers: Workers) -> int:
    """Return the number of blocks of ``n`` queries, the same for a computation that goes on after an interruption.

    Each worker gets equally many blocks; one process, which keeps the results of blocks, gets at least four. ``size``
    queries or fewer are not divided.
    """
    checkpoint, key = kept_results(), task_key("number of blocks", n, size)
    saved = None if checkpoint is None else checkpoint.get(key)
    if saved is not None:
        return int(saved["number"])
    jobs = workers.count()
    parts = jobs if jobs > 1 else _MIN_BLOCKS
    number = min(parts * -(-n // (_MAX_QUERIES_PER_BLOCK * parts)), -(-n // size))
    if checkpoint is not None and jobs > 1:  # a later run may have another number of workers
        checkpoint.put(key, {"number": np.array(number)})
    return number


def rank_block(rankers: Sequence[RankerContract], depth: int, out_of_fold: bool, batch: QueryBatch) -> Arrays:
    """Return runs as arrays: for each ranker, the number of documents of each query, the documents and the scores."""
    arrays: dict[str, NDArray[Any]] = {}
    for number, run in enumerate(runs_of(rankers, batch, depth, out_of_fold=out_of_fold)):
        rows, _, documents = run.numbers_in(batch.engine.collection)
        arrays[f"{number} counts"] = np.bincount(rows, minlength=len(batch))
        arrays[f"{number} documents"], arrays[f"{number} scores"] = documents, run.coded()[-1]
    return arrays


def _joined(results: Sequence[Arrays], number: int, batch: QueryBatch) -> Run:
    """Return the run of a ranker over all blocks."""
    counts, documents, scores = (
        np.concatenate([arrays[f"{number} {name}"] for arrays in results]) for name in ("counts", "documents", "scores")
    )
    rows = np.repeat(np.arange(len(batch)), counts)
    return Run(batch.ids, rows, documents, batch.engine.collection.doc_ids, scores)
