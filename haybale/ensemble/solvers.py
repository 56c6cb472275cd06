"""Solvers of one bag's problem by name: a solver is a function from :class:`Problem` to :class:`Dual`.

scikit-learn's is here: ``sklearn.svm.SVR`` on the gathered kernel matrix.
"""

from __future__ import annotations

import numpy as np
from sklearn.svm import SVR

from haybale.ensemble.cuml import cuml_takes, solve_cuml
from haybale.ensemble.problem import Dual, Problem, Solver
from haybale.ensemble.working_set import solve_working_set
from haybale.errors import InputError, UnknownNameError


def solve_auto(problem: Problem) -> Dual:
    """The fastest that there is.

    On a device :func:`~haybale.ensemble.cuml.solve_cuml`, where cuML is installed and takes the bag; else
    :func:`~haybale.ensemble.working_set.solve_working_set`.
    """
    return solve_cuml(problem) if cuml_takes(problem) else solve_working_set(problem)


def solve_sklearn(problem: Problem) -> Dual:
    """On the gathered kernel matrix: no feature is ever built, n² · 12 bytes are."""
    problem = problem.to_numpy()
    n = len(problem.label)
    needed = (8 + problem.queries.dtype.itemsize) * n * n  # as it is, and as libsvm's float64
    if needed > problem.memory_budget:
        raise InputError(
            f"a bag of {n:,} rows needs {needed / 1e9:.2g} GB for its kernel matrix, the memory_budget is "
            f"{problem.memory_budget / 1e9:.2g} GB; raise it, set rows_per_bag, take more bags, or solver='auto'"
        )
    settings = {name: getattr(problem, name) for name in ("C", "epsilon", "tol", "max_iter")}
    model = SVR(kernel="precomputed", cache_size=500, **settings)
    rows = np.flatnonzero(problem.weight)  # it numbers the rows of a precomputed kernel anew without those of weight 0
    model.fit(problem.gram(rows)[:, rows], problem.label[rows], sample_weight=problem.weight[rows])
    coef = np.zeros(n)
    coef[rows[model.support_]] = model.dual_coef_[0]
    # A run that max_iter ended has warned already.
    n_iter = int(np.max(model.n_iter_))
    return Dual(coef, float(model.intercept_[0]), n_iter, problem.max_iter < 0 or n_iter < problem.max_iter)


SOLVERS: dict[str, Solver] = {
    "auto": solve_auto,
    "working-set": solve_working_set,
    "cuml": solve_cuml,
    "sklearn": solve_sklearn,
}


def find_solver(solver: str | Solver) -> Solver:
    """The solver of that name; a callable with a solver's signature is taken as it is."""
    if callable(solver):
        return solver
    if not isinstance(solver, str):
        raise InputError(f"solver must be a name or a callable, found {type(solver).__name__}")
    if solver not in SOLVERS:
        raise UnknownNameError("solver", solver, SOLVERS)
    return SOLVERS[solver]
