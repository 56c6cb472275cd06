"""Bags: their sizes, whole queries, regions, and thinning."""

from __future__ import annotations

import warnings

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from support.worlds import random_rows

from haybale.ensemble import CandidateRows
from haybale.ensemble.bags import make_bags, thinned


@settings(max_examples=50, deadline=None)
@given(
    seed=st.integers(0, 999),
    n_bags=st.integers(1, 8),
    overlap=st.floats(0, 2),
    strategy=st.sampled_from(["queries", "rows", "regions"]),
)
def test_bags_have_the_right_size_and_queries_stay_whole(seed: int, n_bags: int, overlap: float, strategy: str) -> None:
    overlap = min(overlap, n_bags - 1)
    rows = random_rows(seed, 400, 40, 30)
    n_queries = len(np.unique(rows.query))
    vectors = np.random.default_rng(seed).normal(size=(40, 3)).astype(np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a small region may have no relevant row
        bags = make_bags(rows, strategy, n_bags, overlap, seed, vectors)
    assert len(bags) == n_bags
    if strategy == "rows":
        size = round(400 * (1 + overlap) / n_bags)
        assert {len(bag) for bag in bags} == {size}
        if size >= 100:  # a bootstrap sample repeats rows
            assert all(len(set(bag.tolist())) < size for bag in bags)
        return
    assert set(np.concatenate(bags).tolist()) == set(range(400))  # every row is in a bag
    for bag in bags:
        inside = np.unique(rows.query[bag])
        assert len(bag) == len(set(bag.tolist())) == np.isin(rows.query, inside).sum()
        if strategy == "queries":
            assert abs(len(inside) - n_queries * (1 + overlap) / n_bags) <= 1
    if strategy == "regions":
        total = sum(len(np.unique(rows.query[bag])) for bag in bags)
        assert (
            abs(total - n_queries * (1 + overlap)) <= n_bags or overlap > 0.5
        )  # a region cannot have more queries than there are


def test_regions_are_clusters_of_limited_size() -> None:
    """Four distant clusters are four cells, and no cell has more than 1.5 times an even share of the queries."""
    rng = np.random.default_rng(0)
    centres = 10 * np.eye(4, dtype=np.float32)
    vectors = (np.repeat(centres, 10, axis=0) + rng.normal(size=(40, 4))).astype(np.float32)
    rows = CandidateRows(np.arange(40, dtype=np.int32), np.zeros(40, dtype=np.int32), np.ones(40, dtype=np.int8))
    bags = make_bags(rows, "regions", 4, 0.0, 0, vectors)
    assert sorted(tuple(bag) for bag in bags) == [tuple(range(i, i + 10)) for i in (0, 10, 20, 30)]
    uneven = np.concatenate([vectors[:2], rng.normal(size=(38, 4)).astype(np.float32)])
    for seed in range(5):
        assert max(map(len, make_bags(rows, "regions", 4, 0.0, seed, uneven))) <= 15


def test_thinning_keeps_positives() -> None:
    rows = random_rows(0, 200, 20, 30)
    rows = CandidateRows(rows.query, rows.passage, (np.arange(200) % 20 == 0).astype(np.int8))
    left = thinned(rows, np.arange(200), 50, np.random.default_rng(0))
    assert len(left) == 50
    assert rows.label[left].sum() == 10
    assert (np.diff(left) > 0).all()
    assert len(thinned(rows, np.arange(200), 5, np.random.default_rng(0))) == 20  # 10 positives, as many negatives
    assert len(thinned(rows, np.arange(200), None, np.random.default_rng(0))) == 200
