"""The CUDA kernels of working-set SMO against their twins, and whole solutions on device arrays against the CPU's.

On the double the kernels run in numba's simulator, by blocks of a few threads on a few rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from cupy_double import HAS_CUDA
from problems import problem, realistic

from haybale.device import Device, to_device, to_numpy
from haybale.ensemble.gram import gram
from haybale.ensemble.problem import Problem
from haybale.ensemble.solvers import batch, working_set
from haybale.ensemble.solvers.product import solve_product
from haybale.ensemble.solvers.working_set import solve_working_set, solve_working_set_many

CUDA = Device("cuda", 0)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """In the simulator a thread of a kernel is one of Python's: few of them, and taking turns often."""
    if HAS_CUDA:
        yield
        return
    for name, size in {"CHOOSING": 4, "FILLING": 4, "LANES": 4, "SLICES": 2}.items():
        monkeypatch.setattr(batch, name, size)
    yield


def moved(posed: Problem) -> Problem:
    """The problem with its halves and Gram matrices on the device."""
    grams = None if posed.grams is None else tuple(to_device(matrix, CUDA) for matrix in posed.grams)
    return replace(posed, queries=posed.queries.to(CUDA), passages=posed.passages.to(CUDA), grams=grams)


def bags(evidence: bool, interactions: bool, sizes: tuple[int, ...] = (14, 3, 9)) -> list[Problem]:
    whole = problem(1, 40, evidence=evidence, interactions=interactions)
    grams = (gram(whole.queries), gram(whole.passages))
    names = ("query", "passage", "label", "weight", "evidence", "evidence_root", "interactions")
    found, start = [], 0
    for size in sizes:
        rows = slice(start, start + size)
        columns = {name: value[rows] for name in names if (value := getattr(whole, name)) is not None}
        found.append(replace(whole, **columns, grams=grams, tol=1e-2))
        start += size
    return found


@pytest.mark.usefixtures("cupy")
@pytest.mark.parametrize(("evidence", "interactions"), [(False, False), (True, True)])
def test_each_step_is_its_twin(evidence: bool, interactions: bool) -> None:
    """In lock-step, from the same state: choices and steps equal, numbers to 1e-6."""
    posed = bags(evidence, interactions)
    ours = working_set._Solution([working_set.Bag(each) for each in posed], 4, Device("cpu"), 1e9)
    theirs = working_set._Solution([working_set.Bag(moved(each)) for each in posed], 4, CUDA, 1e9)

    def compare(names: str, atol: float = 0.0) -> None:
        for name in names.split():
            a, b = getattr(ours.batch, name), to_numpy(getattr(theirs.batch, name))
            np.testing.assert_allclose(b, a, atol=atol, err_msg=name)
            setattr(theirs.batch, name, to_device(a.copy(), CUDA))

    def both(step: str, *more: Any) -> None:
        for solution in (ours, theirs):
            kernel = () if step == "choose" else (solution.rows.matrices,)
            fraction = (solution.fraction,) if step == "optimise" else ()
            getattr(solution.batch, step)(*kernel, *fraction, *more)

    both("update")
    compare("gain cost error", 1e-6)
    chosen = set()
    for iteration in range(5):
        both("choose")
        compare("size kept report")
        for row, size in zip(ours.batch.working, ours.batch.size, strict=True):
            chosen.update(row[:size].tolist())
        for b, size in enumerate(ours.batch.size):
            np.testing.assert_array_equal(to_numpy(theirs.batch.working)[b, :size], ours.batch.working[b, :size])
        for solution in (ours, theirs):
            solution.rows.bring(solution.batch)
        both("optimise", 4 if iteration else 1)
        compare("beta delta", 2e-6)
        compare("report")
        both("update")
        compare("gain cost error", 2e-6)
    assert len(chosen) > 12
    assert ours.batch.beta.any()


@pytest.mark.usefixtures("cupy")
def test_choices_with_ties_and_few_within_reach() -> None:
    """Many rows of the same gain, signed zeros, and rows that cannot move."""
    rng = np.random.default_rng(0)
    values = np.array([-1e30, -2, -0.5, -0.0, 0.0, 0.5, 3], np.float32)
    sizes = (23, 9, 17)
    ours = working_set._Solution([working_set.Bag(each) for each in bags(False, False)], 8, Device("cpu"), 1e9).batch
    theirs = working_set._Solution([working_set.Bag(moved(each)) for each in bags(False, False)], 8, CUDA, 1e9).batch
    n = sum(sizes)
    for _ in range(3):
        state = {
            "gain": rng.choice(values, n),
            "cost": -rng.choice(values, n),
            "offsets": np.cumsum([0, *sizes]).astype(np.int32),
            "mark": rng.integers(2, size=n).astype(np.int32),
            "size": np.array([8, 0, 5], np.int32),
            "kept": np.array([2, 0, 3], np.int32),
            "working": np.stack([start + rng.permutation(9)[:8] for start in (0, 23, 32)]).astype(np.int32),
            "report": np.zeros((3, 2)),
        }
        for found in (ours, theirs):
            for name, value in state.items():
                setattr(found, name, to_device(value.copy(), found.device))
            found.choose()
        for name in ("size", "kept", "report"):
            np.testing.assert_array_equal(to_numpy(getattr(theirs, name)), getattr(ours, name))
        for b, size in enumerate(ours.size):
            np.testing.assert_array_equal(to_numpy(theirs.working)[b, :size], ours.working[b, :size])


@pytest.mark.usefixtures("cupy")
@pytest.mark.parametrize("way", ["grams", "own", "rows"])
def test_a_solution_on_the_device(way: str) -> None:
    """With Gram matrices given, with its own, and by kernel rows; the products of halves differ in the last bit."""
    posed = bags(way != "own", False, (12,))[0]
    if way != "grams":
        posed = replace(posed, grams=None, memory_budget=1e9 if way == "own" else 4 * 25 + 4 * 9 * 1.25 * 4.5)
    found, expected = solve_working_set(moved(posed), 4), solve_working_set(replace(posed, memory_budget=1e9), 4)
    assert isinstance(found.coef, np.ndarray)
    assert found.converged
    kernel = posed.gram()
    np.testing.assert_allclose(
        kernel @ found.coef + found.intercept, kernel @ expected.coef + expected.intercept, atol=2 * posed.tol
    )


@pytest.mark.usefixtures("cupy")
def test_the_product_solver_goes_where_the_halves_are() -> None:
    posed = [moved(each) for each in bags(False, False, (6, 4))]
    together = solve_working_set_many(posed, 512)
    for dual, each in zip(solve_product.many(posed), posed, strict=True):  # type: ignore[attr-defined]
        alone = solve_product(each)
        np.testing.assert_array_equal(alone.coef, dual.coef)
    np.testing.assert_array_equal(together[1].coef, alone.coef)


@pytest.mark.gpu
@pytest.mark.parametrize("q", [64, 512, 1024])
def test_a_bag_of_some_size_on_the_device(q: int) -> None:
    if not HAS_CUDA:
        pytest.skip("no CUDA device")
    posed = realistic(6000)
    kernel = posed.gram()
    expected = solve_product(posed)
    for budget in (2e9, 4.0 * 300**2 + 4 * 1.25 * len(posed.passages) * 1500):
        found = solve_working_set(moved(replace(posed, memory_budget=budget)), q)
        np.testing.assert_allclose(
            kernel @ found.coef + found.intercept, kernel @ expected.coef + expected.intercept, atol=2 * posed.tol
        )
