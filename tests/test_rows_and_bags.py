"""Candidate rows, bags, scaling and γ, each the obvious way."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from worlds import random_rows, world

from haybale.ensemble import CandidateRows, SVREnsemble, candidate_rows
from haybale.ensemble.bags import make_bags, nearest_bags, thinned
from haybale.errors import InputError
from haybale.retrieval import Hits, PassageIndex

# rows -----------------------------------------------------------------------------------------------------


def test_end_to_end_rows_by_hand() -> None:
    vectors = np.array([[1, 0], [0.9, 0.1], [0, 1], [0.1, 0.9], [0.5, 0.5]], dtype=np.float32)
    index = PassageIndex(vectors, [0, 2, 4, 5])
    queries = np.array([[1, 0.1], [0, 1]], dtype=np.float32)
    hits = index.search(queries, 2)
    # Query 0 (candidates 0, 1) wants documents 0 and 1: its nearest passage of document 1 is 3. Query 1
    # (candidates 2, 3) wants document 2, which no candidate belongs to.
    rows = candidate_rows("end-to-end", hits, (np.array([0, 0, 1]), np.array([0, 1, 2])), index, queries)
    assert list(zip(rows.query.tolist(), rows.passage.tolist(), rows.label.tolist(), strict=True)) == [
        (0, 0, 1),
        (0, 1, 1),
        (0, 3, 1),
        (1, 2, 0),
        (1, 3, 0),
        (1, 4, 1),
    ]


def test_injected_rows_by_hand() -> None:
    """Neighbours are negatives, relevant or not; the last passage of a relevant document is the positive."""
    index = PassageIndex(np.eye(4, dtype=np.float32), [0, 3, 4])
    hits = Hits(np.array([[0, 3]]), np.ones((1, 2), dtype=np.float32))
    rows = candidate_rows("injected", hits, (np.array([0]), np.array([0])), index, np.ones((1, 4), dtype=np.float32))
    assert list(zip(rows.passage.tolist(), rows.label.tolist(), strict=True)) == [(0, 0), (3, 0), (2, 1)]


def test_an_excluded_document_is_no_positive() -> None:
    index, queries, relevant = world()
    with pytest.raises(InputError, match="nothing to learn"):
        SVREnsemble(2, k=5).fit(index, queries, relevant, exclude=[ids[0] for ids in relevant])


def test_documents_without_passages_cannot_be_positives() -> None:
    index = PassageIndex(np.eye(2, dtype=np.float32), [0, 1, 1, 2])
    hits = Hits(np.array([[0]]), np.ones((1, 1), dtype=np.float32))
    for protocol in ("end-to-end", "injected"):
        rows = candidate_rows(protocol, hits, (np.array([0]), np.array([1])), index, np.ones((1, 2), dtype=np.float32))
        assert rows.label.tolist() == [0]


# bags -----------------------------------------------------------------------------------------------------


@settings(max_examples=50, deadline=None)
@given(
    seed=st.integers(0, 999),
    n_bags=st.integers(1, 8),
    overlap=st.floats(0, 2),
    strategy=st.sampled_from(["queries", "rows", "regions"]),
)
def test_bags_have_the_asked_size_and_queries_stay_whole(seed: int, n_bags: int, overlap: float, strategy: str) -> None:
    overlap = min(overlap, n_bags - 1)
    rows = random_rows(seed, 400, 40, 30)
    n_queries = len(np.unique(rows.query))
    vectors = np.random.default_rng(seed).normal(size=(40, 3)).astype(np.float32)
    made = make_bags(rows, strategy, n_bags, overlap, np.random.default_rng(seed), vectors)
    bags = made.rows
    assert len(bags) == n_bags
    if strategy == "rows":
        assert {len(bag) for bag in bags} == {round(400 * (1 + overlap) / n_bags)}
        return
    assert set(np.concatenate(bags).tolist()) == set(range(400))  # every row is in a bag
    for bag in bags:
        inside = np.unique(rows.query[bag])
        assert len(bag) == len(set(bag.tolist())) == np.isin(rows.query, inside).sum()
        if strategy == "queries":
            assert abs(len(inside) - n_queries * (1 + overlap) / n_bags) <= 1
    if strategy == "regions":
        assert made.centroids.shape == (n_bags, 3)
        total = sum(len(np.unique(rows.query[bag])) for bag in bags)
        assert abs(total - n_queries * (1 + overlap)) <= n_bags or overlap > 0.5  # a grown bag ends with the queries


def test_regions_hold_their_neighbours_and_route_to_them() -> None:
    """Four far clusters: each is a cell, is scored by its own bag, and no cell is more than 1.5 times its share."""
    rng = np.random.default_rng(0)
    centres = 10 * np.eye(4, dtype=np.float32)
    vectors = (np.repeat(centres, 10, axis=0) + rng.normal(size=(40, 4))).astype(np.float32)
    rows = CandidateRows(np.arange(40, dtype=np.int32), np.zeros(40, dtype=np.int32), np.ones(40, dtype=np.int8))
    bags = make_bags(rows, "regions", 4, 0.0, np.random.default_rng(0), vectors)
    assert sorted(tuple(bag) for bag in bags.rows) == [tuple(range(i, i + 10)) for i in (0, 10, 20, 30)]
    weights = nearest_bags(vectors, bags.centroids, 1)
    assert all(weights[query, number] == 1 for number, bag in enumerate(bags.rows) for query in bag)
    uneven = np.concatenate([vectors[:2], rng.normal(size=(38, 4)).astype(np.float32)])
    for seed in range(5):
        assert max(map(len, make_bags(rows, "regions", 4, 0.0, np.random.default_rng(seed), uneven).rows)) <= 15


def test_rows_that_are_none_are_refused() -> None:
    query, label = np.array([0, 1], dtype=np.int32), np.array([0, 1], dtype=np.int8)
    with pytest.raises(InputError, match="label must be 0 or 1, found 2 in row 1"):
        CandidateRows(query, query, np.array([1, 2], dtype=np.int8))
    with pytest.raises(InputError, match="sorted by query"):
        CandidateRows(query[::-1], query, label)
    with pytest.raises(InputError, match="1 numbers of label for 2"):
        CandidateRows(query, query, label[:1])


def test_thinning_keeps_positives() -> None:
    rows = random_rows(0, 200, 20, 30)
    rows = CandidateRows(rows.query, rows.passage, (np.arange(200) % 20 == 0).astype(np.int8))
    kept = thinned(rows, np.arange(200), 50, np.random.default_rng(0))
    assert len(kept) == 50
    assert rows.label[kept].sum() == 10
    assert (np.diff(kept) > 0).all()
    assert len(thinned(rows, np.arange(200), 5, np.random.default_rng(0))) == 20  # 10 positives, as many negatives
    assert len(thinned(rows, np.arange(200), None, np.random.default_rng(0))) == 200
