"""Dense and sparse vectors are checked and converted on their device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import sparse

from haybale import vectors
from haybale.device import CPU, device_of, to_device
from haybale.errors import VectorError
from haybale.vectors import (
    array_namespace,
    check_like,
    check_vectors,
    gather_rows,
    moved,
    row_tiles,
    squared_lengths,
)


def test_vectors_are_checked_on_their_device(cupy: Any) -> None:
    on_gpu = cupy.ones((3, 2), dtype=np.float32)
    assert check_vectors(on_gpu, "queries", dim=2) is on_gpu
    assert check_vectors(cupy.ones((3, 2)), "queries").dtype == np.float32
    with pytest.raises(VectorError, match="queries: row 1"):
        check_vectors(cupy.asarray([[1.0, 1.0], [np.nan, 1.0]]), "queries")
    with pytest.raises(VectorError, match="width 3, found 2"):
        check_vectors(on_gpu, "queries", dim=3)
    rows = sparse.identity(2, format="csr", dtype=np.float32)
    found = check_like(to_device(rows, device_of(on_gpu)), "queries", rows)
    assert found.toarray().tolist() == [[1, 0], [0, 1]]
    with pytest.raises(VectorError, match=r"queries: .* dense .* sparse"):
        check_like(to_device(rows, device_of(on_gpu)), "queries", on_gpu)
    assert array_namespace(on_gpu) is cupy
    assert array_namespace(np.ones(2)) is array_namespace([1, 2]) is np


def test_float16_vectors_are_checked_in_float32(cupy: Any) -> None:
    large = np.full((2, 600), 60000, dtype=np.float16)  # their squares exceed float16
    for array in (large, cupy.asarray(large)):
        assert check_vectors(array, "passages", dtype="float16") is array
    np.testing.assert_allclose(squared_lengths(large), 600 * large[0, 0].astype(np.float32) ** 2, rtol=1e-6)
    with pytest.raises(VectorError, match=r"row 1 .* 65504"):
        check_vectors(np.array([[1.0], [7e4]], dtype=np.float32), "passages", dtype="float16")


def test_vectors_are_converted_in_tiles(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors, "_VALUES_PER_TILE", 6)
    rows = np.random.default_rng(5).normal(size=(8, 3)).astype(np.float32)
    assert row_tiles(rows) == [(0, 2), (2, 4), (4, 6), (6, 8)]
    on_gpu = moved(rows, device_of(cupy.ones(1)), "float16")
    np.testing.assert_array_equal(cupy.asnumpy(on_gpu), rows.astype(np.float16))
    np.testing.assert_array_equal(moved(on_gpu, CPU, "float32"), rows.astype(np.float16).astype(np.float32))
    expected = (rows.astype(np.float16).astype(np.float32) ** 2).sum(axis=1)
    np.testing.assert_allclose(cupy.asnumpy(squared_lengths(on_gpu)), expected, rtol=1e-6)
    assert moved(on_gpu, device_of(on_gpu), "float16") is on_gpu


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_rows", [0, 1, 256, 257, 1000])
def test_gathered_rows_are_those_of_numpy(n_rows: int, dtype: Any) -> None:
    """Also of some columns of a matrix, and repeated."""
    rng = np.random.default_rng(0)
    matrix, rows = rng.normal(size=(300, 9)).astype(dtype), rng.integers(300, size=n_rows)
    for part in (matrix, matrix[:, 4:], matrix[:, :0]):
        for threads in (1, 3, None):
            found = gather_rows(part, rows, threads)
            assert found.dtype == dtype
            np.testing.assert_array_equal(found, part[rows])
