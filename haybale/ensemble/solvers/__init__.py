"""Solvers of one bag's problem, side by side: a solver is a function from :class:`Problem` to :class:`Dual`.

A solver that gains from several bags at once has an attribute ``many``, a function from problems to duals.
"""

from __future__ import annotations

from haybale.ensemble.problem import Solver
from haybale.ensemble.solvers.cuml import solve_cuml
from haybale.ensemble.solvers.product import solve_product
from haybale.ensemble.solvers.sklearn import solve_sklearn, solve_sklearn_features
from haybale.ensemble.solvers.working_set import solve_working_set
from haybale.errors import InputError, UnknownNameError

SOLVERS: dict[str, Solver] = {
    "product": solve_product,
    "sklearn": solve_sklearn,
    "sklearn-features": solve_sklearn_features,
    "cuml": solve_cuml,
    "working-set": solve_working_set,
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
