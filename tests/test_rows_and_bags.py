"""Candidate rows, bags, scaling and γ, each the obvious way."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.preprocessing import StandardScaler
from worlds import features, random_rows, world

from haybale.ensemble import CandidateRows, SVREnsemble, candidate_rows
from haybale.ensemble.bags import make_bags, thinned
from haybale.ensemble.kernel import fit_scaling, rbf, resolve_gamma
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
    strategy=st.sampled_from(["queries", "rows"]),
)
def test_bags_have_the_asked_size_and_queries_stay_whole(seed: int, n_bags: int, overlap: float, strategy: str) -> None:
    overlap = min(overlap, n_bags - 1)
    rows = random_rows(seed, 400, 40, 30)
    n_queries = len(np.unique(rows.query))
    bags = make_bags(rows, strategy, n_bags, overlap, np.random.default_rng(seed))
    assert len(bags) == n_bags
    if strategy == "rows":
        assert {len(bag) for bag in bags} == {round(400 * (1 + overlap) / n_bags)}
        return
    assert set(np.concatenate(bags).tolist()) == set(range(400))  # every row is in a bag
    for bag in bags:
        inside = np.unique(rows.query[bag])
        assert len(bag) == len(set(bag.tolist())) == np.isin(rows.query, inside).sum()
        assert abs(len(inside) - n_queries * (1 + overlap) / n_bags) <= 1


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
    scaling = fit_scaling(rows, queries, passages, standardize=True)
    expected = StandardScaler().fit_transform(features(rows, queries, passages))
    scaled_q, scaled_p = scaling.queries(queries), scaling.passages(passages)
    np.testing.assert_allclose(features(rows, scaled_q, scaled_p), expected, atol=2e-4)
    gamma = resolve_gamma("scale", rows, scaled_q, scaled_p)
    assert gamma == pytest.approx((1 / (2 * d * expected.var()),) * 2, rel=1e-3)
    raw = features(rows, queries, passages)
    assert resolve_gamma("scale", rows, queries, passages)[0] == pytest.approx(1 / (2 * d * raw.var()), rel=1e-4)


def test_the_kernel_is_a_product() -> None:
    rng = np.random.default_rng(0)
    q, p = rng.normal(size=(9, 4)).astype(np.float32), rng.normal(size=(9, 4)).astype(np.float32)
    both = np.concatenate([q, p], axis=1)
    np.testing.assert_allclose(rbf(both, both, 0.3), rbf(q, q, 0.3) * rbf(p, p, 0.3), atol=1e-6)
    far = np.sum((both[:, None] - both[None]) ** 2, axis=-1)
    np.testing.assert_allclose(rbf(both, both, 0.3), np.exp(-0.3 * far), atol=1e-6)
