"""Working-set SMO on NumPy arrays: against the other solvers, by working sets far smaller than a bag."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import problem, realistic
from sklearn.exceptions import ConvergenceWarning

from haybale.device import CPU
from haybale.ensemble import SOLVERS
from haybale.ensemble.gram import gram, kernel_tile
from haybale.ensemble.half import Half
from haybale.ensemble.problem import Dual, Problem
from haybale.ensemble.solvers import kernel_rows, subproblem, working_set
from haybale.ensemble.solvers.kernel_rows import CachedRows
from haybale.ensemble.solvers.working_set import solve_working_set, solve_working_set_many
from haybale.errors import DeviceError, InputError


def predictions(posed: Problem, dual: Dual) -> np.ndarray:
    return posed.gram() @ dual.coef + dual.intercept


def check_same(posed: Problem, found: Dual, expected: Dual, atol: float = 2e-4) -> None:
    np.testing.assert_allclose(predictions(posed, found), predictions(posed, expected), atol=atol)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 9999),
    n=st.integers(1, 80),
    evidence=st.booleans(),
    interactions=st.booleans(),
    q=st.sampled_from([4, 8, 16, 512]),
    one_label=st.booleans(),
    C=st.sampled_from([0.1, 1.0, 10.0]),
)
def test_it_agrees_with_the_other_solvers(
    seed: int, n: int, evidence: bool, interactions: bool, q: int, one_label: bool, C: float
) -> None:
    """Equal rows, rows of weight zero, bags of one label, one or two rows; with both kinds of features."""
    posed = problem(seed, n, evidence=evidence, interactions=interactions, C=C)
    rng = np.random.default_rng(seed)
    weight = np.where(rng.random(n) < 0.2, 0, posed.weight)
    weight[0] = 1
    posed = replace(posed, weight=weight, label=np.ones(n) if one_label else posed.label)
    dual = solve_working_set(posed, q)
    assert dual.converged
    assert not dual.coef[weight == 0].any()
    assert abs(dual.coef.sum()) < 1e-9
    check_same(posed, dual, SOLVERS["product"](posed))
    if weight.all():
        check_same(posed, dual, SOLVERS["sklearn"](posed))


@pytest.mark.parametrize("tol", [1e-3, 1e-5])
def test_a_bag_of_some_size(tol: float) -> None:
    posed = replace(realistic(3000), tol=tol)
    dual = solve_working_set(posed, 256)
    assert dual.converged
    assert dual.n_iter > 1000
    check_same(posed, dual, SOLVERS["product"](posed), atol=2 * tol if tol > 1e-4 else 2e-4)
    # Its own residuals say that it is the optimum: none gains more by rising than another costs by falling.
    error, bound = posed.label - posed.gram() @ dual.coef, posed.C * posed.weight
    up = np.where(dual.coef < 0, posed.epsilon, -posed.epsilon)[dual.coef < bound]
    low = np.where(dual.coef > 0, -posed.epsilon, posed.epsilon)[dual.coef > -bound]
    assert (error[dual.coef < bound] + up).max() - (error[dual.coef > -bound] + low).min() < 1.3 * tol


@pytest.mark.parametrize("evidence", [False, True])
def test_kernel_rows_computed_as_needed_give_the_same(evidence: bool) -> None:
    """A budget for the queries' matrix and a few rows: 4 to 20 of the 38 passages'."""
    posed = problem(3, 150, n_queries=8, n_passages=40, evidence=evidence)
    whole = solve_working_set(posed, 16)
    for slots in (4, 6, 20):
        budget = 4.0 * 8**2 + 4.0 * 40 * 1.25 * slots + 1
        check_same(posed, solve_working_set(replace(posed, memory_budget=budget), 16), whole)
    with pytest.raises(InputError, match=r"MB for kernel rows of 38 passages: 4 rows and"):
        solve_working_set(replace(posed, memory_budget=4.0 * 8**2 + 4.0 * 38 * 1.25 * 3), 16)


def test_the_cache_holds_what_it_says() -> None:
    rng = np.random.default_rng(0)
    half = Half(rng.normal(size=(30, 3)).astype(np.float32))
    expected = kernel_tile(half, half)
    rows = CachedRows(None, half, CPU, 4 * 30 * 1.25 * 10 + 1)
    assert rows.slots == 10
    for _ in range(50):
        wanted = rng.integers(30, size=rng.integers(1, 11))
        np.testing.assert_allclose(rows.matrices[1][rows._brought(wanted)], expected[wanted], atol=1e-6)


def test_a_tile_of_kernel_rows_that_does_not_fit_is_halved(monkeypatch: pytest.MonkeyPatch) -> None:
    posed = problem(3, 150, n_queries=8, n_passages=40, memory_budget=4.0 * 8**2 + 4.0 * 40 * 1.25 * 20)
    expected = solve_working_set(posed, 16)
    asked = []

    def scarce(a: Half, b: Half) -> np.ndarray:
        asked.append(len(a))
        if len(a) > 2:
            raise MemoryError("no room")
        return kernel_tile(a, b)

    monkeypatch.setattr(kernel_rows, "kernel_tile", scarce)
    check_same(posed, solve_working_set(posed, 16), expected)
    assert max(asked) > 2

    def none(a: Half, b: Half) -> np.ndarray:
        raise MemoryError("no room")

    monkeypatch.setattr(kernel_rows, "kernel_tile", none)
    with pytest.raises(DeviceError, match="out of memory at a tile of 1 kernel rows"):
        solve_working_set(posed, 16)


def test_a_matrix_that_does_not_fit_after_all_is_replaced_by_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    posed = problem(3, 150, n_queries=8, n_passages=40)
    expected = solve_working_set(posed, 16)

    def scarce(half: Half, threads: int | None) -> np.ndarray:
        if len(half) > 8:
            raise MemoryError("no room")
        return gram(half, threads)

    monkeypatch.setattr(working_set, "gram", scarce)
    check_same(posed, solve_working_set(posed, 16), expected)


def test_bags_whose_common_matrix_does_not_fit_after_all_are_solved_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of a matrix serve one bag: its places are those of one working set."""
    whole = problem(3, 150, n_queries=8, n_passages=40)
    names = ("query", "passage", "label", "weight")
    bags = [
        replace(whole, **{name: getattr(whole, name)[rows] for name in names})
        for rows in (slice(0, 70), slice(70, 150))
    ]
    expected = [solve_working_set(bag, 16) for bag in bags]

    def scarce(half: Half, threads: int | None) -> np.ndarray:
        if len(half) > 8:
            raise MemoryError("no room")
        return gram(half, threads)

    monkeypatch.setattr(working_set, "gram", scarce)
    for bag, found, theirs in zip(bags, solve_working_set_many(bags, 16), expected, strict=True):
        assert found.converged
        check_same(bag, found, theirs)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 9999), sizes=st.lists(st.integers(1, 60), min_size=1, max_size=6), shared=st.booleans())
def test_many_bags_at_once_are_one_by_one_to_the_bit(seed: int, sizes: list[int], shared: bool) -> None:
    whole = problem(seed, 80, evidence=seed % 2 == 0)
    rng = np.random.default_rng(seed)
    grams = (gram(whole.queries), gram(whole.passages)) if shared else None
    bags = []
    for size in sizes:
        rows = rng.choice(80, size=size)
        names = ("query", "passage", "label", "weight", "evidence", "evidence_root")
        columns = {name: value[rows] for name in names if (value := getattr(whole, name)) is not None}
        bags.append(replace(whole, **columns, grams=grams, tol=float(rng.choice([1e-3, 1e-5]))))
    for found, posed in zip(solve_working_set_many(bags, 8), bags, strict=True):
        alone = solve_working_set(posed, 8)
        check_same(posed, found, alone, atol=0 if shared else 2e-4)
        if shared:
            np.testing.assert_array_equal(found.coef, alone.coef)
            assert (found.intercept, found.n_iter, found.converged) == (alone.intercept, alone.n_iter, alone.converged)


def test_bags_are_solved_together_only_where_they_share_and_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = []
    solved = working_set._solved

    def spied(bags, q):
        groups.append(len(bags))
        return solved(bags, q)

    monkeypatch.setattr(working_set, "_solved", spied)
    a = problem(0, 40)
    other = problem(1, 40)
    solve_working_set_many([a, a, replace(a, epsilon=0.2), other, other, problem(2, 40, evidence=True)], 8)
    assert groups == [2, 1, 2, 1]
    groups.clear()
    solve_working_set_many([replace(a, memory_budget=5000)] * 4, 8)
    assert len(groups) > 1
    assert sum(groups) == 4
    assert SOLVERS["working-set"].many is solve_working_set_many  # type: ignore[attr-defined]
    duals = SOLVERS["product"].many([a, other])  # type: ignore[attr-defined]
    np.testing.assert_array_equal(duals[1].coef, SOLVERS["product"](other).coef)


def test_a_batch_that_does_not_fit_is_solved_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    posed = problem(0, 40)
    expected = solve_working_set(posed, 8)

    class Scarce(working_set._Solution):
        def __init__(self, bags, *args) -> None:
            if len(bags) > 1:
                raise MemoryError("no room")
            super().__init__(bags, *args)

    monkeypatch.setattr(working_set, "_Solution", Scarce)
    for dual in solve_working_set_many([posed] * 3, 8):
        np.testing.assert_array_equal(dual.coef, expected.coef)


def test_steps_have_a_limit() -> None:
    posed = problem(0, 80, max_iter=7)
    with pytest.warns(ConvergenceWarning, match="stopped after 7 steps with a violation of"):
        dual = solve_working_set(posed, 8)
    assert not dual.converged
    assert dual.n_iter == 7
    for wrong in (0, 2, 48, 2048):
        with pytest.raises(InputError, match=f"power of two from 4 to 1,024, found {wrong}"):
            solve_working_set(posed, wrong)


def test_residuals_that_drifted_are_taken_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """An update that errs a little each time: without the refresh the result would be off by much more."""
    posed = problem(5, 80, tol=1e-3)
    expected = solve_working_set(posed, 8)
    calls = []

    def erring(*arguments):
        update(*arguments)
        calls.append(0)
        if len(calls) < 20:
            arguments[-3][::2] += 0.01

    update = subproblem.update
    monkeypatch.setattr(subproblem, "update", erring)
    check_same(posed, solve_working_set(posed, 8), expected, atol=4e-3)


def test_the_choice_of_a_working_set() -> None:
    """Half of the free places each way, ties to the lower row, what was added last kept; done bags have none."""
    gain = np.array([5, 1, 7, 7, 7, 2, -1e30, 0, 0, 0], np.float32)
    cost = np.array([9, 0, 8, 8, 8, 1, -3, 1, 1, 1e30], np.float32)
    offsets, tol, limit = np.array([0, 10]), np.full(1, 1e-3, np.float32), np.full(1, 1e6)
    working, size, kept = np.zeros((1, 4), np.int32), np.zeros(1, np.int32), np.zeros(1, np.int32)
    report = np.zeros((1, 2))

    def chosen() -> list[int]:
        subproblem.choose(gain, cost, offsets, tol, limit, working, size, kept, report)
        return working[0, : size[0]].tolist()

    assert chosen() == [2, 3, 1, 6]
    assert report[0, 0] == 10
    assert chosen() == [2, 1, 3, 6]  # every second of the last four, then one each way
    assert chosen() == [3, 6, 2, 1]
    report[0, 1] = 1e6
    assert chosen() == []
