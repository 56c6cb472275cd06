"""The ε-SVR solver interface: one bag's problem in, dual coefficients out.

A solver learns; it does not predict. Prediction needs only the support rows and their coefficients
(:mod:`haybale.ensemble.support`), so a model does not depend on the solver that trained it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.svm import SVR

from haybale.ensemble.kernel import rbf
from haybale.ensemble.rows import Ints
from haybale.errors import InputError, UnknownNameError
from haybale.vectors import Floats

GRAM_ROWS = 20_000  # the most rows whose kernel matrix is held at once: 3.2 GB


@dataclass(frozen=True)
class Problem:
    """min ½‖w‖² + C Σ weight_i (ξ_i + ξ*_i) over candidate rows (n,), kernel Kq · Kp.

    Row i is the pair ``queries[query[i]]``, ``passages[passage[i]]``; the two matrices hold each vector once.
    """

    queries: Floats  # (n_queries, d), scaled
    passages: Floats  # (n_passages, d), scaled
    query: Ints  # (n,)
    passage: Ints  # (n,)
    label: NDArray[np.float64]  # (n,)
    weight: NDArray[np.float64]  # (n,)
    gamma: tuple[float, float]
    C: float
    epsilon: float
    tol: float

    def gram(self) -> NDArray[np.float64]:
        """(n, n) kernel matrix, gathered from the two small Gram matrices."""
        kq = rbf(self.queries, self.queries, self.gamma[0])
        kp = rbf(self.passages, self.passages, self.gamma[1])
        gram = np.empty((len(self.query), len(self.query)))
        for i in range(len(gram)):
            np.multiply(kq[self.query[i], self.query], kp[self.passage[i], self.passage], out=gram[i])
        return gram

    def features(self) -> Floats:
        """(n, 2d) the rows [q ; p] themselves, each half times the root of its γ, so that one γ = 1 serves."""
        halves = (
            np.sqrt(self.gamma[0]) * self.queries[self.query],
            np.sqrt(self.gamma[1]) * self.passages[self.passage],
        )
        return np.concatenate(halves, axis=1).astype(np.float32)


@dataclass(frozen=True)
class Dual:
    """f(q, p) = Σ_i coef_i Kq(q, q_i) Kp(p, p_i) + intercept; coef is 0 for rows that are no support vectors."""

    coef: NDArray[np.float64]  # (n,)
    intercept: float


Solver = Callable[[Problem], Dual]


def solve_sklearn(problem: Problem) -> Dual:
    """``sklearn.svm.SVR`` on the gathered kernel matrix: n² · 8 bytes, and no feature is ever built."""
    n = len(problem.label)
    if n > GRAM_ROWS:
        raise InputError(
            f"a bag of {n:,} rows needs a kernel matrix of {n * n * 8 / 1e9:.1f} GB; set rows_per_bag to at most "
            f"{GRAM_ROWS:,}, take more bags, or solver='sklearn-features', which is slower and needs no such matrix"
        )
    model = SVR(kernel="precomputed", C=problem.C, epsilon=problem.epsilon, tol=problem.tol, cache_size=500)
    return _fitted(model, problem.gram(), problem)


def solve_sklearn_features(problem: Problem) -> Dual:
    """``sklearn.svm.SVR(kernel="rbf")`` on materialised [q ; p], as the paper has it: slow, the test oracle."""
    model = SVR(kernel="rbf", gamma=1.0, C=problem.C, epsilon=problem.epsilon, tol=problem.tol, cache_size=500)
    return _fitted(model, problem.features(), problem)


def _fitted(model: SVR, x: Floats | NDArray[np.float64], problem: Problem) -> Dual:
    model.fit(x, problem.label, sample_weight=problem.weight)
    coef = np.zeros(len(problem.label))
    coef[model.support_] = model.dual_coef_[0]
    return Dual(coef, float(model.intercept_[0]))


SOLVERS: dict[str, Solver] = {"sklearn": solve_sklearn, "sklearn-features": solve_sklearn_features}


def find_solver(solver: str | Solver) -> Solver:
    """The solver of that name; a callable with a solver's signature is taken as it is."""
    if callable(solver):
        return solver
    if not isinstance(solver, str):
        raise InputError(f"solver must be a name or a callable, found {type(solver).__name__}")
    if solver not in SOLVERS:
        raise UnknownNameError("solver", solver, SOLVERS)
    return SOLVERS[solver]
