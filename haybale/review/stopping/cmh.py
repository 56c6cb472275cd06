"""The stopping rule of Callaghan and Müller-Hansen, known as BUSCAR: a hypergeometric test of the recall."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from math import floor
from typing import Any, ClassVar

import numpy as np
from numba import njit
from numpy.typing import NDArray

from haybale.review.screening import Screening
from haybale.review.stopping.rule import CONFIDENCE, EVERY, TARGET, Advice, StoppingRule


@dataclass(frozen=True)
class CMH(StoppingRule):
    """Stop when a hypergeometric test rejects that the target recall was missed (Callaghan and Müller-Hansen).

    The last documents that were read, however many, are taken for a random sample of all documents that were unread
    before them. As documents are read in the order of their estimated relevance, these hold more relevant documents
    than a random sample would, so the test tends to stop late. With r relevant documents found, the target is missed
    if at least d = ⌊r / target + 1⌋ - r are unread. The p-value is the smallest probability of seeing as few relevant
    documents in such a sample, over all its sizes; the rule stops when it is below 1 - confidence.

    Callaghan and Müller-Hansen, "Statistical stopping criteria for automated screening in systematic reviews",
    Systematic Reviews 9:273, 2020.

    Parameters
    ----------
    target : float, default 0.95
        The recall to reach.
    confidence : float, default 0.95
        Confidence of the test, from 0.5 to 1, exclusive.
    every : int, default 1
        Number of documents between two tests. The paper tests after every document. Larger values stop a little
        later.
    """

    target: float = 0.95
    confidence: float = 0.95
    every: int = 1

    name = "cmh"
    kind = "estimate"
    _parameter_constraints: ClassVar = {"target": TARGET, "confidence": CONFIDENCE, "every": EVERY}

    @property
    def promise(self) -> str:
        return (
            f"Stops when a test at the {self.confidence:.0%} level says that at least {self.target:.0%} of the "
            "relevant documents were found. It is right if the unread documents are no richer in relevant ones than "
            "those read last. It is not a guarantee: a group of relevant documents that the ranking puts last goes "
            "unnoticed, and the test is repeated while you read."
        )

    def checkpoints(self, n_documents: int) -> Sequence[int]:
        return range(1, n_documents + 1, self.every)

    def advise(self, screening: Screening) -> Advice:
        positions = np.flatnonzero(screening.labels) + 1
        if not len(positions):
            return Advice(False, "no relevant document has been found, so nothing can be tested")
        value = _p_value(positions, screening.n_read, screening.n_documents, self._missing(len(positions)))
        reason = f"p = {value:.3g} that less than {self.target:.0%} was found; the test asks for {self._alpha:.3g}"
        low = len(positions) / (len(positions) + self._most_missing(positions, screening))
        return Advice(value < self._alpha, reason, low=low, high=1.0)

    def find_stop(self, screening: Screening) -> int | None:
        # While no relevant document is found, the p-value falls from document to document: bisect between two.
        positions = np.flatnonzero(screening.labels) + 1
        points, size = self.checkpoints(screening.n_documents), screening.n_documents

        def rejects(at: int) -> bool:
            reached = positions[positions <= points[at]]
            return bool(len(reached)) and _p_value(reached, points[at], size, self._missing(len(reached))) < self._alpha

        # The first checkpoint at or after each relevant document, and the end.
        ends = [bisect_left(points, position) for position in [*positions.tolist(), screening.n_read + 1]]
        for begin, end in pairwise(ends):
            if begin < end and rejects(end - 1):
                return points[_first(rejects, begin, end - 1)]
        return None

    @property
    def _alpha(self) -> float:
        return 1 - self.confidence

    def _missing(self, n_found: int) -> int:
        """Return the smallest number of unread relevant documents with which the target is missed."""
        return floor(n_found / self.target + 1) - n_found

    def _most_missing(self, positions: NDArray[Any], screening: Screening) -> int:
        """Return the largest number of unread relevant documents that the test does not reject."""

        def rejects(missing: int) -> bool:
            return _p_value(positions, screening.n_read, screening.n_documents, missing) < self._alpha

        end = 1
        while not rejects(end):
            end *= 2
        return _first(rejects, end // 2 + 1, end) - 1


def _first(holds: Callable[[int], bool], begin: int, end: int) -> int:
    """Return the first number from ``begin`` to ``end`` for which a monotone condition holds; it holds for ``end``."""
    while begin < end:
        middle = (begin + end) // 2
        begin, end = (begin, middle) if holds(middle) else (middle + 1, end)
    return begin


def _p_value(positions: NDArray[Any], n_read: int, n_documents: int, missing: int) -> float:
    """Return the smallest probability, over all samples, of as few relevant documents as were seen.

    Parameters
    ----------
    found : (r,) int array
        Positions of the relevant documents, from 1.
    n_read, n_documents : int
        Number of documents read, and of all documents.
    missing : int
        Number of unread relevant documents that the hypothesis claims.
    """
    if missing > n_documents - n_read:
        return 0.0
    # Of all samples with the same relevant documents, the largest has the smallest probability: it begins right after
    # a relevant document, or at the first document.
    begins = np.concatenate([[0], positions[positions < n_read]])
    return float(_least_probability(begins, len(positions), n_read, n_documents, missing, _log_factorials(n_documents)))


@njit(nogil=True, cache=True)
def _least_probability(
    begins: NDArray[np.int64], n_found: int, n_read: int, n_documents: int, missing: int, log: NDArray[np.float64]
) -> float:  # pragma: no cover - compiled
    """Return the smallest P(X ≤ seen), over samples that begin at several positions and end at ``n_read``.

    X is hypergeometric: ``sample`` documents of ``population``, of which ``relevant`` are relevant.
    """
    least = 1.0
    for i in range(len(begins)):
        population, sample, seen = n_documents - begins[i], n_read - begins[i], n_found - i
        relevant = seen + missing
        irrelevant = population - relevant
        # Sum away from the mean, where the terms fall: down from ``seen``, or up from the next, for the complement.
        is_below = seen * population <= sample * relevant
        x = seen if is_below else seen + 1
        last = max(0, sample - irrelevant) if is_below else min(sample, relevant)
        total = term = 0.0
        if x <= min(sample, relevant):
            chosen = log[relevant] - log[x] - log[relevant - x] + log[irrelevant] - log[sample - x]
            chosen -= log[irrelevant - sample + x]
            total = term = np.exp(chosen - log[population] + log[sample] + log[population - sample])
        while x != last and term > 1e-18 * total:
            if is_below:
                term *= x * (irrelevant - sample + x) / ((relevant - x + 1) * (sample - x + 1))
                x -= 1
            else:
                term *= (relevant - x) * (sample - x) / ((x + 1) * (irrelevant - sample + x + 1))
                x += 1
            total += term
        least = min(least, total if is_below else 1 - total)
    return least


@lru_cache(maxsize=4)
def _log_factorials(n: int) -> NDArray[np.float64]:
    """Return log 0!, …, log n!."""
    from scipy.special import gammaln

    values: NDArray[np.float64] = gammaln(np.arange(1, n + 2, dtype=np.float64))
    return values
