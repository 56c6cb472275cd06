"""Training of all bags: each bag is a separate problem, and the problems are solved in parallel or together.

Threads share the vectors. Processes and Dask workers receive only the vectors that their bags use.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np

from haybale.cluster import count_jobs, dask_client, memory_per_task, own_threads, shares_memory, spread
from haybale.device import CPU, find_device, to_numpy
from haybale.device_memory import free_cached
from haybale.ensemble.device_bags import solve_in_rounds, solves_together
from haybale.ensemble.kernel import Points, gram
from haybale.ensemble.problem import Dual, Problem, Solver
from haybale.ensemble.rows import Ints
from haybale.kept_results import KeptResults, kept_results, report_resumed, task_key
from haybale.parallel import cpus, one_blas_thread
from haybale.progress import track

_MAX_BAGS_PER_TASK = 64  # a process solves these bags together; their solutions are saved when all are solved


def solve_bags(
    problem: Problem, bags: list[Ints], solver: Solver, n_jobs: int | None, memory_budget: float | None = None
) -> list[Dual]:
    """Solve the problem of each bag: together on a CUDA device, otherwise in parallel with joblib or Dask.

    On the CPU, bags with many common rows share one pair of Gram matrices, if that is less work than separate matrices
    and fits the budget. The grouping depends only on the budget, and one thread computes each product. Results on
    processors of one kind are therefore the same bit for bit for any number of threads or processes.

    On a CUDA device, the solvers ``"auto"`` and ``"smo"`` solve many bags at once
    (:mod:`haybale.ensemble.device_bags`), in this process, or in tasks of several bags on the workers of a cluster.
    Other solvers train bags in parallel, as on the CPU.

    Parameters
    ----------
    problem : Problem
        The candidate rows of all bags.
    bags : list of (n_bag,) int
        Row numbers of each bag.
    solver : Solver
    n_jobs : int, optional
        Number of bags solved at the same time, for bags that are not solved together; lowered if their matrices exceed
        ``memory_budget``.
    memory_budget : float, optional
        Bytes for all bags solved at the same time; on a cluster, for each task. Default: half of the memory, or for
        bags that are solved together, nine tenths of the free memory of the device.
    """
    if not problem.device.is_cpu:
        free_cached()  # memory of the stages before
    together = solves_together(solver, problem.device)
    if memory_budget is None and not together:
        memory_budget = problem.device.half_of_memory() if dask_client() is None else memory_per_task(n_jobs)
    kept = kept_results()
    # The solutions of bags that are solved together do not depend on the budget.
    keys = [] if kept is None else _keys(problem, bags, solver, None if together else memory_budget)
    duals = {} if kept is None else _kept_duals(kept, keys)
    report_resumed("training bags", len(duals), len(bags))
    left = [number for number in range(len(bags)) if number not in duals]
    if not together:
        assert memory_budget is not None
        solved = _solve_in_parallel(problem, bags, left, solver, n_jobs, memory_budget)
    elif shares_memory():
        rounds = solve_in_rounds(problem, {number: bags[number] for number in left}, solver, memory_budget)
        solved = track(rounds, "training bags", len(left))
    else:
        solved = _solve_in_tasks(problem, bags, left, solver, n_jobs, memory_budget)
    for number, dual in solved:
        duals[number] = dual
        if kept is not None:
            kept.put(keys[number], dual.to_arrays())
    return [duals[number] for number in range(len(bags))]


def _solve_in_parallel(
    problem: Problem, bags: list[Ints], left: list[int], solver: Solver, n_jobs: int | None, memory_budget: float
) -> Iterator[tuple[int, Dual]]:
    """Yield the number and the solution of each bag in ``left``; bags of a group share Gram matrices."""
    shared, local = shares_memory(), dask_client() is None
    groups, jobs, budget = _group_bags(problem, bags, memory_budget), count_jobs(n_jobs), memory_budget
    if local:  # all tasks share the memory of one machine
        bytes_of_tasks = [problem.gram_bytes(bag) for bag in bags]
        if not shared:  # a process holds the matrices of its group, and as many bytes again for the bag that it solves
            bytes_of_tasks = [problem.gram_bytes(np.concatenate([bags[i] for i in g])) * min(2, len(g)) for g in groups]
        if jobs > 1 and max(bytes_of_tasks) <= budget:
            jobs = n_jobs = max(1, min(jobs, int(budget / max(bytes_of_tasks))))
        budget /= jobs
    problem = replace(problem, memory_budget=budget, threads=max(1, cpus() // jobs) if shared else None)
    # Every process computes the matrices of its group, so a group becomes at most as many tasks as there are workers.
    parts = [
        (group, part.tolist())
        for group in groups
        if (unsolved := [number for number in group if number in left])
        for part in np.array_split(unsolved, len(unsolved) if shared else min(len(unsolved), jobs))
    ]
    tasks = make_tasks(problem, bags, parts, solver, jobs if shared else None)
    for (_, part), solved in zip(parts, spread(solve_task, tasks, n_jobs, "training bags", len(parts)), strict=True):
        yield from zip(part, solved, strict=True)


def _solve_in_tasks(
    problem: Problem, bags: list[Ints], left: list[int], solver: Solver, n_jobs: int | None, memory_budget: float | None
) -> Iterator[tuple[int, Dual]]:
    """Yield the number and the solution of each bag in ``left``; other processes solve several bags together."""
    jobs = count_jobs(n_jobs)
    if dask_client() is None:  # all processes share the device
        memory_budget = (memory_budget or problem.device.half_of_memory()) / jobs
    problem = replace(problem, memory_budget=memory_budget or np.inf, threads=None)
    n_tasks = min(len(left), max(jobs, -(-len(left) // _MAX_BAGS_PER_TASK)))
    parts = [part.tolist() for part in np.array_split(left, n_tasks)] if left else []
    tasks = make_tasks(problem, bags, [(part, part) for part in parts], solver, None)
    for part, solved in zip(parts, spread(solve_task, tasks, n_jobs, "training bags", len(parts)), strict=True):
        yield from zip(part, solved, strict=True)


def _keys(problem: Problem, bags: list[Ints], solver: Solver, memory_budget: float | None) -> list[str]:
    """Return the key of each bag, under which its solution is saved."""
    vectors = [part for half in (problem.queries, problem.passages) for part in (half.dense, half.sparse)]
    arrays = [array for part in vectors if part is not None for array in _arrays_of(to_numpy(part))]
    columns = [problem.label, problem.weight, problem.query, problem.passage]
    columns += [] if problem.features is None else [np.asarray(to_numpy(problem.features))]
    name = f"{solver.__module__}.{solver.__qualname__}" if hasattr(solver, "__qualname__") else repr(solver)
    settings = [name, problem.C, problem.epsilon, problem.tol, problem.max_iter, memory_budget, str(problem.device)]
    of_all = task_key(*settings, *arrays, *columns)
    return [task_key(of_all, bag) for bag in bags]


def _arrays_of(matrix: Any) -> list[Any]:
    return [matrix] if isinstance(matrix, np.ndarray) else [matrix.data, matrix.indices, matrix.indptr]


def _kept_duals(kept: KeptResults, keys: list[str]) -> dict[int, Dual]:
    """Return the saved solutions, by the number of the bag."""
    saved = ((number, kept.get(key)) for number, key in enumerate(keys))
    return {number: Dual.from_arrays(arrays) for number, arrays in saved if arrays is not None}


def _group_bags(problem: Problem, bags: list[Ints], memory_budget: float) -> list[list[int]]:
    """Group bags that share Gram matrices: a bag joins the previous group if that saves work and fits.

    Half of the budget is reserved for the other arrays of the bags.
    """
    groups: list[list[int]] = []
    cost = 0.0
    for number, bag in enumerate(bags):
        alone, together = problem.gram_bytes(bag), np.inf
        if groups:
            together = problem.gram_bytes(np.concatenate([bags[member] for member in (*groups[-1], number)]))
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
    """Yield the arguments of :func:`solve_task` for each ``(group, part of the group)``.

    ``jobs`` is the number of tasks that share the memory of this process. The Gram matrices of a group are then
    computed once, here. With None, tasks run in other processes, and each computes the matrices itself.
    """
    device, last = problem.device, list[int]()
    queries, passages = (half.to(device if jobs else CPU) for half in (problem.queries, problem.passages))
    for group, part in parts:
        if group != last:
            last, of_group = group, np.concatenate([bags[number] for number in group])
            used_q, used_p = np.unique(problem.query[of_group]), np.unique(problem.passage[of_group])
            vectors: dict[str, Any] = {"queries": queries.take(used_q), "passages": passages.take(used_p)}
            share = len(group) > 1
            if jobs and share:
                grams = gram(vectors["queries"]), gram(vectors["passages"])
                vectors |= {"grams": grams, "memory_budget": _remaining_budget(problem.memory_budget, grams, jobs)}
        rows = problem.take(np.concatenate([bags[number] for number in part]))
        query, passage = np.searchsorted(used_q, rows.query), np.searchsorted(used_p, rows.passage)
        offsets = np.cumsum([0, *(len(bags[number]) for number in part)])
        where = str(device) if jobs else device.kind
        yield solver, replace(rows, **vectors, query=query, passage=passage), offsets, where, share and not jobs


def solve_task(solver: Solver, problem: Problem, offsets: Ints, device: str, share: bool) -> list[Dual]:
    """Solve some bags of a group, in any process.

    Bag b consists of the rows ``offsets[b]:offsets[b + 1]`` of ``problem``. The vectors are moved to ``device``. With
    ``share``, the Gram matrices that the bags share are computed first.
    """
    columns = {name: _aligned(getattr(problem, name)) for name in ("query", "passage", "label", "weight", "features")}
    halves = (Points(_aligned(half.dense), half.sparse) for half in (problem.queries, problem.passages))
    where, threads = find_device(device), problem.threads or own_threads()
    with one_blas_thread(), where.current():  # CUDA's current device belongs to a thread
        queries, passages = (half.to(where) for half in halves)
        problem = replace(problem, queries=queries, passages=passages, threads=threads, **columns)
        if solves_together(solver, where):
            bags = {number: np.arange(a, b) for number, (a, b) in enumerate(pairwise(offsets.tolist()))}
            solved = dict(solve_in_rounds(problem, bags, solver, problem.memory_budget))
            return [solved[number] for number in bags]
        if share:
            problem = problem.with_grams()
            problem = replace(problem, memory_budget=_remaining_budget(problem.memory_budget, problem.grams))
        return [solver(problem.take(slice(a, b))) for a, b in pairwise(offsets.tolist())]


def _remaining_budget(memory_budget: float, grams: Any, jobs: int = 1) -> float:
    """Return the bytes left for each of some jobs that share the Gram matrices."""
    return max(1.0, memory_budget - float(sum(matrix.nbytes for matrix in grams)) / jobs)


def _aligned(array: Any) -> Any:
    """Return an array at a multiple of 16 bytes in memory, as NumPy allocates it; copy it if necessary.

    An array received in a message may start at any byte. NumPy copies such an array before each product and then does
    not recognise the product of a matrix with its own transpose, which BLAS rounds differently.
    """
    return array.copy() if isinstance(array, np.ndarray) and array.ctypes.data % 16 else array
