"""The kernels of rounding.cu on the CPU, and rounding on a device, which gives the bits of NumPy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cuda_on_cpu import kernels_of

import haybale.retrieval.parm
from haybale.retrieval.parm.formulas import round_for_sums

SOURCE = Path(haybale.retrieval.parm.__file__).with_name("rounding.cu")


@settings(max_examples=60)
@given(
    st.integers(1, 6),
    st.integers(1, 70),
    st.integers(0, 2**32 - 1),
    st.sampled_from([1, 32, 96]),
    st.integers(0, 3),
)
def test_rows_are_rounded(n: int, d: int, seed: int, threads: int, order: int) -> None:
    rng, kernels = np.random.default_rng(seed), kernels_of(SOURCE)
    terms = rng.normal(size=(n, d)) * 10.0 ** rng.integers(-5, 6, size=(n, d)) * (rng.random((n, d)) < 0.7)
    largest, out = np.full(n, np.nan), np.full((n, d), np.nan)
    kernels.launch("largest_of_rows", [n], [threads], [terms, np.int64(d), largest], 8 * threads, order)
    np.testing.assert_array_equal(largest, np.abs(terms).max(axis=1))
    shift = np.ldexp(3.0, rng.integers(-30, 30, n))
    kernels.launch("round_rows", [n], [threads], [terms, shift, np.int64(d), out], order=order)
    np.testing.assert_array_equal(out, (terms + shift[:, None]) - shift[:, None])


@pytest.mark.parametrize("shape", [(0, 3), (4, 0), (9, 5)])
def test_rounding_on_a_device(cupy_double: Any, shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(1)
    terms, segment = rng.normal(size=shape), np.sort(rng.integers(0, 3, shape[0]))
    count = np.bincount(segment, minlength=3) * shape[1]
    expected = round_for_sums(terms, segment, 3, count)
    np.testing.assert_array_equal(round_for_sums(cupy_double.asarray(terms), segment, 3, count).get(), expected)
