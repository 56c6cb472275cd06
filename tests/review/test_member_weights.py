"""Members earn weights by the ranks that they gave to documents before these were judged."""

from __future__ import annotations

import numpy as np
import pytest

from haybale.review.member_weights import MemberWeights, score_ranks


def exact_ranks(scores: np.ndarray) -> np.ndarray:
    return np.argsort(np.argsort(-scores, axis=1), axis=1) + 1


def test_ranks_are_those_of_sorting_but_for_documents_in_one_bin() -> None:
    scores = np.random.default_rng(0).normal(size=(5, 3000))
    ranks, exact = score_ranks(scores, np.ones(3000, dtype=bool)), exact_ranks(scores)
    assert np.abs(ranks - exact).max() < 6
    assert np.abs(ranks - exact)[exact <= 10].max() < 1
    for by_rank, by_score in zip(ranks, scores, strict=True):
        assert (np.diff(by_rank[np.argsort(-by_score)]) >= 0).all()


def test_ranks_count_open_documents_only() -> None:
    scores = np.array([[9.0, 1.0, 3.0, 2.0]])
    is_open = np.array([False, True, True, True])
    ranks = score_ranks(scores, is_open)[0]
    np.testing.assert_allclose(ranks, [0.5, 3, 1, 2], atol=0.51)
    assert ranks.argsort().tolist() == [0, 2, 3, 1]
    np.testing.assert_array_equal(score_ranks(scores[:, 1:], is_open[1:])[0], ranks[1:])


def test_equal_scores_have_equal_ranks() -> None:
    ranks = score_ranks(np.array([[1.0, 0.0, 1.0, 0.0], [2.0, 2.0, 2.0, 2.0]]), np.ones(4, dtype=bool))
    assert ranks[0, 0] == ranks[0, 2] < ranks[0, 1] == ranks[0, 3]
    np.testing.assert_array_equal(ranks[1], 2.5)


def test_losses_are_those_of_probabilities_that_sum_to_the_assumed_share() -> None:
    n, share = 2000, 0.001
    weights = MemberWeights(n)
    losses = weights.losses(np.arange(1.0, n + 1), n, True, share)
    probabilities = np.exp(-losses)
    assert probabilities.sum() == pytest.approx(n * share, rel=0.02)
    others = weights.losses(np.arange(1.0, n + 1), n, False, share)
    np.testing.assert_allclose(np.exp(-others) + probabilities, 1)


def test_the_member_that_ranked_relevant_documents_first_leads_and_another_can_overtake_it() -> None:
    weights, good, bad = MemberWeights(2), np.array([1.0, 300.0]), np.array([300.0, 1.0])
    for _ in range(5):
        weights.add(weights.losses(good, 1000, True, 0.01))
    assert weights.values[0] > 0.95
    for _ in range(10):
        weights.add(weights.losses(bad, 1000, True, 0.01))
    assert weights.values[1] > 0.95


def test_a_member_that_ranked_irrelevant_documents_first_loses_weight() -> None:
    weights = MemberWeights(2)
    for _ in range(30):
        weights.add(weights.losses(np.array([1.0, 300.0]), 1000, False, 0.05))
    assert weights.values[0] < 0.2


def test_a_member_that_could_not_rank_keeps_its_weight() -> None:
    weights = MemberWeights(3)
    weights.add(np.array([0.1, np.nan, 2.0]))
    assert weights.values[1] == pytest.approx(1 / 3, abs=1e-6)
    assert weights.values[0] > weights.values[1] > weights.values[2]


def test_a_judgement_can_be_forgotten() -> None:
    all_losses = [*np.random.default_rng(1).random((6, 3)), None]
    weights, others = MemberWeights(3), MemberWeights(3)
    for losses in all_losses:
        weights.add(losses)
    weights.remove(2)
    for losses in all_losses[:2] + all_losses[3:]:
        others.add(losses)
    np.testing.assert_array_equal(weights.values, others.values)
    assert len(weights) == len(all_losses) - 1
