"""Products on tensor cores stay within their bounds, however a tensor core rounds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.cublas_double import as_tf32
from support.cuda_on_cpu import kernels_of
from support.cupy_double import installed

import haybale
from haybale import device_products
from haybale.device_products import float32_error, float32_product, tf32_error, tf32_product, underflow_error

KERNELS = Path(haybale.__file__).with_name("device_products.cu")
SIZES = st.tuples(st.integers(1, 9), st.integers(1, 40), st.integers(1, 70))


def matrices(sizes: tuple[int, int, int], seed: int, exponents: int) -> list[np.ndarray]:
    """Return (m, d) and (n, d) matrices with magnitudes from 2^-exponents to 2^exponents."""
    m, n, width = sizes
    rng = np.random.default_rng(seed)
    shapes = (m, width), (n, width)
    return [(rng.normal(size=s) * 2.0 ** rng.integers(-exponents, exponents + 1, size=s)).astype("f4") for s in shapes]


def excess(out: np.ndarray, left: np.ndarray, right: np.ndarray, error: float, times: int) -> float:
    """Return the largest ratio of an error to its bound."""
    left, right = left.astype(np.float64), right.astype(np.float64)
    lengths = [np.sqrt((matrix**2).sum(axis=1)) for matrix in (left, right)]
    bound = error * np.outer(*lengths) + times * underflow_error(left.shape[1], *(each.max() for each in lengths))
    return float((np.abs(out - left @ right.T) / bound).max())


@given(sizes=SIZES, seed=st.integers(0, 2**32 - 1), exponents=st.sampled_from([0, 3, 30, 60, 126]))
def test_errors_stay_within_the_bounds(sizes: Any, seed: int, exponents: int) -> None:
    left, right = matrices(sizes, seed, min(exponents, 60))
    if exponents == 126:  # inputs and their low parts underflow
        left, right = left * np.float32(2.0**-60), right * np.float32(2.0**-60)
    with installed() as cupy:
        arrays = cupy.asarray(left), cupy.asarray(right)
        coarse, fine = tf32_product(*arrays).get(), float32_product(*arrays).get()
    assert excess(coarse, left, right, tf32_error(sizes[2]), 1) <= 1
    assert excess(fine, left, right, float32_error(sizes[2]), 3) <= 1


def test_the_stand_in_is_coarse(cupy_double: Any) -> None:
    """The bounds are tested by errors near them: above half of the bound, and above the bound of float32."""
    value = np.float32(1 + 2.0**-10 - 2.0**-23)
    left, right = np.full((2, 8), value), np.full((3, 8), value)
    out = tf32_product(cupy_double.asarray(left), cupy_double.asarray(right)).get()
    assert excess(out, left, right, tf32_error(8), 1) > 0.9
    assert excess(out, left, right, float32_error(8), 1) > 100


def test_parts_of_larger_matrices(cupy_double: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    left, right = matrices((7, 11, 6), 0, 1)
    expected = [product(*map(cupy_double.asarray, (left, right))).get() for product in (tf32_product, float32_product)]
    wide = [cupy_double.asarray(np.hstack([matrix[:, :2], matrix])) for matrix in (left, right)]
    monkeypatch.setattr(device_products, "_VALUES_PER_BLOCK", 24)
    for product, values in zip((tf32_product, float32_product), expected, strict=True):
        out = cupy_double.full((9, 14), 7, dtype=np.float32)
        product(wide[0][:, 2:], wide[1][:, 2:], out[1:8, 2:13])
        np.testing.assert_allclose(out.get()[1:8, 2:13], values, rtol=1e-2, atol=1e-2)
        assert (out.get()[[0, 8]] == 7).all()
        assert (out.get()[:, [0, 1, 13]] == 7).all()


def test_empty_matrices(cupy_double: Any) -> None:
    for product in (tf32_product, float32_product):
        for m, n, width in ((0, 3, 4), (3, 0, 4), (3, 4, 0)):
            zeros = [cupy_double.zeros((rows, width), dtype=np.float32) for rows in (m, n)]
            np.testing.assert_array_equal(product(*zeros).get(), np.zeros((m, n)))


def test_other_arrays_are_refused(cupy_double: Any) -> None:
    left, right = (cupy_double.ones(shape, dtype=np.float32) for shape in ((2, 3), (4, 3)))
    for arrays in ((left, right[:, :2]), (left, right[:, ::2]), (left, right, left), (left.T, right.T)):
        with pytest.raises(ValueError, match="expected"):
            tf32_product(*arrays)
    with pytest.raises(TypeError, match="float64"):
        tf32_product(left, right.astype(np.float64))


@pytest.mark.parametrize("threads", [1, 32])
@given(sizes=SIZES, seed=st.integers(0, 2**32 - 1))
def test_splitting_kernel(threads: int, sizes: tuple[int, int, int], seed: int) -> None:
    values = matrices(sizes, seed, 30)[1]
    rows, width = values.shape
    padded = -(-width // 4) * 4
    high, low = (np.full((rows, padded), np.nan, dtype=np.float32) for _ in range(2))
    shape = np.int32(rows), np.int32(width), np.int32(padded)
    kernels_of(KERNELS).launch("split_for_tf32", [3], [threads], [values, *shape, high, low])
    for part in (high, low):
        np.testing.assert_array_equal(as_tf32(part), part)  # TF32 holds it
        assert not part[:, width:].any()
    whole = values.astype(np.float64)
    assert (np.abs(whole - high[:, :width]) <= 2.0**-11 * np.abs(whole)).all()
    assert (np.abs(whole - high[:, :width] - low[:, :width]) <= 2.0**-23 * np.abs(whole)).all()
