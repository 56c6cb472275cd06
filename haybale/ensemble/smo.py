"""Sequential minimal optimisation (SMO) on a working set.

The dual problem, over β = α - α* (never both positive), is min ½ βᵀKβ - yᵀβ + ε|β|₁ with Σβ = 0 and |β_i| <= C_i. A
step changes two coefficients, chosen as in LIBSVM (Fan, Chen & Lin 2005, WSS 2): i violates its optimality condition
most, and j gives the largest second-order estimate of the decrease of the objective together with i.

With the residual e_i = y_i - (Kβ)_i, raising β_i gains e_i - ε (or e_i + ε while β_i < 0), and lowering it costs
e_i + ε (or e_i - ε while β_i > 0). ``up`` and ``low`` hold these offsets, or ±OUT_OF_REACH for a coefficient at its
bound. At the optimum, no gain exceeds any cost by tol: max(e + up) - min(e + low) < tol. LIBSVM stores α and α* as 2n
variables; storing one residual for both halves the work.

The loops are written so that the compiler vectorises them. Compilers vectorise integer but not floating-point maxima.
Maxima are therefore computed over integers that order like the floats, and positions are found in a second pass over
the block with the maximum.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from haybale.ensemble.problem import Solution
from haybale.ensemble.rows import Ints
from haybale.vectors import Floats

_F = np.float32
_I = np.int32
_BLOCK = 512  # rows of a block: its part of every vector stays in the first-level cache
OUT_OF_REACH = _F(1e30)


class State(NamedTuple):
    """The state of the optimisation, which :func:`optimise` changes in place."""

    beta: NDArray[np.float64]  # (n,)
    error: Floats  # (n,) residuals
    up: Floats  # (n,)
    low: Floats  # (n,)
    bound: NDArray[np.float64]  # (n,) C_i

    @classmethod
    def of(cls, solution: Solution, rows: Ints | slice = slice(None), error: Floats | None = None) -> State:
        """Return the state of some rows; the residuals ``error`` default to the labels.

        For all rows, ``beta`` is a view.
        """
        beta, bound, eps = solution.beta[rows], solution.bound[rows], np.float32(solution.problem.epsilon)
        up = np.where(beta < 0, eps, np.where(beta < bound, -eps, -OUT_OF_REACH))
        low = np.where(beta > 0, -eps, np.where(beta > -bound, eps, OUT_OF_REACH))
        error = solution.label[rows].astype(np.float32) if error is None else error
        return cls(beta, error, up, low, bound)


@njit(inline="always")
def _ordered(x: Any) -> Any:  # pragma: no cover - compiled
    """Return an int32 that has the same order as the float32."""
    bits = _F(x).view(np.int32)
    return bits ^ ((bits >> _I(31)) & _I(0x7FFFFFFF))


@njit(nogil=True, fastmath=True, cache=True)
def _steepest(state: State, change: Any, row_i: Floats, row_j: Floats) -> Any:  # pragma: no cover - compiled
    """Update the residuals for a step, and return ``(largest gain, smallest cost, row of the largest gain)``."""
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
    """Return the bits of the estimated decrease of the objective, which order as positive floats do."""
    d = max(gain - cost, _F(0))
    return _F(d * d / max(curvature, _F(1e-12))).view(np.int32)


@njit(nogil=True, fastmath=True, cache=True)
def _partner(state: State, row: Floats, gain: Any, k_ii: Any, diagonal: Floats) -> int:  # pragma: no cover - compiled
    """Return the row j with the largest estimated decrease; ``row`` is the kernel of row i, and ``k_ii`` is K_ii."""
    n = len(state.error)
    best, block = _I(-1), 0
    for b in range(0, n, _BLOCK):
        error, low, kernel = state.error[b : b + _BLOCK], state.low[b : b + _BLOCK], row[b : b + _BLOCK]
        k_jj, m = diagonal[b : b + _BLOCK], _I(-1)
        for k in range(len(error)):
            m = max(m, _decrease(gain, error[k] + low[k], k_ii + k_jj[k] - _F(2) * kernel[k]))
        if m > best:
            best, block = m, b
    j, best = block, _I(-1)
    for k in range(block, min(block + _BLOCK, n)):
        m = _decrease(gain, state.error[k] + state.low[k], k_ii + diagonal[k] - _F(2) * row[k])
        if m > best:
            j, best = k, m
    return j


@njit(nogil=True, fastmath=True, cache=True)
def optimise(
    kernel: Floats, state: State, epsilon: float, tol: float, steps: int
) -> tuple[int, float]:  # pragma: no cover - compiled
    """Take up to ``steps`` steps, with a kernel (n, n), and return ``(steps taken, remaining violation)``."""
    diagonal, row_i, row_j = np.diag(kernel).copy(), kernel[0], kernel[0]
    eps, change = _F(epsilon), _F(0)
    for step in range(steps):
        gain, least, i = _steepest(state, change, row_i, row_j)
        change = _F(0)
        if gain - least < tol:
            return step, gain - least
        row_i = kernel[i]
        j = _partner(state, row_i, gain, diagonal[i], diagonal)
        row_j = kernel[j]
        curvature = max(diagonal[i] + diagonal[j] - 2.0 * row_i[j], 1e-12)
        # A coefficient stops at 0, where its offset changes sign, or at its bound.
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
