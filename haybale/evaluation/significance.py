"""Is a difference between two rankers more than chance, and how large is it? Over the same queries, paired.

Cohen, "Statistical Power Analysis for the Behavioral Sciences", 2nd edition, 1988, chapter 2 (d of paired
differences); Smucker, Allan & Carterette, "A Comparison of Statistical Significance Tests for Information Retrieval
Evaluation", CIKM 2007.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from haybale.errors import InputError

_ROUNDS = 10_000
_CHUNK = 500  # rounds drawn at once


@dataclass(frozen=True)
class Comparison:
    """A ranker against a baseline on one measure; ``p_*`` are two-sided and Bonferroni-corrected."""

    difference: float  # mean over queries, ranker minus baseline
    p_t: float  # paired t-test
    p_randomization: float  # sign-flip randomisation test
    effect_size: float | None  # Cohen's d of the differences; None where they have no spread, see effect_size()


def paired_tests(
    values: NDArray[np.float64],
    baseline: NDArray[np.float64],
    *,
    n_comparisons: int = 1,
    rounds: int = _ROUNDS,
    random_state: int = 0,
) -> Comparison:
    """Compare two rankers' values, (n_queries,) each, query by query.

    ``n_comparisons``: in how many comparisons with this baseline the question is asked (Bonferroni: p is
    multiplied by it, at most 1). ``rounds`` of the randomisation test; its smallest possible p is
    1 / (rounds + 1). Rankers that agree on every query have p = 1.

    >>> values = np.array([0.5, 1.0, 0.25, 0.8])
    >>> paired_tests(values, values - 0.1).p_randomization
    0.1...
    """
    if values.shape != baseline.shape or values.ndim != 1:
        raise InputError(f"expected the same queries on both sides, found shapes {values.shape} and {baseline.shape}")
    differences = values - baseline
    mean = float(differences.mean())
    return Comparison(
        difference=mean,
        p_t=min(1.0, n_comparisons * t_test(differences)),
        p_randomization=min(1.0, n_comparisons * randomization_test(differences, rounds, random_state)),
        effect_size=effect_size(differences),
    )


def t_test(differences: NDArray[np.float64]) -> float:
    """Two-sided p of the paired t-test; with fewer than two queries or no difference at all, 1."""
    if len(differences) < 2 or not differences.any():
        return 1.0
    deviation = differences.std(ddof=1)
    if deviation == 0:  # the same difference everywhere: t is infinite
        return 0.0
    t = differences.mean() / (deviation / np.sqrt(len(differences)))
    return float(2 * stats.t.sf(abs(t), len(differences) - 1))


def effect_size(differences: NDArray[np.float64]) -> float | None:
    """Cohen's d of paired differences (n,): their mean over their standard deviation, that of a sample (ddof 1).

    By custom 0.2 is a small effect, 0.5 a medium and 0.8 a large one, in either direction. 0 if there is no
    difference at all. None, which JSON can hold, where d is not finite: all differences are the same, or there is
    one query only. The code of the PARM paper divides by the standard deviation of a population (ddof 0), which
    gives d · √(n / (n - 1)): over 100 queries, half a percent more.

    >>> effect_size(np.array([0.0, 0.25, 0.5]))
    1.0
    """
    if not differences.any():
        return 0.0
    if len(differences) < 2:
        return None
    mean, deviation = float(differences.mean()), float(differences.std(ddof=1))
    # Differences that are the same but for their last bits have a deviation of that size.
    return None if deviation <= 1e-12 * abs(mean) else mean / deviation


def randomization_test(differences: NDArray[np.float64], rounds: int, random_state: int) -> float:
    """Two-sided p: how often random signs give a mean as far from 0 as the one seen, which counts as one."""
    rng = np.random.default_rng(random_state)
    moving = differences[differences != 0]  # a difference of 0 has no sign to flip
    total = moving.sum()
    as_far = 1
    for start in range(0, rounds, _CHUNK):
        kept = rng.integers(2, size=(min(_CHUNK, rounds - start), len(moving)), dtype=np.int8)
        sums = 2 * (kept.astype(np.float64) @ moving) - total  # sign +1 where kept, -1 elsewhere
        # A sum of the same terms in another order may differ in the last bits from the one seen.
        as_far += int((np.abs(sums) >= abs(total) - 1e-9).sum())
    return as_far / (rounds + 1)
