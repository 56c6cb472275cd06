"""Points in the plane, some joined by lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from haybale.reports.markup import Html, element
from haybale.reports.svg.axes import Frame, drawing
from haybale.reports.svg.marks import mark
from haybale.reports.svg.scales import linear, place


class Point(NamedTuple):
    """How one point is drawn: shape, radius, the class that colours it, and its title."""

    shape: str
    radius: float
    class_: str
    title: str


class Join(NamedTuple):
    """A line between two points, by number."""

    start: int
    end: int
    class_: str


def scatter(
    places: NDArray[np.float64],
    points: Sequence[Point],
    joins: Sequence[Join],
    frame: Frame,
    *,
    label: str,
    titles: bool = True,
) -> Html:
    """``places`` (n, 2) with a :class:`Point` each, later ones on top; one unit is as long on both axes."""
    low, high = places.min(axis=0), places.max(axis=0)
    (left, right), (bottom, top) = frame.across, frame.down
    unit = min((right - left) / max(high[0] - low[0], 1e-9), (bottom - top) / max(high[1] - low[1], 1e-9))
    middle = (low + high) / 2
    x = linear((middle[0] - 1, middle[0] + 1), ((left + right) / 2 - unit, (left + right) / 2 + unit))
    y = linear((middle[1] - 1, middle[1] + 1), ((top + bottom) / 2 + unit, (top + bottom) / 2 - unit))
    at = [(x(float(a)), y(float(b))) for a, b in places]
    lines = [
        element(
            "path",
            d=f"M{place(at[start][0])} {place(at[start][1])}L{place(at[end][0])} {place(at[end][1])}",
            class_=f"join {class_}",
        )
        for start, end, class_ in joins
    ]
    signs = [
        mark(point.shape, *where, point.radius, element("title", point.title) if titles else "", class_=point.class_)
        for where, point in zip(at, points, strict=True)
    ]
    return drawing(frame, label, *lines, *signs, class_="chart scatter")
