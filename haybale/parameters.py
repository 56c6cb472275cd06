"""Declared ranges of parameters, in scikit-learn's terms, checked before any work.

A range that is open to the right holds finite numbers only, NaN is in none, and a truth value is no number.
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


COUNT: Constraints = [Interval(Integral, 1, None, closed="left")]
NOT_NEGATIVE: Constraints = [Interval(Real, 0, None, closed="left")]
POSITIVE: Constraints = [Interval(Real, 0, None, closed="neither")]
SHARE: Constraints = [Interval(Real, 0, 1, closed="both")]
BOOLEAN: Constraints = ["boolean"]
MEMORY: Constraints = [*POSITIVE, None]  # bytes; None: what is free
RANDOM_STATE: Constraints = [Interval(Integral, 0, 2**32 - 1, closed="both"), None]
N_JOBS: Constraints = [*COUNT, Interval(Integral, None, -1, closed="right"), None]


def one_of(names: Iterable[str]) -> Constraints:
    """The constraint of being one of some names."""
    return [Options(set(names))]


def check_parameters(owner: str, values: Mapping[str, Any], constraints: Mapping[str, Constraints]) -> None:
    """Refuse values out of range; ``owner``: the class or function that they are parameters of.

    >>> check_parameters("BM25", {"k1": 1.2}, {"k1": NOT_NEGATIVE})
    >>> check_parameters("BM25", {"k1": float("inf")}, {"k1": NOT_NEGATIVE})
    Traceback (most recent call last):
    haybale.errors.InputError: The 'k1' parameter of BM25 must be a float in the range [0.0, inf). Got inf instead.
    """
    given = {name: values[name] for name in constraints if name in values}
    try:
        validate_parameter_constraints(constraints, given, owner)
    except InvalidParameterError as error:
        raise InputError(str(error)) from None
