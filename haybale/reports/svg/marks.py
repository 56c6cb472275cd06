"""The signs of points: by shape as well as by colour, for those who see few colours and for paper."""

from __future__ import annotations

from haybale.reports.markup import Html, element
from haybale.reports.svg.scales import place

SHAPES = ("circle", "square", "diamond", "triangle", "down", "cross")
COLOURS = 8  # that the style sheet has for series


def mark(shape: str, x: float, y: float, radius: float, *content: object, class_: str | None = None) -> Html:
    """A sign around (x, y); ``content`` may be a title, which is shown where the pointer rests.

    >>> mark("square", 10, 10, 2)
    '<path d="M8.2 8.2h3.6v3.6h-3.6z"></path>'
    """
    r = radius
    if shape == "circle":
        return element("circle", *content, cx=place(x), cy=place(y), r=place(r), class_=class_)
    if shape == "square":
        side = 0.9 * r
        d = f"M{place(x - side)} {place(y - side)}h{place(2 * side)}v{place(2 * side)}h{place(-2 * side)}z"
    elif shape == "diamond":
        d = f"M{place(x)} {place(y - 1.25 * r)}l{place(1.25 * r)} {place(1.25 * r)}"
        d += f"l{place(-1.25 * r)} {place(1.25 * r)}l{place(-1.25 * r)} {place(-1.25 * r)}z"
    elif shape in ("triangle", "down"):
        up = 1 if shape == "triangle" else -1
        d = f"M{place(x)} {place(y - 1.2 * r * up)}l{place(1.15 * r)} {place(2 * r * up)}h{place(-2.3 * r)}z"
    else:
        d = f"M{place(x - r)} {place(y - r)}l{place(2 * r)} {place(2 * r)}m0 {place(-2 * r)}"
        d += f"l{place(-2 * r)} {place(2 * r)}"
        class_ = f"{class_ or ''} stroked".strip()
    return element("path", *content, d=d, class_=class_)


def shape_of(number: int) -> str:
    """The sign of series ``number``, counted from 0."""
    return SHAPES[number % len(SHAPES)]


def colour_of(number: int) -> str:
    """The class that gives series ``number`` its colour.

    >>> colour_of(0), colour_of(9)
    ('s0', 's1')
    """
    return f"s{number % COLOURS}"
