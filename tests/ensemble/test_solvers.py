"""Solvers by name, and what a problem refuses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.problems import moved, problem

from haybale.ensemble import SOLVERS
from haybale.ensemble.solvers import find_solver
from haybale.errors import InputError, UnknownNameError


def test_the_solver_of_the_cpu_takes_vectors_from_the_device(cupy: Any) -> None:
    posed = problem(0, 30)
    np.testing.assert_array_equal(SOLVERS["sklearn"](moved(posed)).coef, SOLVERS["sklearn"](posed).coef)


def test_problems_and_solvers_that_are_none_are_refused() -> None:
    with pytest.raises(InputError, match="an empty bag"):
        problem(0, 0)
    with pytest.raises(InputError, match="features: expected 5 rows, as there are labels, found 4"):
        replace(problem(0, 5, features=True), features=np.ones((4, 2), dtype=np.float32))
    with pytest.raises(InputError, match=r"passage numbers must lie in 0\.\.8, found 9\.\.9"):
        replace(problem(0, 5), passage=np.full(5, 9))
    with pytest.raises(UnknownNameError, match="unknown solver 'libsvm'; known: auto, working-set"):
        find_solver("libsvm")
    with pytest.raises(InputError, match="a name or a callable, found int"):
        find_solver(3)  # type: ignore[arg-type]
