"""Halves, kernels, scalings and problems on a device, against NumPy."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from cupy_double import OutOfMemoryError
from halves import CUDA, half, little_memory, scarce
from scipy import sparse

from haybale.device import CPU, device_of, to_numpy
from haybale.ensemble import gram as gram_module
from haybale.ensemble.gram import gram, kernel_tile
from haybale.ensemble.half import Half
from haybale.ensemble.problem import Problem
from haybale.ensemble.spaces import check_spaces, fit_spaces
from haybale.errors import DeviceError, InputError

# halves and their kernels ---------------------------------------------------------------------------------


def test_kernel_tiles_are_those_of_numpy(cupy: Any) -> None:
    a, b = half(0, 30), half(1, 20)
    there = a.to(CUDA), b.to(CUDA)
    found = kernel_tile(*there)
    assert isinstance(found, cupy.ndarray)
    assert found.dtype == np.float32
    np.testing.assert_allclose(to_numpy(found), kernel_tile(a, b), rtol=1e-5)
    np.testing.assert_allclose(to_numpy(there[0].norms), a.norms, rtol=1e-6)
    rows = np.array([4, 1, 4])
    for chosen in (rows, cupy.asarray(rows), slice(2, 9)):
        np.testing.assert_array_equal(
            to_numpy(there[0].take(chosen).dense),
            a.dense[to_numpy(chosen)] if not isinstance(chosen, slice) else a.dense[chosen],
        )
    assert there[0].to(CUDA) is there[0]
    assert a.to_numpy() is a.to(CPU) is a
    np.testing.assert_array_equal(there[0].to_numpy().dense, a.dense)
    # Without features all rows are the same; far apart, the kernel is nothing, and never above 1.
    np.testing.assert_array_equal(to_numpy(kernel_tile(half(0, 3, 0).to(CUDA), half(0, 2, 0).to(CUDA))), 1)
    same = Half(cupy.asarray(np.full((4, 3), 1e3 + 1 / 3, dtype=np.float32)))
    assert to_numpy(kernel_tile(same, same)).max() <= 1
    assert float(kernel_tile(same, Half(-same.dense)).max()) == 0


def test_halves_that_cannot_meet_are_refused(cupy: Any) -> None:
    wide = sparse.identity(3, format="csr", dtype=np.float32)
    here, there = half(0, 3), half(0, 3).to(CUDA)
    with pytest.raises(DeviceError, match=r"a half on cpu meets one on cuda:0; move one with Half\.to"):
        kernel_tile(here, there)
    with pytest.raises(DeviceError, match=r"sparse matrix stays on the CPU.*give device='cpu', or dense spaces only"):
        Half(there.dense, wide)
    with pytest.raises(DeviceError, match="cannot be used beside vectors on cuda:0"):
        Half(None, wide).to(CUDA)
    with pytest.raises(DeviceError, match="queries on cpu meet passages on cuda:0"):
        problem(None, there=there)


@pytest.mark.parametrize("memory", [1e9, 4000])
def test_gram_matrices(cupy: Any, monkeypatch: pytest.MonkeyPatch, memory: float) -> None:
    """Equal to NumPy's, symmetric to the bit, ones on the diagonal; in one tile and in many."""
    little_memory(monkeypatch, memory)
    of = half(2, 40)
    found = to_numpy(gram(of.to(CUDA)))
    np.testing.assert_allclose(found, gram(of), rtol=1e-5)
    np.testing.assert_array_equal(found, found.T)
    np.testing.assert_array_equal(np.diag(found), 1)


def test_a_gram_matrix_in_the_tiles_that_memory_allows(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    of = half(2, 40)
    expected = gram(of)
    asked = scarce(monkeypatch, gram_module, 300)
    np.testing.assert_allclose(to_numpy(gram(of.to(CUDA))), expected, rtol=1e-5)
    assert max(asked) > 300  # it was asked for more
    scarce(monkeypatch, gram_module, 10)
    with pytest.raises(DeviceError, match="out of memory at a tile of 1 rows of a Gram matrix"):
        gram(of.to(CUDA))


def test_a_gram_matrix_that_does_not_fit_says_what_to_do(cupy_double: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def empty(*_: Any, **__: Any) -> Any:
        raise OutOfMemoryError("Out of memory allocating 6,400 bytes")

    of = half(2, 40).to(CUDA)
    monkeypatch.setattr(cupy_double, "empty", empty)
    with pytest.raises(DeviceError, match=r"a Gram matrix of 40 × 40 is .* GB; lower memory_budget"):
        gram(of)


# scalings -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("standardize", [False, True])
@pytest.mark.parametrize("memory", [1e9, 1000])
def test_scalings_are_those_of_numpy(
    cupy: Any, monkeypatch: pytest.MonkeyPatch, standardize: bool, memory: float
) -> None:
    little_memory(monkeypatch, memory)
    rng = np.random.default_rng(0)
    q, p = (rng.normal(3, 2, size=(n, 5)).astype(np.float32) for n in (12, 30))
    p[:, 2] = 7  # a constant feature
    query, passage = rng.integers(12, size=50), rng.integers(30, size=50)
    expected = fit_spaces(query, passage, [q], [p], "scale", standardize)
    found = fit_spaces(query, passage, [cupy.asarray(q)], [cupy.asarray(p)], "scale", standardize)
    np.testing.assert_allclose(found.gamma, expected.gamma, rtol=1e-12)
    for ours, theirs in ((found.query[0], expected.query[0]), (found.passage[0], expected.passage[0])):
        assert isinstance(ours.shift, np.ndarray)
        np.testing.assert_allclose(ours.shift, theirs.shift, rtol=1e-6)
        np.testing.assert_allclose(ours.factor, theirs.factor, rtol=1e-6)
    there = found.passages([cupy.asarray(p)])
    assert isinstance(there.dense, cupy.ndarray)
    np.testing.assert_allclose(to_numpy(there.dense), expected.passages([p]).dense, rtol=1e-5, atol=1e-5)


def test_spaces_side_by_side(cupy: Any) -> None:
    rng = np.random.default_rng(0)
    spaces = [rng.normal(size=(9, d)).astype(np.float32) for d in (3, 4)]
    rows = np.arange(9)
    there = [cupy.asarray(matrix) for matrix in spaces]
    expected = fit_spaces(rows, rows, spaces, spaces, [1.0, (2.0, 3.0)]).queries(spaces).dense
    found = fit_spaces(rows, rows, there, there, [1.0, (2.0, 3.0)]).queries(there).dense
    np.testing.assert_allclose(to_numpy(found), expected, rtol=1e-5, atol=1e-6)
    assert device_of(check_spaces(spaces, "queries", where=CUDA)[1]) == CUDA
    assert device_of(check_spaces(there, "queries")[1]) == CUDA
    with pytest.raises(DeviceError, match="queries, space 0 are on cuda:0"):
        check_spaces(there, "queries", where=CPU)
    with pytest.raises(InputError, match="queries, space 1: row 2 has NaN"):
        check_spaces([there[0], cupy.where(cupy.asarray(rows)[:, None] == 2, np.float32(np.nan), there[1])], "queries")


# problems -------------------------------------------------------------------------------------------------


def problem(kind: str | None, n: int = 60, there: Half | None = None) -> Problem:
    rng = np.random.default_rng(1)
    more: dict[str, Any] = {}
    if kind == "evidence":
        root = np.where(rng.random(n) < 0.3, 0, 0.7).astype(np.float32)
        more = {"evidence": rng.normal(size=(n, 2)).astype(np.float32), "evidence_root": root}
    if kind == "interactions":
        more = {"interactions": 0.3 * rng.normal(size=(n, 4)).astype(np.float32)}
    return Problem(
        queries=half(1, 8),
        passages=half(2, 25) if there is None else there,
        query=rng.integers(8, size=n),
        passage=rng.integers(25 if there is None else len(there), size=n),
        label=rng.integers(2, size=n).astype(np.float64),
        weight=np.ones(n),
        **more,
    )


@pytest.mark.parametrize("kind", [None, "evidence", "interactions"])
@pytest.mark.parametrize("memory", [1e9, 5000])
def test_kernel_rows_of_a_problem(cupy: Any, monkeypatch: pytest.MonkeyPatch, kind: str | None, memory: float) -> None:
    here = problem(kind)
    there = replace(here, queries=here.queries.to(CUDA), passages=here.passages.to(CUDA))
    shared = replace(there, grams=(gram(there.queries), gram(there.passages)))
    little_memory(monkeypatch, memory)
    for rows in (slice(None), np.array([5, 0, 7]), slice(3, 40)):
        for one in (there, shared):
            found = one.gram(rows)
            assert isinstance(found, cupy.ndarray)
            np.testing.assert_allclose(to_numpy(found), here.gram(rows), rtol=2e-5)
    np.testing.assert_array_equal(shared.to_numpy().queries.dense, here.queries.dense)
    assert isinstance(shared.to_numpy().grams[1], np.ndarray)
    assert here.to_numpy() is here
    if kind != "evidence":
        np.testing.assert_array_equal(to_numpy(there.features()), here.features())
