"""Working-set SMO: the solver for GPUs, where a step of plain SMO is too little work for one launch.

An outer iteration chooses a working set of q rows, solves the problem of their coefficients with all others held
(SMO with second-order choice, by one block of threads in shared memory), and takes the change from all residuals. So
do ThunderSVM (Wen, Shi, Li, He & Chen 2018, JMLR 19(21)) and cuML; choice and step are those of Platt (1998) and Fan,
Chen & Lin (2005), as in :mod:`~haybale.ensemble.solvers.smo`, whose dual this is. The product kernel saves the matrix
of working rows by all rows: an update reads two numbers of two Gram matrices for each of its values.

On NumPy arrays the same iterations run on the CPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haybale.device import Device, to_device, to_numpy
from haybale.ensemble.gram import gram
from haybale.ensemble.half import Half
from haybale.ensemble.problem import Dual, Problem
from haybale.ensemble.rows import Ints
from haybale.ensemble.solvers.batch import Bag, Batch
from haybale.ensemble.solvers.dual import intercept, warn_unless_converged
from haybale.ensemble.solvers.kernel_rows import CachedRows, GramRows
from haybale.errors import InputError
from haybale.machine import free_cached, is_out_of_memory

WORKING_SET = 512  # rows, a power of two, at most 1,024: the threads of a block
FRACTION = 0.1  # of the violation at its start, at which a working set is left
STEPS = 20  # steps for each row of a working set, at most
_REFRESHES = 10


def solve_working_set(problem: Problem, working_set: int = WORKING_SET) -> Dual:
    """Second-order SMO on working sets of ``working_set`` rows (a power of two, 4 to 1,024), where the halves are.

    Equal rows are made one and ``tol`` has a floor, as in
    :func:`~haybale.ensemble.solvers.product.solve_product`, whose predictions these are to ``tol``; ``n_iter`` counts
    steps of two coefficients. Before a solution is accepted all residuals are taken anew, and it goes on where one had
    drifted by a twentieth of ``tol``. The passages' Gram matrix is held where ``memory_budget`` or ``problem.grams``
    allows; else as many of its rows as fit, and smaller working sets where fewer rows than that do.

    Errors: a ``memory_budget`` that does not hold the queries' Gram matrix and four kernel rows; out of memory,
    :class:`~haybale.errors.DeviceError`. Warns if ``max_iter`` steps do not reach ``tol``.
    """
    return solve_working_set_many([problem], working_set)[0]


def solve_working_set_many(problems: Sequence[Problem], working_set: int = WORKING_SET) -> list[Dual]:
    """The same for many bags: at once those, one after another in the list, that share their halves and settings
    and fit the memory budget of the first. With ``problem.grams`` given, what a bag gives does not depend on the
    others to the bit; without, to rounding, since the matrices are then over what all of them use."""
    if working_set not in (4, 8, 16, 32, 64, 128, 256, 512, 1024):
        raise InputError(f"working_set must be a power of two from 4 to 1,024, found {working_set}")
    groups: list[list[Bag]] = []
    for problem in problems:
        bag = Bag(problem)
        if groups and _together([*groups[-1], bag], working_set):
            groups[-1].append(bag)
        else:
            groups.append([bag])
    return [dual for group in groups for dual in _solved(group, working_set)]


solve_working_set.many = solve_working_set_many  # type: ignore[attr-defined]


def _together(bags: list[Bag], q: int) -> bool:
    first, last = bags[0].problem, bags[-1].problem
    same = first.queries is last.queries and first.passages is last.passages
    same &= (first.grams is None) == (last.grams is None)
    if first.grams is not None and last.grams is not None:
        same &= all(a is b for a, b in zip(first.grams, last.grams, strict=True))
    same &= (first.epsilon, first.max_iter) == (last.epsilon, last.max_iter)
    for name in ("interactions", "evidence"):
        a, b = getattr(first, name), getattr(last, name)
        same &= (a is None) == (b is None) and (a is None or a.shape[1] == b.shape[1])
    if not same:
        return False
    needed = Batch.size_of(bags, q)
    if first.grams is None:
        for name in ("query", "passage"):
            used = np.unique(np.concatenate([bag.column(name) for bag in bags]))
            needed += 4.0 * len(used) ** 2
    return bool(needed <= first.memory_budget)


def _solved(bags: list[Bag], working_set: int) -> list[Dual]:
    problem = bags[0].problem
    device = problem.device
    with device.current():
        solution = None
        try:
            solution = _Solution(bags, working_set, device, problem.memory_budget)
        except (MemoryError, RuntimeError) as error:
            if len(bags) == 1 or not is_out_of_memory(error):
                raise
        if solution is None:
            free_cached()  # after the error, whose traceback held the matrices, is gone
            return [dual for bag in bags for dual in _solved([bag], working_set)]
        solution.run()
        return solution.duals()


class _Solution:
    """Outer iterations over a batch."""

    def __init__(self, bags: list[Bag], working_set: int, device: Device, budget: float) -> None:
        q = 4
        while q < min(working_set, max(len(bag) for bag in bags)):
            q *= 2
        query, passage = (np.concatenate([bag.column(name) for bag in bags]) for name in ("query", "passage"))
        self.rows: GramRows | CachedRows
        problem = bags[0].problem
        if problem.grams is not None:
            kq, kp = (to_device(matrix, device) for matrix in problem.grams)
            self.rows = GramRows(kq, kp)
        else:
            queries, query = _used(problem.queries, query)
            passages, passage = _used(problem.passages, passage)
            kq = gram(queries, problem.threads)
            left = budget - 4.0 * len(queries) ** 2
            self.rows = _passage_rows(kq, passages, device, left, problem.threads, len(bags) == 1)
            if isinstance(self.rows, CachedRows):
                while q > max(4, self.rows.slots):
                    q //= 2
        self.batch = Batch(bags, query, passage, q, device)
        # A working set of all rows is solved to the end at once.
        fraction = np.array([0.0 if len(bag) <= q else FRACTION for bag in bags], dtype=np.float32)
        self.fraction = to_device(fraction, device)
        self.tol, self.limit = to_numpy(self.batch.tol), to_numpy(self.batch.limit).copy()
        self.steps = STEPS * working_set
        self.outer = 0
        self.report: NDArray[np.float64] = np.empty((len(bags), 2))

    def run(self) -> None:
        """Until every bag's violation is below its ``tol`` with residuals that are right, or its steps are used up.

        A bag whose residuals were right is left as it is, so that none depends on the others of its batch.
        """
        batch = self.batch
        batch.update(self.rows.matrices)  # no change yet: what each row gains and costs
        for _ in range(_REFRESHES + 1):
            self._iterate()
            old = batch.error
            self._refresh()
            drift = np.array([np.abs(part).max() for part in batch.parts(old - batch.error)])
            wrong = (drift > self.tol / 20) & (self.report[:, 1] < self.limit)
            if not wrong.any():
                return
            self.limit[~wrong] = -1
            batch.limit = to_device(self.limit.copy(), batch.device)

    def _iterate(self) -> None:
        batch = self.batch
        while True:
            batch.choose()
            report = to_numpy(batch.report)  # the one synchronisation of an iteration
            running = self.limit >= 0
            self.report[running] = report[running]
            if not ((self.report[:, 0] >= self.tol) & (self.report[:, 1] < self.limit)).any():
                return
            self.outer += 1
            self.rows.bring(batch)
            batch.optimise(self.rows.matrices, self.fraction, self.steps)
            batch.update(self.rows.matrices)

    def _refresh(self) -> None:
        """All residuals anew from the labels and the coefficients, q support rows of every bag at a time."""
        batch = self.batch
        beta = to_numpy(batch.beta)
        support = [
            start + np.flatnonzero(part) for start, part in zip(batch.bounds[:-1], batch.parts(batch.beta), strict=True)
        ]
        batch.error = batch.labels()
        working, size = np.zeros(batch.working.shape, np.int32), np.zeros(len(batch.bags), np.int32)
        delta = np.zeros(working.shape, np.float32)
        for start in range(0, max(1, *(len(rows) for rows in support)), batch.q):
            for b, rows in enumerate(support):
                part = rows[start : start + batch.q]
                size[b] = len(part)
                working[b, : len(part)], delta[b, : len(part)] = part, beta[part]
            self._put(working=working, size=size, delta=delta)
            self.rows.bring(batch)
            batch.update(self.rows.matrices)
        nothing = np.zeros_like(size)
        self._put(size=nothing, kept=nothing)

    def _put(self, **arrays: Any) -> None:
        for name, values in arrays.items():
            setattr(self.batch, name, to_device(values.copy(), self.batch.device))

    def duals(self) -> list[Dual]:
        """One a bag, over all its rows."""
        batch, duals = self.batch, []
        betas, errors = batch.parts(batch.beta), batch.parts(batch.error)
        numbers = zip(*self.report.T.tolist(), self.tol.tolist(), strict=True)
        for bag, beta, error, (violation, steps, tol) in zip(batch.bags, betas, errors, numbers, strict=True):
            converged = warn_unless_converged(int(steps), violation, tol)
            coef = np.zeros(len(bag.problem.label))
            coef[bag.kept] = beta
            centre = bag.centre + intercept(beta, error, bag.bound, bag.problem.epsilon)
            duals.append(Dual(coef, centre, int(steps), converged, self.outer))
        return duals


def _used(half: Half, numbers: Ints) -> tuple[Half, Ints]:
    """The members of a half that rows use, and their numbers among these."""
    used, where = np.unique(numbers, return_inverse=True)
    return (half, numbers) if len(used) == len(half) else (half.take(used), where)


def _passage_rows(
    kq: Any, passages: Half, device: Device, budget: float, threads: int | None, is_alone: bool
) -> GramRows | CachedRows:
    """The whole matrix, or rows of it; out of memory with several bags is an error, since rows serve one alone."""
    if 4.0 * len(passages) ** 2 <= budget:
        try:
            return GramRows(kq, gram(passages, threads))
        except (MemoryError, RuntimeError) as error:
            if not (is_alone and is_out_of_memory(error)):
                raise
    return CachedRows(kq, passages, device, budget)
