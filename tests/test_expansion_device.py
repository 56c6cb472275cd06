"""Expansions over support rows on a device, against NumPy; in tiles of any size, and where memory runs out."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from halves import CUDA, half, little_memory, scarce
from hypothesis import given, settings
from hypothesis import strategies as st

from haybale.device import CPU, to_numpy
from haybale.ensemble import device_expansion
from haybale.ensemble.expansion import Group
from haybale.ensemble.support import Pairs, Support
from haybale.errors import DeviceError


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 9999), n=st.integers(0, 40), edges=st.lists(st.integers(0, 6), max_size=3))
def test_coefficients_of_tiles_are_the_matrix(seed: int, n: int, edges: list[int]) -> None:
    """Rows that repeat are added up, and tiles side by side are the whole."""
    rng = np.random.default_rng(seed)
    query, passage, coef = rng.integers(5, size=n), np.sort(rng.integers(6, size=n)), rng.normal(size=n)
    expected = np.zeros((6, 5))
    np.add.at(expected, (passage, query), coef)
    whole = device_expansion.Coefficients.of(Group(query, passage, coef))
    found = np.zeros((6, 5))
    bounds = sorted({0, 6, *edges})
    for start, stop in pairwise(bounds):
        tile = whole.tile(start, stop)
        assert len(np.unique(tile.passage * 5 + tile.query)) == len(tile.coef)
        found[start:stop][tile.passage, tile.query] = tile.coef
    np.testing.assert_allclose(found, expected, atol=1e-6)


# expansions -----------------------------------------------------------------------------------------------


def expansion(seed: int, kind: str | None = None, n_bags: int = 4) -> tuple[Support, Pairs, np.ndarray]:
    """A random support, in which rows repeat; pairs, which repeat too; and weights of the bags for each query."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(0, 60, size=n_bags)
    n, m = int(sizes.sum()), 90
    of_rows: dict[str, Any] = {}
    of_pairs: dict[str, Any] = {}
    if kind == "evidence":
        root = np.where(rng.random(n) < 0.3, 0, 0.7).astype(np.float32)
        of_rows = {"evidence": rng.normal(size=(n, 2)).astype(np.float32), "evidence_root": root, "eta": 0.49}
        of_pairs = {"evidence": rng.normal(size=(m, 2)).astype(np.float32)}
    if kind == "interactions":
        of_rows = {"interactions": 0.3 * rng.normal(size=(n, 4)).astype(np.float32)}
        of_pairs = {"interactions": 0.3 * rng.normal(size=(m, 4)).astype(np.float32)}
    support = Support(
        queries=half(seed, 9),
        passages=half(seed + 1, 20),
        query=rng.integers(9, size=n),
        passage=rng.integers(20, size=n),
        coef=rng.normal(size=n),
        label=np.ones(n, dtype=np.float32),
        offsets=np.concatenate(([0], np.cumsum(sizes))),
        intercept=rng.normal(size=n_bags),
        **of_rows,
    )
    pairs = Pairs(half(seed + 2, 6), half(seed + 3, 30), rng.integers(6, size=m), rng.integers(30, size=m), **of_pairs)
    weights = np.where(rng.random((6, n_bags)) < 0.4, 0, rng.random((6, n_bags)))
    return support, pairs, weights


def moved(support: Support, pairs: Pairs) -> tuple[Support, Pairs]:
    return support.to(CUDA), replace(pairs, queries=pairs.queries.to(CUDA), passages=pairs.passages.to(CUDA))


@pytest.mark.parametrize("kind", [None, "evidence", "interactions"])
@pytest.mark.parametrize("memory", [1e9, 20_000, 3000, 200])
@pytest.mark.parametrize("seed", range(3))
def test_expansions_are_those_of_numpy(
    cupy: Any, monkeypatch: pytest.MonkeyPatch, kind: str | None, memory: float, seed: int
) -> None:
    little_memory(monkeypatch, memory)
    for name, most in (("_SUPPORT", 13), ("_COLUMNS", 5)):  # what is fast, not what memory allows
        monkeypatch.setattr(device_expansion, name, most)
    support, pairs, weights = expansion(seed, kind)
    there, asked = moved(support, pairs)
    assert there.device == CUDA
    for expected, found in (
        (support.mean(pairs), there.mean(asked)),
        (support.mean(pairs, weights), there.mean(asked, weights)),
        (support.bags(pairs), there.bags(asked)),
    ):
        assert isinstance(found, cupy.ndarray)
        assert found.dtype == np.float64
        np.testing.assert_allclose(to_numpy(found), expected, atol=2e-5)
    one = [replace(of, query=of.query[:1], passage=of.passage[:1]) for of in (pairs, asked)]
    if kind is None:
        np.testing.assert_allclose(there.shares(one[1]), support.shares(one[0]), atol=1e-5)
    assert support.to(CPU) is support
    np.testing.assert_array_equal(there.to(CPU).passages.dense, support.passages.dense)


def test_expansions_without_pairs_or_support(cupy: Any) -> None:
    support, pairs, _ = expansion(0)
    there, asked = moved(support, replace(pairs, query=pairs.query[:0], passage=pairs.passage[:0]))
    assert there.mean(asked).shape == (0,)
    nothing = replace(
        support,
        offsets=np.zeros(5, dtype=np.int64),
        **{name: getattr(support, name)[:0] for name in ("query", "passage", "coef", "label")},
    )
    there, asked = moved(nothing, pairs)
    np.testing.assert_allclose(to_numpy(there.bags(asked)), nothing.bags(pairs))


@pytest.mark.parametrize("kind", [None, "evidence", "interactions"])
def test_expansions_in_the_tiles_that_memory_allows(
    cupy: Any, monkeypatch: pytest.MonkeyPatch, kind: str | None
) -> None:
    """Out of memory anywhere: the tile is halved, and nothing is added twice."""
    support, pairs, weights = expansion(1, kind)
    there, asked_pairs = moved(support, pairs)
    expected = support.bags(pairs), support.mean(pairs, weights)
    room = 60 if kind is None else 1000
    asked = scarce(monkeypatch, device_expansion, room)
    np.testing.assert_allclose(to_numpy(there.bags(asked_pairs)), expected[0], atol=2e-5)
    np.testing.assert_allclose(to_numpy(there.mean(asked_pairs, weights)), expected[1], atol=2e-5)
    assert max(asked) > room
    scarce(monkeypatch, device_expansion, 2)
    with pytest.raises(DeviceError, match="out of memory"):
        there.bags(asked_pairs)
