"""How far each ranker is from the baseline, and how sure that is."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from haybale.reports.markup import Html, element
from haybale.reports.study import MEASURE, Study
from haybale.reports.svg.axes import wide_and_narrow
from haybale.reports.svg.intervals import Interval, interval_chart


def mean_interval(differences: NDArray[np.float64], share: float = 0.95) -> tuple[float, float, float]:
    """The mean of differences (n,) and the bounds of its confidence interval, by Student's t; all the same for n = 1.

    >>> [round(value, 3) for value in mean_interval(np.array([0.0, 0.1, 0.2]))]
    [0.1, -0.148, 0.348]
    """
    mean, n = float(differences.mean()), len(differences)
    if n < 2:
        return mean, mean, mean
    reach = float(stats.t.ppf((1 + share) / 2, n - 1)) * float(differences.std(ddof=1)) / math.sqrt(n)
    return mean, mean - reach, mean + reach


def effects_figure(study: Study) -> Html:
    """The mean difference in nDCG@10 of every ranker, with its interval; nothing where there is one ranker."""
    values, baseline = study.results.values, study.baseline
    if len(values) < 2:
        return Html("")
    theirs = values[baseline][MEASURE].to_numpy()
    intervals = {
        name: Interval(*mean_interval(table[MEASURE].to_numpy() - theirs), number)
        for number, (name, table) in enumerate(values.items())
        if name != baseline
    }
    label = f"Mean difference in {MEASURE} of {len(intervals)} rankers from {baseline}, with confidence intervals"
    charts = [
        interval_chart(intervals, width, label=label, x_label=f"{MEASURE} − {baseline}'s") for width in (1020, 360)
    ]
    return element(
        "figure",
        wide_and_narrow(*charts),
        element(
            "figcaption",
            f"The mean difference in {MEASURE} from {baseline}, with the interval that holds it with 95 % confidence "
            "(Student's t over the queries, each ranker on its own: not corrected for their number).",
        ),
    )
