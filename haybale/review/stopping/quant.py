"""The stopping rules Quant and QuantCI of Yang, Lewis and Frieder: recall from the documents' probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from haybale.errors import InputError
from haybale.parameters import COUNT, NOT_NEGATIVE
from haybale.review.screening import Screening
from haybale.review.stopping.rule import EVERY, TARGET, Advice, StoppingRule


@dataclass(frozen=True)
class Quant(StoppingRule):
    """Stop when the recall that the documents' probabilities imply reaches the target (Quant, QuantCI).

    The estimate is the sum of the probabilities of the documents that were read, divided by the sum over all documents.
    Its variance takes the documents to be independent. The probabilities are the ``scores`` of the screening, and must
    be calibrated: of the documents with a probability of 0.3, three in ten are relevant. The judgements themselves
    enter the estimate only through the model that gives the probabilities.

    Yang, Lewis and Frieder, "Heuristic stopping rules for technology-assisted review", DocEng 2021.

    Parameters
    ----------
    target : float, default 0.95
        The recall to reach.
    n_std : float, default 0
        Number of standard deviations by which the estimate must exceed the target. 0 is Quant, 2 is QuantCI.
    at_least : int, default 50
        Number of documents before which the rule does not stop.
    every : int, default 1
        Number of documents between two estimates.
    """

    target: float = 0.95
    n_std: float = 0.0
    at_least: int = 50
    every: int = 1

    name = "quant"
    kind = "estimate"
    needs_scores = True
    _parameter_constraints: ClassVar = {
        "target": TARGET,
        "n_std": NOT_NEGATIVE,
        "at_least": COUNT,
        "every": EVERY,
    }

    @property
    def promise(self) -> str:
        margin = f", less {self.n_std:g} standard deviations," if self.n_std else ""
        return (
            f"Stops when the model's own probabilities imply a recall of {self.target:.0%}{margin}. It is right if the "
            "model is calibrated on the unread documents. It is not a guarantee: a model that overlooks a group of "
            "relevant documents gives them low probabilities too."
        )

    def checkpoints(self, n_documents: int) -> Sequence[int]:
        return range(self.at_least, n_documents + 1, self.every)

    def advise(self, screening: Screening) -> Advice:
        recall, deviation = self._estimates(screening, np.array([screening.n_read]))
        mean, std = float(recall[0]), float(deviation[0])
        reason = (
            f"the documents' probabilities imply a recall of {mean:.1%} ± {std:.1%}; the target is {self.target:.1%}"
        )
        low, high = max(mean - 2 * std, 0.0), min(mean + 2 * std, 1.0)
        return Advice(mean - self.n_std * std >= self.target, reason, mean, low, high)

    def find_stop(self, screening: Screening) -> int | None:
        points = np.array(self.checkpoints(min(screening.n_read, screening.n_documents - 1)), dtype=np.int64)
        recall, deviation = self._estimates(screening, points)
        enough = np.flatnonzero(recall - self.n_std * deviation >= self.target)
        return int(points[enough[0]]) if len(enough) else None

    def _estimates(self, screening: Screening, at: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the estimated recall, and its standard deviation, after each of some numbers of documents."""
        p = screening.scores
        if p is None:
            raise InputError(
                "quant needs the probability of each document, found scores=None; give scores, or choose cmh"
            )
        if not (np.isfinite(p).all() and p.min() >= 0 and p.max() <= 1):
            raise InputError(
                f"quant needs probabilities from 0 to 1, found {p.min():.3g} to {p.max():.3g}; calibrate them"
            )
        total, variance = p.sum(), (p * (1 - p)).sum()
        if total <= 0:
            return np.zeros(len(at)), np.zeros(len(at))
        read_total, read_variance = np.cumsum(p)[at - 1], np.cumsum(p * (1 - p))[at - 1]
        deviation = np.sqrt(read_total**2 / total**4 * variance + read_variance / total**2)
        return read_total / total, deviation
