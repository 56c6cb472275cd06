"""Solvers of one bag's problem by name: a solver is a function from :class:`Problem` to :class:`Dual`."""

from __future__ import annotations

from haybale.ensemble.cuml import cuml_takes, solve_cuml
from haybale.ensemble.problem import Dual, Problem, Solver
from haybale.ensemble.sklearn import solve_sklearn, solve_sklearn_features
from haybale.ensemble.smo import gram_bytes, solve_product
from haybale.ensemble.working_set import solve_working_set
from haybale.errors import InputError, UnknownNameError


def solve_auto(problem: Problem) -> Dual:
    """The fastest that there is.

    On the CPU :func:`~haybale.ensemble.smo.solve_product`, where ``memory_budget`` holds its Gram matrices; on a device
    :func:`~haybale.ensemble.cuml.solve_cuml`, where cuML is installed and takes the bag; else
    :func:`~haybale.ensemble.working_set.solve_working_set`.
    """
    if problem.device.is_cpu:
        fits = gram_bytes(problem) <= problem.memory_budget
        return solve_product(problem) if fits else solve_working_set(problem)
    return solve_cuml(problem) if cuml_takes(problem) else solve_working_set(problem)


SOLVERS: dict[str, Solver] = {
    "auto": solve_auto,
    "product": solve_product,
    "working-set": solve_working_set,
    "cuml": solve_cuml,
    "sklearn": solve_sklearn,
    "sklearn-features": solve_sklearn_features,
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
