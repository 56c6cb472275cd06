"""Tasks that train bags: their vectors, their device, their position in memory and the Gram matrices they share.

Bags that are trained together on a device: rounds, budgets, interruptions, and tasks of several bags.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.problems import check_same

from haybale import resumable
from haybale.device import Device, device_of
from haybale.ensemble import bagging, device_bags
from haybale.ensemble.bagging import make_tasks, solve_bags, solve_task
from haybale.ensemble.batched_smo import solve_together
from haybale.ensemble.kernel import Points
from haybale.ensemble.problem import Dual, Problem
from haybale.ensemble.solvers import find_solver
from haybale.errors import DeviceError, InputError
from haybale.kept_results import KeptResults

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


# bags that are trained together on a device ---------------------------------------------------------------

TOGETHER = [np.arange(0, 45), np.arange(5, 50), np.arange(50, 60), np.arange(20, 60)]
AUTO, SMO = find_solver("auto"), find_solver("smo")


@pytest.fixture
def rounds(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return the number of bags of each round."""
    sizes: list[int] = []

    def counted(solutions: Any) -> Any:
        sizes.append(len(solutions))
        return solve_together(solutions)

    monkeypatch.setattr(device_bags, "solve_together", counted)
    return sizes


def check_bags(found: list[Dual], expected: list[Dual], problem: Problem) -> None:
    for bag, one, other in zip(TOGETHER, found, expected, strict=True):
        check_same(problem.take(bag), one, other)


def test_bags_are_trained_in_rounds_that_fit(cupy: Any, rounds: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Budgets, multiprocessors and free memory limit the bags of a round, and change no bit."""
    on_cpu = all_rows(tol=1e-5)
    problem, expected = all_rows(cupy.asarray, tol=1e-5), solve_bags(on_cpu, TOGETHER, SOLVER, 1)
    needed = [bag.needed for bag in device_bags._measured(problem, dict(enumerate(TOGETHER)))]
    whole = solve_bags(problem, TOGETHER, AUTO, 1)
    assert rounds == [4]
    check_bags(whole, expected, on_cpu)
    for budget, sizes in ((sum(needed[:2]), [2, 2]), (max(needed), [1, 1, 2]), (sum(needed[:3]), [2, 2])):
        rounds.clear()
        found = solve_bags(problem, TOGETHER, AUTO, 1, budget)
        assert rounds == sizes
        for one, other in zip(found, whole, strict=True):
            np.testing.assert_array_equal(one.coef, other.coef)
            assert one.intercept == other.intercept
    rounds.clear()
    with monkeypatch.context() as patch:
        patch.setattr(device_bags, "_count_multiprocessors", lambda device: 3)
        solve_bags(problem, TOGETHER, SMO, None)
    assert rounds == [2, 2]
    workspace = max(bag.workspace for bag in device_bags._measured(problem, dict(enumerate(TOGETHER))))
    half = (workspace + sum(needed[:2])) / device_bags._SHARE_OF_FREE_MEMORY / 2 + 1
    monkeypatch.setattr(Device, "half_of_memory", lambda self: half)
    rounds.clear()
    solve_bags(problem, TOGETHER, AUTO, 1)
    assert rounds == [2, 2]


def test_bags_that_do_not_fit_are_told_once(cupy: Any, rounds: list[int], caplog: pytest.LogCaptureFixture) -> None:
    on_cpu, problem = all_rows(tol=1e-5), all_rows(cupy.asarray, tol=1e-5)
    expected = solve_bags(on_cpu, TOGETHER, SOLVER, 1)
    needed = sorted(bag.needed for bag in device_bags._measured(problem, dict(enumerate(TOGETHER))))
    found = solve_bags(problem, TOGETHER, AUTO, 1, needed[1])
    assert sum(rounds) == 2
    assert sorted(dual.n_working_sets > 0 for dual in found) == [False, False, True, True]
    check_bags(found, expected, on_cpu)
    (record,) = [record for record in caplog.records if record.levelname == "WARNING"]
    assert "2 of 4 bags" in record.getMessage()
    with pytest.raises(InputError, match=r"2 of 4 bags .* memory_budget"):
        solve_bags(problem, TOGETHER, SMO, 1, needed[1])
    precise = replace(problem, queries=problem.queries.precise(), passages=problem.passages.precise())
    with pytest.raises(InputError, match="float64"):
        solve_bags(precise, TOGETHER, SMO, 1)
    caplog.clear()
    check_bags(solve_bags(precise, TOGETHER, AUTO, 1), expected, on_cpu)
    assert "float64" in caplog.text


def test_a_device_that_runs_out_of_memory_takes_fewer_bags(
    cupy: Any, rounds: list[int], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    on_cpu, problem = all_rows(tol=1e-5), all_rows(cupy.asarray, tol=1e-5)
    expected, prepared = solve_bags(on_cpu, TOGETHER, SOLVER, 1), device_bags._prepared

    def small(problem: Problem, bags: Any) -> Any:
        if len(bags) > 1 or len(bags[0].rows) == 45:
            raise DeviceError("out of memory")
        return prepared(problem, bags)

    monkeypatch.setattr(device_bags, "_prepared", small)
    found = solve_bags(problem, TOGETHER, AUTO, 1)
    assert rounds == [1, 1]
    assert [dual.n_working_sets > 0 for dual in found] == [True, True, False, False]
    check_bags(found, expected, on_cpu)
    assert "2 of 4 bags" in caplog.text


def test_an_interrupted_training_on_a_device_goes_on(
    cupy: Any, rounds: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bags that were solved before the interruption are not solved again, with another budget neither."""
    problem = all_rows(cupy.asarray)
    whole = solve_bags(problem, TOGETHER, AUTO, 1)
    rounds.clear()
    put, puts = KeptResults.put, list[str]()

    def interrupted(kept: KeptResults, key: str, arrays: Any) -> None:
        if len(puts) == 2:
            raise KeyboardInterrupt
        puts.append(key)
        put(kept, key, arrays)

    with monkeypatch.context() as patch:
        patch.setattr(KeptResults, "put", interrupted)
        with pytest.raises(KeyboardInterrupt), resumable(tmp_path / "kept"):
            solve_bags(problem, TOGETHER, AUTO, 1)
    with resumable(tmp_path / "kept"):
        found = solve_bags(problem, TOGETHER, AUTO, 1, 1e7)
    assert rounds == [4, 2]
    for one, other in zip(found, whole, strict=True):
        np.testing.assert_array_equal(one.coef, other.coef)


@pytest.mark.parametrize("budget", [None, 1e7])
def test_a_task_solves_several_bags_together(
    cupy: Any, rounds: list[int], monkeypatch: pytest.MonkeyPatch, budget: float | None
) -> None:
    """Where tasks run in other processes, as on a cluster, bags are distributed over them, with the same bits."""
    problem = all_rows(cupy.asarray)
    whole = solve_bags(problem, TOGETHER, AUTO, 1)
    rounds.clear()
    monkeypatch.setattr(bagging, "shares_memory", lambda: False)
    found = solve_bags(problem, TOGETHER, AUTO, 2, budget)
    assert rounds == [2, 2]
    for one, other in zip(found, whole, strict=True):
        np.testing.assert_array_equal(one.coef, other.coef)
        assert one.intercept == other.intercept
