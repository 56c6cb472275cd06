"""Confidence intervals of measures, by the bootstrap over queries.

Efron & Tibshirani, "An Introduction to the Bootstrap", 1993, chapter 13 (percentile intervals).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from haybale.evaluation.measures import values_by_query
from haybale.frames import Frame
from haybale.parameters import COUNT, RANDOM_STATE, SHARE, check_parameters

LEVEL, N_SAMPLES, SEED = 0.95, 2000, 0  # the defaults
_SAMPLES_PER_BLOCK = 500  # samples of queries that are drawn at once


def intervals(
    table: Frame, level: float = LEVEL, *, n_samples: int = N_SAMPLES, random_state: int | None = SEED
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
    return intervals_of_rankers({"": table}, level, n_samples, random_state)[""]


def intervals_of_rankers(
    tables: Mapping[str, Frame], level: float = LEVEL, n_samples: int = N_SAMPLES, random_state: int | None = SEED
) -> dict[str, dict[str, tuple[float, float]]]:
    """Return :func:`intervals` of several rankers that were measured on equally many queries, from the same samples."""
    values = {ranker: values_by_query(table) for ranker, table in tables.items()}
    matrices = {ranker: table.to_numpy(dtype=np.float64) for ranker, table in values.items()}
    means: dict[str, list[NDArray[np.float64]]] = {ranker: [] for ranker in tables}
    rng, n = np.random.default_rng(random_state), len(next(iter(matrices.values())))
    for start in range(0, n_samples, _SAMPLES_PER_BLOCK):
        n_drawn = min(_SAMPLES_PER_BLOCK, n_samples - start)
        weights = rng.multinomial(n, np.full(n, 1 / n), size=n_drawn)
        for ranker, matrix in matrices.items():
            means[ranker].append(weights @ matrix / n)
    bounds = {}
    for ranker, table in values.items():
        low, high = np.quantile(np.concatenate(means[ranker]), [(1 - level) / 2, (1 + level) / 2], axis=0).tolist()
        bounds[ranker] = dict(zip(map(str, table.columns), zip(low, high, strict=True), strict=True))
    return bounds
