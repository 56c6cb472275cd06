"""Why a passage got its score: the training pairs whose support vectors carry it, with shares that sum to it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from haybale.ensemble.support import Pairs, Support


@dataclass(frozen=True)
class Evidence:
    """One training pair and what it adds to the prediction."""

    query_id: str
    passage_id: str
    label: float  # what was taught: 1 relevant, 0 not
    share: float  # signed


@dataclass(frozen=True)
class Explanation:
    """The score of one passage for one query, taken apart.

    ``prediction`` is ``math.fsum`` of the listed shares, ``others`` (the pairs not listed), ``features`` and
    ``intercept``, exactly; it is the mean of ``bags``, the predictions of the single bags. ``votes`` are the bags over
    the threshold.
    """

    prediction: float
    evidence: list[Evidence]  # by the size of the share
    others: float
    n_others: int
    intercept: float
    features: NDArray[np.float64]  # (f,) what each pair feature adds; (0,) where there are none
    bags: NDArray[np.float64]  # (n_bags,)
    votes: list[int]


def explained(
    support: Support, pair: Pairs, ids: tuple[list[str], list[str]], threshold: float, top: int
) -> Explanation:
    """Take one pair's score apart; ``ids`` of the support queries and passages."""
    by_row = support.shares(pair)
    bags = np.bincount(support.bag, by_row, minlength=support.n_bags) + support.intercept
    features = np.zeros(0)
    if support.feature_weights is not None and pair.features is not None:
        bags += support.feature_weights @ pair.features[0]
        features = support.feature_weights.mean(axis=0) * pair.features[0]
    # A training pair that several bags learned from is listed once; with another label it is another pair, as the
    # injected protocol has them.
    pairs = np.stack([support.query, support.passage, support.label.astype(np.int64)])
    pairs, where = np.unique(pairs, axis=1, return_inverse=True)
    shares = np.bincount(where.ravel(), by_row * (1 / support.n_bags), minlength=pairs.shape[1])
    listed = np.argsort(-np.abs(shares), kind="stable")[:top]
    listed = listed[shares[listed] != 0]
    evidence = [
        Evidence(ids[0][query], ids[1][passage], float(label), share)
        for (query, passage, label), share in zip(pairs.T[listed].tolist(), shares[listed].tolist(), strict=True)
    ]
    rest, intercept = math.fsum(np.delete(shares, listed)), math.fsum(support.intercept * (1 / support.n_bags))
    prediction = math.fsum([*shares[listed], rest, *features, intercept])
    n_others, votes = len(shares) - len(listed), np.flatnonzero(bags > threshold).tolist()
    return Explanation(prediction, evidence, rest, n_others, intercept, features, bags, votes)
