"""Explanations of scores: the training pairs that contribute to a score, with shares that sum to it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from haybale.ensemble.kernel import Pairs
from haybale.ensemble.support import Support


@dataclass(frozen=True)
class PairShare:
    """One training pair and its share of the prediction."""

    query_id: str
    passage_id: str
    label: float  # the training label: 1 relevant, 0 not
    share: float  # may be negative


@dataclass(frozen=True)
class PairExplanation:
    """The score of one passage for one query, split into shares.

    ``prediction`` is exactly ``math.fsum`` of the listed shares, ``others``, ``features`` and ``intercept``. Up to
    rounding, it is the mean of ``bags``.
    """

    prediction: float
    pairs: list[PairShare]  # by decreasing absolute share
    others: float  # sum of the shares of the pairs that are not listed
    n_others: int  # number of these pairs
    intercept: float
    features: NDArray[np.float64]  # (f,) share of each pair feature; (0,) without pair features
    bags: NDArray[np.float64]  # (n_bags,) prediction of each bag
    votes: list[int]  # numbers of the bags that predict more than the threshold


def explain_pair(
    support: Support, pair: Pairs, query_ids: list[str], passage_ids: list[str], threshold: float, top: int
) -> PairExplanation:
    """Explain the score of one pair by the ``top`` training pairs with the largest absolute shares.

    ``query_ids`` and ``passage_ids`` are the ids of the support's queries and passages.
    """
    by_row = support.shares(pair)
    bags = support.sums_of_bags(by_row) + support.intercept
    features = np.zeros(0)
    if support.feature_weights is not None and pair.features is not None:
        bags += support.feature_weights @ pair.features[0]
        features = support.feature_weights.mean(axis=0) * pair.features[0]
    firsts, further, of_pair = support.distinct  # a training pair that is in several bags is listed once
    by_row *= 1 / support.n_bags
    shares = by_row[firsts]
    np.add.at(shares, of_pair, by_row[further])
    sizes = np.abs(shares)
    least = np.partition(sizes, -top)[-top] if top < len(sizes) else 0.0
    largest = np.flatnonzero((sizes >= least) & (sizes > 0))
    listed = largest[np.argsort(-sizes[largest], kind="stable")[:top]]
    rows, listed_shares = firsts[listed], shares[listed]
    columns = support.query[rows], support.passage[rows], support.label[rows], listed_shares
    pairs = [
        PairShare(query_ids[query], passage_ids[passage], float(int(label)), share)
        for query, passage, label, share in zip(*(column.tolist() for column in columns), strict=True)
    ]
    shares[listed] = 0
    unlisted, intercept = float(shares.sum()), math.fsum(support.intercept * (1 / support.n_bags))
    prediction = math.fsum([*listed_shares, unlisted, *features, intercept])
    votes = np.flatnonzero(bags > threshold).tolist()
    return PairExplanation(prediction, pairs, unlisted, len(shares) - len(listed), intercept, features, bags, votes)
