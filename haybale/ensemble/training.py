"""From candidate rows and bags to the support of all bags: problems made, solved side by side, gathered."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from haybale.cluster import count_jobs, dask_client, memory_per_task, shares_memory, spread
from haybale.ensemble.bag_tasks import Plan, Shared, TrainingSet, gram_values, problem_of, solved_away, used_of
from haybale.ensemble.problem import Dual, Problem, Solver
from haybale.ensemble.rows import Ints
from haybale.ensemble.support import Support
from haybale.machine import cpus, free_cached, is_out_of_memory, one_blas_thread
from haybale.progress import track

__all__ = ["TrainingSet", "gathered", "solve_bags"]


def solve_bags(
    data: TrainingSet,
    bags: list[Ints],
    solver: Solver,
    n_jobs: int | None,
    memory_budget: float | None,
    settings: dict[str, Any],
) -> list[Dual]:
    """The dual of each bag, through joblib; ``memory_budget`` bytes are shared by the bags solved at once.

    Bags that have much in common share the Gram matrices over all they use, if that is less work than one pair of
    matrices each and fits the budget. Fewer bags than ``n_jobs`` are solved at once where the budget would not hold
    the matrices of so many. None is half of the memory there is.

    Threads see the vectors where they lie. Processes and Dask's workers are sent what their bags use and no more
    (:mod:`haybale.ensemble.bag_tasks`); on a cluster, the budget is that of each task. What is shared depends on the
    budget alone, and every product is made by one thread: so on processors of one kind results are the same bit for bit
    whoever computes them.
    """
    remote = dask_client() is not None
    if memory_budget is None:
        memory_budget = memory_per_task(n_jobs) if remote else data.queries.device.half_of_memory()
    plan = Plan(data, bags, solver, n_jobs, memory_budget, settings)
    many = getattr(solver, "many", None)
    on_device = not data.queries.device.is_cpu
    if not shares_memory():
        numbered = solved_away(plan, _sharing(data, bags, memory_budget), remote)
    elif many is not None and on_device:
        numbered = _solved_together(plan, many)
    else:
        numbered = _solved_here(plan)
    duals = dict(numbered)
    return [duals[number] for number in range(len(bags))]


def _solved_here(plan: Plan) -> Iterator[tuple[int, Dual]]:
    """In threads: solvers and BLAS release the interpreter, and the vectors are shared."""
    data, bags, budget = plan.data, plan.bags, plan.memory_budget
    jobs, n_jobs = count_jobs(plan.n_jobs), plan.n_jobs
    if jobs > 1:
        needed = max(4 * gram_values(data, [bag]) for bag in bags)
        if needed <= budget:
            jobs = n_jobs = max(1, min(jobs, int(budget / needed)))
    sharing = _sharing(data, bags, budget)
    alone = [group[0] for group in sharing if len(group) == 1]
    common = plan.settings | {"threads": max(1, cpus() // jobs), "memory_budget": budget / jobs}
    with one_blas_thread():
        tasks: Iterator[Any] = ((plan.solver, data, bags[number], common) for number in alone)
        yield from zip(alone, spread(_solve, tasks, n_jobs, "training bags", len(alone)), strict=True)
        for group in sharing:
            if len(group) > 1:
                shared = Shared.of(data, [bags[number] for number in group])
                left = common | {"memory_budget": max(1.0, (budget - shared.size) / jobs)}
                tasks = ((plan.solver, data, bags[number], left, shared) for number in group)
                yield from zip(group, spread(_solve, tasks, n_jobs, "training bags", len(group)), strict=True)


def _solve(
    solver: Solver, data: TrainingSet, rows: Ints, settings: dict[str, Any], shared: Shared | None = None
) -> Dual:
    with data.queries.device.current():  # CUDA's current device belongs to a thread
        return solver(problem_of(data, rows, settings, shared))


def _solved_together(plan: Plan, many: Callable[[list[Problem]], list[Dual]]) -> Iterator[tuple[int, Dual]]:
    """By a solver of a device that takes many bags at once: as many as half of the budget holds the matrices of."""
    groups: list[list[int]] = []
    used: tuple[Ints, Ints] | None = None  # by the last group
    for number, bag in enumerate(plan.bags):
        own = used_of(plan.data, [bag])
        together = own if used is None else (np.union1d(used[0], own[0]), np.union1d(used[1], own[1]))
        if groups and 4.0 * sum(len(each) ** 2 for each in together) <= plan.memory_budget / 2:
            groups[-1].append(number)
            used = together
        else:
            groups.append([number])
            used = own
    for group in track(groups, "training bags", len(groups)):
        yield from zip(group, _of_group(plan, many, group), strict=True)


def _of_group(plan: Plan, many: Callable[[list[Problem]], list[Dual]], group: list[int]) -> list[Dual]:
    """The duals of bags over one pair of matrices; of each half of them where the device has no room for all."""
    bags, settings = [plan.bags[number] for number in group], plan.settings | {"memory_budget": plan.memory_budget}
    if len(group) == 1:
        return many([problem_of(plan.data, bags[0], settings)])
    try:
        shared = Shared.of(plan.data, bags)
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        shared = None
    if shared is None:
        free_cached()
        middle = len(group) // 2
        return _of_group(plan, many, group[:middle]) + _of_group(plan, many, group[middle:])
    settings["memory_budget"] = max(1.0, plan.memory_budget - shared.size)
    return many([problem_of(plan.data, bag, settings, shared) for bag in bags])


def _sharing(data: TrainingSet, bags: list[Ints], memory_budget: float) -> list[list[int]]:
    """Bags in groups that share Gram matrices: each joins the group before it where that saves work and fits.

    Half of the budget is kept for what the bags hold beside the matrices.
    """

    def work(group: list[int]) -> float:
        return gram_values(data, [bags[number] for number in group])

    groups: list[list[int]] = []
    cost = 0.0
    for number in range(len(bags)):
        own = work([number])
        if groups:
            together = work([*groups[-1], number])
            if together < cost + own and 4 * together <= memory_budget / 2:
                groups[-1].append(number)
                cost = together
                continue
        groups.append([number])
        cost = own
    return groups


def gathered(data: TrainingSet, bags: list[Ints], duals: list[Dual], eta: float) -> tuple[Support, Ints, Ints]:
    """The support rows of all bags over the vectors they share, and the queries and passages of ``data`` in them."""
    kept = [bag[dual.coef != 0] for bag, dual in zip(bags, duals, strict=True)]
    rows = np.concatenate(kept)
    used_q, query = np.unique(data.query[rows], return_inverse=True)
    used_p, passage = np.unique(data.passage[rows], return_inverse=True)
    columns = data.columns(rows)
    del columns["weight"]
    columns["label"] = columns["label"].astype(np.float32)
    support = Support(
        queries=data.queries.take(used_q),
        passages=data.passages.take(used_p),
        query=query,
        passage=passage,
        coef=np.concatenate([dual.coef[dual.coef != 0] for dual in duals]),
        offsets=np.concatenate(([0], np.cumsum([len(part) for part in kept]))),
        intercept=np.array([dual.intercept for dual in duals]),
        eta=eta,
        **columns,
    )
    return support, used_q, used_p
