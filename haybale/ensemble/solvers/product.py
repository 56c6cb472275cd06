"""haybale's own solver: SMO on kernel rows gathered from the two Gram matrices, or from a cache of rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from haybale.ensemble.gram import gram
from haybale.ensemble.half import Half
from haybale.ensemble.problem import Dual, Problem
from haybale.ensemble.rows import Ints
from haybale.ensemble.solvers import smo
from haybale.ensemble.solvers.dual import centred, intercept, merged_rows, step_limit, warn_unless_converged
from haybale.ensemble.solvers.working_set import solve_working_set, solve_working_set_many
from haybale.errors import InputError
from haybale.machine import cpus, in_threads
from haybale.vectors import Floats

BLOCK = 64  # kernel rows computed at once, where not all Gram matrices fit
_CHECKED = 64  # residuals taken anew before a solution is accepted


def solve_product(problem: Problem) -> Dual:
    """Second-order SMO in float32; the result does not depend on the number of threads.

    Where the halves are on a device, :func:`~haybale.ensemble.solvers.working_set.solve_working_set` solves it there.
    Rows with the same query, passage, evidence and label are one row with the sum of their weights (the optimum is
    the same); rows of weight zero take no part. Residuals are updated in float32; before a solution is
    accepted a sample of them is taken anew, and all of them are if any has drifted by a twentieth of ``tol``.
    ``tol`` below a millionth of the labels' range is raised to it: float32 tells nothing finer apart.

    Errors: a ``memory_budget`` that holds neither the Gram matrices nor two blocks of rows. Warns if ``max_iter``
    steps do not reach ``tol``.
    """
    if not problem.device.is_cpu:
        return solve_working_set(problem)
    merged, first = _merged(problem)
    label, centre, tol = centred(merged.label, problem.tol)
    solution = _Solution(merged, label)
    n_iter, violation = solution.run(problem.epsilon, tol, problem.max_iter)
    converged = warn_unless_converged(n_iter, violation, tol)
    coef = np.zeros(len(problem.label))
    coef[first] = solution.state.beta
    state = solution.state
    offset = intercept(state.beta, state.error, state.bound, problem.epsilon)
    return Dual(coef, centre + offset, n_iter, converged)


def solve_product_many(problems: Sequence[Problem]) -> list[Dual]:
    """The same for many bags; at once where that pays, which is on a device."""
    if all(not problem.device.is_cpu for problem in problems):
        return solve_working_set_many(problems)
    return [solve_product(problem) for problem in problems]


solve_product.many = solve_product_many  # type: ignore[attr-defined]


def _merged(problem: Problem) -> tuple[Problem, Ints]:
    """The problem with equal rows made one and sorted by query, and the first of the rows each stands for."""
    kept, weight = merged_rows(problem)
    names = ("interactions", "evidence", "evidence_root")
    parts = {name: value[kept] for name in names if (value := getattr(problem, name)) is not None}
    fields = vars(problem) | parts | {"weight": weight, "label": problem.label[kept]}
    passage, passages = problem.passage[kept], problem.passages
    if problem.grams is None:
        # Passages in the order of the rows: where each occurs once, kernel rows are read without a gather.
        used, where, passage = np.unique(passage, return_index=True, return_inverse=True)
        by_row = np.argsort(where)
        place = np.empty_like(by_row)
        place[by_row] = np.arange(len(by_row))
        passage, passages = place[passage], passages.take(used[by_row])
    return Problem(**(fields | {"query": problem.query[kept], "passage": passage, "passages": passages})), kept


class _Solution:
    """The state of one solution and where its kernel rows come from."""

    def __init__(self, problem: Problem, label: NDArray[np.float64]) -> None:
        self.problem, self.label = problem, label
        n = len(label)
        eps = np.float32(problem.epsilon)
        self.state = smo.State(
            beta=np.zeros(n),
            error=label.astype(np.float32),
            up=np.full(n, -eps, dtype=np.float32),
            low=np.full(n, eps, dtype=np.float32),
            bound=problem.C * problem.weight,
        )
        self.rows = self._kernel_rows()
        self._row_in_slot = np.full(len(self.rows.cache), -1)

    def _kernel_rows(self) -> smo.KernelRows:
        problem, n = self.problem, len(self.label)
        none = np.empty((0, 0), dtype=np.float32)
        kq, kp, kr, cache = none, none, none, none
        queries, query = np.unique(problem.query, return_inverse=True)
        values = len(queries) ** 2 + (0 if problem.interactions is None else n * n)
        values += 0 if problem.grams is not None else len(problem.passages) ** 2
        # Kq spread over the rows saves a gather in every step; it is worth a tenth of the budget, or what is left.
        spread = 4 * len(queries) * n <= max(problem.memory_budget / 10, problem.memory_budget - 4 * values)
        if 4 * values <= problem.memory_budget:
            if problem.grams is None:
                kq, kp = gram(problem.queries.take(queries), problem.threads), gram(problem.passages, problem.threads)
            else:
                kq, kp = problem.grams[0][np.ix_(queries, queries)], problem.grams[1]
            kq = np.take(kq, query, axis=1) if spread else kq
            kr = none if problem.interactions is None else gram(Half(problem.interactions), problem.threads)
        else:
            cache = self._empty_cache()
        features = np.empty((0, n), dtype=np.float32) if problem.evidence is None else problem.evidence.T
        return smo.KernelRows(
            kq=kq,
            kp=kp,
            query=query.astype(np.uint32),
            passage=problem.passage.astype(np.uint32),
            spread=spread,
            in_order=bool(np.array_equal(problem.passage, np.arange(n))),
            kr=kr,
            evidence=np.ascontiguousarray(features, dtype=np.float32),
            root=np.zeros(n, dtype=np.float32) if problem.evidence_root is None else problem.evidence_root,
            diagonal=problem.diagonal,
            slot=np.full(n if len(cache) else 0, -1),
            cache=cache,
            used=np.zeros(len(cache) + 1, dtype=np.int64),
        )

    def _empty_cache(self) -> Floats:
        problem, n = self.problem, len(self.label)
        # What computing a block takes: the tiles of both halves, their gathered rows, and the product.
        work = 4 * BLOCK * (len(problem.queries) + len(problem.passages) + 3 * n)
        slots = int((problem.memory_budget - work) // (4 * n))
        if slots < 2 * BLOCK:
            needed = work + 2 * BLOCK * 4 * n
            raise InputError(
                f"memory_budget of {problem.memory_budget / 1e6:,.1f} MB is too small for a bag of {n:,} rows: two "
                f"blocks of {BLOCK} kernel rows and the work on one need {needed / 1e6:,.1f} MB"
            )
        return np.empty((min(slots, n), n), dtype=np.float32)

    def run(self, epsilon: float, tol: float, max_iter: int) -> tuple[int, float]:
        """Optimise until the violation is below ``tol``: ``(steps taken, violation left)``."""
        left = step_limit(max_iter, len(self.label))
        taken = refreshed = 0
        while True:
            status, row, steps, violation = smo.optimise(self.rows, self.state, epsilon, tol, left)
            taken, left = taken + steps, left - steps
            if status == smo.ROW_NEEDED:
                self._bring(row)
            elif status == smo.STOPPED or refreshed == 10 or not self._refresh(tol):
                return taken, float(violation)
            else:
                refreshed += 1

    def _refresh(self, tol: float) -> bool:
        """Take residuals anew if a sample shows that they drifted; says whether."""
        n = len(self.label)
        sample = np.unique(np.linspace(0, n - 1, min(n, _CHECKED)).astype(np.int64))
        exact = self.label[sample] - self._products(sample)
        if np.abs(exact - self.state.error[sample]).max() <= tol / 20:
            return False
        self.state.error[:] = self.label - self._products(np.arange(n))
        return True

    def _products(self, rows: Ints) -> NDArray[np.float64]:
        """(n_rows,) Σ_k K(row, k) β_k."""
        beta = self.state.beta
        if len(self.rows.cache):
            return np.concatenate([self.problem.gram(part) @ beta for part in _blocks(rows)])
        threads = self.problem.threads or cpus()
        parts = np.array_split(rows, min(threads, len(rows)))
        return np.concatenate(in_threads(lambda part: smo.products(self.rows, part, beta), parts, self.problem.threads))

    def _bring(self, row: int) -> None:
        """Compute a block of kernel rows into the cache: the one asked for, and those likely to be next."""
        state, slot, used = self.state, self.rows.slot, self.rows.used
        absent = np.flatnonzero(slot < 0)
        gain, cost = state.error + state.up, state.error + state.low
        likely = absent[np.argsort(np.minimum(-gain[absent], cost[absent]), kind="stable")[: BLOCK - 1]]
        wanted = np.unique(np.append(likely, row))
        places = np.argsort(used[:-1], kind="stable")[: len(wanted)]  # those longest unread give way
        dropped = self._row_in_slot[places]
        slot[dropped[dropped >= 0]] = -1
        used[-1] += 1
        self.rows.cache[places] = self.problem.gram(wanted)
        slot[wanted], self._row_in_slot[places], used[places] = places, wanted, used[-1]


def _blocks(rows: Ints) -> list[Ints]:
    return [rows[start : start + BLOCK] for start in range(0, len(rows), BLOCK)]
