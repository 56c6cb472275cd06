"""The solvers side by side, on random problems; and what a problem refuses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.problems import moved, problem
from support.worlds import world

from haybale.ensemble import SOLVERS, SVREnsemble
from haybale.ensemble.solvers import find_solver
from haybale.errors import InputError, UnknownNameError

OURS = [name for name in SOLVERS if name != "cuml"]


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 999), n=st.integers(2, 60), features=st.booleans(), C=st.sampled_from([0.1, 1.0, 10.0]))
def test_all_solvers_agree(seed: int, n: int, features: bool, C: float) -> None:
    """Random problems, duplicate rows and single-label bags among them, with pair features and without."""
    posed = problem(seed, n, features, C=C)
    gram = posed.gram()
    predictions = {name: gram @ (dual := SOLVERS[name](posed)).coef + dual.intercept for name in OURS}
    for name in OURS:
        np.testing.assert_allclose(predictions[name], predictions["sklearn"], atol=2e-4, err_msg=name)


@pytest.mark.parametrize("solver", OURS)
def test_an_ensemble_of_any_solver_ranks_the_same(solver: str) -> None:
    index, queries, relevant = world()
    ids = [f"q{i}" for i in range(len(queries))]
    scores = [
        SVREnsemble(3, k=10, tol=1e-5, solver=name).fit(index, queries, relevant).rank(queries, ids, k=10).to_frame()
        for name in (solver, "sklearn")
    ]
    merged = scores[0].merge(scores[1], on=["query_id", "doc_id"])
    assert len(merged) == len(scores[0]) == len(scores[1])
    np.testing.assert_allclose(merged["score_x"], merged["score_y"], atol=2e-4)


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
