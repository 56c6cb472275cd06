"""How sure a difference between rankers is, and how large: two tests and an effect size, query by query.

Cohen, "Statistical Power Analysis for the Behavioral Sciences", 2nd edition, 1988, chapter 2 (d of paired
differences); Smucker, Allan & Carterette, "A Comparison of Statistical Significance Tests for Information Retrieval
Evaluation", CIKM 2007.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from haybale.errors import InputError
from haybale.evaluation.measures import averages, values_by_query
from haybale.frames import Frame
from haybale.parameters import COUNT, check_parameters

_ROUNDS = 10_000  # of the randomisation test, whose smallest possible p is 1 / (rounds + 1)
_CHUNK = 500  # rounds drawn at once


@dataclass(frozen=True)
class Comparison:
    """A ranker against a baseline on one measure; ``p_*`` are two-sided and Bonferroni-corrected."""

    difference: float  # mean over queries, ranker minus baseline
    p_t: float  # paired t-test
    p_randomization: float  # sign-flip randomisation test
    effect_size: float | None  # Cohen's d of the differences; None where they have no spread

    @property
    def p(self) -> float:
        """The larger of both tests' p."""
        return max(self.p_t, self.p_randomization)


@dataclass(frozen=True)
class Results:
    """Values by ranker (each a frame of :func:`evaluate`) and their comparisons with the baseline."""

    values: dict[str, pd.DataFrame]
    baseline: str
    comparisons: dict[str, dict[str, Comparison]]  # ranker -> measure -> comparison; the baseline has none

    @property
    def measures(self) -> list[str]:
        return list(self.values[self.baseline].columns)

    @property
    def n_queries(self) -> int:
        return len(self.values[self.baseline])

    def to_dict(self) -> dict[str, object]:
        """Averages, p-values and effect sizes, for JSON."""
        return {
            name: {
                "measures": averages(table),
                "against_baseline": {m: vars(c) for m, c in self.comparisons.get(name, {}).items()},
            }
            for name, table in self.values.items()
        }


def results(values: dict[str, Frame], baseline: str) -> Results:
    """Compare every ranker with the baseline on every measure.

    Parameters
    ----------
    values : dict of str to frame
        Frames of :func:`evaluate`, of pandas or cuDF, or tables of pyarrow, by ranker.
    baseline : str
        One of them. The Bonferroni factor is the number of the others: each measure is a question of its own.
    """
    if baseline not in values:
        raise InputError(f"the baseline {baseline!r} is not among the rankers: {', '.join(values)}")
    tables = {name: values_by_query(table) for name, table in values.items()}
    others = [name for name in tables if name != baseline]

    def compared(name: str, measure: str) -> Comparison:
        ours, theirs = (tables[each][measure].to_numpy() for each in (name, baseline))
        return paired_tests(ours, theirs, n_comparisons=len(others))

    measures = tables[baseline].columns
    return Results(tables, baseline, {name: {each: compared(name, each) for each in measures} for name in others})


def paired_tests(values: NDArray[np.float64], baseline: NDArray[np.float64], *, n_comparisons: int = 1) -> Comparison:
    """Compare two rankers' values query by query. Rankers that agree on every query have p = 1.

    Parameters
    ----------
    values, baseline : (n_queries,) float64
    n_comparisons : int, default 1
        In how many comparisons with this baseline the question is asked: p is multiplied by it (Bonferroni).

    Examples
    --------
    >>> values = np.array([0.5, 1.0, 0.25, 0.8])
    >>> paired_tests(values, values - 0.1).p_randomization
    0.1...
    """
    check_parameters("paired_tests", {"n_comparisons": n_comparisons}, {"n_comparisons": COUNT})
    if values.shape != baseline.shape or values.ndim != 1:
        raise InputError(f"expected the same queries on both sides, found shapes {values.shape} and {baseline.shape}")
    differences = values - baseline
    p_t, effect_size = t_test(differences)
    p_randomization = min(1.0, n_comparisons * randomization_test(differences))
    return Comparison(float(differences.mean()), min(1.0, n_comparisons * p_t), p_randomization, effect_size)


def t_test(differences: NDArray[np.float64]) -> tuple[float, float | None]:
    """Two-sided p of the paired t-test, and Cohen's d: the mean over the standard deviation of a sample (ddof 1).

    By custom 0.2 is a small effect, 0.5 a medium and 0.8 a large one, in either direction. Without any difference p is
    1 and d is 0; d is None, which JSON can hold, where all differences are the same, or there is one query only. The
    code of the PARM paper divides by the standard deviation of a population, which gives d · √(n / (n - 1)).

    >>> t_test(np.array([0.0, 0.25, 0.5]))[1]
    1.0
    """
    if not differences.any():
        return 1.0, 0.0
    if len(differences) < 2:
        return 1.0, None
    mean, deviation = float(differences.mean()), float(differences.std(ddof=1))
    if deviation <= 1e-12 * abs(mean):  # the same but for their last bits, which have a deviation of that size
        return 0.0, None
    return float(stats.ttest_1samp(differences, 0).pvalue), mean / deviation


def randomization_test(differences: NDArray[np.float64]) -> float:
    """Two-sided p: how often random signs give a mean as far from 0 as the one seen, which counts as one.

    ``scipy.stats.permutation_test`` does the same, and takes twenty times as long.
    """
    rng = np.random.default_rng(0)
    moving = differences[differences != 0]  # a difference of 0 has no sign to flip
    total, as_far = moving.sum(), 1
    for _ in range(_ROUNDS // _CHUNK):
        positive = rng.integers(2, size=(_CHUNK, len(moving)), dtype=np.int8)
        sums = 2 * (positive.astype(np.float64) @ moving) - total
        # A sum of the same terms in another order may differ in the last bits from the one seen.
        as_far += int((np.abs(sums) >= abs(total) - 1e-9).sum())
    return as_far / (_ROUNDS + 1)
