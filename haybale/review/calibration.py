"""Turn scores into probabilities by Platt's sigmoid, fitted on judged documents and on assumptions about the others.

A review that reads the most promising documents first judges no random sample: among the documents read, a high score
says little, and the share of relevant documents is far above that of the others. A sigmoid fitted on judged documents
alone gave the unread documents of seven topics a mean probability of 0.28, where 0.04 of them were relevant. The unread
documents therefore take part in the fit. Their target probability is an eighth of the share of relevant documents in
the last judgements; this gave a mean of 0.05. No label of an unread document is known, so no fit can promise more.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]
_MAX_STEPS = 50  # of Newton's method
_MIN_SCORE_SPAN = 1e-290  # scores in a smaller span count as equal: their slope would exceed the range of floats
_N_LAST_JUDGEMENTS = 50  # judgements whose share of relevant documents bounds the share among the unread ones
UNREAD_RATIO = 1 / 8  # the assumed share of relevant documents among the unread ones, over that of the last judgements
_UNREAD_WEIGHT = 10.0  # the weight of all unread documents together, relative to that of all judged ones


def share_of_last(relevant: NDArray[np.bool_]) -> float:
    """Return the share of relevant documents in the last 50 judgements, smoothed so that it is neither 0 nor 1."""
    last = relevant[-_N_LAST_JUDGEMENTS:]
    return float((last.sum() + 0.5) / (len(last) + 1))


def fit_probabilities(scores: Values, relevant: NDArray[np.bool_], share: float, rest: Values) -> tuple[float, float]:
    """Return slope and offset of the sigmoid that turns scores into probabilities.

    Parameters
    ----------
    scores, relevant : (n_judged,) arrays
        Scores of judged documents by regressors that have not learned from them, and whether they are relevant.
    share : float
        The share of relevant documents in the last judgements (:func:`share_of_last`).
    rest : (n_rest,) array
        Scores of the documents that were not judged.
    """
    return fit_sigmoid(*calibration_targets(scores, relevant, share, rest))


def calibration_targets(
    scores: Values, relevant: NDArray[np.bool_], share: float, rest: Values
) -> tuple[Values, Values, Values]:
    """Return scores, the probabilities that they should have, and their weights, each (n_judged + n_rest,).

    The parameters are those of :func:`fit_probabilities`.
    """
    n_relevant = int(relevant.sum())
    n_others = len(relevant) - n_relevant
    targets = np.where(relevant, (n_relevant + 1) / (n_relevant + 2), 1 / (n_others + 2))
    weights = np.ones(len(scores))
    if len(rest):
        targets = np.concatenate([targets, np.full(len(rest), share * UNREAD_RATIO)])
        weights = np.concatenate([weights, np.full(len(rest), _UNREAD_WEIGHT * max(len(scores), 1) / len(rest))])
    return np.concatenate([scores, rest]), targets, weights


def fit_sigmoid(scores: Values, targets: Values, weights: Values) -> tuple[float, float]:
    """Return slope and offset of the sigmoid with the least weighted log loss, by Newton's method.

    The slope is never negative. Shift and scale of the scores, and the scale of the weights, change no probability. See
    Lin, Lin & Weng, "A note on Platt's probabilistic outputs for support vector machines", Machine Learning 68 (2007).

    >>> slope, offset = fit_sigmoid(np.array([-1.0, 1.0]), np.array([0.2, 0.8]), np.ones(2))
    >>> [round(float(each), 3) for each in 1 / (1 + np.exp(-(slope * np.array([-1, 0, 1]) + offset)))]
    [0.2, 0.5, 0.8]
    """
    total = float(weights.sum())
    mean = float(np.clip(weights @ targets / total, 1e-6, 1 - 1e-6)) if total > 0 else 0.5
    constant = 0.0, float(np.log(mean / (1 - mean)))
    lowest = float(scores.min()) if total > 0 else 0.0
    span = float(scores.max()) - lowest if total > 0 else 0.0
    if not _MIN_SCORE_SPAN < span < np.inf:
        return constant
    standardised = (scores - lowest) / span
    centre = float(weights @ standardised / total)
    deviation = float(np.sqrt(weights @ (standardised - centre) ** 2 / total))
    if deviation == 0:
        return constant
    shares = weights * (len(weights) / total)
    slope, offset = _newton((standardised - centre) / deviation, targets, shares, constant[1])
    if slope <= 0:
        return constant
    slope, offset = slope / deviation, offset - slope * centre / deviation
    return slope / span, offset - slope * (lowest / span)


def _newton(scores: Values, targets: Values, weights: Values, offset: float) -> tuple[float, float]:
    """Return slope and offset of :func:`fit_sigmoid` for scores of mean 0 and deviation 1, from a slope of 0."""

    def loss(slope: float, offset: float) -> float:
        values = slope * scores + offset
        return float(weights @ (np.logaddexp(0, values) - targets * values))

    slope, before = 0.0, loss(0.0, offset)
    for _ in range(_MAX_STEPS):
        p = sigmoid(slope * scores + offset)
        weight = np.maximum(weights * p * (1 - p), 1e-12)
        residual = weights * (p - targets)
        gradient = np.array([scores @ residual, residual.sum()])
        cross = weight @ scores
        hessian = np.array([[weight @ scores**2 + 1e-6, cross], [cross, weight.sum() + 1e-6]])
        step = np.linalg.solve(hessian, gradient)
        step *= min(1.0, 2 / max(float(np.abs(step).max()), 1e-12))
        while (after := loss(slope - step[0], offset - step[1])) > before and np.abs(step).max() > 1e-6:
            step /= 2
        slope, offset, before = slope - float(step[0]), offset - float(step[1]), after
        if np.abs(step).max() < 1e-6:
            break
    return slope, offset


def sigmoid(values: Values) -> Values:
    """Return 1 / (1 + exp(-x)) for each value."""
    return np.asarray(1 / (1 + np.exp(-np.clip(values, -700, 700))))
