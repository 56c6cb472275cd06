"""Test whether rankers differ: two significance tests over the queries and an effect size.

Cohen, "Statistical Power Analysis for the Behavioral Sciences", 2nd edition, 1988, chapter 2 (d of paired
differences); Smucker, Allan & Carterette, "A Comparison of Statistical Significance Tests for Information Retrieval
Evaluation", CIKM 2007.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from haybale.errors import InputError
from haybale.parameters import COUNT, check_parameters

_N_SIGN_PATTERNS = 10_000  # drawn by the randomisation test, so that p is at least 1 / 10,001
_PATTERNS_PER_BLOCK = 500  # sign patterns computed at once
_RELATIVE_ROUNDING = 1e-12  # times the magnitude of values: smaller differences come from rounding


@dataclass(frozen=True)
class Comparison:
    """The comparison of a ranker with a baseline on one measure; p-values are two-sided and Bonferroni-corrected."""

    difference: float  # mean over queries, ranker minus baseline
    p_t: float  # paired t-test
    p_randomization: float  # sign-flip randomisation test
    effect_size: float | None  # Cohen's d of the differences; None if their standard deviation is 0

    @property
    def p(self) -> float:
        """The larger p-value of the two tests."""
        return max(self.p_t, self.p_randomization)


def paired_tests(values: NDArray[np.float64], baseline: NDArray[np.float64], *, n_comparisons: int = 1) -> Comparison:
    """Compare the values of two rankers on the same queries.

    Parameters
    ----------
    values, baseline : (n_queries,) float64
        Values of one measure. If they are equal, p is 1.
    n_comparisons : int, default 1
        Number of comparisons with this baseline, the Bonferroni factor of p.

    Raises
    ------
    InputError
        If the shapes differ.

    Examples
    --------
    >>> values = np.array([0.5, 1.0, 0.25, 0.8])
    >>> paired_tests(values, values - 0.1).p_randomization
    0.1...
    """
    check_parameters("paired_tests", {"n_comparisons": n_comparisons}, {"n_comparisons": COUNT})
    if values.shape != baseline.shape or values.ndim != 1:
        raise InputError(f"expected the same queries on both sides, found shapes {values.shape} and {baseline.shape}")
    # In units of a power of two, which rounds nothing: squares of very small or large values stay in range.
    _, exponent = np.frexp(max(np.abs(values).max(initial=0.0), np.abs(baseline).max(initial=0.0)))
    ours, theirs = np.ldexp(values, -exponent), np.ldexp(baseline, -exponent)
    differences, magnitude = ours - theirs, float(np.abs(ours).sum() + np.abs(theirs).sum())
    p_t, effect_size = t_test(differences, magnitude)
    p_randomization = min(1.0, n_comparisons * randomization_test(differences, magnitude))
    mean = float(np.ldexp(differences.mean(), exponent))
    return Comparison(mean, min(1.0, n_comparisons * p_t), p_randomization, effect_size)


def t_test(differences: NDArray[np.float64], magnitude: float | None = None) -> tuple[float, float | None]:
    """Return the two-sided p of the paired t-test, and Cohen's d: the mean over the sample standard deviation (ddof 1).

    By convention, 0.2 is a small, 0.5 a medium and 0.8 a large effect. If all differences are 0, p is 1 and d is 0. If
    they all have another value, or if there is only one query, d is None. The code of the PARM paper divides by the
    population standard deviation instead, which gives d · √(n / (n - 1)). ``magnitude`` is the sum of the absolute
    values that were subtracted, default that of the differences; it says which differences come from rounding.

    >>> t_test(np.array([0.0, 0.25, 0.5]))[1]
    1.0
    """
    if not differences.any():
        return 1.0, 0.0
    if len(differences) < 2:
        return 1.0, None
    _, exponent = np.frexp(np.abs(differences).max())
    differences = np.ldexp(differences, -exponent)
    mean, deviation = float(differences.mean()), float(differences.std(ddof=1))
    if deviation <= _rounding(differences, magnitude, exponent) / len(differences):  # equal up to rounding
        return 0.0, None
    from scipy import stats

    return float(stats.ttest_1samp(differences, 0).pvalue), mean / deviation


def randomization_test(differences: NDArray[np.float64], magnitude: float | None = None) -> float:
    """Return the two-sided p of the sign-flip randomisation test.

    It is the share of sign patterns, the observed one included, whose mean is at least as far from 0 as the observed
    mean. ``scipy.stats.permutation_test`` computes the same, but takes twenty times as long. ``magnitude`` is that of
    :func:`t_test`; sums that differ by less than its rounding are equal.
    """
    rng = np.random.default_rng(0)
    nonzero = differences[differences != 0]
    _, exponent = np.frexp(np.abs(nonzero).max(initial=0.0))
    nonzero = np.ldexp(nonzero, -exponent)
    total, n_extreme = nonzero.sum(), 1
    least = abs(total) - _rounding(nonzero, magnitude, exponent)
    for _ in range(_N_SIGN_PATTERNS // _PATTERNS_PER_BLOCK):
        positive = rng.integers(2, size=(_PATTERNS_PER_BLOCK, len(nonzero)), dtype=np.int8)
        sums = 2 * (positive.astype(np.float64) @ nonzero) - total
        n_extreme += int((np.abs(sums) >= least).sum())
    return n_extreme / (_N_SIGN_PATTERNS + 1)


def _rounding(differences: NDArray[np.float64], magnitude: float | None, exponent: int) -> float:
    """Return a bound on the rounding error of the sum of differences, which were divided by 2 to the ``exponent``."""
    total = float(np.abs(differences).sum())
    return _RELATIVE_ROUNDING * (total if magnitude is None else max(total, float(np.ldexp(magnitude, -exponent))))
