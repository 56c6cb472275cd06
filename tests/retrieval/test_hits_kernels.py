"""The kernels of hits.cu on the CPU, and the selection on a device, compared with the selection by NumPy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.cuda_on_cpu import kernels_of

import haybale.retrieval
from haybale.retrieval.hits import _select, select
from haybale.retrieval.id_order import IdOrder

SOURCE = Path(haybale.retrieval.__file__).with_name("hits.cu")
LAUNCHES = st.tuples(st.sampled_from([1, 32, 64]), st.integers(0, 3))  # threads of a block, and their order
SCORES = np.array([-np.inf, -3e38, -1.5, -1e-40, -0.0, 0.0, 1e-40, 0.25, 0.5, 3e38], dtype=np.float32)
QUICK = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])


@QUICK
@given(st.integers(1, 5), st.integers(1, 40), st.integers(1, 3), st.integers(0, 2**32 - 1), st.booleans(), LAUNCHES)
def test_keys_of_scores_and_numbers(
    m: int, n: int, parts: int, seed: int, has_numbers: bool, launch: tuple[int, int]
) -> None:
    """Keys in order give the hits in order, of all rows and of some, by number and by place."""
    rng, (threads, order), kernels = np.random.default_rng(seed), launch, kernels_of(SOURCE)
    scores, k = rng.choice(SCORES, size=(m, n)), int(rng.integers(1, n + 1))
    numbers = np.stack([rng.permutation(n) for _ in range(m)]) if has_numbers else np.tile(np.arange(n), (m, 1))
    passages = rng.permutation(n).astype(np.uint32)
    places = np.argsort(passages).astype(np.uint32)
    found, best = np.full((m, k), -9), np.full((m, k), np.nan, dtype=np.float32)
    tied = np.zeros(m, dtype=np.int32)
    some = np.sort(rng.choice(m, int(rng.integers(1, m + 1)), replace=False)).astype(np.int32)
    for rows, has_places in ((np.arange(m, dtype=np.int32), False), (some, True)):
        keys = np.zeros((len(rows), n), dtype=np.int64)
        flags = np.int32(has_numbers), np.int32(len(rows) < m), np.int32(has_places)
        arrays = [scores, numbers, flags[0], rows, flags[1], places, flags[2], np.int64(n), np.int32(parts), keys]
        kernels.launch("make_keys", [len(rows) * parts], [threads], arrays, order=order)
        keys.sort(axis=1)
        arrays = [keys, np.int64(n), np.int32(k), rows, flags[1], passages, flags[2], found, best, tied]
        kernels.launch("read_keys", [len(rows)], [threads], arrays, order=order)
        given_numbers = places[numbers[rows]] if has_places else numbers[rows]
        expected, expected_scores = _select(scores[rows], k + 1, given_numbers)
        wanted = expected[:, :k]
        wanted = np.where(wanted < 0, -1, passages.astype(np.int64)[wanted]) if has_places else wanted
        np.testing.assert_array_equal(found[rows], wanted)
        np.testing.assert_array_equal(best[rows], expected_scores[:, :k])
        pairs = (expected_scores[:, 1:] == expected_scores[:, :-1]) & ~np.isneginf(expected_scores[:, 1:])
        np.testing.assert_array_equal(tied[rows].astype(bool), pairs.any(axis=1))


@QUICK
@given(st.integers(0, 5), st.integers(0, 40), st.integers(1, 50), st.integers(0, 2**32 - 1), st.booleans())
def test_selection_on_a_device(cupy_double: Any, m: int, n: int, k: int, seed: int, has_order: bool) -> None:
    rng = np.random.default_rng(seed)
    scores, numbers = rng.choice(SCORES, size=(m, n)), np.stack([*(rng.permutation(n) for _ in range(m)), np.arange(n)])
    ids = pa.chunked_array([[f"{number:03}" for number in rng.permutation(n)]], type=pa.string())
    order = IdOrder(ids, np.arange(n + 1)) if has_order and n else None
    for given_numbers in (None, np.ascontiguousarray(numbers[:m])):
        on_device = None if given_numbers is None else cupy_double.asarray(given_numbers)
        found = select(cupy_double.asarray(scores), k, on_device, order)
        for ours, theirs in zip(found, select(scores, k, given_numbers, order), strict=True):
            np.testing.assert_array_equal(ours.get(), theirs)
