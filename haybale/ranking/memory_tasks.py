"""Score the candidates of many queries by an SVR ensemble, whose memory is summed by tasks.

A task sums over one group of support rows. The kernel values of a candidate and of these rows are computed once for all
queries. So processes that share the groups compute no kernel value twice, as they would if they shared the queries.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from haybale.device import is_sparse
from haybale.engine import Engine
from haybale.engine.workers import Workers, sendable_engine
from haybale.ensemble import SVREnsemble
from haybale.kept_results import Arrays
from haybale.ranking.ranker import Ranker
from haybale.ranking.sendable_rankers import sendable_rankers
from haybale.retrieval.hits import Ints
from haybale.search.query_batch import QueryBatch
from haybale.vectors import Floats, Matrix

_MIN_TASKS = 4  # in one process, so that an interruption loses little


def candidate_scores(
    ranker: Ranker,
    ensemble: SVREnsemble,
    batch: QueryBatch,
    vectors: Matrix,
    passages: Ints,
    features: Floats | None,
    query_numbers: Ints | None,
) -> Floats:
    """Return the scores (m, k) of candidates by the ensemble of a ranker, without the intercept.

    They are :meth:`SVREnsemble.score_candidates`, or :meth:`SVREnsemble.out_of_bag_scores` with ``query_numbers`` (m,).
    Of many queries, the memory is summed by tasks where work is divided.
    """
    workers = Workers(batch.engine)
    if not workers.divide or len(passages) <= batch.block:
        scores: Floats = (
            ensemble.score_candidates(vectors, passages, features, intercept=False)
            if query_numbers is None
            else ensemble.out_of_bag_scores(query_numbers, vectors, passages, features, intercept=False)
        )
        return scores
    tasks, n_parts = _tasks(ensemble, vectors, passages, query_numbers, workers)
    with sendable_rankers([ranker], workers) as (rankers, [ranker_key]):

        def keys() -> Iterator[tuple[Any, ...]]:
            for vectors, *others in tasks:
                parts = (vectors.data, vectors.indices, vectors.indptr) if is_sparse(vectors) else (vectors,)
                yield ranker_key, *parts, *others

        sums = workers.run(memory_of_group, (rankers, sendable_engine(batch.engine)), tasks, keys, "scoring candidates")
    n_groups = len(tasks) // n_parts
    parts = [sums[start : start + n_groups] for start in range(0, len(sums), n_groups)]
    memory = np.concatenate([sum((group["memory"] for group in part[1:]), part[0]["memory"]) for part in parts])
    weights = None if query_numbers is None else ensemble.bag_weights(query_numbers, len(passages))
    return ensemble.pair_scores.with_memory(memory, passages, features, weights)


def _tasks(
    ensemble: SVREnsemble, vectors: Matrix, passages: Ints, query_numbers: Ints | None, workers: Workers
) -> tuple[list[tuple[Any, ...]], int]:
    """Return the last arguments of :func:`memory_of_group` for each task, and the number of parts of the queries.

    The queries are divided only where there are fewer groups than tasks that run at the same time.
    """
    rows, columns = np.nonzero(passages >= 0)
    jobs, n_groups = _MIN_TASKS if workers.address is None else workers.count(), ensemble.pair_scores.n_groups
    n_parts = min(len(passages), -(-jobs // n_groups))
    tasks: list[tuple[Any, ...]] = []
    for start, end in pairwise(np.linspace(0, len(passages), n_parts + 1).astype(np.int64).tolist()):
        of_part = slice(*np.searchsorted(rows, [start, end]))
        query, passage = rows[of_part], passages[rows[of_part], columns[of_part]]
        numbers = None if query_numbers is None else query_numbers[start:end]
        candidates = vectors[start:end], (query - start).astype(np.int32), passage.astype(np.int32)
        tasks += [(*candidates, group, numbers) for group in range(n_groups)]
    return tasks, n_parts


def memory_of_group(
    rankers: list[Any],
    engine: Engine,
    vectors: Matrix,
    query: Ints,
    passage: Ints,
    group: int,
    query_numbers: Ints | None,
) -> Arrays:
    """Return :meth:`PairScores.memory` by the ensemble of the only ranker of a list, which is an SVR ranker."""
    ensemble: SVREnsemble = rankers[0].ensemble_on(engine)
    weights = None if query_numbers is None else ensemble.bag_weights(query_numbers, int(vectors.shape[0]))
    return {"memory": ensemble.pair_scores.memory(vectors, query, passage, group, weights)}
