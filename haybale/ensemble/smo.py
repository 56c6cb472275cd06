"""haybale's own solver: sequential minimal optimisation on kernel rows gathered from the two Gram matrices.

The dual over β = α - α* (both are never positive at once): min ½ βᵀKβ - yᵀβ + ε|β|₁ with Σβ = 0 and
|β_i| <= C_i. A step moves two coefficients, chosen as in LIBSVM (Fan, Chen & Lin 2005, WSS 2): i violates its
optimality condition most, j gives the largest decrease with i by the second-order estimate.

With the residual e_i = y_i - (Kβ)_i, raising β_i gains e_i - ε (e_i + ε while β_i < 0), lowering it costs e_i + ε
(e_i - ε while β_i > 0); ``up`` and ``low`` hold these offsets, or put a bound coefficient out of reach. The
optimum is where no gain exceeds any cost by tol: max(e + up) - min(e + low) < tol. LIBSVM keeps α and α* as 2n
variables; one residual for both halves the work.

Loops are written so that the compiler vectorises them. It vectorises integer but not floating-point maxima, so
those are taken over order-preserving integers; positions are found in a second look at the best block.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from haybale.ensemble.kernel import exp_negative, gram
from haybale.ensemble.problem import Dual, Problem, Solution
from haybale.ensemble.rows import Ints
from haybale.errors import InputError
from haybale.machine import cpus, in_threads
from haybale.vectors import Floats

_F = np.float32
_I = np.int32
_BLOCK = 512  # rows a block: its part of all vectors stays in the first-level cache
_CHECKED = 64  # residuals taken anew before a solution is accepted
REFRESHES = 10  # times that all residuals are taken anew, at most
OUT_OF_REACH = _F(1e30)


def gram_bytes(problem: Problem) -> float:
    """What the Gram matrices over the queries and passages of a problem's rows take, beside those it has."""
    queries, passages = (len(np.unique(numbers)) for numbers in (problem.query, problem.passage))
    return 4.0 * queries**2 + (4.0 * passages**2 if problem.grams is None else 0.0)


def solve_product(problem: Problem) -> Dual:
    """Second-order SMO in float32, on the CPU; the result does not depend on the number of threads.

    Rows with the same query, passage, features and label are one row with the sum of their weights (the optimum is
    the same); rows of weight zero take no part. Residuals are updated in float32; before a solution is
    accepted a sample of them is taken anew, and all of them are if any has drifted by a twentieth of ``tol``.
    ``tol`` below a millionth of the labels' range is raised to it: float32 tells nothing finer apart.

    Errors: a ``memory_budget`` that does not hold the Gram matrices. Warns if ``max_iter`` steps do not reach ``tol``.
    """
    problem = problem.to_numpy()
    if (needed := gram_bytes(problem)) > problem.memory_budget:
        raise InputError(
            f"the Gram matrices of a bag of {len(problem.label):,} rows take {needed / 1e6:,.1f} MB, the memory_budget "
            f"is {problem.memory_budget / 1e6:,.1f} MB; raise it, or take solver='auto' or 'working-set'"
        )
    solution = Solution(problem)
    rows, state = _kernel_rows(solution.problem, needed), State.of(solution)
    taken = 0
    for refresh in range(REFRESHES + 1):
        steps, violation = optimise(rows, state, problem.epsilon, solution.tol, solution.limit - taken)
        taken += steps
        if violation >= solution.tol or refresh == REFRESHES or not _refresh(solution, rows, state):
            break
    return solution.dual(state.error, taken, float(violation))


def _refresh(solution: Solution, rows: KernelRows, state: State) -> bool:
    """Take residuals anew if a sample shows that they drifted; says whether."""
    n, threads = len(solution.label), solution.problem.threads

    def anew(chosen: Ints) -> NDArray[np.float64]:
        parts = np.array_split(chosen, min(threads or cpus(), len(chosen)))
        done = in_threads(lambda part: products(rows, part, state.beta), parts, threads)
        return np.asarray(solution.label[chosen] - np.concatenate(done))

    sample = np.unique(np.linspace(0, n - 1, min(n, _CHECKED)).astype(np.int64))
    if np.abs(anew(sample) - state.error[sample]).max() <= solution.tol / 20:
        return False
    state.error[:] = anew(np.arange(n))
    return True


def _kernel_rows(problem: Problem, needed: float) -> KernelRows:
    n = len(problem.label)
    queries, query = np.unique(problem.query, return_inverse=True)
    # Kq spread over the rows saves a gather in every step; it is worth a tenth of the budget, or what is left.
    spread = 4 * len(queries) * n <= max(problem.memory_budget / 10, problem.memory_budget - needed)
    if problem.grams is None:
        kq, kp = gram(problem.queries.take(queries), problem.threads), gram(problem.passages, problem.threads)
    else:
        kq, kp = problem.grams[0][np.ix_(queries, queries)], problem.grams[1]
    features = np.empty((0, n), dtype=np.float32) if problem.features is None else problem.features.T
    return KernelRows(
        kq=np.take(kq, query, axis=1) if spread else kq,
        kp=kp,
        query=query.astype(np.uint32),
        passage=problem.passage.astype(np.uint32),
        spread=spread,
        in_order=bool(np.array_equal(problem.passage, np.arange(n))),
        features=np.ascontiguousarray(features, dtype=np.float32),
        root=np.zeros(n, dtype=np.float32) if problem.features_root is None else problem.features_root,
        diagonal=problem.diagonal,
    )


class KernelRows(NamedTuple):
    """Where kernel rows are gathered from."""

    kq: Floats  # (n_queries, n) each query with the query of each row, or (n_queries, n_queries)
    kp: Floats  # (n_passages, n_passages)
    query: NDArray[np.uint32]  # (n,)
    passage: NDArray[np.uint32]  # (n,)
    spread: bool  # kq is (n_queries, n): read, not gathered
    in_order: bool  # passage is 0, 1, 2, …: kp is read, not gathered
    features: Floats  # (f, n), or (0, n)
    root: Floats  # (n,) weight of each row's features
    diagonal: Floats  # (n,)

    @classmethod
    def of_matrix(cls, kernel: Floats) -> KernelRows:
        """Of a whole kernel matrix (n, n): a product with 1."""
        n = len(kernel)
        one, nothing = np.ones((1, 1), dtype=np.float32), np.zeros(n, dtype=np.uint32)
        none, root = np.empty((0, n), dtype=np.float32), np.zeros(n, dtype=np.float32)
        rows = np.arange(n, dtype=np.uint32)
        return cls(kernel, one, rows, nothing, True, False, none, root, np.ascontiguousarray(kernel.diagonal()))


class State(NamedTuple):
    """What a solution has reached; changed in place."""

    beta: NDArray[np.float64]  # (n,)
    error: Floats  # (n,) residuals
    up: Floats  # (n,)
    low: Floats  # (n,)
    bound: NDArray[np.float64]  # (n,) C_i

    @classmethod
    def of(cls, solution: Solution, rows: Ints | slice = slice(None), error: Floats | None = None) -> State:
        """Of some rows of a solution, with their residuals (None: the labels); ``beta`` is a view, if all are."""
        beta, bound, eps = solution.beta[rows], solution.bound[rows], np.float32(solution.problem.epsilon)
        up = np.where(beta < 0, eps, np.where(beta < bound, -eps, -OUT_OF_REACH))
        low = np.where(beta > 0, -eps, np.where(beta > -bound, eps, OUT_OF_REACH))
        error = solution.label[rows].astype(np.float32) if error is None else error
        return cls(beta, error, up, low, bound)


@njit(inline="always")
def _ordered(x: Any) -> Any:  # pragma: no cover - compiled
    """An int32 that orders as the float32 does."""
    bits = _F(x).view(np.int32)
    return bits ^ ((bits >> _I(31)) & _I(0x7FFFFFFF))


@njit(nogil=True, fastmath=True, cache=True)
def fill_row(rows: KernelRows, i: int, out: Floats) -> None:  # pragma: no cover - compiled
    """(n,) the kernel of row i with all rows."""
    kq, query = rows.kq[rows.query[i]], rows.query
    kp, passage = rows.kp[rows.passage[i]], rows.passage
    if rows.spread and rows.in_order:
        for k in range(len(out)):
            out[k] = kq[k] * kp[k]
    elif rows.spread:
        for k in range(len(out)):
            out[k] = kq[k] * kp[passage[k]]
    else:
        for k in range(len(out)):
            out[k] = kq[query[k]] * kp[passage[k]]
    n_features = rows.features.shape[0]
    if n_features > 0 and rows.root[i] > 0:
        far = np.empty(_BLOCK, dtype=np.float32)
        for b in range(0, len(out), _BLOCK):
            size = min(_BLOCK, len(out) - b)
            far[:] = _F(0)
            for f in range(n_features):
                here, column = rows.features[f, i], rows.features[f, b : b + size]
                for k in range(size):
                    d = column[k] - here
                    far[k] -= d * d
            block, root = out[b : b + size], rows.root[b : b + size]
            for k in range(size):
                block[k] += rows.root[i] * root[k] * exp_negative(far[k])


@njit(nogil=True, fastmath=True, cache=True)
def products(rows: KernelRows, chosen: Any, beta: Any) -> Any:  # pragma: no cover - compiled
    """(n_chosen,) Σ_k K(chosen, k) β_k in float64."""
    row = np.empty(len(beta), dtype=np.float32)
    out = np.empty(len(chosen))
    for c in range(len(chosen)):
        fill_row(rows, chosen[c], row)
        total = 0.0
        for k in range(len(beta)):
            total += row[k] * beta[k]
        out[c] = total
    return out


@njit(nogil=True, fastmath=True, cache=True)
def _steepest(state: State, change: Any, row_i: Floats, row_j: Floats) -> Any:  # pragma: no cover - compiled
    """Take the step's ``change`` from the residuals; ``(largest gain, smallest cost, row of the largest gain)``."""
    n = len(state.error)
    most, least, block = _I(-2147483647), _I(2147483647), 0
    for b in range(0, n, _BLOCK):
        error, up, low = state.error[b : b + _BLOCK], state.up[b : b + _BLOCK], state.low[b : b + _BLOCK]
        i_part, j_part, m, c = row_i[b : b + _BLOCK], row_j[b : b + _BLOCK], _I(-2147483647), _I(2147483647)
        for k in range(len(error)):
            error[k] -= change * (i_part[k] - j_part[k])
        for k in range(len(error)):
            m = max(m, _ordered(error[k] + up[k]))
            c = min(c, _ordered(error[k] + low[k]))
        if m > most:
            most, block = m, b
        least = min(c, least)
    i = block
    while _ordered(state.error[i] + state.up[i]) != most:
        i += 1
    low_bits = least ^ ((least >> _I(31)) & _I(0x7FFFFFFF))
    return state.error[i] + state.up[i], _I(low_bits).view(np.float32), i


@njit(inline="always")
def _decrease(gain: Any, cost: Any, curvature: Any) -> Any:  # pragma: no cover - compiled
    """Bits of the estimated decrease of the objective; positive floats order as their bits do."""
    d = max(gain - cost, _F(0))
    return _F(d * d / max(curvature, _F(1e-12))).view(np.int32)


@njit(nogil=True, fastmath=True, cache=True)
def _partner(state: State, row: Floats, gain: Any, here: Any, diagonal: Floats) -> int:  # pragma: no cover - compiled
    """The row whose step with row i, of kernel values ``row`` and K_ii ``here``, is estimated to gain most."""
    n = len(state.error)
    best, block = _I(-1), 0
    for b in range(0, n, _BLOCK):
        error, low, kernel = state.error[b : b + _BLOCK], state.low[b : b + _BLOCK], row[b : b + _BLOCK]
        there, m = diagonal[b : b + _BLOCK], _I(-1)
        for k in range(len(error)):
            m = max(m, _decrease(gain, error[k] + low[k], here + there[k] - _F(2) * kernel[k]))
        if m > best:
            best, block = m, b
    j, best = block, _I(-1)
    for k in range(block, min(block + _BLOCK, n)):
        m = _decrease(gain, state.error[k] + state.low[k], here + diagonal[k] - _F(2) * row[k])
        if m > best:
            j, best = k, m
    return j


@njit(nogil=True, fastmath=True, cache=True)
def optimise(
    rows: KernelRows, state: State, epsilon: float, tol: float, steps: int
) -> tuple[int, float]:  # pragma: no cover - compiled
    """Take up to ``steps`` steps. Returns ``(steps taken, remaining violation)``."""
    n = len(state.error)
    row_i, row_j = np.empty(n, dtype=np.float32), np.empty(n, dtype=np.float32)
    row_i[:], row_j[:] = _F(0), _F(0)
    eps, change = _F(epsilon), _F(0)
    for step in range(steps):
        gain, least, i = _steepest(state, change, row_i, row_j)
        change = _F(0)
        if gain - least < tol:
            return step, gain - least
        fill_row(rows, i, row_i)
        j = _partner(state, row_i, gain, rows.diagonal[i], rows.diagonal)
        fill_row(rows, j, row_j)
        curvature = max(rows.diagonal[i] + rows.diagonal[j] - 2.0 * row_i[j], 1e-12)
        # A coefficient stops at 0, where its offset changes sign, and at its bound.
        room_i = -state.beta[i] if state.beta[i] < 0 else state.bound[i] - state.beta[i]
        room_j = state.beta[j] if state.beta[j] > 0 else state.bound[j] + state.beta[j]
        move = min((gain - (state.error[j] + state.low[j])) / curvature, min(room_i, room_j))
        if move == room_i:
            state.beta[i] = 0.0 if state.beta[i] < 0 else state.bound[i]
        else:
            state.beta[i] += move
        if move == room_j:
            state.beta[j] = 0.0 if state.beta[j] > 0 else -state.bound[j]
        else:
            state.beta[j] -= move
        for k in (i, j):
            state.up[k] = eps if state.beta[k] < 0 else (-eps if state.beta[k] < state.bound[k] else -OUT_OF_REACH)
            state.low[k] = -eps if state.beta[k] > 0 else (eps if state.beta[k] > -state.bound[k] else OUT_OF_REACH)
        change = _F(move)
    gain, least, _ = _steepest(state, change, row_i, row_j)
    return steps, gain - least
