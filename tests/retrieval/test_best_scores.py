"""The largest scores of tiles, against sorting all of them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from haybale.retrieval import best_scores
from haybale.retrieval.best_scores import BestScores


@settings(max_examples=60)
@given(
    seed=st.integers(0, 9999),
    m=st.integers(1, 5),
    n=st.integers(1, 90),
    tile=st.integers(1, 40),
    share=st.floats(0, 1),
    room=st.sampled_from([1, 3, 50]),
    kind=st.sampled_from(["random", "ties", "rising", "falling", "infinite"]),
)
def test_the_k_largest_scores_are_kept(
    seed: int, m: int, n: int, tile: int, share: float, room: int, kind: str
) -> None:
    rng, k = np.random.default_rng(seed), max(1, round(share * n))
    scores = rng.normal(size=(m, n)).astype(np.float32)
    if kind == "ties":
        scores = rng.integers(0, 3, size=(m, n)).astype(np.float32)
    elif kind in ("rising", "falling"):
        scores = np.sort(scores, axis=1)[:, :: 1 if kind == "rising" else -1]
    elif kind == "infinite":
        scores = np.where(rng.random((m, n)) < 0.3, rng.choice([np.inf, -np.inf], size=(m, n)), scores)
        scores = scores.astype(np.float32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(best_scores, "_LEAST_ROOM", room)
        best = BestScores(m, k)
        for start in range(0, n, tile):
            best.add(np.ascontiguousarray(scores[:, start : start + tile]), start)
        columns, kept = best.take()
    np.testing.assert_array_equal(np.sort(kept, axis=1), np.sort(scores, axis=1)[:, n - k :])
    np.testing.assert_array_equal(np.take_along_axis(scores, columns, axis=1), kept)
    assert all(len(set(row)) == k for row in columns.tolist())


def test_a_score_that_is_not_a_number_is_proposed() -> None:
    """Such a score is that of a product that overflowed; its exact value is computed later."""
    scores = np.arange(30, dtype=np.float32)[None] - 40
    scores[0, 3] = np.nan
    best = BestScores(1, 2)
    best.add(scores, 0)
    columns, kept = best.take()
    assert sorted(columns[0].tolist()) == [3, 29]
    assert sorted(kept[0].tolist()) == [-11, np.inf]
