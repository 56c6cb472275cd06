"""Declare the valid values of parameters next to a class or function, and check them before any work.

NaN, infinity and integers that NumPy has no type for are never valid, and booleans are not numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from numbers import Integral, Real
from typing import Any, Literal

import numpy as np

from haybale.errors import InputError

# A value must meet one constraint: an Interval, Pair or Options; a type for isinstance; None; or `callable`.
Constraints = list[Any]


class Interval:
    """Numbers of a kind, ``Integral`` or ``Real``, between two bounds; ``closed`` names the included bounds."""

    def __init__(self, kind: type, left: float, right: float, *, closed: Literal["both", "left", "right"]) -> None:
        self.kind, self.left, self.right, self.closed = kind, left, right, closed

    def accepts(self, value: Any) -> bool:
        number: Any = value  # mypy knows no order on the abstract number types
        if isinstance(value, bool) or not isinstance(value, self.kind):
            return False
        above = number > self.left if self.closed == "right" else number >= self.left
        return bool(above and (number < self.right if self.closed == "left" else number <= self.right))

    def __str__(self) -> str:
        name, convert = ("an int", int) if self.kind is Integral else ("a float", float)
        opening, closing = "(" if self.closed == "right" else "[", ")" if self.closed == "left" else "]"
        return f"{name} in the range {opening}{convert(self.left)}, {convert(self.right)}{closing}"


class Pair(Interval):
    """A tuple of two numbers of an interval."""

    def accepts(self, value: Any) -> bool:
        return isinstance(value, tuple) and len(value) == 2 and all(map(super().accepts, value))

    def __str__(self) -> str:
        return f"a pair of numbers, each {super().__str__()}"


class Options:
    """One of several strings."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names = set(names)

    def accepts(self, value: Any) -> bool:
        return isinstance(value, str) and value in self.names

    def __str__(self) -> str:
        return f"a str among {', '.join(map(repr, sorted(self.names)))}"


class _Sequence:
    """A list, tuple, array or other collection, but not a string."""

    def accepts(self, value: Any) -> bool:
        return not np.isscalar(value) and any(hasattr(value, name) for name in ("__len__", "shape", "__array__"))

    def __str__(self) -> str:
        return "a sequence"


MOST = 10**18  # upper bound of all numbers, about a tenth of the largest int64
COUNT: Constraints = [Interval(Integral, 1, MOST, closed="both")]
COUNT_OR_NONE: Constraints = [*COUNT, None]
FROM_0: Constraints = [Interval(Integral, 0, MOST, closed="both")]
NOT_NEGATIVE: Constraints = [Interval(Real, 0, MOST, closed="both")]
POSITIVE: Constraints = [Interval(Real, 0, MOST, closed="right")]
SHARE: Constraints = [Interval(Real, 0, 1, closed="both")]
BOOLEAN: Constraints = [bool, np.bool_]
MEMORY: Constraints = [*POSITIVE, None]  # bytes; None: all free memory
RANDOM_STATE: Constraints = [Interval(Integral, 0, 2**32 - 1, closed="both"), None]
GAMMA: Constraints = [Options(["scale"]), *POSITIVE, Pair(Real, 0, MOST, closed="right")]
# With a k1 far above this bound, all float32 weights would be 0.
BM25_RANGES: dict[str, Constraints] = {
    "k1": [Interval(Real, 0, 10**6, closed="both")],
    "b": SHARE,
    "k3": [*NOT_NEGATIVE, None],
}
N_JOBS: Constraints = [Interval(Integral, first, first + 9999, closed="both") for first in (1, -10_000)] + [None]
TEXT_OR_NONE: Constraints = [str, None]
SEQUENCE: Constraints = [_Sequence()]


def one_of(names: Iterable[str]) -> Constraints:
    """Return the constraint that a value is one of the given names."""
    return [Options(names)]


def check_parameters(owner: str, values: Mapping[str, Any], constraints: Mapping[str, Constraints]) -> None:
    """Raise :class:`InputError` for a parameter of ``owner``, a class or function, that meets none of its constraints.

    >>> check_parameters("BM25", {"k1": 1.2}, BM25_RANGES)
    >>> check_parameters("BM25", {"b": float("inf")}, BM25_RANGES)
    Traceback (most recent call last):
    haybale.errors.InputError: The 'b' parameter of BM25 must be a float in the range [0.0, 1.0], found inf
    """
    for name, allowed in constraints.items():
        if name in values and not any(_accepts(constraint, values[name]) for constraint in allowed):
            *others, last = dict.fromkeys(map(_described, allowed))  # bool and np.bool_ have the same description
            expected = f"{', '.join(others)} or {last}" if others else last
            raise InputError(f"The {name!r} parameter of {owner} must be {expected}, found {_shown(values[name])}")


def _shown(value: Any) -> str:
    try:
        return repr(value)
    except ValueError:  # Python writes no numbers of more than 4,300 digits
        return "a number that is too long to show"


def _accepts(constraint: Any, value: Any) -> bool:
    if constraint is None or constraint is callable:
        return value is None if constraint is None else callable(value)
    return isinstance(value, constraint) if isinstance(constraint, type) else bool(constraint.accepts(value))


def _described(constraint: Any) -> str:
    if constraint is callable:
        return "a callable"
    return f"an instance of {constraint.__name__}" if isinstance(constraint, type) else str(constraint)
