"""Training of all bags: each becomes a problem of its own, and the problems are solved side by side.

Threads share the vectors. Processes and Dask's workers are sent only what their bags use.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from haybale.cluster import count_jobs, dask_client, memory_per_task, own_threads, shares_memory, spread
from haybale.device import CPU, find_device
from haybale.ensemble.kernel import Points, gram
from haybale.ensemble.problem import Dual, Problem, Solver
from haybale.ensemble.rows import Ints
from haybale.parallel import cpus, one_blas_thread


def solve_bags(
    problem: Problem, bags: list[Ints], solver: Solver, n_jobs: int | None, memory_budget: float | None = None
) -> list[Dual]:
    """Solve the rows of each bag as a problem of their own, through joblib.

    Bags that have much in common share the Gram matrices over all they use, if that is less work than separate
    matrices and fits the budget. What is shared depends on the budget alone, and every product is computed by one
    thread, so results on processors of one kind are the same bit for bit, whoever computes them.

    Parameters
    ----------
    problem : Problem
        All rows of all bags.
    bags : list of (n_bag,) int
    solver : Solver
    n_jobs : int, optional
        Bags solved at once. Fewer are, where ``memory_budget`` would not hold the matrices of so many.
    memory_budget : float, optional
        Bytes shared by the bags solved at once; on a cluster, bytes of each task. Default: half of the memory.
    """
    shared, alone = shares_memory(), dask_client() is None
    if memory_budget is None:
        memory_budget = problem.device.half_of_memory() if alone else memory_per_task(n_jobs)
    groups, jobs, budget = _sharing(problem, bags, memory_budget), count_jobs(n_jobs), memory_budget
    if alone:  # all tasks share the memory of one machine
        # Another process holds the matrices of its group, and as much again for the bag it solves.
        each = [_gram_bytes(problem, [bag]) for bag in bags]
        if not shared:
            each = [_gram_bytes(problem, [bags[i] for i in group]) * min(2, len(group)) for group in groups]
        if jobs > 1 and max(each) <= budget:
            jobs = n_jobs = max(1, min(jobs, int(budget / max(each))))
        budget /= jobs
    problem = replace(problem, memory_budget=budget, threads=max(1, cpus() // jobs) if shared else None)
    # Each process computes the matrices of the group, so a group makes as many tasks as there are workers.
    parts = [
        (group, part.tolist())
        for group in groups
        for part in np.array_split(group, len(group) if shared else min(len(group), jobs))
    ]
    tasks = make_tasks(problem, bags, parts, solver, jobs if shared else None)
    solved = spread(solve_task, tasks, n_jobs, "training bags", len(parts))
    duals = {i: dual for (_, part), some in zip(parts, solved, strict=True) for i, dual in zip(part, some, strict=True)}
    return [duals[number] for number in range(len(bags))]


def _used(problem: Problem, bags: list[Ints]) -> tuple[Ints, Ints]:
    """Return the numbers of the distinct queries and passages of some bags."""
    rows = np.concatenate(bags)
    return np.unique(problem.query[rows]), np.unique(problem.passage[rows])


def _gram_bytes(problem: Problem, bags: list[Ints]) -> float:
    """Return the size of the Gram matrices over all that some bags use."""
    return float(sum(4 * len(used) ** 2 for used in _used(problem, bags)))


def _sharing(problem: Problem, bags: list[Ints], memory_budget: float) -> list[list[int]]:
    """Group bags that share Gram matrices: each joins the group before it where that saves work and fits.

    Half of the budget is reserved for what the bags hold beside the matrices.
    """
    groups: list[list[int]] = []
    cost = 0.0
    for number, bag in enumerate(bags):
        alone = _gram_bytes(problem, [bag])
        together = _gram_bytes(problem, [bags[each] for each in (*groups[-1], number)]) if groups else np.inf
        if together < cost + alone and together <= memory_budget / 2:
            groups[-1].append(number)
            cost = together
        else:
            groups.append([number])
            cost = alone
    return groups


def make_tasks(
    problem: Problem, bags: list[Ints], parts: list[tuple[list[int], list[int]]], solver: Solver, jobs: int | None
) -> Iterator[tuple[Any, ...]]:
    """Yield the arguments of :func:`solve_task` for each ``(group, part of the group)``, made on demand.

    ``jobs`` is the number of tasks that share this process's memory: a group's Gram matrices are computed here once.
    None: tasks run in other processes, and each computes the matrices itself.
    """
    device, last = problem.device, list[int]()
    queries, passages = (half.to(device if jobs else CPU) for half in (problem.queries, problem.passages))
    for group, part in parts:
        if group != last:
            last, (used_q, used_p) = group, _used(problem, [bags[number] for number in group])
            vectors: dict[str, Any] = {"queries": queries.take(used_q), "passages": passages.take(used_p)}
            share = len(group) > 1
            if jobs and share:
                grams = gram(vectors["queries"]), gram(vectors["passages"])
                vectors |= {"grams": grams, "memory_budget": _left(problem.memory_budget, grams, jobs)}
        rows = problem.take(np.concatenate([bags[number] for number in part]))
        query, passage = np.searchsorted(used_q, rows.query), np.searchsorted(used_p, rows.passage)
        offsets = np.cumsum([0, *(len(bags[number]) for number in part)])
        where = str(device) if jobs else device.kind
        yield solver, replace(rows, **vectors, query=query, passage=passage), offsets, where, share and not jobs


def solve_task(solver: Solver, problem: Problem, offsets: Ints, device: str, share: bool) -> list[Dual]:
    """Solve some bags of a group, in any process.

    Parameters
    ----------
    solver : Solver
    problem : Problem
        The rows of the bags, one bag after the other.
    offsets : (n_bags + 1,) int
        Bag b consists of the rows offsets[b]:offsets[b + 1].
    device : str
        Where the vectors go.
    share : bool
        Whether to compute Gram matrices that the bags share.
    """
    columns = {name: _aligned(getattr(problem, name)) for name in ("query", "passage", "label", "weight", "features")}
    halves = (Points(_aligned(half.dense), half.sparse) for half in (problem.queries, problem.passages))
    where, threads = find_device(device), problem.threads or own_threads()
    with one_blas_thread(), where.current():  # CUDA's current device belongs to a thread
        queries, passages = (half.to(where) for half in halves)
        problem = replace(problem, queries=queries, passages=passages, threads=threads, **columns)
        if share:
            problem = problem.with_grams()
            problem = replace(problem, memory_budget=_left(problem.memory_budget, problem.grams))
        return [solver(problem.take(slice(a, b))) for a, b in pairwise(offsets.tolist())]


def _left(memory_budget: float, grams: Any, jobs: int = 1) -> float:
    """Return the bytes that each of some jobs has left beside the Gram matrices that they share."""
    return max(1.0, memory_budget - float(sum(matrix.nbytes for matrix in grams)) / jobs)


def _aligned(array: Any) -> Any:
    """Return a copy of an array at an address as NumPy would choose it, if it has another one.

    An array in a message may start at any byte. NumPy copies such an array before each product, and no longer sees
    that it multiplies a matrix by its own transpose, which BLAS rounds in another way.
    """
    return array.copy() if isinstance(array, np.ndarray) and array.ctypes.data % 16 else array
