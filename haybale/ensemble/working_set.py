"""Working-set SMO: the solver for devices, and for Gram matrices that memory does not hold.

An outer iteration chooses the rows that violate their optimality conditions most, solves the small problem of their
coefficients on the host, with all others held, by the same steps as everywhere (:mod:`haybale.ensemble.smo`), and takes
the change from all residuals by a product with the chosen rows of the kernel. So do ThunderSVM (Wen, Shi, Li, He & Chen
2018, JMLR 19(21)) and cuML, with solvers of their own for the small problem. All that is as long as a bag is array
operations, on a device or in NumPy; what crosses to the host are the small problems.
"""

from __future__ import annotations

import numpy as np

from haybale.device import to_device, to_numpy
from haybale.ensemble.problem import Dual, Problem, Solution
from haybale.ensemble.smo import REFRESHES, KernelRows, State, gram_bytes, optimise
from haybale.errors import DeviceError
from haybale.machine import fitting, free_cached

WORKING_SET = 512  # rows
FRACTION = 0.1  # of the violation at its start, at which a working set is left
STEPS = 20  # steps for each row of a working set, at most
_LEAST = 4  # rows: two that were there before, one of a large gain and one of a small cost


def solve_working_set(problem: Problem, working_set: int = WORKING_SET) -> Dual:
    """Second-order SMO on working sets of up to ``working_set`` rows, where the vectors are.

    Equal rows are made one and ``tol`` has a floor, as in :func:`~haybale.ensemble.smo.solve_product`, whose
    predictions these are to ``tol``; ``n_iter`` counts steps of two coefficients. Before a solution is accepted all
    residuals are taken anew, and it goes on where one had drifted by a twentieth of ``tol``. Kernel rows are gathered
    from Gram matrices where ``memory_budget`` holds these, and else computed for each working set, of as many rows as
    it holds. Errors: out of memory, :class:`~haybale.errors.DeviceError`. Warns if ``max_iter`` steps do not reach
    ``tol``.
    """
    solution = Solution(problem)
    with problem.device.current():
        sets = _WorkingSets(solution, working_set)
        for _ in range(REFRESHES + 1):
            while sets.look() >= solution.tol and sets.taken < solution.limit:
                sets.improve()
            if sets.refresh() <= solution.tol / 20 or sets.taken >= solution.limit:
                break
        return solution.dual(to_numpy(sets.error), sets.taken, sets.violation, sets.outer)


class _WorkingSets:
    """The residuals of all rows and the kernel of the chosen ones with them."""

    def __init__(self, solution: Solution, working_set: int) -> None:
        self.solution, self.problem = solution, _with_grams(solution.problem)
        self.xp, self.device = solution.problem.queries.xp, solution.problem.device
        n = len(solution.label)
        # A block of kernel rows, and what making it takes.
        self.q = min(n, fitting(self.problem.memory_budget, 16 * n, least=_LEAST, most=working_set))
        state = State.of(solution)
        self.error, self.up, self.low = (to_device(part, self.device) for part in (state.error, state.up, state.low))
        self.newest = np.zeros(0, dtype=np.int64)
        self.rows, self.block = self.newest, self.xp.empty((0, n), dtype=np.float32)
        self.taken = self.outer = 0

    def look(self) -> float:
        """How far the largest gain exceeds the smallest cost."""
        self.gain, self.cost = self.error + self.up, self.error + self.low
        self.violation = float(self.gain.max() - self.cost.min())
        return self.violation

    def improve(self) -> None:
        """One working set: chosen, optimised, and its changes taken from all residuals."""
        solution, there = self.solution, self.device
        self._choose()
        rows = to_device(self.rows, there)
        state = State.of(solution, self.rows, to_numpy(self.error[rows]))
        before = solution.beta[self.rows]
        # A working set of all rows is solved to the end at once.
        stop = solution.tol if self.q == len(solution.label) else max(solution.tol, FRACTION * self.violation)
        kernel = KernelRows.of_matrix(np.ascontiguousarray(to_numpy(self.xp.take(self.block, rows, axis=1))))
        most = min(STEPS * self.q, solution.limit - self.taken)
        steps, _ = optimise(kernel, state, self.problem.epsilon, stop, most)
        solution.beta[self.rows] = state.beta
        self.error -= to_device((state.beta - before).astype(np.float32), there) @ self.block
        self.up[rows], self.low[rows] = to_device(state.up, there), to_device(state.low, there)
        self.taken, self.outer = self.taken + steps, self.outer + 1

    def _choose(self) -> None:
        """Rows, and their kernel with all: those that the last choice added, every second where they fill more than
        half; of the places left, half go to the largest gains and half to the smallest costs."""
        n, newest = len(self.solution.label), self.newest
        if self.q == n:
            if not len(self.rows):
                self.rows, self.block = np.arange(n), self.problem.gram()
            return
        old = newest[: len(newest) // 2 * 2 : 2] if len(newest) > self.q // 2 else newest
        if len(old):
            rows = to_device(old, self.device)
            self.gain[rows], self.cost[rows] = -np.inf, np.inf
        n_up = (self.q - len(old)) // 2
        up = self.xp.argpartition(-self.gain, n_up)[:n_up]
        self.cost[up] = np.inf
        n_low = self.q - len(old) - n_up
        low = self.xp.argpartition(self.cost, n_low)[:n_low]
        self.newest = to_numpy(self.xp.concatenate([up, low])).astype(np.int64)
        place = np.flatnonzero(np.isin(self.rows, old))
        held = self.block[to_device(place, self.device)]
        self.block = self.xp.concatenate([held, self.problem.gram(self.newest)])
        self.rows = np.concatenate([self.rows[place], self.newest])

    def refresh(self) -> float:
        """Take all residuals anew from the labels and the coefficients; by how much one had drifted at most."""
        beta, old = self.solution.beta, self.error
        self.error = to_device(self.solution.label.astype(np.float32), self.device)
        support = np.flatnonzero(beta)
        for start in range(0, len(support), self.q):
            rows = support[start : start + self.q]
            self.error -= to_device(beta[rows].astype(np.float32), self.device) @ self.problem.gram(rows)
        return float(abs(old - self.error).max())


def _with_grams(problem: Problem) -> Problem:
    """The problem with Gram matrices, if they fit."""
    if gram_bytes(problem) > problem.memory_budget:
        return problem
    try:
        return problem.with_grams()
    except DeviceError:
        free_cached()
    return problem
