"""Precision, recall and F1 of yes/no decisions: what the ensemble paper's table 1 and figure 3 report."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Classification:
    """Figures of the positive class over (query, passage) rows; 0 where a ratio has nothing below the line."""

    precision: float
    recall: float
    f1: float
    accuracy: float
    n_positive: int
    n_rows: int


def classify(decision: NDArray[np.bool_], label: NDArray[np.bool_]) -> Classification:
    """Compare decisions with labels, (n,) each.

    >>> classify(np.array([True, True, False]), np.array([True, False, True]))
    Classification(precision=0.5, recall=0.5, f1=0.5, accuracy=0.3333333333333333, n_positive=2, n_rows=3)
    """
    hit = int((decision & label).sum())
    said, are = int(decision.sum()), int(label.sum())
    precision = hit / said if said else 0.0
    recall = hit / are if are else 0.0
    return Classification(
        precision=precision,
        recall=recall,
        f1=2 * hit / (said + are) if said + are else 0.0,
        accuracy=float((decision == label).mean()),
        n_positive=are,
        n_rows=len(label),
    )
