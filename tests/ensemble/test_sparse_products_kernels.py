"""The kernels of sparse_products.cu on the CPU, compared with SciPy, for several numbers and orders of threads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from support.cuda_on_cpu import kernels_of

import haybale.ensemble
from haybale.ensemble import device_sparse

SOURCE = Path(haybale.ensemble.__file__).with_name("sparse_products.cu")
LAUNCHES = st.tuples(st.sampled_from([1, 32, 64]), st.integers(0, 3))  # threads of a block, and their order
SIZES = st.integers(1, 9)
SEEDS = st.integers(0, 2**32 - 1)
DTYPES = st.sampled_from([np.float32, np.float64])


def random_rows(rng: np.random.Generator, n: int, d: int, dtype: Any) -> sparse.csr_matrix:
    """Return small integers, so that sums do not depend on their order; some rows are empty, and some are equal."""
    values = rng.integers(-3, 4, size=(n, d)) * (rng.random((n, 1)) < 0.8)
    matrix = sparse.csr_matrix(values[rng.integers(0, n, n)].astype(dtype))
    matrix.indices, matrix.indptr = matrix.indices.astype(np.int32), matrix.indptr.astype(np.int32)
    return matrix


def terms_of(matrix: sparse.csr_matrix, threads: int, order: int) -> tuple[Any, Any, Any]:
    """Return the vectors by term, as the kernels list them."""
    kernels, counts = kernels_of(SOURCE), np.zeros(matrix.shape[1], dtype=np.int32)
    kernels.launch("count_terms", [3], [threads], [matrix.indices, np.int64(matrix.nnz), counts], order=order)
    starts = np.concatenate(([0], np.cumsum(counts))).astype(np.int32)
    vectors, weights, following = np.zeros_like(matrix.indices), np.zeros_like(matrix.data), starts[:-1].copy()
    arrays = [matrix.indptr, matrix.indices, matrix.data, following, vectors, weights]
    kernels.launch(f"list_terms_{matrix.dtype}", [matrix.shape[0]], [threads], arrays, order=order)
    np.testing.assert_array_equal(following, starts[1:])
    return starts, vectors, weights


@settings(max_examples=40)
@given(SIZES, SIZES, SIZES, SEEDS, DTYPES, LAUNCHES)
def test_products_by_term(n: int, m: int, d: int, seed: int, dtype: Any, launch: tuple[int, int]) -> None:
    rng, (threads, order) = np.random.default_rng(seed), launch
    a, b = random_rows(rng, n, d, dtype), random_rows(rng, m, d, dtype)
    starts, vectors, weights = terms_of(b, threads, order)
    listed = sparse.csc_matrix((weights, vectors, starts), shape=(m, d))
    np.testing.assert_array_equal(listed.toarray(), b.toarray())
    out = rng.integers(-3, 4, size=(n, m)).astype(dtype)
    expected = out + (a @ b.T).toarray()
    arrays = [a.indptr, a.indices, a.data, starts, vectors, weights, np.int64(m), out]
    kernels_of(SOURCE).launch(f"add_products_{a.dtype}", [n], [threads], arrays, order=order)
    np.testing.assert_array_equal(out, expected)


@settings(max_examples=40)
@given(SIZES, SIZES, SEEDS, DTYPES, LAUNCHES, st.data())
def test_taken_rows_and_their_lengths(
    n: int, d: int, seed: int, dtype: Any, launch: tuple[int, int], data: st.DataObject
) -> None:
    matrix, (threads, order) = random_rows(np.random.default_rng(seed), n, d, dtype), launch
    rows = np.array(data.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=12)), dtype=np.int32)
    offsets = np.concatenate(([0], np.cumsum(np.diff(matrix.indptr)[rows]))).astype(np.int32)
    terms, values = np.zeros(offsets[-1], dtype=np.int32), np.zeros(offsets[-1], dtype=dtype)
    arrays = [rows, matrix.indptr, matrix.indices, matrix.data, offsets, terms, values]
    kernels = kernels_of(SOURCE)
    kernels.launch(f"take_rows_{matrix.dtype}", [len(rows)], [threads], arrays, order=order)
    taken = sparse.csr_matrix((values, terms, offsets), shape=(len(rows), d))
    np.testing.assert_array_equal(taken.toarray(), matrix[rows].toarray())
    squares = np.full(n, np.nan, dtype=dtype)
    kernels.launch(
        f"square_rows_{matrix.dtype}", [2], [threads], [matrix.indptr, matrix.data, np.int32(n), squares], order=order
    )
    np.testing.assert_array_equal(squares, np.square(matrix.toarray()).sum(axis=1))


@settings(max_examples=40)
@given(SIZES, SIZES, SIZES, SEEDS, LAUNCHES)
def test_squared_differences_of_pairs(n: int, m: int, d: int, seed: int, launch: tuple[int, int]) -> None:
    rng, (threads, order) = np.random.default_rng(seed), launch
    a, b = random_rows(rng, n, d, np.float64), random_rows(rng, m, d, np.float64)
    chosen = rng.random((n, m)) < 0.5
    left, right = (side.astype(np.int32) for side in chosen.nonzero())
    out = np.full((n, m), -1.0)
    arrays = [left, right, np.int64(len(left)), a.indptr, a.indices, a.data, b.indptr, b.indices, b.data]
    kernels_of(SOURCE).launch("square_differences", [2], [threads], [*arrays, np.int64(m), out], order=order)
    differences = np.square(a.toarray()[:, None] - b.toarray()[None]).sum(axis=2)
    np.testing.assert_array_equal(out, np.where(chosen, differences, -1))


@pytest.mark.parametrize("shapes", [(0, 3, 4), (3, 0, 4), (2, 2, 0), (5, 7, 6)])
def test_matrices_without_rows_or_columns_on_a_device(cupy_double: Any, shapes: tuple[int, int, int]) -> None:
    n, m, d = shapes
    rng = np.random.default_rng(3)
    a, b = (sparse.csr_matrix(rng.integers(0, 3, size=(rows, d)).astype(np.float32)) for rows in (n, m))
    on_device = [haybale.device.to_device(matrix, haybale.device.Device("cuda")) for matrix in (a, b)]
    out = cupy_double.zeros((n, m), dtype=np.float32)
    device_sparse.add_products(on_device[0], device_sparse.DeviceTermColumns.of(on_device[1]), out)
    np.testing.assert_array_equal(out.get(), (a @ b.T).toarray())
    np.testing.assert_array_equal(
        device_sparse.squared_row_lengths(on_device[0]).get(), np.square(a.toarray()).sum(axis=1)
    )
    for rows in (slice(1, None), np.arange(n)[::-1]):
        np.testing.assert_array_equal(device_sparse.take_rows(on_device[0], rows).get().toarray(), a[rows].toarray())
