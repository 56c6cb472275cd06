"""Candidate rows, bags, scaling and γ, each the obvious way."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.preprocessing import StandardScaler
from worlds import features, random_rows, world

from haybale.ensemble import CandidateRows, SVREnsemble, candidate_rows
from haybale.ensemble import gram as gram_module
from haybale.ensemble.bags import make_bags, nearest_bags, thinned
from haybale.ensemble.gram import gram, kernel_tile
from haybale.ensemble.half import Half, distinct_rows
from haybale.ensemble.spaces import fit_spaces
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


# scaling and γ --------------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 999), d=st.integers(1, 5))
def test_scaling_and_gamma_are_those_of_the_feature_matrix(seed: int, d: int) -> None:
    rng = np.random.default_rng(seed)
    rows = random_rows(seed, 60, 7, 12)
    queries, passages = (rng.normal(2, 3, size=(m, d)).astype(np.float32) for m in (7, 12))
    queries[:, 0] = 1.5  # a constant feature
    spaces = fit_spaces(rows.query, rows.passage, [queries], [passages], "scale", standardize=True)
    expected = StandardScaler().fit_transform(features(rows, queries, passages))
    gamma = spaces.gamma[0]
    assert gamma == pytest.approx((1 / (2 * d * expected.var()),) * 2, rel=1e-3)
    scaled = features(rows, spaces.queries([queries]).dense, spaces.passages([passages]).dense)
    np.testing.assert_allclose(scaled, expected * np.sqrt(gamma[0]), atol=2e-4)
    raw = features(rows, queries, passages)
    plain = fit_spaces(rows.query, rows.passage, [queries], [passages], "scale")
    assert plain.gamma[0][0] == pytest.approx(1 / (2 * d * raw.var()), rel=1e-4)


def test_the_kernel_is_a_product() -> None:
    rng = np.random.default_rng(0)
    q, p = rng.normal(size=(9, 4)).astype(np.float32), rng.normal(size=(9, 4)).astype(np.float32)
    both = np.concatenate([q, p], axis=1)
    np.testing.assert_allclose(gram(Half(both)), gram(Half(q)) * gram(Half(p)), atol=1e-6)
    far = np.sum((both[:, None] - both[None]) ** 2, axis=-1)
    np.testing.assert_allclose(kernel_tile(Half(both), Half(both)), np.exp(-far), atol=5e-6)


@settings(max_examples=20, deadline=None)
@given(n=st.integers(1, 90), tile=st.sampled_from([7, 32, 1024]), seed=st.integers(0, 99))
def test_a_gram_matrix_is_exact_and_symmetric_whatever_the_tiles(n: int, tile: int, seed: int) -> None:
    x = np.random.default_rng(seed).normal(scale=2, size=(n, 5)).astype(np.float32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gram_module, "TILE", tile)
        found = gram(Half(x))
    expected = np.exp(-np.sum((x[:, None].astype(np.float64) - x[None]) ** 2, axis=-1))
    np.testing.assert_allclose(found, expected, atol=5e-6)
    assert (found == found.T).all()
    assert (np.diag(found) == 1).all()


def test_dense_and_sparse_spaces_multiply() -> None:
    """Two spaces side by side, one of them sparse: the product of their kernels, each with its own γ."""
    rng = np.random.default_rng(1)
    dense = [rng.normal(size=(n, 3)).astype(np.float32) for n in (8, 11)]
    wide = [sparse.random(n, 20, density=0.3, random_state=1, dtype=np.float32).tocsr() for n in (8, 11)]
    rows = np.arange(8), np.arange(8)
    spaces = fit_spaces(*rows, [dense[0], wide[0]], [dense[1], wide[1]], [(0.5, 0.7), 0.9])
    for made, half, gammas in (
        (spaces.queries([dense[0], wide[0]]), 0, (0.5, 0.9)),
        (spaces.passages([dense[1], wide[1]]), 1, (0.7, 0.9)),
    ):
        apart = [np.sum((x[:, None] - x[None]) ** 2, axis=-1) for x in (dense[half], wide[half].toarray())]
        np.testing.assert_allclose(gram(made), np.exp(-gammas[0] * apart[0] - gammas[1] * apart[1]), atol=2e-6)
    scale = fit_spaces(*rows, [wide[0]], [wide[1]], "scale").gamma[0][0]
    together = np.concatenate([wide[0].toarray(), wide[1].toarray()[:8]], axis=1)
    assert scale == pytest.approx(1 / (40 * together.var()), rel=1e-4)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 99), n=st.integers(1, 40), d=st.integers(0, 3))
def test_distinct_rows(seed: int, n: int, d: int) -> None:
    """First occurrences and where each row went; their order depends on what the rows hold, not on where they are."""
    rng = np.random.default_rng(seed)
    x = rng.integers(3, size=(n, d)).astype(np.float32) * np.where(rng.random((n, d)) < 0.5, -1, 1)
    x = x.astype(np.float32)
    first, where = distinct_rows(x)
    np.testing.assert_array_equal(x[first][where], x)
    assert len(first) == len(np.unique(x + np.float32(0), axis=0)) if d else len(first) == 1
    shuffled = rng.permutation(n)
    np.testing.assert_array_equal(x[shuffled][distinct_rows(x[shuffled])[0]], x[first])
