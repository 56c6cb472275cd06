"""Scales: from values to places on the page."""

from __future__ import annotations

import math
from collections.abc import Callable

Scale = Callable[[float], float]
Pair = tuple[float, float]


def linear(domain: Pair, span: Pair) -> Scale:
    """From ``domain`` to ``span``, both (from, to); a domain of one value goes to the middle.

    >>> linear((0, 10), (100, 200))(5)
    150.0
    """
    (low, high), (start, end) = domain, span
    if high == low:
        return lambda value: (start + end) / 2
    return lambda value: start + (value - low) / (high - low) * (end - start)


def logarithmic(domain: Pair, span: Pair) -> Scale:
    """The same with equal ratios equally far apart; all values above 0.

    >>> round(logarithmic((1, 100), (0, 200))(10), 6)
    100.0
    """
    scale = linear((math.log(domain[0]), math.log(domain[1])), span)
    return lambda value: scale(math.log(value))


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """At most ``most`` round values from ``low`` to ``high``, in steps of 1, 2 or 5 times a power of ten.

    >>> ticks(0, 0.93)
    [0.0, 0.2, 0.4, 0.6, 0.8]
    >>> ticks(-1, 1, 5)
    [-1.0, -0.5, 0.0, 0.5, 1.0]
    """
    if high <= low:
        return [low]
    power = math.floor(math.log10((high - low) / most))
    for step in (factor * 10.0**exponent for exponent in (power, power + 1, power + 2) for factor in (1, 2, 5)):
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        if last - first + 1 <= most:
            return [round(number * step, 12) + 0.0 for number in range(first, last + 1)]
    return [low]


def top_of(greatest: float) -> float:
    """Where an axis from 0 ends that shows values up to ``greatest``: the tick at or above it, at most 1 for shares.

    >>> top_of(0.83), top_of(0.0)
    (1.0, 1.0)
    >>> top_of(3.2)
    4.0
    """
    if greatest <= 0:
        return 1.0
    marks = ticks(0, greatest)
    step = marks[1] - marks[0] if len(marks) > 1 else greatest
    return round(math.ceil(greatest / step - 1e-9) * step, 12)


def place(value: float) -> str:
    """A coordinate, to a tenth of a pixel.

    >>> place(12.0), place(0.25), place(-0.01)
    ('12', '0.2', '0')
    """
    return f"{value:z.1f}".removesuffix(".0")
