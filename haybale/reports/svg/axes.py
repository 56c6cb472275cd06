"""The frame of a chart: its room, grid lines and labels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from haybale.reports.markup import Html, element, joined
from haybale.reports.svg.scales import Pair, Scale, place


class Frame(NamedTuple):
    """A drawing of ``width`` × ``height`` pixels with margins around what is drawn."""

    width: float
    height: float
    left: float = 44
    right: float = 12
    top: float = 10
    bottom: float = 40

    @property
    def across(self) -> Pair:
        """From left to right."""
        return self.left, self.width - self.right

    @property
    def down(self) -> Pair:
        """From bottom to top, as values rise."""
        return self.height - self.bottom, self.top


def drawing(frame: Frame, label: str, *content: object, class_: str = "", role: str = "img") -> Html:
    """An SVG that fills its room; ``label`` is what it says to those who do not see it.

    ``role``: ``"group"`` where it has links, which an image hides.
    """
    return element(
        "svg",
        *content,
        viewBox=f"0 0 {place(frame.width)} {place(frame.height)}",
        class_=class_ or None,
        role=role,
        aria_label=label,
        style=f"max-width:{1.4 * frame.width if frame.width < 400 else frame.width:.0f}px",
    )


def horizontal_grid(frame: Frame, y: Scale, values: Iterable[float], labels: Sequence[str]) -> Html:
    """A line and a label on the left for each value."""
    start, end = frame.across
    return joined(
        part
        for value, label in zip(values, labels, strict=True)
        for part in (
            element("path", d=f"M{place(start)} {place(y(value))}H{place(end)}", class_="grid"),
            text(start - 8, y(value) + 4, label, anchor="end"),
        )
    )


def below(frame: Frame, x: Scale, values: Iterable[float], labels: Sequence[str]) -> Html:
    """Labels under the frame."""
    bottom = frame.down[0]
    return joined(text(x(value), bottom + 18, label) for value, label in zip(values, labels, strict=True))


def title_below(frame: Frame, title: str) -> Html:
    """What the horizontal axis is, at the bottom in the middle."""
    return text(sum(frame.across) / 2, frame.height - 4, title, class_="axis")


def text(x: float, y: float, content: str, *, anchor: str = "middle", class_: str | None = None) -> Html:
    """A text with its base line at y."""
    return element("text", content, x=place(x), y=place(y), text_anchor=anchor, class_=class_)


def wide_and_narrow(wide: Html, narrow: Html) -> Html:
    """One drawing for a desk and one for a phone, whose letters are as large; the page shows the one that fits."""
    return joined([element("div", wide, class_="wide"), element("div", narrow, class_="narrow")])
