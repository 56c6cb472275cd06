"""The kernels of search on a device, run on the CPU, against NumPy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cuda_on_cpu import KernelsOnCPU, kernels_of

from haybale.retrieval import device_search
from haybale.retrieval.device_search import SearchStatus

THREADS_AND_ORDERS = [(1, 0), (32, 1), (96, 7)]
SEEDS = st.integers(0, 2**32 - 1)
FLOAT_INF = np.float32(np.inf)


@pytest.fixture(scope="module")
def kernels() -> KernelsOnCPU:
    return kernels_of(Path(device_search.__file__).with_suffix(".cu"))


def falling_bits(scores: Any) -> Any:
    bits = (np.asarray(scores, dtype=np.float32) + np.float32(0)).view(np.uint32)
    return np.where(bits >> 31, bits, ~bits & 0x7FFFFFFF).astype(np.uint32)


def keys_of(scores: Any, passages: Any) -> Any:
    return falling_bits(scores).astype(np.uint64) << np.uint64(32) | np.asarray(passages, dtype=np.uint64)


def scores_from(keys: Any) -> Any:
    falling = (np.asarray(keys) >> np.uint64(32)).astype(np.uint32)
    return np.where(falling >> 31, falling, ~falling & 0x7FFFFFFF).astype(np.uint32).view(np.float32)


def random_scores(rng: np.random.Generator, shape: Any, kind: str) -> Any:
    """Return scores that are all distinct, often equal, of all magnitudes, or rising."""
    if kind == "equal":
        return rng.integers(-2, 3, size=shape).astype(np.float32)
    scores = rng.normal(size=shape).astype(np.float32)
    if kind == "magnitudes":
        scores *= np.float32(2.0) ** rng.integers(-140, 120, size=shape)
    return np.sort(scores, axis=-1) if kind == "rising" else scores


class Buffer:
    """What the buffer of a query should hold: the algorithm of ``keep_best`` in NumPy."""

    def __init__(self, k: int, capacity: int, bound: float) -> None:
        self.k, self.half, self.bound = k, capacity // 2, bound
        self.keys = np.empty(0, dtype=np.uint64)
        self.floor, self.is_crowded = np.float32(-np.inf), False

    def add(self, scores: Any, first_passage: int, excluded: Any) -> None:
        for start in range(0, scores.size, self.half):
            if self.is_crowded:
                return
            passages = np.arange(start, min(start + self.half, scores.size)) + first_passage
            some = scores[start : start + self.half]
            is_wanted = (some >= self.floor) & ~((passages >= excluded[0]) & (passages < excluded[1]))
            self.keys = np.concatenate([self.keys, keys_of(some[is_wanted], passages[is_wanted])])
            if len(self.keys) > self.half:
                self.compact()
            if len(self.keys) > self.half:
                self.keys, self.floor, self.is_crowded = self.keys[:0], FLOAT_INF, True

    def compact(self) -> None:
        kth = np.sort(scores_from(self.keys))[-self.k]
        lowest = float(kth) - 2 * self.bound * (1 + 2.0**-20)
        floor = np.float32(lowest)
        if float(floor) > lowest:
            floor = np.nextafter(floor, -FLOAT_INF)
        self.floor = max(floor, self.floor)
        self.keys = self.keys[scores_from(self.keys) >= self.floor]


@pytest.mark.parametrize(("threads", "order"), THREADS_AND_ORDERS)
@settings(max_examples=30)
@given(data=st.data(), seed=SEEDS)
def test_running_threshold(kernels: KernelsOnCPU, threads: int, order: int, data: st.DataObject, seed: int) -> None:
    rng, order = np.random.default_rng(seed), order if order < 2 else 2 + seed % 1000
    m, n, columns = (data.draw(st.integers(1, most)) for most in (3, 200, 100))
    capacity = data.draw(st.sampled_from([2, 16, 64, 128, 1024]))
    k = data.draw(st.integers(1, capacity // 2))
    kind = data.draw(st.sampled_from(["distinct", "equal", "magnitudes", "rising"]))
    scores = random_scores(rng, (m, n), kind)
    bounds = rng.random(m) * data.draw(st.sampled_from([1e-30, 1e-3, 0.3]))
    excluded = np.sort(rng.integers(0, n + 1, size=(m, 2)), axis=1)
    floors, counts, states = np.full(m, -np.inf, dtype="f4"), np.zeros(m, dtype="i4"), np.zeros(m, dtype="i4")
    if m == 3:
        floors[1] = np.inf  # a finished query
    keys = np.full((m, capacity), 2**64 - 1, dtype=np.uint64)
    buffers = [Buffer(k, capacity, bound) for bound in bounds]
    for first in range(0, n, columns):
        tile = np.full((m, columns), np.nan, dtype=np.float32)
        part = scores[:, first : first + columns]
        tile[:, : part.shape[1]] = part
        sizes = np.int32(columns), np.int32(part.shape[1]), np.uint32(first), np.int32(k), np.int32(capacity)
        of_queries = excluded, bounds, floors, counts, states, keys
        kernels.launch("keep_best", [m], [threads], [tile, *sizes, *of_queries], device_search._SELECTION_BYTES, order)
        for row, buffer in enumerate(buffers):
            buffer.add(part[row], first, excluded[row])
    for row, buffer in enumerate(buffers):
        if m == 3 and row == 1:
            assert (floors[row], counts[row], states[row]) == (np.inf, 0, 0)
            continue
        assert floors[row] == buffer.floor
        assert states[row] == (SearchStatus.CROWDED if buffer.is_crowded else 0)
        assert sorted(keys[row, : counts[row]]) == sorted(buffer.keys)
        if not buffer.is_crowded:
            check_that_nothing_is_lost(scores[row], excluded[row], buffer)


def test_warps_that_run_ahead(kernels: KernelsOnCPU) -> None:
    """Buffers are compacted in place, by warps in any order."""
    scores = np.random.default_rng(0).normal(size=(3, 200)).astype(np.float32)
    sizes = np.int32(200), np.int32(200), np.uint32(0), np.int32(5), np.int32(64)
    for order in range(2, 20):
        floors, counts, states = np.full(3, -np.inf, dtype="f4"), np.zeros(3, dtype="i4"), np.zeros(3, dtype="i4")
        bounds, excluded, keys = np.full(3, 0.3), np.zeros((3, 2), dtype=np.int64), np.zeros((3, 64), dtype=np.uint64)
        of_queries = excluded, bounds, floors, counts, states, keys
        kernels.launch("keep_best", [3], [96], [scores, *sizes, *of_queries], device_search._SELECTION_BYTES, order)
        for row in range(3):
            buffer = Buffer(5, 64, 0.3)
            buffer.add(scores[row], 0, excluded[row])
            assert sorted(keys[row, : counts[row]]) == sorted(buffer.keys)


def check_that_nothing_is_lost(scores: Any, excluded: Any, buffer: Buffer) -> None:
    """The buffer has every passage that may be among the k best if each score is off by up to the bound."""
    is_candidate = np.ones(len(scores), dtype=bool)
    is_candidate[excluded[0] : excluded[1]] = False
    candidates = np.flatnonzero(is_candidate)
    if len(candidates) > buffer.k:
        least = np.sort(scores[candidates].astype(np.float64))[-buffer.k] - 2 * buffer.bound
        candidates = candidates[scores[candidates] >= least]
    assert set(candidates) <= set((buffer.keys & np.uint64(0xFFFFFFFF)).tolist())


@pytest.mark.parametrize(("threads", "order"), THREADS_AND_ORDERS)
@settings(max_examples=30)
@given(data=st.data(), seed=SEEDS, shared_keys=st.sampled_from([1, 16, 256]))
def test_survivors_are_ranked_exactly(
    kernels: KernelsOnCPU, threads: int, order: int, data: st.DataObject, seed: int, shared_keys: int
) -> None:
    rng = np.random.default_rng(seed)
    m, n, width, capacity = 3, 90, data.draw(st.sampled_from([1, 5, 40])), 128
    k, count = data.draw(st.integers(1, 64)), data.draw(st.integers(0, 64))
    queries, vectors = (rng.integers(-4, 5, size=(size, width)).astype(np.float32) for size in (m, n))
    places = rng.permutation(n).astype(np.uint32)
    candidates = np.stack([rng.permutation(n)[:count] for _ in range(m)])
    exact = np.take_along_axis(queries.astype(np.float64) @ vectors.T, candidates, axis=1)
    bounds = np.array([0.0, 0.25, 3.0])
    proposed = (exact + bounds[:, None] * rng.choice([-1, 0, 1], size=exact.shape)).astype(np.float32)
    is_wrong = data.draw(st.booleans()) and count > 0
    if is_wrong:
        proposed[1, 0] = exact[1, 0] + 1000
    keys = np.zeros((m, capacity), dtype=np.uint64)
    keys[:, :count] = keys_of(proposed, candidates)
    floors, counts, states = np.full(m, -np.inf, dtype="f4"), np.full(m, count, dtype="i4"), np.zeros(m, dtype="i4")
    passages, scores = np.full((m, k), 7, dtype=np.int64), np.full((m, k), 7, dtype=np.float32)
    sizes = np.int32(k), np.int32(capacity), np.int32(shared_keys)
    shared = device_search._SELECTION_BYTES + 8 * shared_keys
    arguments = [queries, vectors, np.int32(width), *sizes, bounds, floors, counts, states, keys, passages, scores]
    kernels.launch("rank_exactly", [m], [threads], arguments, shared, order)
    for row in range(m):
        if is_wrong and row == 1:
            assert states[row] & SearchStatus.OUT_OF_BOUND
            continue
        ranked = np.lexsort((candidates[row], -exact[row]))
        best, padding = ranked[:k], max(0, k - count)
        np.testing.assert_array_equal(passages[row], [*candidates[row, best], *[-1] * padding])
        np.testing.assert_array_equal(scores[row], [*exact[row, best], *[-np.inf] * padding])
        is_tied = bool((np.diff(exact[row, ranked[: k + 1]]) == 0).any())
        assert states[row] == (SearchStatus.TIED if is_tied else 0)
    of_order = [counts, states, places, np.argsort(places).astype(np.uint32), keys, passages]
    kernels.launch("order_ties", [m], [threads], [*sizes, *of_order], shared, order)
    for row in range(m):
        if states[row] == SearchStatus.TIED:
            ranked = np.lexsort((places[candidates[row]], -exact[row]))
            np.testing.assert_array_equal(passages[row, :count], candidates[row, ranked[:k]])


@pytest.mark.parametrize(("threads", "order"), THREADS_AND_ORDERS)
@pytest.mark.parametrize("width", [0, 1, 33, 130])
def test_inner_products(kernels: KernelsOnCPU, threads: int, order: int, width: int) -> None:
    rng = np.random.default_rng(width)
    queries, vectors = (rng.normal(size=(size, width)).astype(np.float32) for size in (3, 20))
    vectors[7] = vectors[11]
    queries[2] *= np.float32(1e-38)  # below the numbers that float32 has with all bits, as are the scores
    candidates = np.stack([rng.permutation(20) for _ in range(3)])
    candidates[1, 4] = -1
    scores = np.full((3, 20), np.nan, dtype=np.float32)
    arguments = [queries, vectors, candidates, np.int32(width), np.int64(20), np.int64(60), scores]
    kernels.launch("inner_products", [2], [threads], arguments, 0, order)
    expected = np.take_along_axis(queries.astype(np.float64) @ vectors.T, candidates, axis=1).astype(np.float32)
    expected[1, 4] = -np.inf
    np.testing.assert_array_max_ulp(scores, expected, 1)
    for row in (0, 2):  # equal vectors have equal scores
        assert scores[row, candidates[row] == 7] == scores[row, candidates[row] == 11]


@pytest.mark.parametrize(("threads", "order"), THREADS_AND_ORDERS)
@pytest.mark.parametrize(("n", "width"), [(1, 3), (50, 1), (50, 40), (3, 0)])
def test_longest_vector(kernels: KernelsOnCPU, threads: int, order: int, n: int, width: int) -> None:
    vectors = np.random.default_rng(n).normal(size=(n, width)).astype(np.float32)
    bits = np.zeros(1, dtype=np.uint64)
    kernels.launch("largest_square", [2], [threads], [vectors, np.int64(n), np.int32(width), bits], 0, order)
    squares = (vectors.astype(np.float64) ** 2).sum(axis=1)
    np.testing.assert_allclose(bits.view(np.float64), squares.max(), rtol=1e-14)


@pytest.mark.parametrize(("threads", "order"), THREADS_AND_ORDERS)
def test_beginning_of_a_search(kernels: KernelsOnCPU, threads: int, order: int) -> None:
    queries = np.random.default_rng(0).normal(size=(5, 6)).astype(np.float32)
    queries[1], queries[3] = 0, queries[3] * np.float32(1e30)
    bounds, floors = np.full(5, np.nan), np.full(5, np.nan, dtype=np.float32)
    counts, states = np.full(5, -1, dtype=np.int32), np.full(5, -1, dtype=np.int32)
    numbers = [np.float64(value) for value in (3.0, 0.01, 0.5, 0.25, 1e20)]
    arguments = [queries, np.int32(5), np.int32(6), *numbers, bounds, floors, counts, states]
    kernels.launch("begin_search", [2], [threads], arguments, 0, order)
    lengths = np.linalg.norm(queries.astype(np.float64), axis=1)
    np.testing.assert_allclose(bounds, 0.01 * lengths * 3 + 0.5 + 0.25 * lengths)
    assert floors.tolist() == [-np.inf, np.inf, -np.inf, np.inf, -np.inf]
    assert states.tolist() == [0, 0, 0, SearchStatus.TOO_LARGE, 0]
    assert not counts.any()
