"""Rules that decide, from the probabilities of a query's candidates, which of them are its answer.

Ye, Chai, Lee & Chieu, "Optimizing F-measure: A Tale of Two Approaches", ICML 2012: with independent labels, the answer
with the largest expected F1 consists of the most probable documents, and the expectation of each such answer is exact
in cubic time. Lipton, Elkan & Naryanaswamy, "Optimal Thresholding of Classifiers to Maximize F1 Measure", ECML 2014:
one threshold maximises F1 over all decisions.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from haybale.retrieval.hits import Ints

OBJECTIVES = ("micro-f1", "macro-f1", "precision", "recall")
_LEAST_PROBABILITY = 1e-4  # candidates below it hardly change an expected F1, and are no answer of macro-f1
_TIE = 1e-12  # expected values that differ by less are equal; the smaller answer is taken

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class JudgedCandidates:
    """Candidates of training queries with their probabilities and judgements."""

    offsets: Ints  # (m + 1,) the candidates of query i are offsets[i]:offsets[i + 1]
    probabilities: Array  # (n,)
    is_relevant: Mask  # (n,)
    n_relevant: Ints  # (m,) relevant documents of each query, candidates or not

    def take(self, queries: Mask) -> JudgedCandidates:
        """Return the candidates of some queries, given as (m,) bool."""
        counts = np.diff(self.offsets)
        rows = np.repeat(queries, counts)
        offsets = np.concatenate([[0], np.cumsum(counts[queries])])
        return JudgedCandidates(offsets, self.probabilities[rows], self.is_relevant[rows], self.n_relevant[queries])


@dataclass(frozen=True)
class AnswerRule:
    """Which candidates of a query are its answer.

    Parameters
    ----------
    objective : {"micro-f1", "macro-f1", "precision", "recall"}
        For macro-f1, the most probable documents with the largest expected F1, of which there is always one. Otherwise,
        the documents with a probability of at least ``threshold``.
    threshold : float
    at_least_one : bool
        Whether the most probable document is the answer if no other is.
    """

    objective: str
    threshold: float
    at_least_one: bool

    def is_answer(self, offsets: Ints, probabilities: Array) -> Mask:
        """Return which candidates (n,) are answers; those of query i are ``offsets[i]:offsets[i + 1]``."""
        taken = np.zeros(len(probabilities), dtype=bool)
        if self.objective == "macro-f1":
            for part in _parts(offsets):
                order = np.argsort(-probabilities[part], kind="stable")
                n = _best_prefix(expected_f1(probabilities[part][order]))
                taken[part.start + order[:n]] = True
            return taken
        taken = probabilities >= self.threshold
        if self.at_least_one:
            for part in _parts(offsets):
                if not taken[part].any():
                    taken[part.start + int(probabilities[part].argmax())] = True
        return taken


def expected_f1(probabilities: Array) -> Array:
    """Return the expected F1 (n,) of the first document, of the first two, and so on.

    Whether documents are relevant is independent; there are no other relevant documents. If none is relevant, F1 is 0.

    Parameters
    ----------
    probabilities : (n,) float64
        The probabilities of relevance, falling.

    Examples
    --------
    >>> expected_f1(np.array([0.5, 0.5])).round(4).tolist()
    [0.4167, 0.5833]
    """
    n = int((probabilities >= _LEAST_PROBABILITY).sum()) or min(1, len(probabilities))
    kept = probabilities[:n]
    after = np.zeros((n + 1, n + 1))  # after[k, u]: the probability that u of the documents from k on are relevant
    after[n, 0] = 1
    for k in range(n - 1, -1, -1):
        after[k] = after[k + 1] * (1 - kept[k])
        after[k, 1:] += after[k + 1, :-1] * kept[k]
    before, expected = np.zeros(n + 1), np.zeros(len(probabilities))
    before[0] = 1
    numbers = np.arange(n + 1)
    for k in range(1, n + 1):
        before[1:] = before[1:] * (1 - kept[k - 1]) + before[:-1] * kept[k - 1]
        before[0] *= 1 - kept[k - 1]
        inside, rest = numbers[: k + 1], numbers[: n - k + 1]
        f1 = 2 * inside[:, None] / (k + inside[:, None] + rest)
        expected[k - 1] = before[: k + 1] @ f1 @ after[k, : n - k + 1]
    return expected


def _best_prefix(expected: Array) -> int:
    """Return the length of the smallest answer with the largest expectation, up to rounding; 0 without candidates."""
    return int(np.argmax(expected >= expected.max() - _TIE)) + 1 if len(expected) else 0


def fitted_rule(objective: str, target: float | None, at_least_one: bool, judged: JudgedCandidates) -> AnswerRule:
    """Return the rule whose threshold serves an objective best on training queries.

    The threshold is a probability of a candidate. For micro-f1, it maximises F1 over all pairs of query and candidate,
    expected by the probabilities. For precision, it is the lowest one with the wanted precision on the judgements, else
    the one with the highest precision. For recall, it is the highest one with the wanted recall, else the lowest.
    """
    if objective == "macro-f1" or not len(judged.probabilities):
        return AnswerRule(objective, 0.0, at_least_one)
    thresholds, n_answers, n_right, n_expected = answer_counts(judged, at_least_one)
    n_relevant = max(1, int(judged.n_relevant.sum()))
    if objective == "micro-f1":
        best = int(np.argmax(2 * n_expected / (n_answers + n_relevant)))
    elif objective == "precision":
        precision = n_right / n_answers
        reached = np.flatnonzero(precision >= float(target or 0.0))
        best = int(reached[-1]) if len(reached) else int(np.argmax(precision))
    else:
        reached = np.flatnonzero(n_right / n_relevant >= float(target or 0.0))
        best = int(reached[0]) if len(reached) else len(thresholds) - 1
    return AnswerRule(objective, float(thresholds[best]), at_least_one)


def answer_counts(judged: JudgedCandidates, at_least_one: bool) -> tuple[Array, Array, Array, Array]:
    """Return falling thresholds, and for each the number of answers, of relevant ones, and of these as expected."""
    probabilities = judged.probabilities
    values, relevant = np.ones(len(probabilities)), judged.is_relevant.astype(np.float64)
    order = np.argsort(-probabilities, kind="stable")
    counts = [np.cumsum(column[order]) for column in (values, relevant, probabilities)]
    if at_least_one:  # above its best probability, a query has its most probable document as its answer
        best = np.array([part.start + int(probabilities[part].argmax()) for part in _parts(judged.offsets)], dtype=int)
        best = best[np.argsort(-probabilities[best], kind="stable")]
        n_above = np.searchsorted(-probabilities[best], -probabilities[order], side="right")
        for count, column in zip(counts, (values, relevant, probabilities), strict=True):
            left = np.concatenate([np.cumsum(column[best][::-1])[::-1], [0.0]])
            count += left[n_above]
    falling = probabilities[order]
    last = np.flatnonzero(np.append(falling[1:] < falling[:-1], True))  # the last candidate of each threshold
    return falling[last], counts[0][last], counts[1][last], counts[2][last]


def _parts(offsets: Ints) -> Iterator[slice]:
    """Yield the candidates of each query that has some."""
    return (slice(start, end) for start, end in pairwise(offsets.tolist()) if start < end)
