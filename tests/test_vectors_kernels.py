"""The kernels of vectors.cu on the CPU, compared with NumPy, for several numbers and orders of threads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cuda_on_cpu import kernels_of

import haybale
from haybale.device import device_of
from haybale.device_vectors import scaled_vectors, squared_row_lengths, take_rows, weighted_sums
from haybale.errors import VectorError
from haybale.vectors import check_vectors

SOURCE = Path(haybale.__file__).with_name("vectors.cu")
LAUNCHES = st.tuples(st.sampled_from([1, 32, 96]), st.integers(0, 3))  # threads of a block, and their order
SIZES = st.integers(1, 40)
FLOATS = st.sampled_from([np.float32, np.float64])
SEEDS = st.integers(0, 2**32 - 1)


@settings(max_examples=40)
@given(SIZES, SIZES, SEEDS, st.sampled_from([np.float32, np.float16]), LAUNCHES)
def test_squared_lengths(n: int, d: int, seed: int, dtype: Any, launch: tuple[int, int]) -> None:
    """Integers make sums exact; all float16 values are read, also subnormal ones, infinity and NaN."""
    rng, (threads, order) = np.random.default_rng(seed), launch
    vectors = rng.integers(-20, 21, size=(n, d)).astype(dtype)
    out = np.zeros(n, dtype=np.float32)
    bits = vectors.view(np.uint16) if dtype == np.float16 else vectors
    name = f"square_rows_{vectors.dtype}"
    kernels_of(SOURCE).launch(name, [n], [threads], [bits, np.int64(d), out], 4 * threads, order)
    np.testing.assert_array_equal(out, np.square(vectors.astype(np.float32)).sum(axis=1))


def test_every_float16_is_read() -> None:
    bits = np.arange(2**16, dtype=np.uint16)
    out = np.zeros(2**16, dtype=np.float32)
    kernels_of(SOURCE).launch("square_rows_float16", [2**16], [1], [bits[:, None].copy(), np.int64(1), out], 4)
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(out, np.square(bits.view(np.float16).astype(np.float32)))


@settings(max_examples=40)
@given(SIZES, SIZES, st.integers(1, 50), st.integers(1, 3), st.sampled_from([1, 2]), SEEDS, FLOATS, LAUNCHES)
def test_weighted_sums_of_columns(
    n: int, d: int, parts: int, blocks: int, power: int, seed: int, dtype: Any, launch: tuple[int, int]
) -> None:
    """Every row is in exactly one part, whatever their numbers."""
    rng, (threads, order) = np.random.default_rng(seed), launch
    vectors, share = rng.integers(-9, 10, size=(n, d)).astype(dtype), rng.integers(0, 5, n).astype(np.float64)
    centre, out = rng.integers(-2, 3, d).astype(np.float64), np.zeros((parts, d))
    sizes = np.int32(power), np.int64(n), np.int64(d), np.int32(parts), np.int32(blocks)
    arrays = [vectors, share, centre, *sizes, out]
    kernels_of(SOURCE).launch(f"sum_columns_{vectors.dtype}", [parts * blocks], [threads], arrays, order=order)
    np.testing.assert_array_equal(out.sum(axis=0), share @ (vectors - centre) ** power)


@settings(max_examples=40)
@given(SIZES, SIZES, st.booleans(), FLOATS, SEEDS, LAUNCHES)
def test_scaled_vectors(n: int, d: int, one: bool, dtype: Any, seed: int, launch: tuple[int, int]) -> None:
    rng, (threads, order) = np.random.default_rng(seed), launch
    vectors, shift = rng.normal(size=(n, d)).astype(np.float32), rng.normal(size=d).astype(dtype)
    factor, out = rng.random(1 if one else d).astype(dtype), np.zeros((n, d), dtype=dtype)
    arrays = [vectors.astype(dtype), shift, factor, np.int32(len(factor)), np.int64(d), np.int64(n * d), out]
    kernels_of(SOURCE).launch(f"scale_{shift.dtype}", [3], [threads], arrays, order=order)
    np.testing.assert_array_equal(out, (vectors.astype(dtype) - shift) * factor)


@settings(max_examples=40)
@given(SIZES, SIZES, SIZES, FLOATS, SEEDS, LAUNCHES)
def test_taken_rows(n: int, d: int, n_rows: int, dtype: Any, seed: int, launch: tuple[int, int]) -> None:
    rng, (threads, order) = np.random.default_rng(seed), launch
    vectors, rows = rng.normal(size=(n, d)).astype(dtype), rng.integers(0, n, n_rows)
    out = np.zeros((n_rows, d), dtype=dtype)
    arrays = [vectors, rows, np.int64(d), out]
    kernels_of(SOURCE).launch(f"take_rows_{vectors.dtype}", [n_rows], [threads], arrays, order=order)
    np.testing.assert_array_equal(out, vectors[rows])


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (5, 4)])
def test_matrices_without_rows_or_columns_on_a_device(cupy_double: Any, shape: tuple[int, int]) -> None:
    host = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    vectors, (n, d) = cupy_double.asarray(host), shape
    np.testing.assert_array_equal(squared_row_lengths(vectors).get(), np.square(host).sum(axis=1))
    np.testing.assert_array_equal(
        weighted_sums(device_of(vectors), vectors, np.ones(n), np.zeros(d), 1), host.sum(axis=0)
    )
    np.testing.assert_array_equal(take_rows(vectors, np.arange(n)[::2]).get(), host[::2])
    scaled = scaled_vectors(vectors[:, ::-1], np.ones(d, dtype=np.float32), np.array(2.0, dtype=np.float32))
    np.testing.assert_array_equal(scaled.get(), (host[:, ::-1] - 1) * 2)


def test_values_that_are_not_finite_are_found_on_a_device(cupy_double: Any) -> None:
    host = np.ones((4, 3), dtype=np.float32)
    host[2, 1] = np.nan
    with pytest.raises(VectorError, match="row 2"):
        check_vectors(cupy_double.asarray(host), "queries")
