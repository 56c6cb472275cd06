"""Tasks that train bags: their vectors, their device, their position in memory and the Gram matrices they share."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from haybale.device import device_of
from haybale.ensemble.bagging import make_tasks, solve_bags, solve_task
from haybale.ensemble.kernel import Points
from haybale.ensemble.problem import Dual, Problem
from haybale.ensemble.solvers import find_solver

BAGS = [np.arange(0, 20), np.arange(10, 30), np.arange(30, 60)]
SOLVER = find_solver("working-set")


def all_rows(put: Any = np.asarray, **settings: Any) -> Problem:
    rng = np.random.default_rng(0)
    query = np.repeat(np.arange(12), 5)
    return Problem(
        Points(put(0.3 * rng.normal(size=(12, 4)).astype(np.float32))),
        Points(put(0.3 * rng.normal(size=(40, 4)).astype(np.float32))),
        query,
        rng.integers(40, size=60),
        rng.integers(2, size=60).astype(np.float64),
        np.ones(60),
        **settings,
    )


def test_a_task_has_only_the_vectors_and_rows_of_its_bags() -> None:
    data = all_rows()
    parts = [([0, 1], [0]), ([0, 1], [1]), ([2], [2])]
    tasks = list(make_tasks(data, BAGS, parts, SOLVER, None))
    for (_, problem, offsets, _, share), (group, part) in zip(tasks, parts, strict=True):
        rows, own = np.concatenate([BAGS[number] for number in group]), BAGS[part[0]]
        np.testing.assert_array_equal(problem.queries.dense, data.queries.dense[np.unique(data.query[rows])])
        np.testing.assert_array_equal(problem.passages.dense, data.passages.dense[np.unique(data.passage[rows])])
        np.testing.assert_array_equal(problem.passages.dense[problem.passage], data.passages.dense[data.passage[own]])
        assert offsets.tolist() == [0, len(own)]
        assert share == (len(group) > 1)
    assert tasks[0][1].passages is tasks[1][1].passages  # one copy per group


def at_an_odd_address(array: np.ndarray, offset: int) -> np.ndarray:
    """Return a copy of an array that starts ``offset`` bytes after an aligned address, as in a received message."""
    buffer = np.zeros(array.nbytes + 16, dtype=np.uint8)
    moved = buffer[offset : offset + array.nbytes].view(array.dtype).reshape(array.shape)
    moved[...] = array
    return moved


@pytest.mark.parametrize("offset", [1, 4])
@pytest.mark.parametrize("width", [4, 64])
def test_it_does_not_matter_where_in_memory_a_task_lies(offset: int, width: int) -> None:
    """NumPy copies an unaligned array, and then does not recognise the product of a matrix with its transpose."""
    rng, n = np.random.default_rng(0), 400
    halves = [Points((rng.normal(size=(size, width)) / width**0.5).astype(np.float32)) for size in (33, 244)]
    numbers = [np.append(np.arange(size), rng.integers(size, size=n - size)) for size in (33, 244)]
    data = Problem(*halves, *numbers, rng.integers(2, size=n).astype(np.float64), np.ones(n))
    bags = [np.arange(300), np.arange(100, n)]
    ((solver, problem, *how),) = make_tasks(data, bags, [([0, 1], [0, 1])], SOLVER, None)
    grams = []

    def recording_solver(problem: Problem) -> Dual:
        assert problem.grams is not None
        grams.append(problem.grams)
        return solver(problem)

    columns = {name: getattr(problem, name) for name in ("query", "passage", "label", "weight")}
    moved = replace(
        problem,
        queries=Points(at_an_odd_address(problem.queries.dense, offset)),
        passages=Points(at_an_odd_address(problem.passages.dense, offset)),
        **{name: at_an_odd_address(column, offset) for name, column in columns.items()},
    )
    for expected, found in zip(*(solve_task(recording_solver, each, *how) for each in (problem, moved)), strict=True):
        np.testing.assert_array_equal(found.coef, expected.coef)
        assert found.intercept == expected.intercept
    for expected, found in zip(grams[0], grams[-1], strict=True):
        np.testing.assert_array_equal(found, expected)


def test_vectors_on_a_device_are_sent_as_numpy_arrays_and_moved_back_to_a_device(cupy: Any) -> None:
    data = all_rows(cupy.asarray)
    (task,) = make_tasks(data, BAGS, [([2], [2])], SOLVER, None)
    assert type(task[1].queries.dense) is np.ndarray
    assert type(task[1].passages.dense) is np.ndarray
    seen: list[Problem] = []

    def recording_solver(problem: Problem) -> Dual:
        seen.append(problem)
        return Dual(np.zeros(len(problem.label)), 0.0)

    solve_task(recording_solver, *task[1:])
    assert not device_of(seen[0].queries.dense).is_cpu
    np.testing.assert_array_equal(cupy.asnumpy(seen[0].passages.dense), task[1].passages.dense)


@pytest.mark.parametrize("n_jobs", [1, 3])
def test_bags_share_gram_matrices_if_they_overlap_and_the_budget_allows(n_jobs: int) -> None:
    """Overlapping bags share Gram matrices, a disjoint bag has none, and sharing does not change the solutions."""
    seen: list[Problem] = []

    def recording_solver(problem: Problem) -> Dual:
        seen.append(problem)
        return SOLVER(problem)

    found, bags = {}, [np.arange(0, 45), np.arange(5, 50), np.arange(50, 60)]
    for budget in (1e9, 8e3):
        seen.clear()
        found[budget] = solve_bags(all_rows(tol=1e-5), bags, recording_solver, n_jobs, budget)
        assert sorted(len(problem.label) for problem in seen) == [10, 45, 45]
        assert sum(problem.grams is not None for problem in seen) == (2 if budget == 1e9 else 0)
        assert all(problem.memory_budget <= budget for problem in seen)
    for one, other in zip(*found.values(), strict=True):
        np.testing.assert_allclose(one.coef, other.coef, atol=1e-3)
