"""From candidate rows and bags to the support of all bags: problems made, solved side by side, gathered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from joblib import Parallel, delayed, effective_n_jobs
from numpy.typing import NDArray

from haybale.ensemble.gram import gram
from haybale.ensemble.half import Half
from haybale.ensemble.problem import Dual, Problem, Solver
from haybale.ensemble.rows import Ints
from haybale.ensemble.support import Support
from haybale.machine import cpus, one_blas_thread
from haybale.progress import track
from haybale.vectors import Floats


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
        names = ("label", "weight", "evidence", "evidence_root")
        return {name: value[rows] for name in names if (value := getattr(self, name)) is not None}


def solve_bags(
    data: TrainingSet,
    bags: list[Ints],
    solver: Solver,
    n_jobs: int | None,
    memory_budget: float,
    settings: dict[str, Any],
) -> list[Dual]:
    """The dual of each bag, through joblib; ``memory_budget`` bytes are shared by the bags solved at once.

    Bags that have much in common share the Gram matrices over all they use, if that is less work than one pair of
    matrices each and fits the budget. Fewer bags than ``n_jobs`` are solved at once where the budget would not hold
    the matrices of so many.
    """
    jobs = effective_n_jobs(n_jobs)
    if jobs > 1:
        needed = max(4 * _values(data, [bag]) for bag in bags)
        if needed <= memory_budget:
            jobs = n_jobs = max(1, min(jobs, int(memory_budget / needed)))
    threads = max(1, cpus() // jobs)
    duals: dict[int, Dual] = {}
    sharing = _sharing(data, bags, memory_budget)
    alone = [group[0] for group in sharing if len(group) == 1]
    # Threads: solvers and BLAS release the interpreter, and the vectors are shared.
    parallel = Parallel(n_jobs=n_jobs, prefer="threads", return_as="generator")
    common = settings | {"threads": threads, "memory_budget": memory_budget / jobs}

    def tasks() -> Any:
        yield from (delayed(_solve)(solver, _problem(data, bags[number], common)) for number in alone)

    with one_blas_thread():
        progress = track(parallel(tasks()), "training bags", len(alone)) if alone else iter(())
        duals.update(zip(alone, progress, strict=True))
        for group in sharing:
            if len(group) > 1:
                used_q, used_p = _used(data, [bags[number] for number in group])
                queries, passages = data.queries.take(used_q), data.passages.take(used_p)
                shared = _Shared(used_q, used_p, queries, passages, (gram(queries), gram(passages)))
                left = {"memory_budget": max(1.0, (memory_budget - shared.size) / jobs)}
                problems = (shared.problem(data, bags[number], common | left) for number in group)
                solved = parallel(delayed(_solve)(solver, problem) for problem in problems)
                duals.update(zip(group, track(solved, "training bags", len(group)), strict=True))
    return [duals[number] for number in range(len(bags))]


def _solve(solver: Solver, problem: Callable[[], Problem]) -> Dual:
    return solver(problem())


def _problem(data: TrainingSet, rows: Ints, settings: dict[str, Any]) -> Callable[[], Problem]:
    """One bag's problem over its own halves, made where it is solved."""

    def make() -> Problem:
        used_q, query = np.unique(data.query[rows], return_inverse=True)
        used_p, passage = np.unique(data.passage[rows], return_inverse=True)
        halves: dict[str, Any] = {"queries": data.queries.take(used_q), "passages": data.passages.take(used_p)}
        return Problem(**halves, query=query, passage=passage, **data.columns(rows), **settings)

    return make


@dataclass(frozen=True)
class _Shared:
    """What the bags of a group use, and its Gram matrices."""

    used_q: Ints
    used_p: Ints
    queries: Half
    passages: Half
    grams: tuple[Floats, Floats]

    @property
    def size(self) -> int:
        return sum(matrix.nbytes for matrix in self.grams)

    def problem(self, data: TrainingSet, rows: Ints, settings: dict[str, Any]) -> Callable[[], Problem]:
        query = np.searchsorted(self.used_q, data.query[rows])
        passage = np.searchsorted(self.used_p, data.passage[rows])
        halves: dict[str, Any] = {"queries": self.queries, "passages": self.passages, "grams": self.grams}
        return lambda: Problem(**halves, query=query, passage=passage, **data.columns(rows), **settings)


def _used(data: TrainingSet, bags: list[Ints]) -> tuple[Ints, Ints]:
    rows = np.concatenate(bags)
    return np.unique(data.query[rows]), np.unique(data.passage[rows])


def _values(data: TrainingSet, bags: list[Ints]) -> float:
    """How many kernel values the Gram matrices over all that some bags use hold."""
    return float(sum(len(used) ** 2 for used in _used(data, bags)))


def _sharing(data: TrainingSet, bags: list[Ints], memory_budget: float) -> list[list[int]]:
    """Bags in groups that share Gram matrices: each joins the group before it where that saves work and fits.

    Half of the budget is kept for what the bags hold beside the matrices.
    """

    def work(group: list[int]) -> float:
        return _values(data, [bags[number] for number in group])

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
