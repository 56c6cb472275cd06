"""Runs and hits of fitted rankers for a batch of queries; many queries are ranked in blocks, each by a task.

A task returns runs as arrays of document numbers and scores. The rankers of one call share the searches of a block.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haybale.engine.workers import Workers
from haybale.errors import InputError
from haybale.kept_results import Arrays
from haybale.ranking.contract import RankerContract
from haybale.ranking.sendable_rankers import sendable_rankers
from haybale.retrieval import Hits, Run
from haybale.retrieval.hits import from_flat
from haybale.returned_values import method_of, returned
from haybale.search.query_batch import QueryBatch, sendable_batch
from haybale.timing import summed_timings


def runs_of(
    rankers: Sequence[RankerContract], batch: QueryBatch, depth: int, *, out_of_fold: bool = False
) -> list[Run]:
    """Return the first ``depth`` documents of each query of a batch by each ranker; the batch caches the runs.

    With ``out_of_fold``, training queries are ranked as if the rankers had not seen them. Rankers that rank whole
    batches call this for the rankers that they hold.
    """
    if out_of_fold:
        for ranker in rankers:
            _check_unseen(batch.ids, ranker)
    keys = [
        ("out of fold" if out_of_fold and ranker.needs_training else "run", ranker._cache_key()) for ranker in rankers
    ]
    by_key = dict(zip(keys, rankers, strict=True))
    in_blocks = _ranked_in_blocks(by_key, batch, depth, out_of_fold) if len(batch) > batch.block else {}

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


def hits_of(
    rankers: Sequence[RankerContract], batch: QueryBatch, depth: int, unit: str, *, out_of_fold: bool
) -> list[Hits]:
    """Return the first ``depth`` hits of each ranker: passages, or with ``unit="document"`` documents with a vector.

    A document is a row of :attr:`Engine.documents`. Only rankers with a method ``passage_hits`` can have passages.
    """
    distinct = list(dict.fromkeys(rankers))
    if unit == "passage":
        with batch.timed("search candidates", batch.engine.passages.search_device):
            hits = [ranker.passage_hits(batch, depth) for ranker in distinct]  # type: ignore[attr-defined]
    else:
        collection, offsets, hits = batch.engine.collection, batch.engine.documents.doc_offsets, []
        for run in runs_of(distinct, batch, depth, out_of_fold=out_of_fold):
            rows, _, documents = run.numbers_in(collection)
            has_vector = np.diff(offsets)[documents] > 0
            rows, documents, scores = rows[has_vector], documents[has_vector], run.coded()[-1][has_vector]
            hits.append(from_flat(len(batch), rows, offsets[documents], scores.astype(np.float32)))
    by_ranker = dict(zip(distinct, hits, strict=True))
    return [by_ranker[ranker] for ranker in rankers]


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


def _check_unseen(query_ids: Sequence[str], ranker: RankerContract) -> None:
    """Raise :class:`InputError` if an encoder behind a ranker was trained on one of the queries."""
    seen = ranker.twins_.with_twins(ranker.encoder_queries)
    biased = [query for query in query_ids if query in seen] if seen else []
    if biased:
        raise InputError(
            f"{ranker} cannot rank query {biased[0]!r} out of fold: an encoder behind it was trained on that query "
            f"({len(biased)} of {len(query_ids)} queries); leave such queries out, or train encoders with fold=… and "
            "give them as folds=[…]"
        )


def _ranked_in_blocks(
    rankers_by_key: Mapping[Any, RankerContract], batch: QueryBatch, depth: int, out_of_fold: bool
) -> dict[Any, Run]:
    """Return the runs that the batch lacks, by key, where work is divided; a task ranks each block of queries."""
    workers = Workers(batch.engine)
    if not workers.divide:
        return {}
    rows = np.array_split(np.arange(len(batch)), workers.number_of_blocks(len(batch), batch.block))
    depth = batch.deep(depth)
    missing = {
        key: ranker
        for key, ranker in rankers_by_key.items()
        if not (ranker._ranks_whole_batches or batch.has_run(key, depth))
    }
    if not missing:
        return {}
    with sendable_rankers(list(missing.values()), workers) as (rankers, ranker_keys):

        def keys() -> Iterator[tuple[Any, ...]]:
            for block in rows:
                queries = batch.queries.take(block)
                columns = queries.ids.to_pylist(), queries.paragraphs.to_pylist(), queries.offsets, queries.own
                yield ranker_keys, depth, out_of_fold, *columns

        blocks = [(sendable_batch(batch.take(block)),) for block in rows]
        with batch.timed("rank in blocks"), summed_timings():
            common = rankers, depth, out_of_fold
            results = workers.run(rank_block, common, blocks, keys, "ranking blocks of queries")
    return {key: _joined(results, number, batch) for number, key in enumerate(missing)}


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
