"""The parts of a search on a device: buffers of the best, float16 halves, the order of a row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from haybale.errors import VectorError
from haybale.retrieval.exact import half, kept
from haybale.retrieval.exact.kept import Kept, append
from haybale.retrieval.hits import _select_packed, select
from haybale.vectors import check_vectors, moved, row_tiles, squared_lengths

LEVELS = np.array([-np.inf, -1.5, -0.0, 0.0, 0.25, 1.0, 1e30], dtype=np.float32)


def best_of(scores: np.ndarray, k: int, cuts: list[int], capacity: int | None, xp: Any = np) -> tuple[Any, Any]:
    """Through buffers, in tiles that end at ``cuts``."""
    buffers = Kept(len(scores), k, xp, capacity)
    ends = [*sorted(cuts), scores.shape[1]]
    for first, end in zip([0, *ends[:-1]], ends, strict=True):
        buffers.add(xp.ascontiguousarray(xp.asarray(scores[:, first:end].copy())), first)
    return buffers.best()


def assert_best(scores: np.ndarray, k: int, numbers: np.ndarray, best: np.ndarray) -> None:
    """The k best scores, each of the column it is said to be of, none twice; ties at the k-th place are free."""
    for row, (named, values) in enumerate(zip(numbers, best, strict=True)):
        assert sorted(values, reverse=True) == sorted(scores[row], reverse=True)[:k]
        real = named[named >= 0]
        assert len(set(real.tolist())) == len(real) == np.isfinite(values).sum()
        np.testing.assert_array_equal(scores[row, real], values[named >= 0])


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_the_k_best_whatever_the_tiles(data: st.DataObject) -> None:
    """Many ties, rising rows (each column is better than all before it), buffers barely larger than k."""
    rows, columns = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 70))
    scores = LEVELS[data.draw(arrays(np.int64, (rows, columns), elements=st.integers(0, len(LEVELS) - 1)))]
    if data.draw(st.booleans()):
        scores = np.sort(np.random.default_rng(0).normal(size=(rows, columns)).astype(np.float32), axis=1)
    k = data.draw(st.integers(1, columns))
    cuts = data.draw(st.lists(st.integers(0, columns), max_size=4))
    capacity = data.draw(st.sampled_from([None, k + 1, k + 3, 2 * k]))
    assert_best(scores, k, *best_of(scores, k, cuts, capacity))


def test_rising_scores_overflow_and_lose_nothing() -> None:
    scores = np.arange(5000, dtype=np.float32)[None]
    numbers, _ = best_of(scores, 3, [40, 1000], 10)
    assert sorted(numbers[0].tolist()) == [4997, 4998, 4999]


def test_what_is_below_the_threshold_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Falling scores: after the first cut nothing is appended, and pieces double."""
    pieces = []
    monkeypatch.setattr(kept, "append", lambda *given: (pieces.append(given[3] - given[2]), append(*given))[1])
    scores = -np.arange(5000, dtype=np.float32)[None]
    best_of(scores, 3, [], 10)
    assert pieces == [10, 20, 40, 80, 160, 320, 640, 1280, 2450]


@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_the_kernel_does_what_its_twin_does(cupy: Any, data: st.DataObject) -> None:
    rows, columns, capacity = (data.draw(st.integers(1, most)) for most in (3, 30, 12))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    scores = LEVELS[rng.integers(len(LEVELS), size=(rows, columns))]
    start, stop = sorted(data.draw(st.tuples(st.integers(0, columns), st.integers(0, columns))))
    if start == stop:
        return
    thresholds = LEVELS[rng.integers(len(LEVELS), size=rows)]
    begun = rng.integers(0, capacity + 1, size=rows).astype(np.int32)
    states = []
    for xp in (np, cupy):
        counts, values = xp.asarray(begun.copy()), xp.full((rows, capacity), -np.inf, dtype=np.float32)
        numbers = xp.full((rows, capacity), -1, dtype=np.int64)
        append(xp.asarray(scores), 1000, start, stop, xp.asarray(thresholds), counts, values, numbers)
        states.append([array if xp is np else cupy.asnumpy(array) for array in (counts, values, numbers)])
    (counts, values, numbers), (found_counts, found_values, found_numbers) = states
    np.testing.assert_array_equal(found_counts, counts)
    for row in range(rows):
        placed = found_numbers[row][found_numbers[row] >= 0]
        assert len(set(placed.tolist())) == len(placed) == (numbers[row] >= 0).sum()
        np.testing.assert_array_equal(scores[row, placed - 1000], found_values[row][found_numbers[row] >= 0])
        if counts[row] <= capacity:  # none was lost: the same ones, in the order of the threads
            assert sorted(placed.tolist()) == sorted(numbers[row][numbers[row] >= 0].tolist())


def test_buffers_on_the_device(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "_THREADS", 8)
    scores = np.random.default_rng(3).integers(0, 9, size=(3, 80)).astype(np.float32)
    numbers, best = best_of(scores, 7, [30, 31], 10, cupy)
    assert_best(scores, 7, cupy.asnumpy(numbers), cupy.asnumpy(best))


@settings(max_examples=100, deadline=None)
@given(scores=arrays(np.float32, (2, 9), elements=st.sampled_from(LEVELS.tolist())), k=st.integers(1, 9))
def test_packed_selection_is_selection(scores: np.ndarray, k: int) -> None:
    numbers = np.array([[8, 3, 2**32 - 2, 5, 0, 1, 7, 2**31, 4], [0, 1, 2, 3, 4, 5, 6, 7, 8]])
    for named in (None, numbers):
        expected, found = select(scores, k, named), _select_packed(scores, k, named)
        np.testing.assert_array_equal(found[0], expected[0])
        np.testing.assert_array_equal(found[1], expected[1])


def test_selection_on_the_device(cupy: Any) -> None:
    scores = np.random.default_rng(4).integers(-3, 4, size=(5, 20)).astype(np.float32)
    for ours, theirs in zip(select(cupy.asarray(scores), 6), select(scores, 6), strict=True):
        assert isinstance(ours, cupy.ndarray)
        np.testing.assert_array_equal(cupy.asnumpy(ours), theirs)


finite = st.floats(-(2**50), 2**50, width=32) | st.floats(-(2**-90), 2**-90, width=32) | st.floats(-2, 2, width=32)


@settings(max_examples=200, deadline=None)
@given(
    query=arrays(np.float32, (1, 5), elements=finite),
    passage=arrays(np.float16, (1, 5), elements=st.floats(-60000, 60000, width=16)),
)
def test_halves_are_within_their_bounds(query: np.ndarray, passage: np.ndarray) -> None:
    """Of exact sums, so of what the splitting alone costs; scaling and its inverse cost next to nothing."""
    scaled, exponents = half.scaled(query)
    lost = np.abs(query).max() * 2.0**-139  # what is so far below the largest vanishes
    np.testing.assert_allclose(half.unscaled(scaled, exponents), query, rtol=0, atol=lost)
    assert not scaled.any() or 2**14 <= np.abs(scaled).max() < 2**15
    hi, lo = half.split(scaled)
    exact = scaled.astype(np.float64) @ passage.astype(np.float64).T
    lengths = np.linalg.norm(scaled.astype(np.float64)) * np.linalg.norm(passage.astype(np.float64))
    both = (hi.astype(np.float64) + lo.astype(np.float64)) @ passage.astype(np.float64).T
    rest = 2.0**-22 + 5**0.5 * 2.0**-39
    assert abs(both - exact) <= rest * lengths
    assert rest < half.split_error(5)
    assert abs(hi.astype(np.float64) @ passage.astype(np.float64).T - exact) <= half.rounded_error(5) * lengths


def test_the_halves_on_the_device(cupy: Any) -> None:
    queries = np.array([[1e-40, 3e-41], [3.0, -1.0001], [0, 0]], dtype=np.float32)
    scaled, exponents = half.scaled(cupy.asarray(queries))
    np.testing.assert_array_equal(cupy.asnumpy(half.unscaled(scaled, exponents)), queries)
    for ours, theirs in zip(half.split(scaled), half.split(half.scaled(queries)[0]), strict=True):
        np.testing.assert_array_equal(cupy.asnumpy(ours), theirs)


def test_vectors_are_checked_where_they_are(cupy: Any) -> None:
    there = cupy.ones((3, 2), dtype=np.float32)
    assert check_vectors(there, "queries", width=2) is there
    assert check_vectors(cupy.ones((3, 2)), "queries").dtype == np.float32
    with pytest.raises(VectorError, match="queries: row 1 has NaN or infinity"):
        check_vectors(cupy.asarray([[1.0, 1.0], [np.nan, 1.0]]), "queries")
    with pytest.raises(VectorError, match="width 3, found 2"):
        check_vectors(there, "queries", width=3)


def test_float16_vectors_are_checked_in_float32(cupy: Any) -> None:
    large = np.full((2, 600), 60000, dtype=np.float16)  # whose squares float16 does not hold
    for array in (large, cupy.asarray(large)):
        assert check_vectors(array, "passages", dtype="float16") is array
    np.testing.assert_allclose(squared_lengths(large), 600 * large[0, 0].astype(np.float32) ** 2, rtol=1e-6)
    with pytest.raises(VectorError, match="row 1 has NaN or infinity, or a value beyond 65504"):
        check_vectors(np.array([[1.0], [7e4]], dtype=np.float32), "passages", dtype="float16")


def test_conversion_goes_by_tiles(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from haybale import vectors
    from haybale.device import CPU, device_of

    monkeypatch.setattr(vectors, "_TILE", 6)
    rows = np.random.default_rng(5).normal(size=(8, 3)).astype(np.float32)
    assert row_tiles(rows) == [(0, 2), (2, 4), (4, 6), (6, 8)]
    there = moved(rows, device_of(cupy.ones(1)), "float16")
    np.testing.assert_array_equal(cupy.asnumpy(there), rows.astype(np.float16))
    np.testing.assert_array_equal(moved(there, CPU, "float32"), rows.astype(np.float16).astype(np.float32))
    expected = (rows.astype(np.float16).astype(np.float32) ** 2).sum(axis=1)
    np.testing.assert_allclose(cupy.asnumpy(squared_lengths(there)), expected, rtol=1e-6)
    assert moved(there, device_of(there), "float16") is there
