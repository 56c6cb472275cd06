"""A table of shares as colours."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from haybale.reports.markup import Html, element, joined
from haybale.reports.svg.axes import Frame, drawing, text, title_below
from haybale.reports.svg.scales import linear, place

MOST = 4000  # cells drawn, the strongest ones: the others are hardly seen
LONGEST = 14  # letters of a column's label


def heatmap(
    values: NDArray[np.float64],
    row_labels: Sequence[str],
    column_labels: Sequence[str],
    frame: Frame,
    *,
    label: str,
    x_label: str,
    title: Callable[[int, int], str] | None = None,
    numbered: Sequence[tuple[int, int]] = (),
) -> Html:
    """``values`` (n, m), from 0 up, as cells whose colour is as strong as their value; 0 is not drawn.

    ``title(row, column)`` is shown where the pointer rests; the cells ``numbered`` carry 1, 2, ….
    """
    n, m = values.shape
    x, y = linear((0, m), frame.across), linear((n, 0), frame.down)
    greatest = float(values.max(initial=0)) or 1.0
    rows, columns = np.nonzero(values > 0)
    strongest = np.argsort(-values[rows, columns], kind="stable")[:MOST]
    wide, high = x(1) - x(0), y(1) - y(0)
    gap = 0.6 if min(wide, high) > 4 else 0.0
    across = [name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…" for name in column_labels]
    cells = []
    for row, column in zip(rows[strongest].tolist(), columns[strongest].tolist(), strict=True):
        cells.append(
            element(
                "rect",
                "" if title is None else element("title", title(row, column)),
                x=f"{x(column) + gap / 2:.2f}",
                y=f"{y(row) + gap / 2:.2f}",
                width=f"{wide - gap:.2f}",
                height=f"{high - gap:.2f}",
                fill_opacity=f"{0.06 + 0.94 * float(values[row, column]) / greatest:.3f}",
            )
        )
    (left, right), (bottom, top) = frame.across, frame.down
    return drawing(
        frame,
        label,
        element(
            "rect",
            x=place(left),
            y=place(top),
            width=place(right - left),
            height=place(bottom - top),
            class_="ground",
        ),
        element("g", *cells, class_="cells"),
        _labels(row_labels, lambda i: (left - 6, y(i + 0.5) + 4), high, 13, "end"),
        _labels(across, lambda i: (x(i + 0.5), bottom + 15), wide, 10 + 7 * max(map(len, across)), "middle"),
        joined(
            text(x(column + 0.5), y(row + 0.5) + 5, str(number), class_="number")
            for number, (row, column) in enumerate(numbered, 1)
        ),
        title_below(frame, x_label),
        class_="chart heat",
    )


def _labels(
    labels: Sequence[str], at: Callable[[int], tuple[float, float]], pitch: float, room: float, anchor: str
) -> Html:
    """Every label where there is room, else every second, fifth, tenth …."""
    steps = (factor * 10**power for power in range(9) for factor in (1, 2, 5))
    step = next(step for step in steps if step * pitch >= room or step >= len(labels))
    first = step - 1 if labels[0] == "1" and step <= len(labels) else 0  # 5, 10 … read better than 1, 6, 11 …
    return joined(text(*at(i), labels[i], anchor=anchor) for i in range(first, len(labels), step))
