"""Bags as tasks: the problem of each, and what is sent to a process that does not see the training set."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haybale.cluster import count_jobs, own_threads, spread
from haybale.device import find_device, to_device
from haybale.ensemble.gram import gram
from haybale.ensemble.half import Half
from haybale.ensemble.problem import Dual, Problem, Solver
from haybale.ensemble.rows import Ints
from haybale.machine import one_blas_thread
from haybale.vectors import Floats

_COLUMNS = ("label", "weight", "evidence", "evidence_root")


@dataclass(frozen=True)
class TrainingSet:
    """All rows of all bags, over the distinct vectors they use."""

    queries: Half
    passages: Half
    query: Ints  # (n,)
    passage: Ints  # (n,)
    label: NDArray[np.float64]  # (n,)
    weight: NDArray[np.float64]  # (n,)
    evidence: Floats | None = None  # (n, f)
    evidence_root: Floats | None = None  # (n,)

    def columns(self, rows: Ints) -> dict[str, Any]:
        """Everything that belongs to some rows but their halves."""
        return {name: value[rows] for name in _COLUMNS if (value := getattr(self, name)) is not None}


@dataclass(frozen=True)
class Plan:
    """What is to be solved, and with how much."""

    data: TrainingSet
    bags: list[Ints]
    solver: Solver
    n_jobs: int | None
    memory_budget: float
    settings: dict[str, Any]


@dataclass(frozen=True)
class Shared:
    """What the bags of a group use, and its Gram matrices."""

    used_q: Ints
    used_p: Ints
    queries: Half
    passages: Half
    grams: tuple[Floats, Floats]

    @classmethod
    def of(cls, data: TrainingSet, bags: list[Ints]) -> Shared:
        used_q, used_p = used_of(data, bags)
        queries, passages = data.queries.take(used_q), data.passages.take(used_p)
        return cls(used_q, used_p, queries, passages, (gram(queries), gram(passages)))

    @property
    def size(self) -> int:
        return sum(matrix.nbytes for matrix in self.grams)


def used_of(data: TrainingSet, bags: list[Ints]) -> tuple[Ints, Ints]:
    """The numbers of the distinct queries and passages that some bags use."""
    rows = np.concatenate(bags)
    return np.unique(data.query[rows]), np.unique(data.passage[rows])


def gram_values(data: TrainingSet, bags: list[Ints]) -> float:
    """How many kernel values the Gram matrices over all that some bags use hold."""
    return float(sum(len(used) ** 2 for used in used_of(data, bags)))


def problem_of(data: TrainingSet, rows: Ints, settings: dict[str, Any], shared: Shared | None = None) -> Problem:
    """One bag's problem, over its own halves or those it shares."""
    if shared is None:
        used_q, used_p = used_of(data, [rows])
        halves: dict[str, Any] = {"queries": data.queries.take(used_q), "passages": data.passages.take(used_p)}
    else:
        used_q, used_p = shared.used_q, shared.used_p
        halves = {"queries": shared.queries, "passages": shared.passages, "grams": shared.grams}
    query, passage = np.searchsorted(used_q, data.query[rows]), np.searchsorted(used_p, data.passage[rows])
    return Problem(**halves, query=query, passage=passage, **data.columns(rows), **settings)


def solved_away(plan: Plan, sharing: list[list[int]], remote: bool) -> Iterator[tuple[int, Dual]]:
    """In other processes, or (``remote``) on other machines; ``sharing`` as in threads.

    The bags of a group are dealt out over the tasks, each of which makes the group's Gram matrices anew: they are
    many times larger than the vectors they are made of.
    """
    data, jobs = plan.data, count_jobs(plan.n_jobs)
    n_jobs, budget = plan.n_jobs, plan.memory_budget
    if not remote:  # one machine's memory is shared by all
        # A task holds the matrices of its group, and as much again of the bag it solves.
        needed = max(
            4 * gram_values(data, [plan.bags[number] for number in group]) * min(2, len(group)) for group in sharing
        )
        if needed <= budget:
            jobs = n_jobs = max(1, min(jobs, int(budget / needed)))
        budget /= jobs
    # As many parts as there are workers, and not one task a bag: the group's matrices are made once for each.
    parts = [(group, part.tolist()) for group in sharing for part in np.array_split(group, min(len(group), jobs))]
    solved = spread(solve_part, _sent(plan, parts, budget), n_jobs, "training bags", len(parts))
    for (_, part), duals in zip(parts, solved, strict=True):
        yield from zip(part, duals, strict=True)


def _sent(plan: Plan, parts: list[tuple[list[int], list[int]]], budget: float) -> Iterator[tuple[Any, ...]]:
    """The arguments of :func:`solve_part`, made when they are sent. Parts of a group share its arrays."""
    data, last = plan.data, list[int]()
    on_device = not data.queries.device.is_cpu
    halves = data.queries.to_numpy(), data.passages.to_numpy()  # copied once, not for each group
    for group, part in parts:
        if group != last:
            last = group
            used_q, used_p = used_of(data, [plan.bags[number] for number in group])
            own = [half.take(used) for half, used in zip(halves, (used_q, used_p), strict=True)]
            vectors = [half.dense for half in own] + [half.sparse for half in own]
        bags = [plan.bags[number] for number in part]
        rows = np.concatenate(bags)
        where = {
            "offsets": np.concatenate(([0], np.cumsum([len(bag) for bag in bags]))),
            "query": np.searchsorted(used_q, data.query[rows]),
            "passage": np.searchsorted(used_p, data.passage[rows]),
        }
        columns = where | data.columns(rows)
        settings = plan.settings | {"memory_budget": budget}
        how = {"settings": settings, "share": len(group) > 1, "on_device": on_device, "names": tuple(columns)}
        yield (plan.solver, how, *vectors, *columns.values())


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

    ``how``: the settings of each problem; whether the bags ``share`` the Gram matrices of the halves; whether the
    halves go on the worker's CUDA device; the ``names`` of the columns.
    """
    dense_q, dense_p = (None if half is None else _aligned(half) for half in (dense_q, dense_p))
    arrays = dict(zip(how["names"], (_aligned(column) for column in columns), strict=True))
    offsets = arrays.pop("offsets")
    if how["on_device"]:
        device = find_device("cuda")
        dense_q, dense_p = (None if half is None else to_device(half, device) for half in (dense_q, dense_p))
    queries, passages = Half(dense_q, sparse_q), Half(dense_p, sparse_p)
    threads = own_threads()
    settings = how["settings"] | {"threads": threads}
    with one_blas_thread():
        if how["share"]:
            grams = gram(queries, threads), gram(passages, threads)
            settings["grams"] = grams
            left = settings["memory_budget"] - sum(matrix.nbytes for matrix in grams)
            settings["memory_budget"] = max(1.0, left)
        problems = (
            Problem(queries, passages, **{name: values[start:end] for name, values in arrays.items()}, **settings)
            for start, end in pairwise(offsets.tolist())
        )
        many = getattr(solver, "many", None)
        return many(list(problems)) if many is not None and how["on_device"] else [solver(each) for each in problems]


def _aligned(array: NDArray[Any]) -> NDArray[Any]:
    """The array where NumPy would have put it; a message leaves it at any byte.

    From there NumPy multiplies it with itself by another routine of BLAS, and some of these depend on the address:
    the same numbers would give a Gram matrix with other last bits.
    """
    return array if array.ctypes.data % 16 == 0 else array.copy()
