"""A bar a query, up where a ranker wins and down where it loses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from haybale.reports.markup import Html, element
from haybale.reports.svg.axes import Frame, drawing, horizontal_grid, title_below
from haybale.reports.svg.scales import linear, place, ticks


def difference_bars(
    values: Sequence[float],
    titles: Sequence[str],
    frame: Frame,
    *,
    label: str,
    x_label: str,
    links: Mapping[int, str] | None = None,
) -> Html:
    """A bar for each value, (n,), from -1 to 1, in the order given; those in ``links`` lead to another place."""
    reach = max(0.1, *(abs(value) for value in values))
    y = linear((-reach, reach), frame.down)
    start, end = frame.across
    width = (end - start) / max(1, len(values))
    marks = ticks(-reach, reach, 5)
    bars = []
    for number, (value, title) in enumerate(zip(values, titles, strict=True)):
        if value == 0:
            continue
        upper, lower = sorted((y(value), y(0)))
        bar = element(
            "rect",
            element("title", title),
            x=f"{start + number * width:.2f}",
            y=place(upper),
            width=f"{width * 0.86 if width > 3 else width:.2f}",
            height=place(max(0.6, lower - upper)),
            class_="win" if value > 0 else "loss",
        )
        link = (links or {}).get(number)
        bars.append(element("a", bar, href=link, aria_label=title) if link else bar)
    return drawing(
        frame,
        label,
        horizontal_grid(frame, y, marks, [f"{value:+g}" if value else "0" for value in marks]),
        *bars,
        element("path", d=f"M{place(start)} {place(y(0))}H{place(end)}", class_="zero"),
        title_below(frame, x_label),
        class_="chart",
        role="group" if links else "img",
    )
