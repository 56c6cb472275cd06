"""Memory and evidence side by side: how much a candidate's pair features add to the ensemble's score.

An ensemble's mean is small, since a pair that was learned is in few of the bags, and blind for documents that no
training query had. The evidence of a candidate is a linear function of its pair features, learned from the
training queries; its weight beside the memory is chosen by the out-of-bag MRR, which sees every training query as a
new one. No dev query takes part.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression

from haybale.ensemble.out_of_bag import reciprocal_ranks
from haybale.ensemble.rows import CandidateRows, Ints
from haybale.vectors import Floats

# Weights tried, in units of the memory's own spread over the candidates of a query; the first leaves evidence out.
GRID = (0.0, *(float(2.0**power) for power in range(-5, 5)))


@dataclass(frozen=True)
class Blend:
    """score = memory + features · weights; and the out-of-bag MRR@10 of every weight that was tried."""

    weights: NDArray[np.float64]  # (f,)
    tried: list[float]
    mrr: list[float]


def fit_blend(
    rows: CandidateRows,
    features: Floats,
    memory: NDArray[np.float64],
    relevant: tuple[Ints, Ints],
    doc_of: Ints,
) -> Blend:
    """Learn from rows (n,) that a search found, their ``features`` (n, f) and out-of-bag ``memory`` (n,).

    The direction is that of a logistic regression of relevance on features centred within each query, so that only
    the order among its candidates counts. The length is the best of :data:`GRID` by MRR@10, the smaller of equals.
    """
    centred = _centred(rows.query, features)
    spread = centred.std(axis=0)
    spread[spread == 0] = 1
    if 0 < rows.label.mean() < 1:
        direction = LogisticRegression().fit(centred / spread, rows.label).coef_[0] / spread
    else:
        direction = np.zeros(features.shape[1])
    evidence = features @ direction
    unit = _spread(rows.query, memory) / max(_spread(rows.query, evidence), np.finfo(np.float64).tiny)
    documents = doc_of[rows.passage]
    mrr = [
        float(reciprocal_ranks(rows.query, documents, memory + weight * unit * evidence, relevant).mean())
        for weight in GRID
    ]
    return Blend(GRID[int(np.argmax(mrr))] * unit * direction, list(GRID), mrr)


def _centred(query: NDArray[np.int32], values: NDArray[Any]) -> NDArray[np.float64]:
    """(n, f) values less their mean over the query's rows."""
    _, where, counts = np.unique(query, return_inverse=True, return_counts=True)
    means = np.stack([np.bincount(where, column) / counts for column in values.T], axis=1)
    return np.asarray(values - means[where])


def _spread(query: NDArray[np.int32], values: NDArray[np.float64]) -> float:
    """Standard deviation within queries."""
    return float(_centred(query, values[:, None]).std())
