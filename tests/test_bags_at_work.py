"""Bags that share Gram matrices, are left out, or are routed to; and candidate rows of one's own."""

from __future__ import annotations

import numpy as np
import pytest
from worlds import world

from haybale.ensemble import CandidateRows, SVREnsemble, candidate_rows
from haybale.errors import InputError


def test_shared_gram_matrices_change_nothing() -> None:
    """A budget too small to share makes every bag compute its own: the same ensemble to float32."""
    index, queries, relevant = world(5)
    passages = index.search(queries, 10).passages
    scores = [
        SVREnsemble(4, overlap=2, k=10, tol=1e-5, memory_budget=budget)
        .fit(index, queries, relevant)
        .score_candidates(queries, passages)
        for budget in (6e9, 2.4e5)
    ]
    np.testing.assert_allclose(scores[0], scores[1], atol=5e-5)


@pytest.mark.parametrize("strategy", ["queries", "regions", "rows"])
def test_out_of_bag_scores_are_the_mean_of_the_bags_that_did_not_see_the_query(strategy: str) -> None:
    index, queries, relevant = world(6, n_queries=60)
    ensemble = SVREnsemble(5, overlap=0.5, k=8, strategy=strategy, oob_score=True).fit(index, queries, relevant)
    pairs = np.arange(60), np.array([int(ids[0][1:]) for ids in relevant])
    rows = candidate_rows("end-to-end", index.search(queries, 8), pairs, index, queries)
    bags = ensemble._bags(rows, queries).rows
    seen = np.zeros((60, 5), dtype=bool)
    for number, bag in enumerate(bags):
        seen[rows.query[bag], number] = True
    passages = np.full((60, len(index)), -1)
    for q, p in zip(rows.query, rows.passage, strict=True):
        passages[q, p] = p
    pairs_, real, _ = ensemble._pairs(queries, passages, None)
    predictions = np.zeros((*passages.shape, 5))
    predictions[real] = ensemble.support_.bags(pairs_)
    reciprocal = []
    for q in range(60):
        mine = rows.query == q
        if seen[q].all():
            assert np.isnan(ensemble.oob_prediction_[mine]).all()
            continue
        expected = predictions[q][rows.passage[mine]][:, ~seen[q]].mean(axis=1)
        np.testing.assert_allclose(ensemble.oob_prediction_[mine], expected, atol=1e-5)
        found = mine & (rows.place >= 0)
        best: dict[int, float] = {}
        for p, score in zip(rows.passage[found], ensemble.oob_prediction_[found], strict=True):
            document = int(index.doc_of[p])
            best[document] = max(best.get(document, -np.inf), score)
        order = sorted(best, key=lambda d: (-best[d], d))
        rank = order.index(pairs[1][q]) + 1 if pairs[1][q] in order else 99
        reciprocal.append(1 / rank if rank <= 10 else 0)
    assert ensemble.oob_mrr_ == pytest.approx(np.mean(reciprocal))
    known = np.isfinite(ensemble.oob_prediction_)
    error = np.sum((rows.label[known] - ensemble.oob_prediction_[known]) ** 2)
    label = rows.label[known]
    assert ensemble.oob_score_ == pytest.approx(1 - error / np.sum((label - label.mean()) ** 2))


def test_out_of_bag_needs_bags_that_did_not_see_a_query() -> None:
    index, queries, relevant = world()
    with pytest.raises(InputError, match="every bag saw every training query"):
        SVREnsemble(1, overlap=0, k=5, oob_score=True).fit(index, queries, relevant)


def test_routed_scores_are_the_mean_of_the_nearest_bags() -> None:
    index, queries, relevant = world(7, n_queries=60)
    ensemble = SVREnsemble(6, k=8, strategy="regions", routes=2).fit(index, queries, relevant)
    passages = index.search(queries, 5).passages
    pairs, real, weights = ensemble._pairs(queries, passages, None)
    far = np.sum((queries[:, None] - ensemble.centroids_) ** 2, axis=2)
    np.testing.assert_array_equal((weights > 0), far <= np.sort(far, axis=1)[:, 1:2])
    by_bag = np.zeros((*passages.shape, 6))
    by_bag[real] = ensemble.support_.bags(pairs)
    expected = np.sum(by_bag * weights[:, None], axis=2)
    np.testing.assert_allclose(ensemble.score_candidates(queries, passages), expected, atol=1e-5)
    votes = np.sum((by_bag > 0.5) & (weights[:, None] > 0), axis=2)
    np.testing.assert_array_equal(ensemble.votes(queries, passages), votes)
    with pytest.raises(InputError, match="routes asks for strategy 'regions'"):
        SVREnsemble(3, routes=2).fit(index, queries, relevant)


def test_candidate_rows_of_ones_own() -> None:
    """fit is fit_rows on the rows it makes; rows that reach beyond the vectors are refused."""
    index, queries, relevant = world()
    pairs = np.arange(40), np.array([int(ids[0][1:]) for ids in relevant])
    rows = candidate_rows("end-to-end", index.search(queries, 10), pairs, index, queries)
    passages = index.search(queries, 5).passages
    given, made = (
        SVREnsemble(3, k=10, oob_score=True).fit_rows(index, queries, rows),
        SVREnsemble(3, k=10, oob_score=True).fit(index, queries, relevant),
    )
    np.testing.assert_array_equal(given.score_candidates(queries, passages), made.score_candidates(queries, passages))
    np.testing.assert_array_equal(given.oob_prediction_, made.oob_prediction_)
    with pytest.raises(InputError, match=r"passage numbers must lie in 0\.\."):
        SVREnsemble(3).fit_rows(index, queries, CandidateRows(rows.query, rows.passage + 10_000, rows.label))
    with pytest.raises(InputError, match="nothing to learn"):
        SVREnsemble(3).fit_rows(index, queries, CandidateRows(rows.query, rows.passage, 0 * rows.label))
