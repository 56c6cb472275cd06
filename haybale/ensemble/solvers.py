"""The table of solvers, and the solver of scikit-learn.

A solver is a function from :class:`Problem` to :class:`Dual`.
"""

from __future__ import annotations

import logging

import numpy as np

from haybale.device_memory import free_cached
from haybale.ensemble.batched_smo import solve_smo, why_not_smo
from haybale.ensemble.cuml import solve_cuml
from haybale.ensemble.problem import Dual, Problem, Solver
from haybale.ensemble.working_set import solve_working_set
from haybale.errors import DeviceError, InputError, UnknownNameError

_LOGGER = logging.getLogger("haybale")


def solve_auto(problem: Problem) -> Dual:
    """Solve with the working-set solver on the CPU, and with SMO of the whole bag on a CUDA device.

    The working-set solver also takes bags that SMO on a device does not take; a warning in the log says why.
    """
    if problem.device.is_cpu:
        return solve_working_set(problem)
    reason = why_not_smo(problem)
    if reason is None:
        try:
            return solve_smo(problem)
        except DeviceError as error:  # out of memory: other work has taken some
            reason = str(error)
        free_cached()  # outside the except block, because the traceback of the error refers to the arrays
    _LOGGER.warning("a bag is solved by the working-set solver on %s, because %s", problem.device, reason)
    return solve_working_set(problem)


def solve_sklearn(problem: Problem) -> Dual:
    """Solve with ``sklearn.svm.SVR`` on the kernel matrix, which needs n² · 12 bytes.

    Raises :class:`InputError` if that is more than ``memory_budget``.
    """
    from sklearn.svm import SVR

    problem = problem.to_numpy()
    n = len(problem.label)
    needed = (8 + problem.queries.dtype.itemsize) * n * n  # the matrix, and its float64 copy in LIBSVM
    if needed > problem.memory_budget:
        raise InputError(
            f"a bag of {n:,} rows needs {needed / 1e9:.2g} GB for its kernel matrix, more than memory_budget "
            f"({problem.memory_budget / 1e9:.2g} GB); raise it, set rows_per_bag, use more bags, or use solver='auto'"
        )
    settings = {name: getattr(problem, name) for name in ("C", "epsilon", "tol", "max_iter")}
    model = SVR(kernel="precomputed", cache_size=500, **settings)
    rows = np.flatnonzero(problem.weight)  # SVR removes rows of weight 0, and renumbers the others
    model.fit(problem.gram(rows)[:, rows], problem.label[rows], sample_weight=problem.weight[rows])
    coef = np.zeros(n)
    coef[rows[model.support_]] = model.dual_coef_[0]
    n_iter = int(np.max(model.n_iter_))
    return Dual(coef, float(model.intercept_[0]), n_iter, problem.max_iter < 0 or n_iter < problem.max_iter)


SOLVERS: dict[str, Solver] = {
    "auto": solve_auto,
    "working-set": solve_working_set,
    "smo": solve_smo,
    "cuml": solve_cuml,
    "sklearn": solve_sklearn,
}


def find_solver(solver: str | Solver) -> Solver:
    """Return the solver with the given name; return a callable unchanged.

    Raises :class:`UnknownNameError` for an unknown name.
    """
    if callable(solver):
        return solver
    if not isinstance(solver, str):
        raise InputError(f"solver must be a name or a callable, found {type(solver).__name__}")
    if solver not in SOLVERS:
        raise UnknownNameError("solver", solver, SOLVERS)
    return SOLVERS[solver]
