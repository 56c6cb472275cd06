"""The ε-SVR problem of one bag and its solution, which are the input and the output of every solver.

Solvers do not predict. A prediction needs only the support rows and their coefficients
(:mod:`haybale.ensemble.support`), so a fitted model does not depend on the solver that trained it.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from haybale.device import CPU, to_numpy
from haybale.ensemble.kernel import Pairs, gram, out_of_memory, pair_kernel
from haybale.ensemble.rows import Ints
from haybale.errors import DeviceError, InputError
from haybale.vectors import Floats

_KERNEL_VALUES_PER_STEP = 2**24


class PrecisionWarning(UserWarning):
    """Predictions may differ by more than 2 · tol from exact ones; the message says by how much and what to change."""


@dataclass(frozen=True)
class Problem(Pairs):
    """An ε-SVR problem: minimise ½‖w‖² + C Σ weight_i (ξ_i + ξ*_i) with |label_i - f_i| <= ε + ξ, over rows (n,).

    The kernel of two rows is Kq · Kp, plus the inner product of their pair ``features`` if there are any. Raises
    :class:`InputError` for columns of different lengths, numbers out of range, labels or weights that are not finite,
    and weights that are negative or all zero.
    """

    label: NDArray[np.float64]  # (n,)
    weight: NDArray[np.float64]  # (n,)
    C: float = 1.0
    epsilon: float = 0.1
    tol: float = 1e-3
    max_iter: int = -1  # -1: no limit
    memory_budget: float = 2e9  # bytes of kernel values that the solver may hold
    grams: tuple[Any, Any] | None = None  # Gram matrices of the queries and of the passages, if they are known
    threads: int | None = None  # None: one per core

    def __post_init__(self) -> None:
        n = len(self.label)
        if n == 0:
            raise InputError("a bag must have at least one row, found 0 rows in 'label'")
        for name in ("query", "passage", "weight", "features"):
            value = getattr(self, name)
            if value is not None and len(value) != n:
                raise InputError(f"{name} must have {n} rows, one for each label, found {len(value)}")
        if self.queries.device != self.passages.device:
            devices = f"{self.queries.device} and {self.passages.device}"
            raise DeviceError(f"queries and passages must be on one device, found {devices}")
        for name, numbers, size in (
            ("query", self.query, len(self.queries)),
            ("passage", self.passage, len(self.passages)),
        ):
            if numbers.min() < 0 or numbers.max() >= size:
                raise InputError(f"{name} numbers must lie in 0..{size - 1}, found {numbers.min()}..{numbers.max()}")
        for name, values, least in (("label", self.label, -np.inf), ("weight", self.weight, 0)):
            wrong = ~np.isfinite(values) | (values < least)
            if wrong.any():
                row, expected = int(np.argmax(wrong)), "finite" if name == "label" else "finite and not negative"
                raise InputError(f"{name} must be {expected}, found {values[row]} in row {row}")
        if not self.weight.any():
            raise InputError("'weight' must be positive for at least one row; set some weights above 0")

    def take(self, rows: Ints | slice) -> Problem:
        """Return some of the rows, over the same vectors."""
        columns = {name: getattr(self, name) for name in ("query", "passage", "label", "weight", "features")}
        return replace(self, **{name: values[rows] for name, values in columns.items() if values is not None})

    def to_numpy(self) -> Problem:
        """Return the problem on the CPU, for a solver that works only on the CPU."""
        if self.device.is_cpu:
            return self
        grams = None if self.grams is None else (to_numpy(self.grams[0]), to_numpy(self.grams[1]))
        return replace(self, queries=self.queries.to(CPU), passages=self.passages.to(CPU), grams=grams)

    @property
    def n_features(self) -> int:
        """Number of pair features, 0 without them."""
        return 0 if self.features is None else int(self.features.shape[1])

    @property
    def diagonal(self) -> Floats:
        """(n,) kernel of each row with itself."""
        more = np.zeros(len(self.label)) if self.features is None else np.square(self.features).sum(axis=1)
        return np.asarray(1 + more, dtype=np.float32)

    def gram_bytes(self, rows: Ints | slice = slice(None)) -> float:
        """Return the bytes of the Gram matrices over the queries and the passages of some rows."""
        return float(sum(4 * len(np.unique(numbers[rows])) ** 2 for numbers in (self.query, self.passage)))

    def with_grams(self) -> Problem:
        """Return the problem with both Gram matrices, which are computed if necessary."""
        if self.grams is not None:
            return self
        return replace(self, grams=(gram(self.queries, self.threads), gram(self.passages, self.threads)))

    def gram(self, rows: Ints | slice = slice(None)) -> Any:
        """Return the kernel (n_rows, n) of some rows with all rows, on the problem's device."""
        n = len(self.label)
        chosen = np.arange(n)[rows]
        grams = self.with_grams().grams if len(chosen) == n else self.grams
        with self.device.current(), out_of_memory(self.device, (len(chosen), n), "kernel matrix"):
            values = self.queries.xp.empty((len(chosen), n), dtype=self.queries.dtype)
            step = max(1, _KERNEL_VALUES_PER_STEP // n)
            for start in range(0, len(chosen), step):
                values[start : start + step] = pair_kernel(self, chosen[start : start + step], grams)
        return values

    def merged(self, by_passage: bool = False) -> tuple[Problem, Ints]:
        """Return the problem with equal rows merged, and the original row of each merged row.

        Merged rows are sorted by query and then by passage, or with ``by_passage`` by passage and then by query. Rows
        with the same query, passage, features and label become one row with the sum of their weights, which does not
        change the optimum. Rows of weight zero are removed.
        """
        kept = np.flatnonzero(self.weight > 0)
        numbers = [self.query[kept], self.passage[kept]]
        keys: list[NDArray[Any]] = [self.label[kept], *(numbers if by_passage else numbers[::-1])]
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
            # Passages are numbered in the order of the rows, so that rows read adjacent values of the Gram matrix.
            used, where, passage = np.unique(passage, return_index=True, return_inverse=True)
            by_row = np.argsort(where)
            new_number = np.empty_like(by_row)
            new_number[by_row] = np.arange(len(by_row))
            passage, passages = new_number[passage], passages.take(used[by_row], self.threads)
        columns = {"query": query, "passage": passage, "label": self.label[kept], "weight": weight}
        if self.features is not None:
            columns["features"] = self.features[kept]
        return replace(self, queries=queries, passages=passages, **columns), kept  # type: ignore[arg-type]


@dataclass(frozen=True)
class Dual:
    """The solution of a problem, f(q, p) = Σ_i coef_i K((q, p), row i) + intercept.

    Rows that are not support vectors have the coefficient 0.
    """

    coef: NDArray[np.float64]  # (n,)
    intercept: float
    n_iter: int = 0  # steps, each of which changes two coefficients
    converged: bool = True
    n_working_sets: int = 0  # outer iterations of the working-set solver

    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the solution as arrays, to be kept in a file."""
        counts = np.array([self.n_iter, self.converged, self.n_working_sets], dtype=np.int64)
        return {"coef": self.coef, "intercept": np.array([self.intercept]), "counts": counts}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Self:
        """Return the solution that :meth:`to_arrays` wrote."""
        n_iter, converged, n_working_sets = arrays["counts"].tolist()
        coef = np.array(arrays["coef"])
        return cls(coef, float(arrays["intercept"][0]), n_iter, bool(converged), n_working_sets)


Solver = Callable[[Problem], Dual]


class Solution:
    """The state of a solver by SMO: a solution of the merged problem, with labels centred at 0.

    The merged rows are sorted by query, or with ``by_passage`` by passage. Centring makes residuals small, so that
    float32 represents them more precisely. A ``tol`` below a millionth of the largest label is raised to that value,
    the smallest difference that float32 resolves.
    """

    def __init__(self, problem: Problem, by_passage: bool = False) -> None:
        self.given = problem
        self.problem, self.rows = problem.merged(by_passage)
        label = self.problem.label
        self.centre = float((label.max() + label.min()) / 2)
        self.label = label - self.centre
        self.tol = max(problem.tol, 1e-6 * float(np.abs(self.label).max()))
        self.bound = problem.C * self.problem.weight
        self.beta = np.zeros(len(label))  # (n,) the coefficients
        # Maximum number of steps; for max_iter = -1, the limit of LIBSVM.
        self.limit = problem.max_iter if problem.max_iter >= 0 else max(10_000_000, 100 * len(label))

    def dual(self, error: Floats, n_iter: int, violation: float, n_working_sets: int = 0) -> Dual:
        """Return the solution over all given rows, from the residuals (n,); warn if ``tol`` was not reached."""
        if violation >= self.tol:
            from sklearn.exceptions import ConvergenceWarning

            warnings.warn(
                f"the support vector regressor stopped after {n_iter:,} steps with a violation of {violation:.2g}, "
                f"more than tol={self.tol:.2g}; raise max_iter or tol",
                ConvergenceWarning,
                stacklevel=3,
            )
        coef = np.zeros(len(self.given.label))
        coef[self.rows] = self.beta
        intercept = self.centre + self._intercept(error.astype(np.float64))
        return Dual(coef, intercept, n_iter, violation < self.tol, n_working_sets)

    def _intercept(self, error: NDArray[np.float64]) -> float:
        """Return the intercept as LIBSVM does: the mean of the values implied by the free coefficients."""
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
    """Estimate the error of predictions due to the rounding of distances to float32.

    On a device, products for scoring are summed by tensor cores, whose error is up to four times as large. ``raw`` is γ
    times the largest squared length of the vectors that were rounded before scaling.
    """
    unit = 2.0**-22 if of.device.is_cpu else 2.0**-20
    return unit * (1 + longest(of) + math.sqrt(raw)) * float(np.linalg.norm(coef))
