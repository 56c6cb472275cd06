"""Sum the memory of an SVR ensemble for the candidates of many queries by tasks.

A task sums over one group of support rows. The kernel values of a candidate and of these rows are computed once for all
queries. So processes that share the groups compute no kernel value twice, as they would if they shared the queries.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from haybale.cluster import count_jobs, own_threads, shares_memory
from haybale.device import is_sparse
from haybale.engine.opened import Address, opened_engine, task_address
from haybale.ensemble import SVREnsemble
from haybale.kept_results import Arrays, spread_resumably, task_key
from haybale.parallel import at_most_threads
from haybale.ranking.portable import Portable, made_from, portable
from haybale.retrieval.hits import Ints
from haybale.search.query_batch import QueryBatch
from haybale.vectors import Matrix

if TYPE_CHECKING:
    from haybale.rankers.svr import SVR

_MIN_TASKS = 4  # in one process, so that an interruption loses little


def memory_by_tasks(
    ranker: SVR, batch: QueryBatch, vectors: Matrix, passages: Ints, query_numbers: Ints | None
) -> NDArray[np.float64] | None:
    """Return the memory (n,) of the candidates ``passages`` (m, k) that are not -1, row by row, summed by tasks.

    Return None for few queries, and where neither tasks run in other processes nor
    :func:`~haybale.kept_results.resumable` keeps their results. ``query_numbers`` (m,) are those of
    :meth:`SVREnsemble.out_of_bag_scores`; with None, all bags count.
    """
    by_tasks, address = task_address(batch.engine)
    if not by_tasks or len(passages) <= batch.block:
        return None
    ensemble = ranker.ensemble_on(batch.engine)
    tasks, n_parts = _tasks(ensemble, vectors, passages, query_numbers)
    with portable([ranker], batch.engine, address) as [sendable_ranker]:

        def keys() -> Iterator[str]:
            for vectors, *others in tasks:
                parts = (vectors.data, vectors.indices, vectors.indptr) if is_sparse(vectors) else (vectors,)
                yield task_key("memory", batch.engine.documents_digest, sendable_ranker.key, *parts, *others)

        if address is None:  # only this process has the engine
            sums = spread_resumably(partial(_memory, ensemble), tasks, keys, "scoring candidates", n_jobs=1)
        else:
            sum_group = partial(memory_of_group, address, sendable_ranker)
            sums = spread_resumably(sum_group, tasks, keys, "scoring candidates")
    n_groups = len(tasks) // n_parts
    parts = [sums[start : start + n_groups] for start in range(0, len(sums), n_groups)]
    return np.concatenate([sum((group["memory"] for group in part[1:]), part[0]["memory"]) for part in parts])


def _tasks(
    ensemble: SVREnsemble, vectors: Matrix, passages: Ints, query_numbers: Ints | None
) -> tuple[list[tuple[Any, ...]], int]:
    """Return the arguments of :meth:`SVREnsemble.memory` for each task, and the number of parts of the queries.

    The queries are divided only where there are fewer groups than tasks that run at the same time.
    """
    rows, columns = np.nonzero(passages >= 0)
    jobs = _MIN_TASKS if shares_memory() else count_jobs(-1)
    n_parts = min(len(passages), -(-jobs // ensemble.n_groups))
    tasks: list[tuple[Any, ...]] = []
    for start, end in pairwise(np.linspace(0, len(passages), n_parts + 1).astype(np.int64).tolist()):
        of_part = slice(*np.searchsorted(rows, [start, end]))
        query, passage = rows[of_part], passages[rows[of_part], columns[of_part]]
        numbers = None if query_numbers is None else query_numbers[start:end]
        candidates = vectors[start:end], (query - start).astype(np.int32), passage.astype(np.int32)
        tasks += [(*candidates, group, numbers) for group in range(ensemble.n_groups)]
    return tasks, n_parts


def memory_of_group(address: Address, sendable_ranker: Portable, *arguments: Any) -> Arrays:
    """Return :meth:`SVREnsemble.memory` of a saved ranker on the engine at an address, in any process."""
    with at_most_threads(own_threads()):
        ranker: Any = made_from(sendable_ranker, address)
        return _memory(ranker.ensemble_on(opened_engine(*address)), *arguments)


def _memory(ensemble: SVREnsemble, *arguments: Any) -> Arrays:
    return {"memory": ensemble.memory(*arguments)}
