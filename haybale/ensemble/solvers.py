"""Solvers by name: a solver is a function from :class:`Problem` to :class:`Dual`.

This file has scikit-learn's: ``sklearn.svm.SVR`` on the gathered kernel matrix.
"""

from __future__ import annotations

import numpy as np

from haybale.ensemble.cuml import cuml_takes, solve_cuml
from haybale.ensemble.problem import Dual, Problem, Solver
from haybale.ensemble.working_set import solve_working_set
from haybale.errors import InputError, UnknownNameError


def solve_auto(problem: Problem) -> Dual:
    """Solve by cuML where it is installed and accepts the bag, else by working sets."""
    return solve_cuml(problem) if cuml_takes(problem) else solve_working_set(problem)


def solve_sklearn(problem: Problem) -> Dual:
    """Solve by ``sklearn.svm.SVR`` on the gathered kernel matrix, which takes n² · 12 bytes."""
    from sklearn.svm import SVR

    problem = problem.to_numpy()
    n = len(problem.label)
    needed = (8 + problem.queries.dtype.itemsize) * n * n  # the matrix, and its float64 copy in libsvm
    if needed > problem.memory_budget:
        raise InputError(
            f"a bag of {n:,} rows needs {needed / 1e9:.2g} GB for its kernel matrix, the memory_budget is "
            f"{problem.memory_budget / 1e9:.2g} GB; raise it, set rows_per_bag, take more bags, or solver='auto'"
        )
    settings = {name: getattr(problem, name) for name in ("C", "epsilon", "tol", "max_iter")}
    model = SVR(kernel="precomputed", cache_size=500, **settings)
    rows = np.flatnonzero(problem.weight)  # SVR drops rows of weight 0, and then renumbers the others
    model.fit(problem.gram(rows)[:, rows], problem.label[rows], sample_weight=problem.weight[rows])
    coef = np.zeros(n)
    coef[rows[model.support_]] = model.dual_coef_[0]
    # SVR itself has warned if max_iter ended the run.
    n_iter = int(np.max(model.n_iter_))
    return Dual(coef, float(model.intercept_[0]), n_iter, problem.max_iter < 0 or n_iter < problem.max_iter)


SOLVERS: dict[str, Solver] = {
    "auto": solve_auto,
    "working-set": solve_working_set,
    "cuml": solve_cuml,
    "sklearn": solve_sklearn,
}


def find_solver(solver: str | Solver) -> Solver:
    """Return the solver of that name; a callable with a solver's signature is returned as it is."""
    if callable(solver):
        return solver
    if not isinstance(solver, str):
        raise InputError(f"solver must be a name or a callable, found {type(solver).__name__}")
    if solver not in SOLVERS:
        raise UnknownNameError("solver", solver, SOLVERS)
    return SOLVERS[solver]
