"""Is a difference between two rankers more than chance? Paired tests over the same queries.

Smucker, Allan & Carterette, "A Comparison of Statistical Significance Tests for Information Retrieval
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
