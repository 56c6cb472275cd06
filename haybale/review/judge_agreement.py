"""Measure how far judges agree: the share of equal judgements, Cohen's kappa, and kappa adjusted for prevalence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from haybale.review.judgement_store import Judgement

if TYPE_CHECKING:
    import pandas as pd

WINDOW = 50  # latest documents of a pair of judges, for agreement over time
_MEASURES = ("agreement", "kappa", "pabak")
Floats = NDArray[np.float64]


def cohen_kappa(one: Sequence[bool], other: Sequence[bool]) -> float | None:
    """Return Cohen's kappa of two judges who judged the same documents as relevant or not.

    It is (p − e) / (1 − e), where p is the share of documents on which they agree, and e the share that is expected if
    each judged at random with their own share of relevant documents: Cohen, "A coefficient of agreement for nominal
    scales", Educational and Psychological Measurement 20 (1960). It is None if e is 1, where both judged everything
    alike, and without documents.

    Examples
    --------
    >>> cohen_kappa([True, True, False, False], [True, False, False, False])
    0.5
    """
    if not len(one):
        return None
    a, b = np.asarray(one, dtype=bool), np.asarray(other, dtype=bool)
    kappa = float(_kappa((a == b).mean(), a.mean(), b.mean()))
    return None if np.isnan(kappa) else kappa


def pabak(one: Sequence[bool], other: Sequence[bool]) -> float | None:
    """Return the prevalence- and bias-adjusted kappa of two judges who judged the same documents; None without any.

    It is 2 p − 1, where p is the share of documents on which they agree: the kappa of judges who both found half of the
    documents relevant. Where few documents are relevant, Cohen's kappa is low even if judges agree on nearly all:
    Byrt, Bishop & Carlin, "Bias, prevalence and kappa", Journal of Clinical Epidemiology 46 (1993).

    Examples
    --------
    >>> pabak([True, True, False, False], [True, False, False, False])
    0.5
    """
    if not len(one):
        return None
    return float(2 * (np.asarray(one, dtype=bool) == np.asarray(other, dtype=bool)).mean() - 1)


def _kappa(agreement: ArrayLike, one: ArrayLike, other: ArrayLike) -> Floats:
    """Return kappa for shares of equal judgements and the shares that each judge found relevant; NaN if undefined."""
    p, a, b = (np.asarray(share, dtype=np.float64) for share in (agreement, one, other))
    expected = a * b + (1 - a) * (1 - b)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.asarray(np.where(expected == 1, np.nan, (p - expected) / (1 - expected)))


def agreement(grades: Mapping[str, Mapping[str, int]]) -> pd.DataFrame:
    """Return how far each pair of judges agrees on the documents that both have judged.

    Parameters
    ----------
    grades : mapping of str to mapping of str to int
        The grade of each judge, by document.

    Returns
    -------
    DataFrame
        A row for each pair of judges with a document in common: ``judge``, ``other``, ``documents`` (how many both
        have judged), ``only_judge`` and ``only_other`` (how many one of them has judged and the other has not),
        ``agreement`` (the share that both judged as relevant, or both as irrelevant), ``kappa`` (:func:`cohen_kappa`;
        NaN where it is not defined) and ``pabak`` (:func:`pabak`).
    """
    import pandas as pd

    labels = _labels(grades)
    rows = []
    for judge, other in combinations(sorted(labels), 2):
        both = [doc_id for doc_id in labels[judge] if doc_id in labels[other]]
        if both:
            one, two = ([labels[name][doc_id] for doc_id in both] for name in (judge, other))
            n_only = [len(labels[name]) - len(both) for name in (judge, other)]
            share, kappa = float(np.mean(np.equal(one, two))), cohen_kappa(one, two)
            rows.append((judge, other, len(both), *n_only, share, np.nan if kappa is None else kappa, pabak(one, two)))
    return pd.DataFrame(rows, columns=["judge", "other", "documents", "only_judge", "only_other", *_MEASURES])


def agreement_over_time(judgements: Mapping[str, Mapping[str, Judgement]], window: int = WINDOW) -> pd.DataFrame:
    """Return how far each pair of judges agreed after each document that both had judged.

    Parameters
    ----------
    judgements : mapping of str to mapping of str to Judgement
        The judgement of each judge, by document.
    window : int, default 50
        The measures are those of so many latest documents of the pair; of all of them while there are fewer.

    Returns
    -------
    DataFrame
        Rows by pair, in the order in which the second of both judged: ``judge``, ``other``, ``documents`` (how many
        both had judged), ``time``, ``agreement``, ``kappa`` and ``pabak``.
    """
    import pandas as pd

    columns = ["judge", "other", "documents", "time", *_MEASURES]
    parts = []
    by_judge = _by_judge(judgements)
    for judge, other in combinations(sorted(by_judge), 2):
        pairs = [(row, by_judge[other][doc_id]) for doc_id, row in by_judge[judge].items() if doc_id in by_judge[other]]
        if pairs:
            pairs.sort(key=lambda pair: max(row.number for row in pair))
            one, two = (np.array([(pair[side].grade or 0) > 0 for pair in pairs]) for side in (0, 1))
            share, a, b = (_window_means(values, window) for values in (one == two, one, two))
            times = [max(pair, key=lambda row: row.number).time for pair in pairs]
            values = (judge, other, np.arange(1, len(pairs) + 1), times, share, _kappa(share, a, b), 2 * share - 1)
            parts.append(pd.DataFrame(dict(zip(columns, values, strict=True))))
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=columns)


def _window_means(values: NDArray[np.bool_], window: int) -> Floats:
    """Return, for each position, the mean of the latest values up to it."""
    sums = np.concatenate([[0], np.cumsum(values)])
    ends = np.arange(1, len(values) + 1)
    starts = np.maximum(ends - window, 0)
    return np.asarray((sums[ends] - sums[starts]) / (ends - starts), dtype=np.float64)


def _labels(grades: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, bool]]:
    """Return whether each judge found each document relevant, by judge and document."""
    labels: dict[str, dict[str, bool]] = {}
    for doc_id, of_document in grades.items():
        for judge, grade in of_document.items():
            labels.setdefault(judge, {})[doc_id] = grade > 0
    return labels


def _by_judge(judgements: Mapping[str, Mapping[str, Judgement]]) -> dict[str, dict[str, Judgement]]:
    rows: dict[str, dict[str, Judgement]] = {}
    for doc_id, of_document in judgements.items():
        for judge, row in of_document.items():
            rows.setdefault(judge, {})[doc_id] = row
    return rows
