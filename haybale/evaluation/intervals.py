"""Confidence intervals of measures, by the bootstrap over queries.

Efron & Tibshirani, "An Introduction to the Bootstrap", 1993, chapter 13 (percentile intervals).
"""

from __future__ import annotations

import numpy as np

from haybale.evaluation.measures import values_by_query
from haybale.frames import Frame
from haybale.parameters import COUNT, RANDOM_STATE, SHARE, check_parameters

_SAMPLES_PER_BLOCK = 500  # samples of queries that are drawn at once


def intervals(
    table: Frame, level: float = 0.95, *, n_samples: int = 2000, random_state: int | None = 0
) -> dict[str, tuple[float, float]]:
    """Return an interval for the mean of each measure over the queries that might have been asked.

    Queries are drawn with replacement, as many as there are, and the interval holds the means of all but ``1 - level``
    of the samples. It says nothing about other collections or judges. With few queries, it is too narrow.

    Parameters
    ----------
    table : frame
        A result of :func:`~haybale.evaluate`. Measures of sums, such as ``MicroF1``, have intervals too, of their
        linear parts.
    level : float, default 0.95
        Share of the samples in the interval.
    n_samples : int, default 2000
    random_state : int, default 0
        Seed of the samples. All measures have the same samples.

    Examples
    --------
    >>> import pandas as pd
    >>> table = pd.DataFrame({"MRR@10": [1.0, 0.5, 0.0, 1.0]}, index=["q1", "q2", "q3", "q4"])
    >>> intervals(table)
    {'MRR@10': (0.25, 1.0)}
    """
    check_parameters(
        "intervals",
        {"level": level, "n_samples": n_samples, "random_state": random_state},
        {"level": SHARE, "n_samples": COUNT, "random_state": RANDOM_STATE},
    )
    values = values_by_query(table)
    rng, n = np.random.default_rng(random_state), len(values)
    matrix, means = values.to_numpy(dtype=np.float64), []
    for start in range(0, n_samples, _SAMPLES_PER_BLOCK):
        n_drawn = min(_SAMPLES_PER_BLOCK, n_samples - start)
        weights = rng.multinomial(n, np.full(n, 1 / n), size=n_drawn)
        means.append(weights @ matrix / n)
    low, high = np.quantile(np.concatenate(means), [(1 - level) / 2, (1 + level) / 2], axis=0)
    return {str(name): (float(one), float(other)) for name, one, other in zip(values.columns, low, high, strict=True)}
