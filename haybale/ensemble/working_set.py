"""haybale's own solver: sequential minimal optimisation on working sets.

An outer iteration chooses the rows that violate their optimality conditions most, solves the small problem of their
coefficients, with all others held (:mod:`haybale.ensemble.smo`), and takes the change from all residuals by a product
with the chosen rows of the kernel. So do ThunderSVM (Wen, Shi, Li, He & Chen 2018, JMLR 19(21)) and cuML.

The small problem needs the kernel of the chosen rows with each other. The kernel with all rows is asked for only where
a coefficient has changed, which is where it will be a support vector, with few exceptions. On the CPU these are rows of
the two Gram matrices (:mod:`haybale.ensemble.gram_rows`), held as long as ``memory_budget`` lets them, and the change
of all residuals is shared by the cores. On a device all that is as long as a bag is array operations; what crosses to
the host are the small problems.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from haybale.device import to_device, to_numpy
from haybale.ensemble.gram_rows import GramRows
from haybale.ensemble.kernel import kernel_tile
from haybale.ensemble.problem import Dual, Problem, Solution
from haybale.ensemble.rows import Ints
from haybale.ensemble.smo import KernelRows, State, optimise
from haybale.errors import DeviceError
from haybale.parallel import batch_size_for_memory, free_cached, in_threads, one_blas_thread

WORKING_SET = 1024  # rows
FRACTION = 0.3  # of the violation at its start, at which a working set is left
_OF_HELD = 512, 0.1  # both, where both matrices are held: there a set's kernel takes longer to read than steps on it
STEPS = 20  # steps for each row of a working set, at most
REFRESHES = 10  # times that all residuals are taken anew, at most
_CHECKED = 32  # residuals taken anew before a solution is accepted
_EARLY = 0.1  # of the rows are support vectors: then it is foreseen how many there will be
_AT_ONCE = 16_384  # rows of a bag whose steps are taken over all of them, where both matrices are held
_SMALL = 4096  # rows of a bag whose matrices are computed as a whole: that is little more than its vectors are
_LEAST = 4  # rows: two that were there before, one of a large gain and one of a small cost
_LINES = 128  # kernel rows that a thread reads at once


def gram_bytes(problem: Problem) -> float:
    """What the Gram matrices over the queries and passages of a problem's rows take."""
    queries, passages = (len(np.unique(numbers)) for numbers in (problem.query, problem.passage))
    return 4.0 * queries**2 + 4.0 * passages**2


def solve_working_set(problem: Problem, working_set: int | None = None) -> Dual:
    """Second-order SMO on working sets of up to ``working_set`` rows, where the vectors are.

    None: 1,024; on the CPU, where both Gram matrices are held, 512, or all at once, if there are no more than 16,384
    rows without pair features, for which many more steps are taken.

    Rows with the same query, passage, features and label are one row with the sum of their weights (the optimum is the
    same); rows of weight zero take no part. ``tol`` below a millionth of the labels' range is raised to it: float32
    tells nothing finer apart. ``n_iter`` counts steps of two coefficients. Before a solution is accepted a sample of
    the residuals is taken anew, and all of them are if any has drifted by a twentieth of ``tol``.

    The result does not depend on the number of threads. ``memory_budget`` bytes of kernel values are held; what does
    not fit is computed again when it is needed. Errors: out of a device's memory,
    :class:`~haybale.errors.DeviceError`. Warns if ``max_iter`` steps do not reach ``tol``.
    """
    solution = Solution(problem)
    with problem.device.current(), one_blas_thread():
        sets = _WorkingSets(solution, working_set)
        for _ in range(REFRESHES + 1):
            while sets.look() >= solution.tol and sets.taken < solution.limit and sets.improve():
                pass
            if sets.drift() <= solution.tol / 20 or sets.taken >= solution.limit:
                break
            sets.refresh()
        return solution.dual(to_numpy(sets.error), sets.taken, sets.violation, sets.outer)


class _WorkingSets:
    """The residuals of all rows, and who is chosen next."""

    def __init__(self, solution: Solution, working_set: int | None) -> None:
        self.solution, problem = solution, solution.problem
        self.xp, self.device = problem.queries.xp, problem.device
        self.kernel: Any = (_Held if self.device.is_cpu else _OnDevice)(problem, working_set)
        state = State.of(solution)
        self.error, self.up, self.low = (to_device(part, self.device) for part in (state.error, state.up, state.low))
        self.error = self.error.astype(self.kernel.dtype)
        self.newest = np.zeros(0, dtype=np.int64)
        self.taken = self.outer = 0

    def look(self) -> float:
        """How far the largest gain exceeds the smallest cost."""
        self.gain, self.cost = self.error + self.up, self.error + self.low
        self.violation = float(self.gain.max() - self.cost.min())
        return self.violation

    def improve(self) -> bool:
        """One working set: chosen, optimised, and its changes taken from all residuals; whether there were any."""
        solution = self.solution
        if not self.kernel.decided:
            self._foresee()
        rows = self._choose()
        there = to_device(rows, self.device)
        state = State.of(solution, rows, to_numpy(self.error[there]).astype(np.float32))
        before = solution.beta[rows]
        stop, most = max(solution.tol / 2, self.kernel.fraction * self.violation), STEPS * len(rows)
        if is_all := len(rows) == len(solution.label):  # solved to the end at once, less what float32 loses on the way
            stop, most = 0.9 * solution.tol, solution.limit
        most = min(most, solution.limit - self.taken)
        steps, _ = optimise(self.kernel.among(rows), state, solution.problem.epsilon, stop, most)
        solution.beta[rows] = state.beta
        if is_all:
            self.error[:] = to_device(state.error, self.device)
        else:
            self.kernel.subtract(self.error, rows, state.beta - before)
        self.up[there], self.low[there] = to_device(state.up, self.device), to_device(state.low, self.device)
        self.taken, self.outer = self.taken + steps, self.outer + 1
        return steps > 0

    def _foresee(self) -> None:
        """Have the matrices computed as a whole, once enough support vectors are known to tell that they are many."""
        n, support = len(self.solution.label), self.solution.beta != 0
        if n <= _SMALL:
            self.kernel.decide(True)
        elif np.count_nonzero(support) > _EARLY * n:
            middle = (self.gain.max() + self.cost.min()) / 2
            support |= (self.gain > middle) | (self.cost < middle)
            self.kernel.decide(np.count_nonzero(support) > n / 2)

    def _choose(self) -> Ints:
        """Rows that the last choice added, every second where they fill more than half; of the places left, half go to
        the largest gains and half to the smallest costs."""
        n, q, newest = len(self.solution.label), self.kernel.q, self.newest
        if q == n:
            return np.arange(n)
        old = newest[: len(newest) // 2 * 2 : 2] if len(newest) > q // 2 else newest
        if len(old):
            rows = to_device(old, self.device)
            self.gain[rows], self.cost[rows] = -np.inf, np.inf
        n_up = (q - len(old)) // 2
        up = self.xp.argpartition(-self.gain, n_up)[:n_up]
        self.cost[up] = np.inf
        n_low = q - len(old) - n_up
        low = self.xp.argpartition(self.cost, n_low)[:n_low]
        self.newest = to_numpy(self.xp.concatenate([up, low])).astype(np.int64)
        chosen = np.concatenate([old, self.newest])
        # In order, kernel rows are read along; on a device those that stay are best where they are.
        return np.sort(chosen) if self.device.is_cpu else chosen

    def drift(self) -> float:
        """By how much one of some residuals is off."""
        solution, n = self.solution, len(self.solution.label)
        sample = np.unique(np.linspace(0, n - 1, min(n, _CHECKED)).astype(np.int64))
        values = to_numpy(self.kernel.rows(sample))
        error = to_numpy(self.error[to_device(sample, self.device)])
        return float(np.abs(solution.label[sample] - values @ solution.beta - error).max())

    def refresh(self) -> None:
        """Take all residuals anew from the labels and the coefficients."""
        self.error[:] = to_device(self.solution.label, self.device)
        support = np.flatnonzero(self.solution.beta)
        for start in range(0, len(support), self.kernel.q):
            rows = support[start : start + self.kernel.q]
            self.kernel.subtract(self.error, rows, self.solution.beta[rows])


class _Held:
    """The kernel on the CPU, from rows of the two Gram matrices."""

    dtype = np.float64

    def __init__(self, problem: Problem, working_set: int | None) -> None:
        self.problem, n = problem, len(problem.label)
        self.working_set, self.fraction = working_set, FRACTION
        self.query, self.passage = problem.query.astype(np.uint32), problem.passage.astype(np.uint32)
        halves, whole = (problem.queries, problem.passages), problem.grams or (None, None)
        rooms = len(halves[0]), len(halves[1])
        # The small problem's kernel, and what making it takes, is held beside the rows.
        self.q = min(
            n,
            batch_size_for_memory(
                np.sqrt(problem.memory_budget / 48), 1, least=_LEAST, most=working_set or WORKING_SET
            ),
        )
        if problem.grams is None:
            rooms = _rooms(*rooms, problem.memory_budget - 12 * self.q**2)
            self.q = min(self.q, *(room if room < len(of) else n for room, of in zip(rooms, halves, strict=True)))
        self.of_queries, self.of_passages = (
            GramRows(points, room, problem.threads, gram)
            for points, room, gram in zip(halves, rooms, whole, strict=True)
        )
        self.decided = self.at_once = False
        if problem.grams is not None:
            self.decide(True)

    def among(self, rows: Ints) -> KernelRows:
        """The kernel of distinct rows with each other; of passages not held no more than this is computed."""
        query, passage = self.query[rows], self.passage[rows]
        if self.at_once:
            none = np.empty((0, 0), dtype=np.float32)
            halves = self.of_queries.values, query, self.of_passages.values, passage
            return KernelRows(none, *halves, self.problem.diagonal[rows])
        self.of_queries.hold(np.unique(query))
        slots = self.of_queries.slot[query], self.of_passages.slot[passage]
        used, place = np.unique(passage[slots[1] < 0], return_inverse=True)
        points, places = self.of_passages.points.take(used), np.zeros(len(rows), dtype=np.uint32)
        tile, places[slots[1] < 0] = kernel_tile(points, points), place
        np.fill_diagonal(tile, 1)
        out = np.empty((len(rows), len(rows)), dtype=np.float32)

        def square(start: int) -> None:
            _square(
                self.of_queries.values, slots[0], query, self.of_passages.values, slots[1], passage, tile, places,
                start, out[start : start + _LINES],
            )  # fmt: skip

        in_threads(square, range(0, len(rows), _LINES), self.problem.threads)
        if len(used):
            _mirror(out, slots[1])
        if self.problem.features is not None:
            features = self.problem.features[rows]
            out += features @ features.T
        return KernelRows.of(out)

    def decide(self, whole: bool) -> None:
        """Compute the matrices as a whole from here on, where there is room, or their rows as they are needed."""
        self.decided = True
        both = self.of_queries, self.of_passages
        for held in both if whole else ():
            if len(held.values) == len(held.slot):
                held.hold_all()
        if self.working_set is None and all(np.array_equal(held.slot, np.arange(len(held.slot))) for held in both):
            n = len(self.query)
            self.at_once = self.problem.features is None and n <= _AT_ONCE
            self.q, self.fraction = (n if self.at_once else min(self.q, _OF_HELD[0])), _OF_HELD[1]

    def rows(self, rows: Ints) -> Any:
        """(m, n) kernel values of some rows with all, of nothing that is held."""
        return self.problem.gram(rows)

    def subtract(self, error: NDArray[np.float64], rows: Ints, change: NDArray[np.float64]) -> None:
        """Take from all residuals what a change of some rows' coefficients makes."""
        rows, change = rows[change != 0], change[change != 0].astype(np.float32)
        if not len(rows):
            return
        halves = (self.of_queries, self.query), (self.of_passages, self.passage)
        for held, column in halves:
            held.hold(np.unique(column[rows]))
        rows, change = np.pad(rows, (0, -len(rows) % 4), mode="edge"), np.pad(change, (0, -len(rows) % 4))
        slots = [held.slot[column[rows]] for held, column in halves]

        def total(start: int) -> Any:
            part = slice(start, start + _LINES)
            return _total(
                change[part], self.of_queries.values, slots[0][part], self.query, self.of_passages.values,
                slots[1][part], self.passage,
            )  # fmt: skip

        for part in in_threads(total, range(0, len(rows), _LINES), self.problem.threads):
            error -= part
        if self.problem.features is not None:
            error -= self.problem.features @ (change @ self.problem.features[rows])


def _rooms(n_queries: int, n_passages: int, budget: float) -> tuple[int, int]:
    """Rows of the two Gram matrices that a budget of bytes holds: all of the smaller one, if a quarter holds it."""
    sizes = 4.0 * n_queries**2, 4.0 * n_passages**2
    if sum(sizes) <= budget:
        return n_queries, n_passages
    if min(sizes) <= budget / 4:
        left = budget - min(sizes)
        if sizes[0] < sizes[1]:
            return n_queries, batch_size_for_memory(left, 4 * n_passages, least=_LEAST)
        return batch_size_for_memory(left, 4 * n_queries, least=_LEAST), n_passages
    share = budget / sum(sizes)
    return batch_size_for_memory(n_queries * share, 1, least=_LEAST), batch_size_for_memory(
        n_passages * share, 1, least=_LEAST
    )


@njit(nogil=True, cache=True)
def _square(
    kq: Any, q_slot: Any, query: Any, kp: Any, p_slot: Any, passage: Any, tile: Any, place: Any, first: int, out: Any
) -> None:  # pragma: no cover - compiled
    """The kernel of rows from ``first`` on with all; ``tile`` is that of passages not held, at their ``place``."""
    for i in range(first, first + len(out)):
        line, of_query = out[i - first], kq[q_slot[i]]
        if p_slot[i] >= 0:
            row = kp[p_slot[i]]
            for k in range(len(query)):
                line[k] = of_query[query[k]] * row[passage[k]]
        else:
            row = tile[place[i]]
            for k in range(len(query)):
                line[k] = of_query[query[k]] * row[place[k]]  # of passages that are held another row says it


@njit(nogil=True, cache=True)
def _mirror(out: Any, p_slot: Any) -> None:  # pragma: no cover - compiled
    """Rows of passages that are not held, from the columns of those that are."""
    for start in range(0, len(out), 32):
        for i in range(len(out)):
            if p_slot[i] < 0:
                for k in range(start, min(start + 32, len(out))):
                    if p_slot[k] >= 0:
                        out[i, k] = out[k, i]


@njit(nogil=True, fastmath=True, cache=True)
def _total(
    change: Any,
    kq: Any,
    q_slot: Any,
    query: Any,
    kp: Any,
    p_slot: Any,
    passage: Any,
) -> Any:  # pragma: no cover - compiled
    """(n,) Σ_i change_i K(row i, ·) of a number of rows that four divides."""
    n = len(query)
    out = np.zeros(n, dtype=np.float32)
    for r in range(0, len(change), 4):  # four at once: their columns' numbers are read once
        by0, by1, by2, by3 = change[r], change[r + 1], change[r + 2], change[r + 3]
        q0, q1, q2, q3 = kq[q_slot[r]], kq[q_slot[r + 1]], kq[q_slot[r + 2]], kq[q_slot[r + 3]]
        p0, p1, p2, p3 = kp[p_slot[r]], kp[p_slot[r + 1]], kp[p_slot[r + 2]], kp[p_slot[r + 3]]
        for k in range(n):
            q, p = query[k], passage[k]
            out[k] += by0 * q0[q] * p0[p] + by1 * q1[q] * p1[p] + by2 * q2[q] * p2[p] + by3 * q3[q] * p3[p]
    return out


class _OnDevice:
    """The kernel on a device: of the last working set with all rows, gathered from Gram matrices where these fit."""

    dtype, decided, fraction = np.float32, True, FRACTION

    def __init__(self, problem: Problem, working_set: int | None) -> None:
        self.problem, self.xp = _with_grams(problem), problem.queries.xp
        n = len(problem.label)
        # A block of kernel rows, and what making it takes.
        self.q = min(
            n, batch_size_for_memory(problem.memory_budget, 16 * n, least=_LEAST, most=working_set or WORKING_SET)
        )
        self.chosen, self.block = np.zeros(0, dtype=np.int64), self.xp.empty((0, n), dtype=np.float32)

    def among(self, rows: Ints) -> KernelRows:
        """The kernel of distinct rows with each other, on the host."""
        self._hold(rows)
        columns = to_device(rows, self.problem.device)
        return KernelRows.of(np.ascontiguousarray(to_numpy(self.xp.take(self.block, columns, axis=1))))

    def rows(self, rows: Ints) -> Any:
        """(m, n) kernel values of some rows with all."""
        return self.problem.gram(rows)

    def subtract(self, error: Any, rows: Ints, change: NDArray[np.float64]) -> None:
        """Take from all residuals what a change of some rows' coefficients makes."""
        self._hold(rows)
        error -= to_device(change.astype(np.float32), self.problem.device) @ self.block

    def _hold(self, rows: Ints) -> None:
        if np.array_equal(rows, self.chosen):
            return
        stay = np.isin(rows, self.chosen)
        order = np.argsort(self.chosen)
        place = order[np.searchsorted(self.chosen, rows[stay], sorter=order)]
        held, new = self.block[to_device(place, self.problem.device)], self.problem.gram(rows[~stay])
        self.block, self.chosen = self.xp.concatenate([held, new]), np.concatenate([rows[stay], rows[~stay]])
        if not np.array_equal(rows, self.chosen):
            place = np.argsort(np.concatenate([np.flatnonzero(stay), np.flatnonzero(~stay)]))
            self.block, self.chosen = self.block[to_device(place, self.problem.device)], rows


def _with_grams(problem: Problem) -> Problem:
    """The problem with Gram matrices, if they fit."""
    if problem.grams is None and gram_bytes(problem) > problem.memory_budget:
        return problem
    try:
        return problem.with_grams()
    except DeviceError:
        free_cached()
    return problem
