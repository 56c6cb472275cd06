"""Probabilities: the sigmoid fits what generated the labels, and unread documents are less likely relevant."""

from __future__ import annotations

import numpy as np

from haybale.review.calibration import fit_probabilities, fit_sigmoid, share_of_last, sigmoid


def test_the_sigmoid_that_generated_labels_is_found() -> None:
    rng = np.random.default_rng(0)
    scores = rng.normal(size=20_000)
    labels = rng.random(20_000) < sigmoid(2 * scores - 1)
    slope, offset = fit_sigmoid(scores, labels.astype(float), np.ones(20_000))
    np.testing.assert_allclose([slope, offset], [2, -1], atol=0.1)


def test_scores_that_say_the_opposite_get_no_slope() -> None:
    slope, offset = fit_sigmoid(np.array([1.0, -1.0]), np.array([0.0, 1.0]), np.ones(2))
    assert slope == 0
    assert abs(offset) < 1e-6


def test_unread_documents_are_less_likely_than_the_last_that_were_read() -> None:
    rng = np.random.default_rng(1)
    relevant = rng.random(100) < np.linspace(0.8, 0.1, 100)
    scores, rest = rng.normal(relevant, 1), rng.normal(-1, 1, 900)
    share = share_of_last(relevant)
    slope, offset = fit_probabilities(scores, relevant, share, rest)
    assert slope > 0
    assert sigmoid(slope * rest + offset).mean() < share
    assert 0 < share_of_last(np.zeros(3, dtype=bool)) < share_of_last(np.ones(3, dtype=bool)) < 1
