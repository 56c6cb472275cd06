"""A line a name: a value with its interval, about a zero."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from haybale.reports.markup import Html, element
from haybale.reports.svg.axes import Frame, below, drawing, text, title_below
from haybale.reports.svg.marks import colour_of, mark, shape_of
from haybale.reports.svg.scales import linear, place, ticks

LINE = 26  # pixels a name


class Interval(NamedTuple):
    """``low`` ≤ ``value`` ≤ ``high``; ``number`` is that of the series, for colour and sign."""

    value: float
    low: float
    high: float
    number: int


def interval_chart(intervals: Mapping[str, Interval], width: float, *, label: str, x_label: str) -> Html:
    """The intervals below each other, the greatest value first; as high as it needs."""
    room = min(0.42 * width, 20 + 7.2 * max(map(len, intervals)))
    frame = Frame(width, LINE * len(intervals) + 52, left=room, right=16, top=8)
    low, high = min(0, *(each.low for each in intervals.values())), max(0, *(each.high for each in intervals.values()))
    margin = 0.04 * (high - low or 1)
    x = linear((low - margin, high + margin), frame.across)
    (bottom, top), marks = frame.down, ticks(low - margin, high + margin, 7 if width > 400 else 4)
    grid = [element("path", d=f"M{place(x(value))} {place(top)}V{place(bottom)}", class_="grid") for value in marks]
    zero = element("path", d=f"M{place(x(0))} {place(top)}V{place(bottom)}", class_="zero")
    lines = []
    letters = int((room - 14) / 7)
    for row, (name, each) in enumerate(sorted(intervals.items(), key=lambda item: -item[1].value)):
        y = top + LINE * (row + 0.5)
        shown = name if len(name) <= letters else f"{name[: letters - 1]}…"
        title = element("title", f"{name}: {each.value:+.4f}, from {each.low:+.4f} to {each.high:+.4f}")
        span = element("path", d=f"M{place(x(each.low))} {place(y)}H{place(x(each.high))}", class_="line")
        sign = mark(shape_of(each.number), x(each.value), y, 4.5)
        lines.append(element("g", title, span, sign, class_=f"series {colour_of(each.number)}"))
        lines.append(text(room - 10, y + 4, shown, anchor="end", class_="name"))
    labels = [f"{value:+g}" if value else "0" for value in marks]
    return drawing(
        frame, label, *grid, zero, *lines, below(frame, x, marks, labels), title_below(frame, x_label), class_="chart"
    )
