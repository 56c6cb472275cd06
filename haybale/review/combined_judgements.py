"""Combine the judgements of several judges about one document, and measure how far the judges agree."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas as pd

from haybale.errors import UnknownNameError


def _latest(grades: Sequence[int]) -> int:
    return grades[-1]


def _any(grades: Sequence[int]) -> int:
    return next((grade for grade in reversed(grades) if grade > 0), 0)


def _majority(grades: Sequence[int]) -> int:
    ordered = sorted(grades)
    return ordered[len(ordered) // 2]  # of an even number the upper median, so that a tie counts as relevant


RULES: dict[str, Callable[[Sequence[int]], int]] = {
    "any": _any,
    "latest": _latest,
    "majority": _majority,
    "maximum": max,
}
DEFAULT_RULE = "any"


def are_contradictory(grades: Mapping[str, int]) -> bool:
    """Return whether one judge found a document relevant and another irrelevant, given each judge's latest grade."""
    return len({grade > 0 for grade in grades.values()}) > 1


def combined_grade(grades: Mapping[str, int], rule: str = DEFAULT_RULE) -> int:
    """Return the grade of a document that one or more judges have judged.

    Parameters
    ----------
    grades : mapping of str to int
        The latest grade of each judge; the judge who judged last is last.
    rule : {"any", "latest", "majority", "maximum"}, default "any"
        ``"any"``: the last grade above 0, so that a document that one judge found relevant stays relevant until this
        judge says otherwise, whatever others say. ``"latest"``: the last grade, whoever gave it, as if the last judge
        had settled the matter. ``"majority"``: the median grade, of two middle grades the higher, so that a document is
        relevant if at least half of the judges say so. ``"maximum"``: the highest grade.

    Examples
    --------
    >>> [combined_grade({"Ada": 2, "Bob": 1, "Cyd": 0}, rule) for rule in ("any", "latest", "majority", "maximum")]
    [1, 0, 1, 2]
    """
    return find_rule(rule)(list(grades.values()))


def find_rule(rule: str) -> Callable[[Sequence[int]], int]:
    """Return the rule of that name; an unknown one raises :class:`~haybale.UnknownNameError`."""
    if rule not in RULES:
        raise UnknownNameError("rule to combine judges", rule, RULES)
    return RULES[rule]


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
    a, b = np.asarray(one, dtype=bool), np.asarray(other, dtype=bool)
    if not len(a):
        return None
    expected = a.mean() * b.mean() + (1 - a.mean()) * (1 - b.mean())
    return None if expected == 1 else float(((a == b).mean() - expected) / (1 - expected))


def agreement(grades: Mapping[str, Mapping[str, int]]) -> pd.DataFrame:
    """Return how far each pair of judges agrees on the documents that both have judged.

    Parameters
    ----------
    grades : mapping of str to mapping of str to int
        The latest grade of each judge, by document.

    Returns
    -------
    DataFrame
        A row for each pair of judges with a document in common: ``judge``, ``other``, ``documents`` (how many both
        have judged), ``agreement`` (the share that both judged as relevant, or both as irrelevant) and ``kappa``
        (:func:`cohen_kappa`; NaN where it is not defined).
    """
    judges = sorted({judge for graded in grades.values() for judge in graded})
    rows = []
    for position, judge in enumerate(judges):
        for other in judges[position + 1 :]:
            both = [
                (graded[judge] > 0, graded[other] > 0)
                for graded in grades.values()
                if judge in graded and other in graded
            ]
            if both:
                one, two = zip(*both, strict=True)
                kappa = cohen_kappa(one, two)
                share = sum(a == b for a, b in both) / len(both)
                rows.append((judge, other, len(both), share, np.nan if kappa is None else kappa))
    return pd.DataFrame(rows, columns=["judge", "other", "documents", "agreement", "kappa"])
