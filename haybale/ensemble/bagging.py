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

from haybale.cluster import count_jobs, dask_client, memory_per_task, own_threads, shares_memory, spread
from haybale.device import find_device
from haybale.ensemble.kernel import Points, gram
from haybale.ensemble.problem import Dual, Problem, Solver
from haybale.ensemble.rows import Ints
from haybale.ensemble.support import Support
from haybale.parallel import cpus, one_blas_thread
from haybale.vectors import Floats

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

    def used(self, bags: list[Ints]) -> Used:
        """The distinct queries and passages of some bags."""
        rows = np.concatenate(bags)
        return np.unique(self.query[rows]), np.unique(self.passage[rows])

    def gram_size(self, bags: list[Ints]) -> float:
        """Bytes of the Gram matrices over all that some bags use."""
        return float(sum(4 * len(used) ** 2 for used in self.used(bags)))

    def places(self, rows: Ints, used: Used) -> dict[str, Any]:
        """Everything that belongs to some rows but their vectors, with their places among what is used."""
        columns = {name: getattr(self, name) for name in ("label", "weight", "features")}
        found = {name: value[rows] for name, value in columns.items() if value is not None}
        query, passage = np.searchsorted(used[0], self.query[rows]), np.searchsorted(used[1], self.passage[rows])
        return {"query": query, "passage": passage} | found


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
    here, alone = shares_memory(), dask_client() is None
    if memory_budget is None:
        memory_budget = data.queries.device.half_of_memory() if alone else memory_per_task(n_jobs)
    groups, jobs = _sharing(data, bags, memory_budget), count_jobs(n_jobs)
    budget = memory_budget
    if alone:  # one machine's memory is shared by all
        # Another process holds the matrices of its group, and as much again of the bag it solves.
        each = [data.gram_size([bag]) for bag in bags]
        if not here:
            each = [data.gram_size([bags[i] for i in group]) * min(2, len(group)) for group in groups]
        if jobs > 1 and max(each) <= budget:
            jobs = n_jobs = max(1, min(jobs, int(budget / max(each))))
        budget /= jobs
    settings = settings | {"memory_budget": budget, "threads": max(1, cpus() // jobs) if here else None}
    # In other processes as many parts as there are workers, and not one task a bag: each makes the group's matrices.
    parts = [
        (group, part.tolist())
        for group in groups
        for part in np.array_split(group, len(group) if here else min(len(group), jobs))
    ]
    tasks = sent(data, bags, parts, solver, settings, jobs if here else None)
    solved = spread(solve_part, tasks, n_jobs, "training bags", len(parts))
    duals = {i: dual for (_, part), some in zip(parts, solved, strict=True) for i, dual in zip(part, some, strict=True)}
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


def sent(
    data: TrainingSet,
    bags: list[Ints],
    parts: list[tuple[list[int], list[int]]],
    solver: Solver,
    settings: dict[str, Any],
    sharing: int | None,
) -> Iterator[tuple[Any, ...]]:
    """The arguments of :func:`solve_part` for each ``(group, part of it)``, made when they are asked for.

    ``sharing``: so many tasks see this memory, and a group's Gram matrices are made here once; None: each makes them.
    """
    device, last = data.queries.device, list[int]()
    points = (data.queries, data.passages) if sharing else (data.queries.to_numpy(), data.passages.to_numpy())
    for group, part in parts:
        if group != last:
            last, used, how = group, data.used([bags[number] for number in group]), dict(settings)
            taken = [of.take(numbers) for of, numbers in zip(points, used, strict=True)]
            vectors = [of.dense for of in taken] + [of.sparse for of in taken]
            if sharing and len(group) > 1:
                how["grams"] = gram(taken[0]), gram(taken[1])
                how["memory_budget"] = max(1.0, how["memory_budget"] - sum(m.nbytes for m in how["grams"]) / sharing)
        offsets = np.cumsum([0, *(len(bags[number]) for number in part)])
        columns = {"offsets": offsets} | data.places(np.concatenate([bags[number] for number in part]), used)
        about = {"settings": how, "device": str(device) if sharing else device.kind, "names": tuple(columns)}
        yield (solver, about | {"share": len(group) > 1 and not sharing}, *vectors, *columns.values())


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

    ``how``: the ``settings`` of each problem; whether the bags ``share`` Gram matrices that are to be made; on which
    ``device`` the vectors go; the ``names`` of the columns.
    """
    dense_q, dense_p = (None if part is None else _aligned(part) for part in (dense_q, dense_p))
    arrays = dict(zip(how["names"], (_aligned(column) for column in columns), strict=True))
    offsets, device = arrays.pop("offsets"), find_device(how["device"])
    settings = how["settings"] | {"threads": how["settings"]["threads"] or own_threads()}
    with one_blas_thread(), device.current():  # CUDA's current device belongs to a thread
        queries, passages = Points(dense_q, sparse_q).to(device), Points(dense_p, sparse_p).to(device)
        if how["share"]:
            grams = gram(queries, settings["threads"]), gram(passages, settings["threads"])
            left = max(1.0, settings["memory_budget"] - sum(matrix.nbytes for matrix in grams))
            settings |= {"grams": grams, "memory_budget": left}
        return [
            solver(Problem(queries, passages, **{name: arrays[name][a:b] for name in arrays}, **settings))
            for a, b in pairwise(offsets.tolist())
        ]


def _aligned(array: NDArray[Any]) -> NDArray[Any]:
    """The array where NumPy would have put it; a message leaves it at any byte, where BLAS gives other last bits."""
    return array if not isinstance(array, np.ndarray) or array.ctypes.data % 16 == 0 else array.copy()


def gathered(data: TrainingSet, bags: list[Ints], duals: list[Dual]) -> tuple[Support, Ints, Ints]:
    """The support rows of all bags over the vectors they share, and the queries and passages of ``data`` in them."""
    chosen = [bag[dual.coef != 0] for bag, dual in zip(bags, duals, strict=True)]
    rows = np.concatenate(chosen)
    used = used_q, used_p = data.used([rows])
    columns = data.places(rows, used)
    del columns["weight"]
    if data.features is not None:  # a linear kernel: of its support rows only their weighted sum is kept
        del columns["features"]
        sums = [dual.coef @ data.features[bag] for bag, dual in zip(bags, duals, strict=True)]
        columns["feature_weights"] = np.stack(sums)
    columns |= {
        "label": columns["label"].astype(np.float32),
        "coef": np.concatenate([dual.coef[dual.coef != 0] for dual in duals]),
        "offsets": np.concatenate(([0], np.cumsum([len(part) for part in chosen]))),
        "intercept": np.array([dual.intercept for dual in duals]),
    }
    return Support(data.queries.take(used_q), data.passages.take(used_p), **columns), used_q, used_p
