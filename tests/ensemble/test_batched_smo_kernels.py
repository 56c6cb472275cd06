"""The kernels of SMO of many bags at once, on the CPU, against scikit-learn and against the rules of ``smo.py``."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning
from support import cupy_kernels
from support.cupy_double import installed
from support.cupy_runtime import Device
from support.problems import CUDA, check_same, moved, points, random_problem, realistic

from haybale.device import to_device, to_numpy
from haybale.ensemble import SOLVERS
from haybale.ensemble import batched_smo as module
from haybale.ensemble.batched_smo import SHARED_CANDIDATES, SHARED_HEADER, solve_smo, solve_together
from haybale.ensemble.problem import Dual, Problem, Solution
from haybale.ensemble.smo import State, optimise


@contextmanager
def device(
    threads: int = 1,
    order: int = 0,
    *,
    room: int = 200_000,
    row_steps: float = 3e8,
    narrow: int = 2**16,
    rows_per_thread: int = 1,
    blocks: int = 1,
) -> Iterator[Any]:
    """Run kernels by ``blocks`` blocks of up to ``threads`` threads, with ``room`` bytes for the arrays of a block."""
    size = SHARED_HEADER + SHARED_CANDIDATES * blocks + 8 * 2 + room  # three pair features, or none
    with installed() as cupy, pytest.MonkeyPatch.context() as patch:
        patch.setattr(cupy_kernels, "MOST_THREADS", threads)
        patch.setattr(cupy_kernels, "ORDER", order)
        patch.setitem(Device.properties, "sharedMemPerBlockOptin", size)
        patch.setattr(module, "ROW_STEPS", row_steps)
        patch.setattr(module, "NARROW", narrow)
        patch.setattr(module, "ROWS_PER_THREAD", rows_per_thread)
        patch.setattr(module, "CLUSTERS", {blocks: 1.0})
        patch.setattr(module, "ROWS_PER_BLOCK", 1)
        yield cupy


def bags_of(seed: int, sizes: list[int], features: bool = False, one_label: bool = False, **changes: Any) -> list[Any]:
    """Return problems with equal rows and with rows of weight zero."""
    problems = []
    for number, n in enumerate(sizes):
        problem = random_problem(seed + number, n, features, **changes)
        weight = np.where(np.random.default_rng(seed).random(n) < 0.2, 0, problem.weight)
        weight[0] = 1
        label = np.ones(n) if one_label else problem.label
        problems.append(replace(problem, weight=weight, label=label))
    return problems


def solved(problems: list[Problem]) -> list[Dual]:
    """Solve bags together."""
    solutions = [Solution(moved(problem).with_grams(), by_passage=True) for problem in problems]
    duals = dict(solve_together(solutions))
    return [duals[number] for number in range(len(problems))]


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 9999),
    sizes=st.lists(st.integers(1, 80), min_size=1, max_size=3),
    features=st.booleans(),
    one_label=st.booleans(),
    C=st.sampled_from([1e-3, 0.1, 1.0, 10.0]),
    epsilon=st.sampled_from([0.0, 0.1]),
    room=st.sampled_from([0, 40, 190, 1000, 200_000]),
    row_steps=st.sampled_from([0.0, 5e3, 3e8]),
    narrow=st.sampled_from([0, 2**16]),
    blocks=st.sampled_from([1, 2, 4, 8]),
)
def test_the_solution_equals_that_of_scikit_learn(
    seed: int,
    sizes: list[int],
    features: bool,
    one_label: bool,
    C: float,
    epsilon: float,
    room: int,
    row_steps: float,
    narrow: int,
    blocks: int,
) -> None:
    """Bags of different sizes, launches of one step, arrays in both memories, numbers of both widths, and clusters."""
    problems = bags_of(seed, sizes, features, one_label, C=C, epsilon=epsilon)
    with device(room=room, row_steps=row_steps, narrow=narrow, blocks=blocks):
        duals = solved(problems)
    for problem, dual in zip(problems, duals, strict=True):
        assert dual.converged
        assert not dual.coef[problem.weight == 0].any()
        assert abs(dual.coef.sum()) < 1e-9
        check_same(problem, dual, SOLVERS["sklearn"](problem))


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 9999),
    sizes=st.lists(st.integers(1, 300), min_size=1, max_size=2),
    features=st.booleans(),
    threads=st.sampled_from([32, 256, 1024]),
    order=st.integers(0, 4),
    room=st.sampled_from([0, 40, 190, 1000, 200_000]),
    row_steps=st.sampled_from([0.0, 1e3, 3e8]),
    narrow=st.sampled_from([0, 2**16]),
    rows_per_thread=st.sampled_from([1, 3, 8]),
    blocks=st.sampled_from([1, 2, 4, 8]),
)
def test_threads_and_launches_do_not_change_a_bit(
    seed: int,
    sizes: list[int],
    features: bool,
    threads: int,
    order: int,
    room: int,
    row_steps: float,
    narrow: int,
    rows_per_thread: int,
    blocks: int,
) -> None:
    problems = bags_of(seed, sizes, features, n_passages=40, max_iter=12)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        with device():
            expected = [solved([problem])[0] for problem in problems]
        with device(
            threads,
            order,
            room=room,
            row_steps=row_steps,
            narrow=narrow,
            rows_per_thread=rows_per_thread,
            blocks=blocks,
        ):
            found = solved(problems)
    for one, other in zip(expected, found, strict=True):
        np.testing.assert_array_equal(other.coef, one.coef)
        assert (other.n_iter, other.converged, other.intercept) == (one.n_iter, one.converged, one.intercept)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 9999),
    n=st.integers(2, 60),
    threads=st.sampled_from([1, 32]),
    order=st.integers(0, 3),
    blocks=st.sampled_from([1, 2]),
)
def test_the_steps_are_those_of_smo(seed: int, n: int, threads: int, order: int, blocks: int) -> None:
    """Kernels of 0, 1/2 and 1 have many ties, and no step of the first ones is rounded."""
    rng = np.random.default_rng(seed)
    sizes = 6, 25
    grams = []
    for size in sizes:
        values = rng.choice([0, 0.5, 1], size=(size, size)).astype(np.float32)
        values = np.minimum(values, values.T)
        np.fill_diagonal(values, 1)
        grams.append(values)
    query, passage = rng.integers(sizes[0], size=n), rng.integers(sizes[1], size=n)
    label, weight = rng.integers(-8, 9, size=n) / 8, rng.choice([0.25, 0.5, 1], size=n)
    for steps in range(1, 8):
        vectors = points(0, sizes[0]), points(0, sizes[1])
        on_cpu = Problem(
            *vectors, query, passage, label, weight, epsilon=0.125, max_iter=steps, grams=(grams[0], grams[1])
        )
        solution = Solution(on_cpu, by_passage=True)
        state = State.of(solution)
        taken, violation = optimise(solution.problem.gram(), state, 0.125, solution.tol, steps)
        with device(threads, order, blocks=blocks), warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            there = tuple(to_device(gram, CUDA) for gram in grams)
            found = solve_smo(replace(moved(on_cpu), grams=there))
        assert found.n_iter == taken
        np.testing.assert_array_equal(found.coef[solution.rows], state.beta)
        assert found.converged == (violation < solution.tol)


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 9999),
    n=st.integers(1, 90),
    features=st.booleans(),
    threads=st.sampled_from([1, 32, 256]),
    order=st.integers(0, 3),
    narrow=st.sampled_from([0, 2**16]),
)
def test_residuals_are_recomputed(seed: int, n: int, features: bool, threads: int, order: int, narrow: int) -> None:
    problems = [random_problem(seed + number, max(1, n - 7 * number), features) for number in range(3)]
    rng = np.random.default_rng(seed)
    with device(threads, order, narrow=narrow):
        solutions = [Solution(moved(problem).with_grams(), by_passage=True) for problem in problems]
        batch = module._Batch(solutions)
        for number, solution in enumerate(solutions):
            rows = slice(*batch.offsets[number : number + 2])
            beta = np.where(rng.random(len(solution.beta)) < 0.5, 0, rng.normal(size=len(solution.beta)))
            batch.beta[rows] = to_device(beta, CUDA)
            error = solution.label - problems[number].gram()[np.ix_(solution.rows, solution.rows)] @ beta
            batch.error[rows] = to_device(error.astype(np.float32), CUDA)
        exact = to_numpy(batch.error)
        batch.error[batch.offsets[1] :] = 7
        drift = batch.recompute(np.array([0, 2]))
        found = to_numpy(batch.error)
        sample = batch.recompute(np.array([1]), 32)
    parts = [slice(*batch.offsets[number : number + 2]) for number in range(3)]
    for number in (0, 2):
        np.testing.assert_allclose(found[parts[number]], exact[parts[number]], rtol=1e-5, atol=1e-5)
    assert (found[parts[1]] == 7).all()
    assert drift[0] < 1e-4
    assert drift[1] == sample[0] == sample[2] == 0
    assert drift[2] == pytest.approx(np.abs(exact[parts[2]] - 7).max(), abs=1e-4)
    distance = np.abs(exact[parts[1]] - 7)[:: max(1, len(exact[parts[1]]) // 32)]
    assert sample[1] == pytest.approx(distance.max(), abs=1e-4)


@pytest.mark.parametrize("features", [False, True])
def test_residuals_with_errors_are_refreshed(features: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some launches add an error, as accumulated rounding would; the solution does not keep it."""
    problem = random_problem(5, 80, features, tol=1e-3)
    take_steps, recompute = module._Batch.take_steps, module._Batch.recompute
    launches, refreshed = list[int](), list[int]()

    def inexact(batch: Any, bags: Any) -> None:
        take_steps(batch, bags)
        launches.append(0)
        if len(launches) < 20:
            batch.error[::2] += np.float32(0.01)

    def counted(batch: Any, bags: Any, sample: int | None = None) -> Any:
        refreshed.extend([] if sample else bags.tolist())
        return recompute(batch, bags, sample)

    monkeypatch.setattr(module._Batch, "take_steps", inexact)
    monkeypatch.setattr(module._Batch, "recompute", counted)
    with device(row_steps=80 * 8.0):
        found = solve_smo(moved(problem))
    assert found.converged
    assert refreshed
    check_same(problem, found, SOLVERS["sklearn"](replace(problem, tol=1e-5)), atol=4e-3)


@pytest.mark.parametrize("most", [0, 1, 7])
def test_max_iter_limits_the_steps(most: int) -> None:
    problems = bags_of(0, [80, 50], max_iter=most)
    with device(row_steps=3 * 80.0), pytest.warns(ConvergenceWarning, match=f"{most} steps"):
        duals = solved(problems)
    for dual in duals:
        assert (dual.n_iter, dual.converged) == (most, False)
        assert np.count_nonzero(dual.coef) <= 2 * most


def test_a_larger_bag_takes_the_steps_of_libsvm() -> None:
    problem = realistic(2000)
    expected = SOLVERS["sklearn"](problem)
    with device():
        found = solve_smo(moved(problem))
    assert found.converged
    assert found.n_iter == pytest.approx(expected.n_iter, rel=0.1)
    check_same(problem, found, expected, atol=2 * problem.tol)
