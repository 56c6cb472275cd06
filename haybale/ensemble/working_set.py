"""The working-set solver: sequential minimal optimisation (SMO) on working sets.

Each outer iteration chooses the rows that violate their optimality conditions most, solves the small problem of their
coefficients with all others fixed (:mod:`haybale.ensemble.smo`), and updates all residuals by a product with the
kernel of the chosen rows. ThunderSVM (Wen, Shi, Li, He & Chen 2018, JMLR 19(21)) and cuML work in the same way.

The small problem needs the kernel of the chosen rows with each other. The kernel with all rows is needed only for rows
whose coefficient has changed; with few exceptions, these become support vectors. On the CPU, kernel values are gathered
from rows of the two Gram matrices (:mod:`haybale.ensemble.gram_rows`), which are cached within ``memory_budget``, and
the cores share the update of the residuals. On a device, array operations process the vectors of the length of a bag,
and only the small problems are copied to the host.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from haybale.device import to_device, to_numpy
from haybale.device_memory import free_cached
from haybale.ensemble.gram_rows import GramRows
from haybale.ensemble.kernel import gram
from haybale.ensemble.problem import Dual, Problem, Solution
from haybale.ensemble.rows import Ints
from haybale.ensemble.smo import State, optimise
from haybale.errors import DeviceError
from haybale.parallel import batch_size_for_memory, in_threads, one_blas_thread
from haybale.vectors import Floats

WORKING_SET = 1024  # rows
FRACTION = 0.3  # the solver leaves a working set when its violation has fallen to this share of its initial value
# Both values if both Gram matrices are in memory: the steps on a set then take less time than reading its kernel.
_OF_HELD = 512, 0.1
STEPS = 20  # maximum number of steps per row of a working set
REFRESHES = 10  # maximum number of times that all residuals are recomputed
CHECKED = 32  # residuals recomputed before a solution is accepted
_EARLY = 0.1  # share of the rows that must be support vectors before their final number is estimated
_SMALL = 4096  # rows of a bag up to which whole Gram matrices are computed; they are hardly larger than the vectors
_LEAST = 4  # minimum rows of a working set: two of the previous set, one with a large gain, one with a small cost
_LINES = 128  # maximum number of kernel rows that a thread adds in one task
_CORES = 4  # the number of such tasks is a multiple of this, so that cores finish together
_SQUARE_LINES = 64  # rows of the kernel of a working set that a thread computes in one task


def solve_working_set(problem: Problem, working_set: int | None = None) -> Dual:
    """Solve with second-order SMO on working sets, on the problem's device.

    Equal rows are merged, and ``tol`` has a lower bound; see :class:`~haybale.ensemble.problem.Solution`. Before the
    solver accepts a solution, it recomputes a sample of the residuals. If one of them differs by more than tol / 20,
    it recomputes all residuals and continues.

    The result does not depend on the number of threads. ``memory_budget`` limits the bytes of kernel values; values
    that do not fit are computed again when they are needed. Raises :class:`~haybale.errors.DeviceError` if a device
    runs out of memory, and warns if ``max_iter`` steps do not reach ``tol``.

    Parameters
    ----------
    problem : Problem
    working_set : int, optional
        Maximum number of rows of a working set. Default: 1,024, or 512 on the CPU if both Gram matrices are in memory.
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
    """The residuals of all rows, and the choice of working sets."""

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
        """Return the violation, the largest gain minus the smallest cost."""
        self.gain, self.cost = self.error + self.up, self.error + self.low
        self.violation = float(self.gain.max() - self.cost.min())
        return self.violation

    def improve(self) -> bool:
        """Optimise a working set and update all residuals; return whether any step was taken."""
        solution = self.solution
        if not self.kernel.decided:
            self._decide()
        rows = self._choose()
        on_device = to_device(rows, self.device)
        state = State.of(solution, rows, to_numpy(self.error[on_device]).astype(np.float32))
        before = solution.beta[rows]
        stop, most = max(solution.tol / 2, self.kernel.fraction * self.violation), STEPS * len(rows)
        if is_all := len(rows) == len(solution.label):  # solve completely, with a margin for float32 rounding
            stop, most = 0.9 * solution.tol, solution.limit
        most = min(most, solution.limit - self.taken)
        steps, _ = optimise(self.kernel.among(rows), state, solution.problem.epsilon, stop, most)
        solution.beta[rows] = state.beta
        if is_all:
            self.error[:] = to_device(state.error, self.device)
        else:
            self.kernel.subtract(self.error, rows, state.beta - before)
        self.up[on_device], self.low[on_device] = to_device(state.up, self.device), to_device(state.low, self.device)
        self.taken, self.outer = self.taken + steps, self.outer + 1
        return steps > 0

    def _decide(self) -> None:
        """Decide whether to compute whole Gram matrices, as soon as the number of support vectors can be estimated."""
        n, support = len(self.solution.label), self.solution.beta != 0
        if n <= _SMALL:
            self.kernel.decide(True)
        elif np.count_nonzero(support) > _EARLY * n:
            middle = (self.gain.max() + self.cost.min()) / 2
            support |= (self.gain > middle) | (self.cost < middle)
            self.kernel.decide(np.count_nonzero(support) > n / 2)

    def _choose(self) -> Ints:
        """Return the next working set: the rows that were new in the last one, and the rows that violate most.

        If more than half of the set would be old rows, only every second of them is kept. Half of the other rows have
        the largest gains, and half have the smallest costs.
        """
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
        # Sorted rows make memory access sequential on the CPU. On a device, kept rows keep their position.
        return np.sort(chosen) if self.device.is_cpu else chosen

    def drift(self) -> float:
        """Return the largest error in a sample of the residuals."""
        solution, n = self.solution, len(self.solution.label)
        sample = np.unique(np.linspace(0, n - 1, min(n, CHECKED)).astype(np.int64))
        values = to_numpy(self.kernel.problem.gram(sample))
        error = to_numpy(self.error[to_device(sample, self.device)])
        return float(np.abs(solution.label[sample] - values @ solution.beta - error).max())

    def refresh(self) -> None:
        """Recompute all residuals from the labels and the coefficients."""
        self.error[:] = to_device(self.solution.label, self.device)
        support = np.flatnonzero(self.solution.beta)
        for start in range(0, len(support), self.kernel.q):
            rows = support[start : start + self.kernel.q]
            self.kernel.subtract(self.error, rows, self.solution.beta[rows])


class _Held:
    """The kernel on the CPU, gathered from cached rows of the two Gram matrices."""

    dtype = np.float64

    def __init__(self, problem: Problem, working_set: int | None) -> None:
        self.problem, n = problem, len(problem.label)
        self.working_set, self.fraction = working_set, FRACTION
        self.query, self.passage = problem.query.astype(np.uint32), problem.passage.astype(np.uint32)
        halves, whole = (problem.queries, problem.passages), problem.grams or (None, None)
        rooms = len(halves[0]), len(halves[1])
        # The budget also holds the kernel of the small problem and the temporary arrays of computing it.
        room = np.sqrt(problem.memory_budget / 48)
        self.q = min(n, batch_size_for_memory(room, 1, least=_LEAST, most=working_set or WORKING_SET))
        if problem.grams is None:
            rooms = _rooms(*rooms, problem.memory_budget - 12 * self.q**2)
            self.q = min(self.q, *(room if room < len(of) else n for room, of in zip(rooms, halves, strict=True)))
        self.of_queries, self.of_passages = (
            GramRows(points, room, problem.threads, gram)
            for points, room, gram in zip(halves, rooms, whole, strict=True)
        )
        self.decided = False
        if problem.grams is not None:
            self.decide(True)

    def among(self, rows: Ints) -> Floats:
        """Return the kernel of distinct rows with each other; compute only this part for passages not in the cache."""
        query, passage = self.query[rows], self.passage[rows]
        self.of_queries.hold(np.unique(query))
        slots = self.of_queries.slot[query], self.of_passages.slot[passage]
        missing, cached = (np.flatnonzero(lines).astype(np.uint32) for lines in (slots[1] < 0, slots[1] >= 0))
        used, place = np.unique(passage[missing], return_inverse=True)
        threads = self.problem.threads
        tile = gram(self.of_passages.points.take(used, threads), threads)
        places = np.zeros(len(rows), dtype=np.uint32)
        places[missing] = place
        out = np.empty((len(rows), len(rows)), dtype=np.float32)

        def square(start: int) -> None:
            _square(
                self.of_queries.values, slots[0], query, self.of_passages.values, slots[1], passage, tile, places,
                missing, start, out,
            )  # fmt: skip

        lines = range(0, len(rows), _SQUARE_LINES)[::-1]  # the longest first
        in_threads(square, lines, threads)
        in_threads(lambda start: _mirror(out, missing, cached, start), lines, threads)
        if self.problem.features is not None:
            features = self.problem.features[rows]
            out += features @ features.T
        return out

    def decide(self, whole: bool) -> None:
        """Compute whole Gram matrices now if they fit, or their rows when they are needed."""
        self.decided = True
        both = self.of_queries, self.of_passages
        for held in both if whole else ():
            if len(held.values) == len(held.slot):
                held.hold_all()
        if self.working_set is None and all((held.slot >= 0).all() for held in both):
            self.q, self.fraction = min(self.q, _OF_HELD[0]), _OF_HELD[1]

    def subtract(self, error: NDArray[np.float64], rows: Ints, change: NDArray[np.float64]) -> None:
        """Update all residuals after a change of the coefficients of some rows."""
        rows, change = rows[change != 0], change[change != 0].astype(np.float32)
        if not len(rows):
            return
        halves = (self.of_queries, self.query), (self.of_passages, self.passage)
        for held, column in halves:
            held.hold(np.unique(column[rows]))
        more = -len(rows) % 4  # the last row again, with no change
        rows, change = np.append(rows, np.full(more, rows[-1])), np.append(change, np.zeros(more, dtype=np.float32))
        slots = [held.slot[column[rows]] for held, column in halves]
        tasks = _CORES * -(-len(rows) // (_CORES * _LINES))
        lines = 4 * -(-len(rows) // (4 * tasks))

        def total(start: int) -> Any:
            part = slice(start, start + lines)
            return _total(
                change[part], self.of_queries.values, slots[0][part], self.query, self.of_passages.values,
                slots[1][part], self.passage,
            )  # fmt: skip

        for part in in_threads(total, range(0, len(rows), lines), self.problem.threads):
            error -= part
        if self.problem.features is not None:
            error -= self.problem.features @ (change @ self.problem.features[rows])


def _rooms(n_queries: int, n_passages: int, budget: float) -> tuple[int, int]:
    """Return the number of rows of each Gram matrix that fit a budget of bytes.

    The smaller matrix gets all its rows if they fit a quarter of the budget.
    """
    sizes = 4.0 * n_queries**2, 4.0 * n_passages**2
    if sum(sizes) <= budget:
        return n_queries, n_passages
    if min(sizes) <= budget / 4:
        left = budget - min(sizes)
        if sizes[0] < sizes[1]:
            return n_queries, batch_size_for_memory(left, 4 * n_passages, least=_LEAST)
        return batch_size_for_memory(left, 4 * n_queries, least=_LEAST), n_passages
    share = budget / sum(sizes)
    return max(_LEAST, int(n_queries * share)), max(_LEAST, int(n_passages * share))


@njit(nogil=True, cache=True)
def _square(
    kq: Any,
    q_slot: Any,
    query: Any,
    kp: Any,
    p_slot: Any,
    passage: Any,
    tile: Any,
    place: Any,
    missing: Any,
    first: int,
    out: Any,
) -> None:  # pragma: no cover - compiled
    """Compute rows ``first`` … of the kernel, without the values that :func:`_mirror` copies.

    ``missing`` are the rows whose passages are not in the cache; ``tile`` and ``place`` replace ``kp`` for them.
    """
    for i in range(first, min(first + _SQUARE_LINES, len(out))):
        line, of_query = out[i], kq[q_slot[i]]
        if p_slot[i] >= 0:
            row = kp[p_slot[i]]
            for k in range(i + 1):
                line[k] = of_query[query[k]] * row[passage[k]]
            for m in range(np.searchsorted(missing, i), len(missing)):
                k = missing[m]
                line[k] = of_query[query[k]] * row[passage[k]]
        else:
            row = tile[place[i]]
            for k in range(i + 1):
                line[k] = of_query[query[k]] * row[place[k]]  # wrong for cached passages; _mirror corrects it


@njit(nogil=True, cache=True)
def _mirror(out: Any, missing: Any, cached: Any, first: int) -> None:  # pragma: no cover - compiled
    """Complete rows ``first`` … up to the diagonal, and copy them to the same columns above the diagonal.

    Values of ``cached`` passages' rows are copied to rows of ``missing`` passages. A square at a time goes by way of a
    small array, because rows of the kernel that are a power of two apart displace each other from the cache.
    """
    last = min(first + _SQUARE_LINES, len(out))
    square = np.empty((_SQUARE_LINES, _SQUARE_LINES), dtype=np.float32)
    rows = missing[np.searchsorted(missing, first) : np.searchsorted(missing, last)]
    for start in range(0, last, _SQUARE_LINES):
        end = min(start + _SQUARE_LINES, last)
        if len(rows):
            for k in cached[np.searchsorted(cached, start) : np.searchsorted(cached, end)]:
                line = out[k]
                for i in rows:
                    square[i - first, k - start] = line[i]
            for i in rows:
                line = out[i]
                for k in cached[np.searchsorted(cached, start) : np.searchsorted(cached, min(end, i))]:
                    line[k] = square[i - first, k - start]
        below, above = out[first:last, start:end], out[start:end, first:last]
        square[: last - first, : end - start] = below
        for k in range(end - start):
            line = above[k]
            for i in range(max(0, start + k + 1 - first), last - first):
                line[i] = square[i, k]


@njit(nogil=True, fastmath=True, cache=True)
def _total(
    change: Any, kq: Any, q_slot: Any, query: Any, kp: Any, p_slot: Any, passage: Any
) -> Any:  # pragma: no cover - compiled
    """Return Σ_i change_i K(row i, ·) (n,); the number of rows must be a multiple of four."""
    n = len(query)
    out = np.zeros(n, dtype=np.float32)
    for r in range(0, len(change), 4):  # four rows per pass over the query and passage numbers
        by0, by1, by2, by3 = change[r], change[r + 1], change[r + 2], change[r + 3]
        q0, q1, q2, q3 = kq[q_slot[r]], kq[q_slot[r + 1]], kq[q_slot[r + 2]], kq[q_slot[r + 3]]
        p0, p1, p2, p3 = kp[p_slot[r]], kp[p_slot[r + 1]], kp[p_slot[r + 2]], kp[p_slot[r + 3]]
        for k in range(n):
            q, p = query[k], passage[k]
            out[k] += by0 * q0[q] * p0[p] + by1 * q1[q] * p1[p] + by2 * q2[q] * p2[p] + by3 * q3[q] * p3[p]
    return out


class _OnDevice:
    """The kernel of the last working set with all rows, on a device; gathered from Gram matrices if they fit."""

    dtype, decided, fraction = np.float32, True, FRACTION

    def __init__(self, problem: Problem, working_set: int | None) -> None:
        if problem.grams is not None or problem.gram_bytes() <= problem.memory_budget:
            try:
                problem = problem.with_grams()
            except DeviceError:
                free_cached()
        self.problem, self.xp = problem, problem.queries.xp
        n = len(problem.label)
        most = working_set or WORKING_SET
        # Computing a block of kernel rows needs the same amount of temporary memory.
        self.q = min(n, batch_size_for_memory(problem.memory_budget, 16 * n, least=_LEAST, most=most))
        self.chosen, self.block = np.zeros(0, dtype=np.int64), self.xp.empty((0, n), dtype=np.float32)

    def among(self, rows: Ints) -> Floats:
        """Return the kernel of distinct rows with each other, on the host."""
        self._hold(rows)
        columns = to_device(rows, self.problem.device)
        return np.ascontiguousarray(to_numpy(self.xp.take(self.block, columns, axis=1)))

    def subtract(self, error: Any, rows: Ints, change: NDArray[np.float64]) -> None:
        """Update all residuals after a change of the coefficients of some rows."""
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
