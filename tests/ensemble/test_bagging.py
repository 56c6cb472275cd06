"""What a bag's task is given: only what its bags use, plain arrays, and a device where the vectors were on one."""

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


def test_a_task_gets_the_slices_of_its_bags() -> None:
    data = all_rows()
    parts = [([0, 1], [0]), ([0, 1], [1]), ([2], [2])]
    tasks = list(make_tasks(data, BAGS, parts, SOLVER, None))
    for (_, posed, offsets, _, share), (group, part) in zip(tasks, parts, strict=True):
        rows, own = np.concatenate([BAGS[number] for number in group]), BAGS[part[0]]
        np.testing.assert_array_equal(posed.queries.dense, data.queries.dense[np.unique(data.query[rows])])
        np.testing.assert_array_equal(posed.passages.dense, data.passages.dense[np.unique(data.passage[rows])])
        np.testing.assert_array_equal(posed.passages.dense[posed.passage], data.passages.dense[data.passage[own]])
        assert offsets.tolist() == [0, len(own)]
        assert share == (len(group) > 1)
    assert tasks[0][1].passages is tasks[1][1].passages  # one copy for a group


def at_an_odd_address(array: np.ndarray, offset: int) -> np.ndarray:
    """A copy as it lies in a message: ``offset`` bytes behind where NumPy would have put it."""
    buffer = np.zeros(array.nbytes + 16, dtype=np.uint8)
    moved = buffer[offset : offset + array.nbytes].view(array.dtype).reshape(array.shape)
    moved[...] = array
    return moved


@pytest.mark.parametrize("offset", [1, 4])
@pytest.mark.parametrize("width", [4, 64])
def test_it_does_not_matter_where_in_memory_a_task_lies(offset: int, width: int) -> None:
    """NumPy copies what lies at an odd byte, and then sees no more that it multiplies a matrix with itself."""
    rng, n = np.random.default_rng(0), 400
    halves = [Points((rng.normal(size=(size, width)) / width**0.5).astype(np.float32)) for size in (33, 244)]
    numbers = [np.append(np.arange(size), rng.integers(size, size=n - size)) for size in (33, 244)]
    data = Problem(*halves, *numbers, rng.integers(2, size=n).astype(np.float64), np.ones(n))
    bags = [np.arange(300), np.arange(100, n)]
    ((solver, posed, *how),) = make_tasks(data, bags, [([0, 1], [0, 1])], SOLVER, None)
    grams = []

    def look(problem: Problem) -> Dual:
        assert problem.grams is not None
        grams.append(problem.grams)
        return solver(problem)

    columns = {name: getattr(posed, name) for name in ("query", "passage", "label", "weight")}
    moved = replace(
        posed,
        queries=Points(at_an_odd_address(posed.queries.dense, offset)),
        passages=Points(at_an_odd_address(posed.passages.dense, offset)),
        **{name: at_an_odd_address(column, offset) for name, column in columns.items()},
    )
    for expected, found in zip(solve_task(look, posed, *how), solve_task(look, moved, *how), strict=True):
        np.testing.assert_array_equal(found.coef, expected.coef)
        assert found.intercept == expected.intercept
    for expected, found in zip(grams[0], grams[-1], strict=True):
        np.testing.assert_array_equal(found, expected)


def test_vectors_of_a_device_are_sent_from_the_host_and_put_on_one(cupy: Any) -> None:
    data = all_rows(cupy.asarray)
    (task,) = make_tasks(data, BAGS, [([2], [2])], SOLVER, None)
    assert type(task[1].queries.dense) is np.ndarray
    assert type(task[1].passages.dense) is np.ndarray
    seen: list[Problem] = []

    def look(problem: Problem) -> Dual:
        seen.append(problem)
        return Dual(np.zeros(len(problem.label)), 0.0)

    solve_task(look, *task[1:])
    assert not device_of(seen[0].queries.dense).is_cpu
    np.testing.assert_array_equal(cupy.asnumpy(seen[0].passages.dense), task[1].passages.dense)


@pytest.mark.parametrize("n_jobs", [1, 3])
def test_what_is_shared_depends_on_the_budget_and_changes_little(n_jobs: int) -> None:
    """Bags with much in common get one pair of Gram matrices, bags with nothing get none; all bags are solved."""
    seen: list[Problem] = []

    def look(problem: Problem) -> Dual:
        seen.append(problem)
        return SOLVER(problem)

    found, bags = {}, [np.arange(0, 45), np.arange(5, 50), np.arange(50, 60)]
    for budget in (1e9, 8e3):
        seen.clear()
        found[budget] = solve_bags(all_rows(tol=1e-5), bags, look, n_jobs, budget)
        assert sorted(len(problem.label) for problem in seen) == [10, 45, 45]
        assert sum(problem.grams is not None for problem in seen) == (2 if budget == 1e9 else 0)
        assert all(problem.memory_budget <= budget for problem in seen)
    for one, other in zip(*found.values(), strict=True):
        np.testing.assert_allclose(one.coef, other.coef, atol=1e-3)
