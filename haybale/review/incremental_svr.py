"""A bagged support vector regressor that learns one row at a time, each from the solution of the rows before it.

Each bag minimises ½ ‖f‖² + Σ C_i max(|y_i - f(x_i)| - ε, 0)² over the functions f of a kernel, with labels y of -1 and
1. In the dual, over β, this is min ½ βᵀ(K + D)β - yᵀβ + ε|β|₁ with D_ii = 1 / (2 C_i). It has no constraints, so one
coefficient after the other is set to its optimum (Ho & Lin 2012, "Large-scale linear support vector regression",
algorithm 4, here with a kernel). After a row is added or the costs change, a few passes over the coefficients lead from
the old optimum to the new one. All bags share the kernel matrix; a row that is not in a bag has cost 0 there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from haybale.vectors import Floats

EPSILON = 0.1  # as in the SVR ensemble
_MAX_PASSES = 100  # over all coefficients
_TOLERANCE = 1e-3
_MIN_STEP = 5e-4  # smaller changes of a coefficient, in units of the label, are left out
_EXACT_EVERY = 64  # solutions between two exact computations of the predictions, so that rounding errors do not add up


@njit(nogil=True, fastmath=True, cache=True)
def _descend(
    gram: Floats,
    n: int,
    label: Floats,
    cost: Floats,
    beta: Floats,
    value: Floats,
    epsilon: Any,
    smallest: Any,
    tol: Any,
    passes: int,
) -> int:  # pragma: no cover - compiled
    """Set each of n coefficients to its optimum in turn, in place, and return the passes; ``value`` is gram @ beta."""
    zero = np.float32(0)
    for made in range(passes):
        largest = zero
        for i in range(n):
            if cost[i] <= zero:
                continue
            diagonal = gram[i, i] + np.float32(0.5) / cost[i]
            pull = label[i] - value[i] + gram[i, i] * beta[i]
            change = (max(pull - epsilon, zero) + min(pull + epsilon, zero)) / diagonal - beta[i]
            if abs(change) * diagonal > smallest:
                largest = max(largest, abs(change) * diagonal)
                beta[i] += change
                row = gram[i]
                for k in range(n):
                    value[k] += change * row[k]
        if largest < tol:
            return made + 1
    return passes


class IncrementalSVR:
    """The coefficients of one or more bags over rows whose kernel is given to :meth:`add`.

    Parameters
    ----------
    n_bags : int, default 1
    """

    def __init__(self, n_bags: int = 1) -> None:
        self._n = 0
        self._n_solved = 0  # solutions since the predictions were computed exactly
        self._gram = np.zeros((64, 64), dtype=np.float32)
        self._label = np.zeros(64, dtype=np.float32)
        self._beta, self._value = np.zeros((2, n_bags, 64), dtype=np.float32)

    def __len__(self) -> int:
        return self._n

    @property
    def beta(self) -> Floats:
        """The coefficients, (n_bags, n)."""
        return self._beta[:, : self._n]

    @property
    def values(self) -> Floats:
        """The prediction of each bag for each row, (n_bags, n)."""
        return self._value[:, : self._n]

    def add(self, kernel: Floats, label: float) -> None:
        """Add a row with the label -1 or 1; ``kernel`` (n + 1,) holds its products with the rows so far and itself."""
        n = self._n
        if n == len(self._label):
            self._grow()
        self._gram[n, : n + 1] = self._gram[: n + 1, n] = kernel
        self._label[n], self._beta[:, n] = label, 0
        self._value[:, n] = self._beta[:, :n] @ self._gram[n, :n]
        self._n = n + 1

    def remove(self, row: int) -> None:
        """Remove a row; the others keep their order and their coefficients."""
        kept = np.delete(np.arange(self._n), row)
        gram, label, beta = self._gram[np.ix_(kept, kept)], self._label[kept], self._beta[:, kept]
        self._n = n = len(kept)
        self._gram[:n, :n], self._label[:n], self._beta[:, :n] = gram, label, beta
        self._n_solved = _EXACT_EVERY

    def start_from(self, other: IncrementalSVR) -> None:
        """Take over the coefficients of the only bag of another solver of the same rows, for the next :meth:`solve`."""
        self._beta[:, : self._n] = other.beta
        self._n_solved = _EXACT_EVERY

    def solve(self, costs: Floats) -> None:
        """Find the optimum of each bag for the costs (n_bags, n) of the rows, from the solution so far."""
        n, is_exact = self._n, self._n_solved < _EXACT_EVERY
        self._n_solved = self._n_solved + 1 if is_exact else 0
        eps, smallest, tol = np.float32(EPSILON), np.float32(_MIN_STEP), np.float32(_TOLERANCE)
        for cost, beta, value in zip(np.asarray(costs, dtype=np.float32), self._beta, self._value, strict=True):
            left_out = (cost <= 0) & (beta[:n] != 0)
            beta[:n][left_out] = 0
            if left_out.any() or not is_exact:
                value[:n] = self._gram[:n, :n] @ beta[:n]
            _descend(self._gram, n, self._label, cost, beta, value, eps, smallest, tol, _MAX_PASSES)

    def _grow(self) -> None:
        n = len(self._label)
        self._gram = np.pad(self._gram, ((0, n), (0, n)))
        self._label = np.pad(self._label, (0, n))
        self._beta, self._value = (np.pad(by_bag, ((0, 0), (0, n))) for by_bag in (self._beta, self._value))
