"""What a bag's task is given: only what its bags use, plain arrays, and a device where the vectors were on one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from haybale.ensemble.bag_tasks import Plan, TrainingSet, _sent, solve_part
from haybale.ensemble.training import solve_bags

from haybale.device import device_of
from haybale.ensemble.kernel import Points
from haybale.ensemble.problem import Dual, Problem
from haybale.ensemble.solvers import find_solver

BAGS = [np.arange(0, 20), np.arange(10, 30), np.arange(30, 60)]
SETTINGS = {"C": 1.0, "epsilon": 0.1}


def training_set(put: Any = np.asarray) -> TrainingSet:
    rng = np.random.default_rng(0)
    query = np.repeat(np.arange(12), 5)
    return TrainingSet(
        Points(put(0.3 * rng.normal(size=(12, 4)).astype(np.float32))),
        Points(put(0.3 * rng.normal(size=(40, 4)).astype(np.float32))),
        query,
        rng.integers(40, size=60),
        rng.integers(2, size=60).astype(np.float64),
        np.ones(60),
    )


class Together:
    """Keeps the problems of each call."""

    def __init__(self) -> None:
        self.calls: list[list[Problem]] = []

    def __call__(self, problem: Problem) -> Dual:
        return find_solver("product")(problem)

    def many(self, problems: list[Problem]) -> list[Dual]:
        self.calls.append(problems)
        return [Dual(np.full(len(problem.label), float(len(problem.label))), 0.0) for problem in problems]


def test_a_task_gets_the_slices_of_its_bags() -> None:
    data = training_set()
    plan = Plan(data, BAGS, find_solver("product"), None, 1e9, SETTINGS)
    (first, second), (third,) = ([0, 1], [2])
    tasks = list(_sent(plan, [([0, 1], [first]), ([0, 1], [second]), ([2], [third])], 1e9))
    for (_, how, queries, passages, *_), numbers in zip(tasks, ([0, 1], [0, 1], [2]), strict=True):
        rows = np.concatenate([BAGS[number] for number in numbers])
        np.testing.assert_array_equal(queries, data.queries.dense[np.unique(data.query[rows])])
        np.testing.assert_array_equal(passages, data.passages.dense[np.unique(data.passage[rows])])
        assert how["share"] == (len(numbers) > 1)
    assert tasks[0][2] is tasks[1][2]  # sent once for a group
    expected = solve_bags(data, BAGS[2:], find_solver("product"), 1, 1e9, SETTINGS)[0]
    (found,) = solve_part(*tasks[2])
    np.testing.assert_array_equal(found.coef, expected.coef)


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
    data = TrainingSet(*halves, *numbers, rng.integers(2, size=n).astype(np.float64), np.ones(n))
    plan = Plan(data, [np.arange(300), np.arange(100, n)], find_solver("product"), None, 1e9, SETTINGS)
    ((solver, *how),) = _sent(plan, [([0, 1], [0, 1])], 1e9)
    grams = []

    def look(problem: Problem) -> Dual:
        assert problem.grams is not None
        grams.append(problem.grams)
        return solver(problem)

    moved = [at_an_odd_address(each, offset) if isinstance(each, np.ndarray) else each for each in how]
    for expected, found in zip(solve_part(look, *how), solve_part(look, *moved), strict=True):
        np.testing.assert_array_equal(found.coef, expected.coef)
        assert found.intercept == expected.intercept
    for expected, found in zip(grams[0], grams[-1], strict=True):
        np.testing.assert_array_equal(found, expected)


def test_vectors_of_a_device_are_sent_from_the_host_and_put_on_one(cupy: Any) -> None:
    data = training_set(cupy.asarray)
    plan = Plan(data, BAGS, find_solver("product"), None, 1e9, SETTINGS)
    (task,) = _sent(plan, [([2], [2])], 1e9)
    assert type(task[2]) is np.ndarray
    assert type(task[3]) is np.ndarray
    seen: list[Problem] = []

    def look(problem: Problem) -> Dual:
        seen.append(problem)
        return Dual(np.zeros(len(problem.label)), 0.0)

    solve_part(look, *task[1:])
    assert not device_of(seen[0].queries.dense).is_cpu
    np.testing.assert_array_equal(cupy.asnumpy(seen[0].passages.dense), task[3])


@pytest.mark.parametrize(("budget", "calls"), [(1e9, [3]), (1.0, [1, 1, 1])])
def test_a_solver_of_many_bags_gets_as_many_as_fit(cupy: Any, budget: float, calls: list[int]) -> None:
    solver = Together()
    duals = solve_bags(training_set(cupy.asarray), BAGS, solver, None, budget, SETTINGS)
    assert [len(dual.coef) for dual in duals] == [20, 20, 30]
    assert [len(call) for call in solver.calls] == calls
    first, last = solver.calls[0][0], solver.calls[0][-1]
    assert not device_of(first.queries.dense).is_cpu
    assert (first.grams is None) == (calls[0] == 1)  # those solved together share their matrices
    assert first.queries is last.queries
    held = 0 if first.grams is None else sum(matrix.nbytes for matrix in first.grams)
    assert first.memory_budget == budget - held


def test_bags_that_memory_does_not_hold_together_are_halved(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    room = [30]  # rows of a half

    def gram(half: Points) -> Any:
        if len(half) > room[0]:
            raise MemoryError("no room")
        return half.xp.zeros((len(half), len(half)), dtype=np.float32)

    monkeypatch.setattr("haybale.ensemble.bag_tasks.gram", gram)
    solver = Together()
    duals = solve_bags(training_set(cupy.asarray), BAGS, solver, None, 1e9, SETTINGS)
    assert [len(dual.coef) for dual in duals] == [20, 20, 30]
    assert len(solver.calls) > 1


def test_on_the_cpu_bags_go_one_by_one() -> None:
    solver = Together()
    solve_bags(training_set(), BAGS, solver, None, 1e9, SETTINGS)
    assert not solver.calls
