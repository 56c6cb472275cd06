"""Training of all bags on a CUDA device, in rounds of as many bags as its multiprocessors and its memory hold.

In a round, the Gram matrices of each bag are computed, and all bags are solved together
(:mod:`haybale.ensemble.batched_smo`). Bags do not share Gram matrices: the solution of a bag is the same bit for bit
whatever bags are solved with it, and therefore for any budget and after an interruption.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from haybale.device import Device
from haybale.device_memory import free_cached
from haybale.ensemble.batched_smo import bytes_of_rows, solve_smo, solve_together
from haybale.ensemble.kernel import DEVICE_TILE, Points, gram
from haybale.ensemble.problem import Dual, Problem, Solution, Solver
from haybale.ensemble.rows import Ints
from haybale.ensemble.solvers import solve_auto
from haybale.ensemble.working_set import solve_working_set
from haybale.errors import DeviceError, InputError
from haybale.parallel import in_threads

_LOGGER = logging.getLogger("haybale")
_SHARE_OF_FREE_MEMORY = 0.9  # for the arrays of a round and for computing them
_COPIES_OF_VECTORS = 4  # and of a tile of a Gram matrix, while the matrix of a bag is computed


def solves_together(solver: Solver, device: Device) -> bool:
    """Return whether :func:`solve_in_rounds` trains bags with this solver on this device."""
    return not device.is_cpu and solver in (solve_auto, solve_smo)


def solve_in_rounds(
    problem: Problem, bags: Mapping[int, Ints], solver: Solver, memory_budget: float | None = None
) -> Iterator[tuple[int, Dual]]:
    """Solve bags on a CUDA device, and yield the number and the solution of a bag as soon as it is solved.

    Bags that do not fit alone, and bags of float64 vectors, are solved by the working-set solver, one after the other;
    a warning in the log says why. With ``solver="smo"``, they raise :class:`InputError`.

    Parameters
    ----------
    problem : Problem
        The candidate rows of all bags.
    bags : mapping of int to (n_bag,) int
        The number of each bag, and the numbers of its rows.
    solver : Solver
        The solver ``"auto"`` or ``"smo"``.
    memory_budget : float, optional
        Bytes for the Gram matrices and rows of a round. Default, and maximum: nine tenths of the free memory of the
        device, less what computing the matrices takes.
    """
    if not bags:
        return
    free_cached()  # memory of the stages before
    waiting = _measured(problem, bags)
    free = _SHARE_OF_FREE_MEMORY * 2 * problem.device.half_of_memory()
    most = max(1.0, min(memory_budget or np.inf, free - max(bag.workspace for bag in waiting)))
    too_large = waiting if problem.queries.is_precise else [bag for bag in waiting if bag.needed > most]
    waiting = [bag for bag in waiting if bag not in too_large]
    if too_large and solver is solve_smo:
        raise InputError(_not_taken(problem, too_large, len(bags), most))
    n_at_once, budget = _count_multiprocessors(problem.device), most
    while waiting:
        # Rounds of similar numbers of bags, each of which more blocks can solve than in rounds as large as possible.
        n_rounds = max(-(-len(waiting) // n_at_once), math.ceil(sum(bag.needed for bag in waiting) / budget))
        total = np.cumsum([bag.needed for bag in waiting[: -(-len(waiting) // n_rounds)]])
        part = waiting[: max(1, int(np.searchsorted(total, budget, side="right")))]
        try:
            solved = solve_together(_prepared(problem, part))
        except DeviceError:  # out of memory: other work has taken some
            solved, budget = None, sum(bag.needed for bag in part) / 2
        if solved is None:
            free_cached()  # outside the except block, because the traceback of the error refers to the arrays
            if len(part) == 1:
                too_large.append(waiting.pop(0))
            continue
        longest = max(len(bag.rows) for bag in part)
        _LOGGER.info("training bags: %d bags of up to %d rows at once on %s", len(part), longest, problem.device)
        for position, dual in solved:
            yield part[position].number, dual
        waiting, solved = waiting[len(part) :], None
        free_cached()
    if not too_large:
        return
    message = _not_taken(problem, too_large, len(bags), most)
    if solver is solve_smo:
        raise InputError(message)
    _LOGGER.warning("%s; the working-set solver solves them one after the other, which takes longer", message)
    for bag in too_large:
        yield bag.number, solve_working_set(replace(problem.take(bag.rows), memory_budget=most))


def _not_taken(problem: Problem, bags: list[_Bag], n_bags: int, budget: float) -> str:
    """Return which bags SMO on a device does not take, and why."""
    if problem.queries.is_precise:
        return f"SMO on {problem.device} takes float32 vectors, found float64; use solver='auto'"
    return (
        f"{len(bags)} of {n_bags} bags need up to {max(bag.needed for bag in bags) / 1e9:.2g} GB on {problem.device}, "
        f"more than the {budget / 1e9:.2g} GB for training; raise memory_budget, free memory of the device, set "
        "rows_per_bag, or use more bags"
    )


def _count_multiprocessors(device: Device) -> int:
    return int(device.xp.cuda.runtime.getDeviceProperties(device.number)["multiProcessorCount"])


@dataclass(frozen=True, eq=False)
class _Bag:
    """The rows of a bag, and the memory that they need."""

    number: int
    rows: Ints
    queries: Ints  # distinct numbers of queries, sorted
    passages: Ints
    needed: float  # bytes of its Gram matrices and rows on the device
    workspace: float  # bytes that computing its Gram matrices takes in addition


def _measured(problem: Problem, bags: Mapping[int, Ints]) -> list[_Bag]:
    def measured(number: int) -> _Bag:
        rows = bags[number]
        queries, passages = (np.unique(column[rows]) for column in (problem.query, problem.passage))
        needed = 4.0 * (len(queries) ** 2 + len(passages) ** 2) + bytes_of_rows(len(rows), problem.n_features)
        halves = (problem.queries, queries), (problem.passages, passages)
        return _Bag(number, rows, queries, passages, needed, max(_workspace(of, len(used)) for of, used in halves))

    return in_threads(measured, bags, problem.threads)


def _workspace(points: Points, n: int) -> float:
    """Return the bytes that computing the Gram matrix of n of the points takes, without the matrix."""
    return _COPIES_OF_VECTORS * (points.nbytes * n / len(points) + 4.0 * min(n, DEVICE_TILE) ** 2)


def _prepared(problem: Problem, bags: list[_Bag]) -> list[Solution]:
    """Return the bags with their Gram matrices; raise :class:`DeviceError` if the device runs out of memory."""
    queries, passages = problem.queries, problem.passages
    grams = [(gram(queries.take(bag.queries)), gram(passages.take(bag.passages))) for bag in bags]

    def solution(position: int) -> Solution:
        bag, rows = bags[position], problem.take(bags[position].rows)
        # In a problem with Gram matrices, queries and passages are numbered by the rows of the matrices.
        query, passage = np.searchsorted(bag.queries, rows.query), np.searchsorted(bag.passages, rows.passage)
        return Solution(replace(rows, grams=grams[position], query=query, passage=passage), by_passage=True)

    return in_threads(solution, range(len(bags)), problem.threads)
