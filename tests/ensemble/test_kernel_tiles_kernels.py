"""The kernels of kernel_tiles.cu on the CPU, compared with NumPy, for several numbers and orders of threads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cuda_on_cpu import kernels_of

import haybale.ensemble

SOURCE = Path(haybale.ensemble.__file__).with_name("kernel_tiles.cu")
LAUNCHES = st.tuples(st.sampled_from([1, 32, 96]), st.integers(0, 3))  # threads of a block, and their order
SIZES = st.integers(1, 9)
SEEDS = st.integers(0, 2**32 - 1)
DTYPES = st.sampled_from([np.float32, np.float64])


def points(rng: np.random.Generator, n: int, scale: float) -> Any:
    """Return vectors (n, 3) of which some are equal, so that rounding makes some squared distances negative."""
    return (rng.normal(size=(n, 3)) * scale).astype(np.float32)[rng.integers(0, n, n)]


def values_of(a: Any, b: Any) -> tuple[Any, Any, Any, Any]:
    """Return products, both squared lengths, and the kernel in float64 of the rounded exponents."""
    products, norms = a @ b.T, [np.square(side).sum(axis=1, dtype=np.float32) for side in (a, b)]
    exponent = np.float32(2) * products - norms[0][:, None] - norms[1][None]
    return products, *norms, np.exp(np.minimum(exponent, 0).astype(np.float64))


@settings(max_examples=40)
@given(SIZES, SIZES, SEEDS, st.sampled_from([1e-3, 1.0, 30.0]), st.integers(1, 3), LAUNCHES)
def test_values_of_a_tile(n: int, m: int, seed: int, scale: float, parts: int, launch: tuple[int, int]) -> None:
    rng, (threads, order) = np.random.default_rng(seed), launch
    tile, norms_a, norms_b, expected = values_of(points(rng, n, scale), points(rng, m, scale))
    arrays = [tile, norms_a, norms_b, np.int64(m), np.int32(parts)]
    kernels_of(SOURCE).launch("exp_tile", [n * parts], [threads], arrays, order=order)
    assert tile.max() <= 1
    np.testing.assert_allclose(tile, expected, rtol=3e-7, atol=1e-38)


@settings(max_examples=20)
@given(st.integers(1, 80), st.integers(1, 80), SEEDS, LAUNCHES)
def test_a_gram_matrix_of_tiles(n: int, step: int, seed: int, launch: tuple[int, int]) -> None:
    """Tiles of any size fill the whole matrix, which is symmetric and has 1 on its diagonal."""
    rng, (threads, order) = np.random.default_rng(seed), launch
    vectors = points(rng, n, 1.0)
    products, norms, _, expected = values_of(vectors, vectors)
    out = np.full((n, n), np.nan, dtype=np.float32)
    for i in range(0, n, step):
        for j in range(0, i + 1, step):
            tile = np.ascontiguousarray(products[i : i + step, j : j + step])
            sizes = np.int32(tile.shape[0]), np.int32(tile.shape[1]), np.int64(i), np.int64(j), np.int64(n)
            arrays = [tile, norms[i : i + step].copy(), norms[j : j + step].copy(), *sizes, out]
            blocks = -(-tile.shape[0] // 32) * -(-tile.shape[1] // 32)
            kernels_of(SOURCE).launch("write_gram", [blocks], [threads], arrays, 4 * 32 * 33, order)
    np.testing.assert_array_equal(out, out.T)
    np.testing.assert_array_equal(np.diag(out), 1)
    lower = np.tril(expected, -1)  # BLAS may sum the two products of a pair differently
    np.testing.assert_allclose(out, lower + lower.T + np.eye(n), rtol=3e-7)


@settings(max_examples=40)
@given(SIZES, SIZES, SIZES, SIZES, SEEDS, DTYPES, st.integers(1, 3), LAUNCHES)
def test_gathered_products(
    rows: int, n: int, n_queries: int, n_passages: int, seed: int, dtype: Any, parts: int, launch: tuple[int, int]
) -> None:
    rng, (threads, order) = np.random.default_rng(seed), launch
    kq, kp = rng.random((n_queries, n_queries)).astype(dtype), rng.random((n_passages, n_passages)).astype(dtype)
    query_rows, query = (rng.integers(0, n_queries, size).astype(np.int32) for size in (rows, n))
    passage_rows, passage = (rng.integers(0, n_passages, size).astype(np.int32) for size in (rows, n))
    out, sizes = np.zeros((rows, n), dtype=dtype), (np.int64(n_queries), np.int64(n_passages), np.int64(n))
    arrays = [kq, kp, query_rows, passage_rows, query, passage, *sizes, np.int32(parts), out]
    name = f"gather_products_{kq.dtype}"
    kernels_of(SOURCE).launch(name, [rows * parts], [threads], arrays, order=order)
    np.testing.assert_array_equal(out, kq[query_rows][:, query] * kp[passage_rows][:, passage])


@settings(max_examples=40)
@given(SIZES, SIZES, SIZES, st.integers(0, 4), SEEDS, DTYPES, st.booleans(), LAUNCHES)
def test_weights_and_sums_of_pairs(
    m: int, n_support: int, n_columns: int, n_bags: int, seed: int, dtype: Any, whole: bool, launch: tuple[int, int]
) -> None:
    """W is summed over the rows of each column, also of columns without rows; pairs add its products with Kp."""
    rng, (threads, order), kernels = np.random.default_rng(seed), launch, kernels_of(SOURCE)
    kq, n_rows = rng.random((m, n_support)).astype(dtype), int(rng.integers(0, 20))
    column = np.sort(rng.integers(0, n_columns, n_rows))
    query, bag = rng.integers(0, n_support, n_rows).astype(np.int32), rng.integers(0, max(1, n_bags), n_rows)
    coef, weights = rng.normal(size=n_rows), rng.random((m, n_bags))
    width = n_columns + 2 * whole
    targets = np.sort(rng.choice(width, n_columns, replace=False)).astype(np.int32)
    starts = np.searchsorted(column, np.arange(n_columns + 1)).astype(np.int32)
    w = np.zeros((m, width), dtype=dtype)
    arrays = [kq, np.int64(n_support), query, coef, bag.astype(np.int32), weights, np.int32(n_bags), starts, targets]
    sizes = np.int32(n_columns), np.int64(width)
    kernels.launch(f"sum_weights_{kq.dtype}", [m], [threads], [*arrays, *sizes, w], order=order)
    expected = np.zeros((m, width))
    for row in range(n_rows):
        share = weights[:, bag[row]] if n_bags else 1.0
        expected[:, targets[column[row]]] += coef[row] * share * kq[:, query[row]]
    np.testing.assert_allclose(w, expected, rtol=1e-6, atol=1e-6)

    n_pairs, n_passages = int(rng.integers(1, 6)), 4
    kp = rng.random((n_passages, width + 1)).astype(dtype)
    columns = rng.permutation(width + 1)[:width].astype(np.int32)
    passage, of_query = (rng.integers(0, n, n_pairs).astype(np.int32) for n in (n_passages, m))
    out = rng.random(n_pairs)
    products = (kp[passage][:, columns].astype(np.float64) * w[of_query].astype(np.float64)).sum(axis=1)
    expected_sums = out + products
    arrays = [kp, np.int64(width + 1), columns, np.int32(width), w, passage, of_query, out]
    kernels.launch(f"add_pair_sums_{kp.dtype}", [n_pairs], [threads], arrays, 8 * threads, order)
    np.testing.assert_allclose(out, expected_sums, rtol=1e-12, atol=1e-12)


@settings(max_examples=30)
@given(
    SIZES, st.integers(1, 40), st.integers(1, 40), SEEDS, st.sampled_from([1e-3, 1.0, 1e3]), st.integers(1, 3), LAUNCHES
)
def test_squared_distances_in_double_precision(
    n: int, m: int, width: int, seed: int, scale: float, blocks: int, launch: tuple[int, int]
) -> None:
    """Distances are added to what is there, and those of equal rows are exactly 0."""
    rng, (threads, order) = np.random.default_rng(seed), launch
    a, b = (rng.normal(size=(size, width)) * scale for size in (n, m))
    b[0] = a[0]
    out = np.full((n, m), 0.5)
    sizes = np.int32(n), np.int64(m), np.int32(width)
    kernels_of(SOURCE).launch("add_squared_differences", [blocks], [threads], [a, b, *sizes, out], order=order)
    np.testing.assert_allclose(out, 0.5 + np.square(a[:, None] - b[None]).sum(axis=2), rtol=1e-13)
    assert out[0, 0] == 0.5
    expected = np.exp(-out)
    kernels_of(SOURCE).launch("exp_of_negative", [blocks], [threads], [out, np.int64(out.size)], order=order)
    np.testing.assert_allclose(out, expected, rtol=1e-15)
