"""The product kernel: tiles, Gram matrices and rows on the CPU and on a device, compared with direct formulas."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.problems import CUDA, matrix_of, moved, points, random_problem, rbf

from haybale.device import CPU, Device, to_numpy
from haybale.ensemble import kernel as module
from haybale.ensemble.kernel import Points, gram, kernel_tile
from haybale.errors import DeviceError

KINDS = ["dense", "sparse", "both"]


@settings(max_examples=20, deadline=None)
@given(n=st.integers(1, 90), tile=st.sampled_from([7, 32, 1024]), seed=st.integers(0, 99), kind=st.sampled_from(KINDS))
def test_a_gram_matrix_is_exact_and_symmetric_for_all_tile_sizes(n: int, tile: int, seed: int, kind: str) -> None:
    of = points(seed, n, 5, kind)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "TILE", tile)
        found = gram(of)
    np.testing.assert_allclose(found, rbf(matrix_of(of), matrix_of(of)), atol=5e-6)
    assert (found == found.T).all()
    assert (np.diag(found) == 1).all()


@pytest.mark.parametrize("kind", KINDS)
def test_tiles_on_a_device_are_those_of_numpy(cupy: Any, kind: str) -> None:
    a, b = points(0, 30, kind=kind), points(1, 20, kind=kind)
    on_gpu = a.to(CUDA), b.to(CUDA)
    found = kernel_tile(*on_gpu)
    assert isinstance(found, cupy.ndarray)
    assert found.dtype == np.float32
    np.testing.assert_allclose(to_numpy(found), kernel_tile(a, b), rtol=1e-5)
    np.testing.assert_allclose(to_numpy(on_gpu[0].norms), a.norms, rtol=1e-5)
    for chosen in (np.array([4, 1, 4]), cupy.asarray(np.array([4, 1, 4])), slice(2, 9)):
        numbers = chosen if isinstance(chosen, slice) else to_numpy(chosen)
        np.testing.assert_array_equal(matrix_of(on_gpu[0].take(chosen).to(CPU)), matrix_of(a)[numbers])
    assert on_gpu[0].to(CUDA) is on_gpu[0]
    assert a.to(CPU) is a


def test_the_extreme_values_of_a_kernel_on_a_device(cupy: Any) -> None:
    """The kernel is 1 without features, 0 for distant points, and never above 1."""
    np.testing.assert_array_equal(to_numpy(kernel_tile(points(0, 3, 0).to(CUDA), points(0, 2, 0).to(CUDA))), 1)
    same = Points(cupy.asarray(np.full((4, 3), 1e3 + 1 / 3, dtype=np.float32)))
    assert to_numpy(kernel_tile(same, same)).max() <= 1
    assert float(kernel_tile(same, Points(-same.dense)).max()) == 0
    with pytest.raises(DeviceError, match="cpu and cuda:0"):
        kernel_tile(points(0, 3), points(0, 3).to(CUDA))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("tile", [4096, 7])
def test_gram_matrices_on_a_device(cupy: Any, monkeypatch: pytest.MonkeyPatch, tile: int, kind: str) -> None:
    """In one tile and in many, the matrix equals NumPy's, is exactly symmetric and has ones on the diagonal."""
    monkeypatch.setattr(module, "DEVICE_TILE", tile)
    of = points(2, 40, kind=kind)
    found = to_numpy(gram(of.to(CUDA)))
    np.testing.assert_allclose(found, gram(of), rtol=1e-5)
    np.testing.assert_array_equal(found, found.T)
    np.testing.assert_array_equal(np.diag(found), 1)


def test_a_gram_matrix_that_does_not_fit_names_the_remedy(cupy_double: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def empty(*_: Any, **__: Any) -> Any:
        raise MemoryError("Out of memory allocating 6,400 bytes")

    of = points(2, 40).to(CUDA)
    monkeypatch.setattr(cupy_double, "empty", empty)
    with pytest.raises(DeviceError, match=r"40 × 40 .* memory_budget"):
        gram(of)


@pytest.mark.parametrize("features", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_kernel_rows_of_a_problem(cupy: Any, features: bool, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """K = Kq·Kp + z zᵀ, and K = Kq·Kp for rows whose features are zero: all rows, some rows, and in tiles."""
    here = random_problem(1, 60, features, n_queries=8, n_passages=25, kind=kind)
    q, p = matrix_of(here.queries)[here.query], matrix_of(here.passages)[here.passage]
    expected = rbf(q, q) * rbf(p, p)
    if features:
        expected += here.features @ here.features.T
    np.testing.assert_allclose(here.diagonal, np.diag(expected), atol=1e-5)
    on_gpu = moved(here)
    for tile in (2**24, 200):
        monkeypatch.setattr("haybale.ensemble.problem._KERNEL_VALUES_PER_STEP", tile)
        for problem in (here, here.with_grams(), on_gpu, on_gpu.with_grams()):
            for rows in (slice(None), np.array([5, 0, 7]), slice(3, 40)):
                found = problem.gram(rows)
                assert isinstance(found, np.ndarray if problem.device == CPU else cupy.ndarray)
                np.testing.assert_allclose(to_numpy(found), expected[rows], atol=1e-5)
    back = on_gpu.with_grams().to_numpy()
    np.testing.assert_array_equal(matrix_of(back.queries), matrix_of(here.queries))
    assert isinstance(back.grams[1], np.ndarray)
    with pytest.raises(DeviceError, match="cpu and cuda:0"):
        replace(here, passages=on_gpu.passages)
    assert on_gpu.device == Device("cuda", 0)
