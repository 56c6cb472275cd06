"""Probabilities: the sigmoid fits what generated the labels, and unread documents are less likely relevant."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

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


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(2, 60),
    scale=st.floats(-12, 12).map(lambda power: 10**power),
    shift=st.sampled_from([0.0, 1.0, -100.0, 1e4, -1e6]),
    kind=st.sampled_from(["noisy", "separated", "one class", "constant", "hard", "outlier"]),
)
def test_shift_and_scale_of_scores_change_no_probability(
    seed: int, n: int, scale: float, shift: float, kind: str
) -> None:
    rng = np.random.default_rng(seed)
    scores, labels = rng.normal(size=n), rng.random(n) < 0.5
    if kind in ("separated", "hard"):
        scores += 10.0 * labels
    if kind == "outlier":
        scores[0] += 1e4
    if kind == "constant":
        scores[:] = scores[0]
    if kind == "one class":
        labels[:] = labels[0]
    targets = labels.astype(float) if kind == "hard" else np.where(labels, 0.9, 0.1)
    weights = rng.uniform(0.1, 2, size=n)
    slope, offset = fit_sigmoid(scores, targets, weights)
    expected = sigmoid(slope * scores + offset)
    others = (scores + shift) * scale
    for factor in (1.0, 1e-9, 1e9):
        slope, offset = fit_sigmoid(others, targets, factor * weights)
        found = sigmoid(slope * others + offset)
        assert np.isfinite([slope, offset]).all()
        assert slope >= 0
        np.testing.assert_allclose(found, expected, atol=1e-6)
        assert (np.diff(found[np.argsort(others, kind="stable")]) >= 0).all(), "not monotone"


def test_few_and_equal_scores() -> None:
    for scores in ([], [3.0], [2.0, 2.0], [1e-300, 2e-300], [-1e308, 1e308], [5e-324, 0.0]):
        values = np.array(scores)
        slope, offset = fit_sigmoid(values, np.linspace(0.2, 0.8, len(values)), np.ones(len(values)))
        assert np.isfinite([slope, offset]).all()
        assert np.isfinite(sigmoid(slope * values + offset)).all()
