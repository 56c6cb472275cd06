"""Declared ranges of parameters, in scikit-learn's terms, checked before any work.

No range holds NaN, infinity, or a whole number that NumPy has no type for, and a truth value is no number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from numbers import Integral, Real
from typing import Any

from sklearn.utils._param_validation import Interval as _Interval
from sklearn.utils._param_validation import InvalidParameterError, StrOptions, validate_parameter_constraints

from haybale.errors import InputError

Constraints = list[Any]  # any one of which a value must meet


class Options(StrOptions):  # type: ignore[misc]
    """scikit-learn's, which names them in another order each time."""

    def __str__(self) -> str:
        return f"a str among {', '.join(map(repr, sorted(self.options)))}"


class Interval(_Interval):  # type: ignore[misc]  # scikit-learn has no types
    """scikit-learn's, which takes True for 1."""

    def is_satisfied_by(self, value: Any) -> bool:
        return not isinstance(value, bool) and bool(super().is_satisfied_by(value))


class Pair(Interval):
    """Two numbers of an interval."""

    def is_satisfied_by(self, value: Any) -> bool:
        return isinstance(value, tuple) and len(value) == 2 and all(map(super().is_satisfied_by, value))

    def __str__(self) -> str:
        return f"a pair of which each is {super().__str__()}"


MOST = 10**18  # of any number: an int64 holds ten of it
COUNT: Constraints = [Interval(Integral, 1, MOST, closed="both")]
COUNT_OR_NONE: Constraints = [*COUNT, None]
FROM_0: Constraints = [Interval(Integral, 0, MOST, closed="both")]
NOT_NEGATIVE: Constraints = [Interval(Real, 0, MOST, closed="both")]
POSITIVE: Constraints = [Interval(Real, 0, MOST, closed="right")]
SHARE: Constraints = [Interval(Real, 0, 1, closed="both")]
BOOLEAN: Constraints = ["boolean"]
MEMORY: Constraints = [*POSITIVE, None]  # bytes; None: what is free
RANDOM_STATE: Constraints = [Interval(Integral, 0, 2**32 - 1, closed="both"), None]
GAMMA: Constraints = [Options({"scale"}), *POSITIVE, Pair(Real, 0, MOST, closed="right")]
# With a k1 far beyond these float32 has no weights above 0.
BM25_RANGES: dict[str, Constraints] = {
    "k1": [Interval(Real, 0, 10**6, closed="both")],
    "b": SHARE,
    "k3": [*NOT_NEGATIVE, None],
}
N_JOBS: Constraints = [Interval(Integral, first, first + 9999, closed="both") for first in (1, -10_000)] + [None]
TEXT_OR_NONE: Constraints = [str, None]
SEQUENCE: Constraints = ["array-like"]  # a string is none


def one_of(names: Iterable[str]) -> Constraints:
    """The constraint of being one of some names."""
    return [Options(set(names))]


def check_parameters(owner: str, values: Mapping[str, Any], constraints: Mapping[str, Constraints]) -> None:
    """Refuse values out of range; ``owner``: the class or function that they are parameters of.

    >>> check_parameters("BM25", {"k1": 1.2}, BM25_RANGES)
    >>> check_parameters("BM25", {"b": float("inf")}, BM25_RANGES)
    Traceback (most recent call last):
    haybale.errors.InputError: The 'b' parameter of BM25 must be a float in the range [0.0, 1.0]. Got inf instead.
    """
    given = {name: values[name] for name in constraints if name in values}
    try:
        validate_parameter_constraints(constraints, given, owner)
    except InvalidParameterError as error:
        raise InputError(str(error)) from None
