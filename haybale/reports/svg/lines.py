"""Lines over a logarithmic axis, and their legend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from haybale.reports.markup import Html, element, joined
from haybale.reports.svg.axes import Frame, below, drawing, horizontal_grid, title_below
from haybale.reports.svg.marks import colour_of, mark, shape_of
from haybale.reports.svg.scales import Scale, linear, logarithmic, place, ticks, top_of

Curves = Mapping[str, tuple[Sequence[float], Sequence[float]]]


def line_chart(curves: Curves, frame: Frame, *, label: str, x_label: str, neutral: str | None = None) -> Html:
    """A line with a sign a point for each name from its ``(x, y)``, x above 0, y from 0 up.

    The title of a point is the name with both values. The line ``neutral`` is grey and dashed: the others are seen
    against it.
    """
    across = sorted({x for xs, _ in curves.values() for x in xs})
    greatest = top_of(max(y for _, ys in curves.values() for y in ys))
    x = logarithmic((across[0], across[-1]), frame.across)
    y = linear((0, greatest), frame.down)
    marks = ticks(0, greatest)
    shown = _with_room(across, x, 34)
    lines = [
        _line(
            number,
            _colour(number, name, neutral),
            [(x(a), y(b), f"{name}: {b:.4f} at {a:,g}") for a, b in zip(xs, ys, strict=True)],
        )
        for number, (name, (xs, ys)) in enumerate(curves.items())
    ]
    return drawing(
        frame,
        label,
        horizontal_grid(frame, y, marks, [f"{value:g}" for value in marks]),
        below(frame, x, shown, [f"{value:,g}" for value in shown]),
        title_below(frame, x_label),
        *reversed(lines),  # the first lies on top
        class_="chart lines",
    )


def _colour(number: int, name: str, neutral: str | None) -> str:
    return "neutral" if name == neutral else colour_of(number)


def _line(number: int, colour: str, points: Sequence[tuple[float, float, str]]) -> Html:
    path = "M" + "L".join(f"{place(x)} {place(y)}" for x, y, _ in points)
    signs = [mark(shape_of(number), x, y, 3.4, element("title", title)) for x, y, title in points]
    return element(
        "g",
        element("path", d=path, class_=f"line d{number // 8 % 3}"),
        *signs,
        class_=f"series {colour}",
        data_series=number,
    )


def _with_room(values: Sequence[float], x: Scale, room: float) -> list[float]:
    """The values whose labels do not run into the one after; the last always has its own."""
    kept: list[float] = []
    for value in reversed(values):
        if not kept or x(kept[-1]) - x(value) >= room:
            kept.append(value)
    return kept[::-1]


def legend(names: Sequence[str], neutral: str | None = None) -> Html:
    """A button for each line, which hides it and shows it again."""
    items = []
    for number, name in enumerate(names):
        sign = element(
            "svg",
            element("path", d="M0 8H26", class_=f"line d{number // 8 % 3}"),
            mark(shape_of(number), 13, 8, 3.8),
            viewBox="0 0 26 16",
            class_=_colour(number, name, neutral),
            aria_hidden="true",
        )
        note = element("small", "baseline") if name == neutral else ""
        button = element(
            "button", sign, element("span", name), note, type="button", data_series=number, aria_pressed="true"
        )
        items.append(element("li", button))
    return element("ul", joined(items), class_="legend")
