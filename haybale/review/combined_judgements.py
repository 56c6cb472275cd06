"""Combine the judgements of several judges about one document."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

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
