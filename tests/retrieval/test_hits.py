"""The total order of hits, and pooling."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from haybale.errors import InputError
from haybale.retrieval import Hits, PassageIndex, pool
from haybale.retrieval.hits import select
from haybale.retrieval.passages import PassageTable

LEVELS = [-np.inf, -1.5, -0.0, 0.0, 0.25, 1.0, 1e30]
NUMBERS = np.array([[8, 3, 2**32 - 2, 5, 0, 1, 7, 2**31, 4], [0, 1, 2, 3, 4, 5, 6, 7, -1]])


@settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(scores=arrays(np.float32, (2, 9), elements=st.sampled_from(LEVELS)), k=st.integers(1, 12))
def test_select_sorts_by_score_then_number(cupy: Any, scores: np.ndarray, k: int) -> None:
    scores[NUMBERS < 0] = -np.inf
    for named in (None, NUMBERS):
        columns = np.broadcast_to(np.arange(9), (2, 9)) if named is None else named
        for row, found in enumerate(zip(*select(scores, k, named), strict=True)):
            pairs = sorted(zip(columns[row].tolist(), scores[row].tolist(), strict=True), key=lambda p: (-p[1], p[0]))
            assert found[0].tolist() == [n if np.isfinite(score) else -1 for n, score in pairs[:k]]
            assert found[1].tolist() == [score for _, score in pairs[:k]]
        on_device = select(cupy.asarray(scores), k, None if named is None else cupy.asarray(named))
        for found, expected in zip(on_device, select(scores, k, named), strict=True):
            np.testing.assert_array_equal(cupy.asnumpy(found), expected)


lists_of_passages = st.lists(st.lists(st.integers(0, 12), unique=True, max_size=6), min_size=3, max_size=3)


def hits_of(rows: list[list[int]]) -> Hits:
    width = max(map(len, rows))
    table = np.array([row + [-1] * (width - len(row)) for row in rows]).reshape(3, width)
    return Hits(table.astype(np.int64), np.where(table < 0, -np.inf, 1).astype(np.float32))


@given(a=lists_of_passages, b=lists_of_passages)
def test_pool_sorts_the_union_by_best_rank(a: list[list[int]], b: list[list[int]]) -> None:
    for row, together in enumerate(pool(hits_of(a), hits_of(b)).passages):
        best = {p: min(r.index(p) for r in (a[row], b[row]) if p in r) for p in {*a[row], *b[row]}}
        assert together[together >= 0].tolist() == sorted(best, key=lambda p: (best[p], p))
    np.testing.assert_array_equal(pool(hits_of(a), hits_of(b)).passages, pool(hits_of(b), hits_of(a)).passages)


@settings(deadline=None)
@given(scores=arrays(np.float32, (3, 8), elements=st.sampled_from(LEVELS)), order=st.permutations("abcd"))
def test_equal_scores_are_in_the_order_of_ids(scores: np.ndarray, order: list[str]) -> None:
    """Documents have three, no, one and four passages; a passage follows the ones before it in its document."""
    index = PassageTable(8, np.array([0, 3, 3, 4, 8]), doc_ids=order)
    for k in range(1, 10):
        for row, found in enumerate(select(scores, k, order=index.columns.order)[0]):
            expected = sorted(range(8), key=lambda p: (-scores[row, p], order[index.doc_of[p]], p))
            assert found.tolist() == [p if np.isfinite(scores[row, p]) else -1 for p in expected][:k]
    ranks = Hits(np.arange(8).reshape(8, 1), np.ones((8, 1), dtype=np.float32))
    everything = pool(*(Hits(ranks.passages[[p]], ranks.scores[[p]]) for p in range(8)), index=index)
    assert everything.passages[0].tolist() == sorted(range(8), key=lambda p: (order[index.doc_of[p]], p))
    some = index.columns.take([0, 2, 3])[1].order
    by_id = sorted(range(8), key=lambda p: (order[index.doc_of[p]], p))
    assert (np.arange(8) if some.passages is None else some.passages).tolist() == by_id


def test_hits_on_a_device(cupy: Any) -> None:
    index = PassageIndex(np.eye(4, dtype=np.float32))
    host = index.search(np.array([[0.1, 0.2, 0.3, 0.4], [0, 0, 0, 0]]), 3)
    moved = Hits(cupy.asarray(host.passages), cupy.asarray(host.scores))
    assert isinstance(moved.top(2).passages, cupy.ndarray)
    for found, expected in zip(moved.flat(), host.flat(), strict=True):
        np.testing.assert_array_equal(cupy.asnumpy(found), expected)
    np.testing.assert_array_equal(pool(moved, moved).passages, pool(host).passages)
    with pytest.raises(InputError, match=r"cuda:0.*cpu"):
        Hits(moved.passages, host.scores)
    with pytest.raises(InputError, match=r"\[2, 1\]"):
        pool(host, Hits(host.passages[:1], host.scores[:1]))
