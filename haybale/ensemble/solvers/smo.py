"""Sequential minimal optimisation of the ε-SVR dual, on kernel rows that are gathered when they are needed.

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

from haybale.ensemble.gram import exp_negative
from haybale.vectors import Floats

_F = np.float32
_I = np.int32
_BLOCK = 512  # rows a block: its part of all vectors stays in the first-level cache
OUT_OF_REACH = _F(1e30)
CONVERGED, STOPPED, ROW_NEEDED = 0, 1, 2


class KernelRows(NamedTuple):
    """Where kernel rows come from: gathered from Gram matrices, or copied from a cache of rows."""

    kq: Floats  # (n_queries, n) each query with the query of each row, or (n_queries, n_queries); (0, 0) with a cache
    kp: Floats  # (n_passages, n_passages), likewise
    query: NDArray[np.uint32]  # (n,)
    passage: NDArray[np.uint32]  # (n,)
    spread: bool  # kq is (n_queries, n): read, not gathered
    in_order: bool  # passage is 0, 1, 2, …: kp is read, not gathered
    kr: Floats  # (n, n) of interactions, or (0, 0)
    evidence: Floats  # (f, n), or (0, n)
    root: Floats  # (n,) weight of each row's evidence
    diagonal: Floats  # (n,)
    slot: NDArray[np.int64]  # (n,) place in the cache, -1 for none; (0,) without a cache
    cache: Floats  # (n_slots, n)
    used: NDArray[np.int64]  # (n_slots + 1,) when each place was last read; the last element is the clock


class State(NamedTuple):
    """What a solution has reached; changed in place."""

    beta: NDArray[np.float64]  # (n,)
    error: Floats  # (n,) residuals
    up: Floats  # (n,)
    low: Floats  # (n,)
    bound: NDArray[np.float64]  # (n,) C_i


@njit(inline="always")
def _ordered(x: Any) -> Any:  # pragma: no cover - compiled
    """An int32 that orders as the float32 does."""
    bits = _F(x).view(np.int32)
    return bits ^ ((bits >> _I(31)) & _I(0x7FFFFFFF))


@njit(nogil=True, fastmath=True, cache=True)
def fill_row(rows: KernelRows, i: int, out: Floats) -> None:  # pragma: no cover - compiled
    """(n,) the kernel of row i with all rows."""
    if rows.slot.size > 0:
        place = rows.slot[i]
        rows.used[-1] += 1
        rows.used[place] = rows.used[-1]
        out[:] = rows.cache[place]
        return
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
    if rows.kr.size > 0:
        kr = rows.kr[i]
        for k in range(len(out)):
            out[k] *= kr[k]
    n_features = rows.evidence.shape[0]
    if n_features > 0 and rows.root[i] > 0:
        far = np.empty(_BLOCK, dtype=np.float32)
        for b in range(0, len(out), _BLOCK):
            size = min(_BLOCK, len(out) - b)
            far[:] = _F(0)
            for f in range(n_features):
                here, column = rows.evidence[f, i], rows.evidence[f, b : b + size]
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
) -> tuple[int, int, int, float]:  # pragma: no cover - compiled
    """Take up to ``steps`` steps. Returns ``(status, row that is needed, steps taken, remaining violation)``.

    With a cache, a step whose kernel rows are absent is not taken: the caller brings the row and calls again.
    """
    n = len(state.error)
    row_i, row_j = np.empty(n, dtype=np.float32), np.empty(n, dtype=np.float32)
    cached = rows.slot.size > 0
    row_i[:], row_j[:] = _F(0), _F(0)
    eps, change = _F(epsilon), _F(0)
    for step in range(steps):
        gain, least, i = _steepest(state, change, row_i, row_j)
        change = _F(0)
        if gain - least < tol:
            return CONVERGED, -1, step, gain - least
        if cached and rows.slot[i] < 0:
            return ROW_NEEDED, i, step, gain - least
        fill_row(rows, i, row_i)
        j = _partner(state, row_i, gain, rows.diagonal[i], rows.diagonal)
        if cached and rows.slot[j] < 0:
            return ROW_NEEDED, j, step, gain - least
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
    return CONVERGED if gain - least < tol else STOPPED, -1, steps, gain - least
