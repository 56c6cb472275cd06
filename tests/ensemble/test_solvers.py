"""Solvers by name, and problems that are rejected."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.problems import moved, problem

from haybale.ensemble import SOLVERS
from haybale.ensemble.solvers import find_solver
from haybale.errors import InputError, UnknownNameError


def test_the_sklearn_solver_accepts_vectors_on_the_device(cupy: Any) -> None:
    posed = problem(0, 30)
    np.testing.assert_array_equal(SOLVERS["sklearn"](moved(posed)).coef, SOLVERS["sklearn"](posed).coef)


def test_bad_problems_and_solvers_are_rejected() -> None:
    with pytest.raises(InputError, match="'label'"):
        problem(0, 0)
    with pytest.raises(InputError, match=r"features .* 5 rows.* 4"):
        replace(problem(0, 5, features=True), features=np.ones((4, 2), dtype=np.float32))
    with pytest.raises(InputError, match=r"passage .* 0\.\.8, found 9\.\.9"):
        replace(problem(0, 5), passage=np.full(5, 9))
    with pytest.raises(UnknownNameError, match=r"'libsvm'.*working-set"):
        find_solver("libsvm")
    with pytest.raises(InputError, match="found int"):
        find_solver(3)  # type: ignore[arg-type]
