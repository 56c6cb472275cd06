"""From candidate rows and bags to the support of all bags: problems made, solved side by side, gathered.

Threads see the vectors where they lie. Processes and Dask's workers are sent what their bags use and no more.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haybale.cluster.spreading import count_jobs, dask_client, memory_per_task, own_threads, shares_memory, spread
from haybale.device import CPU, find_device
from haybale.ensemble.kernel import Points, gram
from haybale.ensemble.problem import Dual, Problem, Solver
from haybale.ensemble.rows import Ints
from haybale.ensemble.support import Support
from haybale.machine import cpus, one_blas_thread
from haybale.vectors import Floats

_COLUMNS = ("label", "weight", "features", "features_root")
Used = tuple[Ints, Ints]  # numbers of distinct queries and passages


@dataclass(frozen=True)
class TrainingSet:
    """All rows of all bags, over the distinct vectors they use."""

    queries: Points
    passages: Points
    query: Ints  # (n,)
    passage: Ints  # (n,)
    label: NDArray[np.float64]  # (n,)
    weight: NDArray[np.float64]  # (n,)
    features: Floats | None = None  # (n, f)
    features_root: Floats | None = None  # (n,)

    def columns(self, rows: Ints) -> dict[str, Any]:
        """Everything that belongs to some rows but their vectors."""
        return {name: value[rows] for name in _COLUMNS if (value := getattr(self, name)) is not None}

    def used(self, bags: list[Ints]) -> Used:
        """The distinct queries and passages of some bags."""
        rows = np.concatenate(bags)
        return np.unique(self.query[rows]), np.unique(self.passage[rows])

    def gram_size(self, bags: list[Ints]) -> float:
        """Bytes of the Gram matrices over all that some bags use."""
        return float(sum(4 * len(used) ** 2 for used in self.used(bags)))

    def places(self, rows: Ints, used: Used) -> dict[str, Any]:
        """Everything that belongs to some rows, with their places among what is used."""
        query, passage = np.searchsorted(used[0], self.query[rows]), np.searchsorted(used[1], self.passage[rows])
        return {"query": query, "passage": passage} | self.columns(rows)


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
    the matrices of so many. None is half of the memory there is; on a cluster, the budget is that of each task.

    What is shared depends on the budget alone, and every product is made by one thread: so on processors of one kind
    results are the same bit for bit whoever computes them.
    """
    remote = dask_client() is not None
    if memory_budget is None:
        memory_budget = memory_per_task(n_jobs) if remote else data.queries.device.half_of_memory()
    groups = _sharing(data, bags, memory_budget)
    work = _solved_here if shares_memory() else _solved_away
    duals = dict(work(data, bags, groups, solver, n_jobs, memory_budget, settings))
    return [duals[number] for number in range(len(bags))]


def _sharing(data: TrainingSet, bags: list[Ints], memory_budget: float) -> list[list[int]]:
    """Bags in groups that share Gram matrices: each joins the group before it where that saves work and fits.

    Half of the budget is kept for what the bags hold beside the matrices.
    """
    groups: list[list[int]] = []
    cost = 0.0
    for number, bag in enumerate(bags):
        alone = data.gram_size([bag])
        together = data.gram_size([bags[each] for each in (*groups[-1], number)]) if groups else np.inf
        if together < cost + alone and together <= memory_budget / 2:
            groups[-1].append(number)
            cost = together
        else:
            groups.append([number])
            cost = alone
    return groups


def _fewer(n_jobs: int | None, needed: float, budget: float) -> tuple[int | None, int]:
    """``n_jobs`` for joblib, and how many that is: no more than a budget holds what each needs, if it holds one."""
    jobs = count_jobs(n_jobs)
    if jobs > 1 and needed <= budget:
        jobs = n_jobs = max(1, min(jobs, int(budget / needed)))
    return n_jobs, jobs


def _solved_here(
    data: TrainingSet,
    bags: list[Ints],
    groups: list[list[int]],
    solver: Solver,
    n_jobs: int | None,
    budget: float,
    settings: dict[str, Any],
) -> Iterator[tuple[int, Dual]]:
    """In threads: solvers and BLAS release the interpreter, and the vectors are shared."""
    n_jobs, jobs = _fewer(n_jobs, max(data.gram_size([bag]) for bag in bags), budget)
    settings = settings | {"threads": max(1, cpus() // jobs)}

    def solve(rows: Ints, used: Used | None, shared: dict[str, Any]) -> Dual:
        with data.queries.device.current():  # CUDA's current device belongs to a thread
            if used is None:
                used = data.used([rows])
                shared = shared | {"queries": data.queries.take(used[0]), "passages": data.passages.take(used[1])}
            return solver(Problem(**shared, **data.places(rows, used), **settings))

    with one_blas_thread():
        alone = [group[0] for group in groups if len(group) == 1]
        tasks: Iterator[Any] = ((bags[number], None, {"memory_budget": budget / jobs}) for number in alone)
        yield from zip(alone, spread(solve, tasks, n_jobs, "training bags", len(alone)), strict=True)
        for group in groups:
            if len(group) > 1:
                used = data.used([bags[number] for number in group])
                queries, passages = data.queries.take(used[0]), data.passages.take(used[1])
                grams = gram(queries), gram(passages)
                left = max(1.0, (budget - sum(matrix.nbytes for matrix in grams)) / jobs)
                shared = {"queries": queries, "passages": passages, "grams": grams, "memory_budget": left}
                tasks = ((bags[number], used, shared) for number in group)
                yield from zip(group, spread(solve, tasks, n_jobs, "training bags", len(group)), strict=True)


def _solved_away(
    data: TrainingSet,
    bags: list[Ints],
    groups: list[list[int]],
    solver: Solver,
    n_jobs: int | None,
    budget: float,
    settings: dict[str, Any],
) -> Iterator[tuple[int, Dual]]:
    """In other processes, or on other machines.

    The bags of a group are dealt out over the tasks, each of which makes the group's Gram matrices anew: they are
    many times larger than the vectors they are made of.
    """
    jobs = count_jobs(n_jobs)
    if dask_client() is None:  # one machine's memory is shared by all
        # A task holds the matrices of its group, and as much again of the bag it solves.
        needed = max(data.gram_size([bags[number] for number in group]) * min(2, len(group)) for group in groups)
        n_jobs, jobs = _fewer(n_jobs, needed, budget)
        budget /= jobs
    # As many parts as there are workers, and not one task a bag: the group's matrices are made once for each.
    parts = [(group, part.tolist()) for group in groups for part in np.array_split(group, min(len(group), jobs))]
    tasks = sent(data, bags, parts, solver, settings | {"memory_budget": budget})
    for (_, part), duals in zip(parts, spread(solve_part, tasks, n_jobs, "training bags", len(parts)), strict=True):
        yield from zip(part, duals, strict=True)


def sent(
    data: TrainingSet,
    bags: list[Ints],
    parts: list[tuple[list[int], list[int]]],
    solver: Solver,
    settings: dict[str, Any],
) -> Iterator[tuple[Any, ...]]:
    """The arguments of :func:`solve_part` for each ``(group, part of it)``, made when they are sent."""
    last: list[int] = []
    on_device = not data.queries.device.is_cpu
    points = data.queries.to_numpy(), data.passages.to_numpy()  # copied once, not for each group
    for group, part in parts:
        if group != last:
            last, used = group, data.used([bags[number] for number in group])
            taken = [of.take(numbers) for of, numbers in zip(points, used, strict=True)]
            vectors = [of.dense for of in taken] + [of.sparse for of in taken]
        offsets = np.cumsum([0, *(len(bags[number]) for number in part)])
        columns = {"offsets": offsets} | data.places(np.concatenate([bags[number] for number in part]), used)
        how = {"settings": settings, "share": len(group) > 1, "on_device": on_device, "names": tuple(columns)}
        yield (solver, how, *vectors, *columns.values())


def solve_part(
    solver: Solver,
    how: dict[str, Any],
    dense_q: Floats | None,
    dense_p: Floats | None,
    sparse_q: Any,
    sparse_p: Any,
    *columns: NDArray[Any],
) -> list[Dual]:
    """Solve some bags of a group, in whichever process; plain arrays, which joblib sends to Dask's workers by itself.

    ``how``: the settings of each problem; whether the bags ``share`` the Gram matrices; whether the vectors
    go on the worker's CUDA device; the ``names`` of the columns.
    """
    dense_q, dense_p = (None if part is None else _aligned(part) for part in (dense_q, dense_p))
    arrays = dict(zip(how["names"], (_aligned(column) for column in columns), strict=True))
    offsets = arrays.pop("offsets")
    device = find_device("cuda") if how["on_device"] else CPU
    queries, passages = (Points(*parts).to(device) for parts in ((dense_q, sparse_q), (dense_p, sparse_p)))
    threads = own_threads()
    settings = how["settings"] | {"threads": threads}
    with one_blas_thread():
        if how["share"]:
            grams = gram(queries, threads), gram(passages, threads)
            left = max(1.0, settings["memory_budget"] - sum(matrix.nbytes for matrix in grams))
            settings |= {"grams": grams, "memory_budget": left}
        return [
            solver(Problem(queries, passages, **{name: arrays[name][a:b] for name in arrays}, **settings))
            for a, b in pairwise(offsets.tolist())
        ]


def _aligned(array: NDArray[Any]) -> NDArray[Any]:
    """The array where NumPy would have put it; a message leaves it at any byte.

    From there NumPy multiplies it with itself by another routine of BLAS, and some of these depend on the address:
    the same numbers would give a Gram matrix with other last bits.
    """
    return array if array.ctypes.data % 16 == 0 else array.copy()


def gathered(data: TrainingSet, bags: list[Ints], duals: list[Dual], eta: float) -> tuple[Support, Ints, Ints]:
    """The support rows of all bags over the vectors they share, and the queries and passages of ``data`` in them."""
    chosen = [bag[dual.coef != 0] for bag, dual in zip(bags, duals, strict=True)]
    rows = np.concatenate(chosen)
    used = used_q, used_p = data.used([rows])
    columns = data.places(rows, used)
    del columns["weight"]
    support = Support(
        queries=data.queries.take(used_q),
        passages=data.passages.take(used_p),
        coef=np.concatenate([dual.coef[dual.coef != 0] for dual in duals]),
        offsets=np.concatenate(([0], np.cumsum([len(part) for part in chosen]))),
        intercept=np.array([dual.intercept for dual in duals]),
        eta=eta,
        **columns | {"label": columns["label"].astype(np.float32)},
    )
    return support, used_q, used_p
