"""The ε-SVR problem of one bag, and its solution: the interface of the solvers.

A solver learns; it does not predict. Prediction needs only the support rows and their coefficients
(:mod:`haybale.ensemble.support`), so a fitted model does not depend on the solver that trained it.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haybale.device import CPU, to_numpy
from haybale.ensemble.kernel import Pairs, gram, out_of_memory, pair_kernel
from haybale.ensemble.rows import Ints
from haybale.errors import DeviceError, InputError
from haybale.vectors import Floats

_TILE = 2**24  # kernel values computed at once


class PrecisionWarning(UserWarning):
    """Predictions may differ by more than 2 · tol from exact ones; the message says by how much, and what helps."""


@dataclass(frozen=True)
class Problem(Pairs):
    """min ½‖w‖² + C Σ weight_i (ξ_i + ξ*_i), with |label_i - f_i| <= ε + ξ, over candidate rows (n,).

    The kernel of row i with row j is Kq · Kp, plus the inner product of their pair ``features`` if there are any.
    """

    label: NDArray[np.float64]  # (n,)
    weight: NDArray[np.float64]  # (n,)
    C: float = 1.0
    epsilon: float = 0.1
    tol: float = 1e-3
    max_iter: int = -1  # -1: no limit
    memory_budget: float = 2e9  # bytes of kernel values that a solver may hold
    grams: tuple[Any, Any] | None = None  # Gram matrices of queries and passages, where they have been computed
    threads: int | None = None  # None: one per core

    def __post_init__(self) -> None:
        n = len(self.label)
        if n == 0:
            raise InputError("an empty bag: there is no row to learn from")
        for name in ("query", "passage", "weight", "features"):
            value = getattr(self, name)
            if value is not None and len(value) != n:
                raise InputError(f"{name}: expected {n} rows, as there are labels, found {len(value)}")
        if self.queries.device != self.passages.device:
            raise DeviceError(f"queries on {self.queries.device} meet passages on {self.passages.device}")
        for name, numbers, size in (
            ("query", self.query, len(self.queries)),
            ("passage", self.passage, len(self.passages)),
        ):
            if numbers.min() < 0 or numbers.max() >= size:
                raise InputError(f"{name} numbers must lie in 0..{size - 1}, found {numbers.min()}..{numbers.max()}")
        if not np.isfinite(self.label).all():
            raise InputError(f"label of row {int(np.argmin(np.isfinite(self.label)))} is NaN or infinite")
        if not (np.isfinite(self.weight).all() and (self.weight >= 0).all()):
            raise InputError("weights must be finite and not negative")
        if not self.weight.any():
            raise InputError("all weights are zero: there is no row to learn from")

    def take(self, rows: Ints | slice) -> Problem:
        """Return some of the rows, over the same vectors."""
        columns = {name: getattr(self, name) for name in ("query", "passage", "label", "weight", "features")}
        return replace(self, **{name: values[rows] for name, values in columns.items() if values is not None})

    def to_numpy(self) -> Problem:
        """Return the same problem on the CPU, for a solver that works only there."""
        if self.device.is_cpu:
            return self
        grams = None if self.grams is None else (to_numpy(self.grams[0]), to_numpy(self.grams[1]))
        return replace(self, queries=self.queries.to(CPU), passages=self.passages.to(CPU), grams=grams)

    @property
    def diagonal(self) -> Floats:
        """(n,) the kernel of each row with itself."""
        more = np.zeros(len(self.label)) if self.features is None else np.square(self.features).sum(axis=1)
        return np.asarray(1 + more, dtype=np.float32)

    def with_grams(self) -> Problem:
        """Return the problem with both Gram matrices, computed if they are missing."""
        if self.grams is not None:
            return self
        return replace(self, grams=(gram(self.queries, self.threads), gram(self.passages, self.threads)))

    def gram(self, rows: Ints | slice = slice(None)) -> Any:
        """Return (n_rows, n) kernel values of some rows with all rows, on the problem's device."""
        n = len(self.label)
        chosen = np.arange(n)[rows]
        grams = self.with_grams().grams if len(chosen) == n else self.grams
        with self.device.current(), out_of_memory(self.device, (len(chosen), n), "kernel matrix"):
            values = self.queries.xp.empty((len(chosen), n), dtype=self.queries.dtype)
            step = max(1, _TILE // n)
            for start in range(0, len(chosen), step):
                values[start : start + step] = pair_kernel(self, chosen[start : start + step], grams)
        return values

    def merged(self) -> tuple[Problem, Ints]:
        """Merge equal rows, sort rows by query, and return them with the number of the first row each stands for.

        Rows with the same query, passage, features and label become one row with the sum of their weights, which
        leaves the optimum unchanged. Rows of weight zero are dropped.
        """
        kept = np.flatnonzero(self.weight > 0)
        keys: list[NDArray[Any]] = [self.label[kept], self.passage[kept], self.query[kept]]
        if self.features is not None:
            keys = [*self.features[kept].T, *keys]
        order = np.lexsort(keys)
        new = np.ones(len(order), dtype=bool)
        new[1:] = np.any([key[order][1:] != key[order][:-1] for key in keys], axis=0)
        weight = np.add.reduceat(self.weight[kept[order]], np.flatnonzero(new))
        kept = kept[order[new]]
        (query, queries), (passage, passages) = (self.query[kept], self.queries), (self.passage[kept], self.passages)
        if self.grams is None:
            used, query = np.unique(query, return_inverse=True)
            queries = queries.take(used)
            # Passages are numbered in the order of the rows: where each occurs once, kernel rows are contiguous.
            used, where, passage = np.unique(passage, return_index=True, return_inverse=True)
            by_row = np.argsort(where)
            place = np.empty_like(by_row)
            place[by_row] = np.arange(len(by_row))
            passage, passages = place[passage], passages.take(used[by_row])
        columns = {"query": query, "passage": passage, "label": self.label[kept], "weight": weight}
        if self.features is not None:
            columns["features"] = self.features[kept]
        return replace(self, queries=queries, passages=passages, **columns), kept  # type: ignore[arg-type]


@dataclass(frozen=True)
class Dual:
    """f(q, p) = Σ_i coef_i K((q, p), row i) + intercept; coef is 0 for rows that are not support vectors."""

    coef: NDArray[np.float64]  # (n,)
    intercept: float
    n_iter: int = 0  # steps of two coefficients
    converged: bool = True
    n_working_sets: int = 0  # outer iterations, of a solver that has them


Solver = Callable[[Problem], Dual]


class Solution:
    """The state of a solution while our own solvers work on it: of the merged problem, with labels centred at 0.

    Small residuals lose less in float32. A ``tol`` below a millionth of the labels' range is raised to that, which is
    the finest difference that float32 resolves.
    """

    def __init__(self, problem: Problem) -> None:
        self.given = problem
        self.problem, self.rows = problem.merged()
        label = self.problem.label
        self.centre = float((label.max() + label.min()) / 2)
        self.label = label - self.centre
        self.tol = max(problem.tol, 1e-6 * float(np.abs(self.label).max()))
        self.bound = problem.C * self.problem.weight
        self.beta = np.zeros(len(label))  # (n,) the coefficients
        # The largest number of steps; for -1, LIBSVM's own limit.
        self.limit = problem.max_iter if problem.max_iter >= 0 else max(10_000_000, 100 * len(label))

    def dual(self, error: Floats, n_iter: int, violation: float, n_working_sets: int = 0) -> Dual:
        """Return the solution over all given rows, with a warning if ``tol`` was not reached.

        ``error`` (n,) are the residuals.
        """
        if violation >= self.tol:
            from sklearn.exceptions import ConvergenceWarning

            warnings.warn(
                f"the support vector regressor stopped after {n_iter:,} steps with a violation of {violation:.2g}, "
                f"tol is {self.tol:.2g}: raise max_iter or tol",
                ConvergenceWarning,
                stacklevel=3,
            )
        coef = np.zeros(len(self.given.label))
        coef[self.rows] = self.beta
        intercept = self.centre + self._intercept(error.astype(np.float64))
        return Dual(coef, intercept, n_iter, violation < self.tol, n_working_sets)

    def _intercept(self, error: NDArray[np.float64]) -> float:
        """Return the mean intercept that the optimality conditions of free coefficients imply, as in LIBSVM."""
        beta, bound, epsilon = self.beta, self.bound, self.problem.epsilon
        free = (beta != 0) & (np.abs(beta) < bound)
        if free.any():
            return float(np.mean(error[free] - epsilon * np.sign(beta[free])))
        gain = np.where(beta < 0, error + epsilon, error - epsilon)[beta < bound]
        cost = np.where(beta > 0, error - epsilon, error + epsilon)[beta > -bound]
        return float((gain.max() + cost.min()) / 2)


def longest(of: Pairs) -> float:
    """Return the largest squared length of a scaled vector."""
    with of.device.current():
        return max(float(points.norms.max()) for points in (of.queries, of.passages))


def rounding(of: Pairs, coef: NDArray[np.float64], raw: float = 0.0) -> float:
    """Estimate how far float32 may have moved predictions, from its errors in distances of scaled vectors.

    ``raw`` is γ times the largest squared length of vectors that were rounded before they were scaled.
    """
    return 2.0**-22 * (1 + longest(of) + math.sqrt(raw)) * float(np.linalg.norm(coef))
