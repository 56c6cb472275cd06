"""The working-set solver compared with scikit-learn's, with small working sets, on the CPU and on a device."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning
from support.cupy_double import HAS_CUDA
from support.problems import check_same, moved, random_problem, realistic

from haybale.ensemble import SOLVERS
from haybale.ensemble import working_set as module
from haybale.ensemble.problem import Problem
from haybale.ensemble.working_set import solve_working_set
from haybale.errors import DeviceError


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 9999),
    n=st.integers(1, 80),
    features=st.booleans(),
    q=st.sampled_from([4, 5, 8, 16, 512]),
    one_label=st.booleans(),
    C=st.sampled_from([0.1, 1.0, 10.0]),
    budget=st.sampled_from([2e9, 300.0]),
)
def test_the_solution_equals_that_of_scikit_learn(
    seed: int, n: int, features: bool, q: int, one_label: bool, C: float, budget: float
) -> None:
    """Equal rows, rows of weight zero, one label, few rows, pair features, and budgets below the Gram matrices."""
    problem = random_problem(seed, n, features, C=C)
    rng = np.random.default_rng(seed)
    weight = np.where(rng.random(n) < 0.2, 0, problem.weight)
    weight[0] = 1
    problem = replace(problem, weight=weight, label=np.ones(n) if one_label else problem.label)
    dual = solve_working_set(replace(problem, memory_budget=budget), q)
    assert dual.converged
    assert not dual.coef[weight == 0].any()
    assert abs(dual.coef.sum()) < 1e-9
    check_same(problem, dual, SOLVERS["sklearn"](problem))


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 999), n=st.integers(1, 200), cached=st.integers(0, 60), features=st.booleans())
def test_the_kernel_of_a_working_set(seed: int, n: int, cached: int, features: bool) -> None:
    """For cached and other passages in any order, over several squares: exactly symmetric, and that of the problem."""
    rng = np.random.default_rng(seed)
    problem = random_problem(seed, n, features, n_queries=40, n_passages=60).merged()[0]
    kernel = module._Held(problem, None)
    kernel.of_passages.hold(rng.permutation(len(problem.passages))[:cached])
    rows = np.sort(rng.permutation(len(problem.label))[: rng.integers(1, len(problem.label) + 1)])
    values = kernel.among(rows)
    np.testing.assert_allclose(values, problem.gram(rows)[:, rows], atol=2e-6)
    assert np.array_equal(values, values.T)


@pytest.mark.parametrize("way", ["own", "given", "features"])
@pytest.mark.parametrize(("tol", "budget"), [(1e-3, 2e9), (1e-5, 2e9), (1e-3, 4e6)])
def test_a_larger_bag(tol: float, budget: float, way: str) -> None:
    """Budgets for all and for a quarter of the passages' kernel rows, given Gram matrices, and pair features."""
    problem = replace(realistic(2000), tol=tol)
    if way == "given":
        problem = problem.with_grams()
    if way == "features":
        values = 0.3 * np.random.default_rng(1).normal(size=(2000, 3)).astype(np.float32)
        problem = replace(problem, features=values)
    dual = solve_working_set(replace(problem, memory_budget=budget), 256)
    assert dual.converged
    assert dual.n_iter > 600
    assert dual.n_working_sets > 10
    check_same(problem, dual, SOLVERS["sklearn"](problem), atol=2 * tol if tol > 1e-4 else 2e-4)
    # Optimality: no gain of raising a coefficient exceeds the cost of lowering another one.
    error, bound = problem.label - problem.gram() @ dual.coef, problem.C * problem.weight
    up = np.where(dual.coef < 0, problem.epsilon, -problem.epsilon)[dual.coef < bound]
    low = np.where(dual.coef > 0, -problem.epsilon, problem.epsilon)[dual.coef > -bound]
    assert (error[dual.coef < bound] + up).max() - (error[dual.coef > -bound] + low).min() < 1.3 * tol


@pytest.mark.parametrize("kind", ["dense", "sparse", "both"])
@pytest.mark.parametrize("features", [False, True])
@pytest.mark.parametrize("budget", [2e9, 3000])
def test_a_solution_on_a_device(cupy: Any, kind: str, features: bool, budget: float) -> None:
    """Given Gram matrices, computed Gram matrices, and kernel rows."""
    problem = random_problem(3, 150, features, n_queries=8, n_passages=40, kind=kind, tol=1e-4, memory_budget=budget)
    expected = SOLVERS["sklearn"](replace(problem, tol=1e-6, memory_budget=1e9))
    for there in (moved(problem), moved(problem).with_grams()):
        found = solve_working_set(there, 16)
        assert isinstance(found.coef, np.ndarray)
        assert found.converged
        check_same(problem, found, expected, 5e-4)


def test_a_device_without_memory_for_gram_matrices_computes_kernel_rows(
    cupy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = moved(random_problem(3, 150, n_queries=8, n_passages=40))
    expected = solve_working_set(problem, 16)

    def fail(self: Problem) -> Problem:
        raise DeviceError("out of memory")

    with monkeypatch.context() as patch:
        patch.setattr(Problem, "with_grams", fail)
        found = solve_working_set(problem, 16)
    check_same(random_problem(3, 150, n_queries=8, n_passages=40), found, expected)


def test_max_iter_limits_the_steps() -> None:
    problem = random_problem(0, 80, max_iter=7)
    with pytest.warns(ConvergenceWarning, match="7 steps"):
        dual = solve_working_set(problem, 8)
    assert not dual.converged
    assert dual.n_iter == 7


def test_residuals_with_errors_are_recomputed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every update adds a small error, which would accumulate without the recomputation."""
    problem = random_problem(5, 80, tol=1e-3)
    expected = solve_working_set(problem, 8)
    improve, calls = module._WorkingSets.improve, []

    def inexact(sets: Any) -> bool:
        done = improve(sets)
        calls.append(0)
        if len(calls) < 20:
            sets.error[::2] += 0.01
        return done

    monkeypatch.setattr(module._WorkingSets, "improve", inexact)
    check_same(problem, solve_working_set(problem, 8), expected, atol=4e-3)


@pytest.mark.parametrize("budget", [2e9, 4e6])
def test_the_number_of_threads_does_not_change_the_result(budget: float) -> None:
    problem = replace(realistic(2000), memory_budget=budget)
    duals = [solve_working_set(replace(problem, threads=threads), 256) for threads in (1, 2, 3)]
    for dual in duals[1:]:
        np.testing.assert_array_equal(dual.coef, duals[0].coef)
        assert dual.intercept == duals[0].intercept


@pytest.mark.parametrize("share", [0.05, 0.25, 0.9])
def test_kernel_values_stay_within_the_budget(share: float, monkeypatch: pytest.MonkeyPatch) -> None:
    problem, held = realistic(2000), []
    look = module._WorkingSets.look

    def measured(sets: Any) -> float:
        kernel = sets.kernel
        held.append(kernel.of_queries.values.nbytes + kernel.of_passages.values.nbytes + 12 * kernel.q**2)
        return float(look(sets))

    monkeypatch.setattr(module._WorkingSets, "look", measured)
    budget = share * problem.gram_bytes()
    dual = solve_working_set(replace(problem, memory_budget=budget))
    assert dual.converged
    assert 0.5 * budget < max(held) <= budget


@pytest.mark.gpu
def test_a_larger_bag_on_a_device() -> None:
    if not HAS_CUDA:
        pytest.skip("no CUDA device")
    problem = realistic(6000)
    expected = SOLVERS["sklearn"](replace(problem, memory_budget=1e9))
    for budget in (2e9, 5e7):
        check_same(problem, solve_working_set(moved(replace(problem, memory_budget=budget))), expected, 2 * problem.tol)
