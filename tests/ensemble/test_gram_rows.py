"""The cache of Gram matrix rows, compared with the whole matrix."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.problems import matrix_of, points, rbf

from haybale.ensemble import gram_rows as module
from haybale.ensemble.gram_rows import GramRows
from haybale.ensemble.kernel import Points


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 999),
    n=st.integers(1, 70),
    room=st.sampled_from([6, 20, 70]),
    kind=st.sampled_from(["dense", "sparse", "both"]),
)
def test_cached_rows_are_rows_of_the_matrix(seed: int, n: int, room: int, kind: str) -> None:
    with pytest.MonkeyPatch.context() as patch:  # several tiles
        patch.setattr(module, "TILE", 16)
        patch.setattr(module, "_MAX_COLUMNS_PER_TASK", 32)
        check_cached_rows(seed, n, room, kind)


def check_cached_rows(seed: int, n: int, room: int, kind: str) -> None:
    of, rng = points(seed, n, kind=kind), np.random.default_rng(seed)
    expected, rows = rbf(matrix_of(of), matrix_of(of)), GramRows(of, room, threads=2)
    for _ in range(rng.integers(9)):
        numbers = rng.permutation(n)[: rng.integers(1, min(n, room) + 1)]
        rows.hold(numbers)
        np.testing.assert_allclose(rows.values[rows.slot[numbers]], expected[numbers], atol=1e-6)
        there = np.flatnonzero(rows.slot >= 0)
        assert len(np.unique(rows.slot[there])) == len(there) <= len(rows.values) == min(n, room)
        np.testing.assert_allclose(rows.values[rows.slot[there]], expected[there], atol=1e-6)
    if room >= n:
        rows.hold_all()
        np.testing.assert_allclose(rows.values[rows.slot], expected, atol=1e-6)


def test_products_are_not_computed_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Computing all rows block by block takes little more than half of all products; the others are copied."""
    of, products, kernel_tile = points(0, 2000), [], module.kernel_tile

    def counted(a: Points, b: Points) -> np.ndarray:
        products.append(len(a) * len(b))
        return np.asarray(kernel_tile(a, b))

    monkeypatch.setattr(module, "kernel_tile", counted)
    rows, order = GramRows(of, 2000, threads=2), np.random.default_rng(0).permutation(2000)
    for start in range(0, 2000, 100):
        rows.hold(order[start : start + 100])
        rows.hold(order[start : start + 50])
    assert 0.5 * 2000**2 < sum(products) < 0.65 * 2000**2
    products.clear()
    rows = GramRows(of, 2000, threads=2)
    rows.hold(order[:500])
    rows.hold_all()
    assert 0.5 * 2000**2 < sum(products) < 0.75 * 2000**2
