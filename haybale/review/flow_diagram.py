"""Draw flow diagrams as SVG: boxes from top to bottom, with others beside them for what was left out."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from haybale.drawing import clean

# Sizes in units of the SVG, which are pixels at its natural size.
_WIDTH, _BAR, _GAP = 780, 30, 26
_LEFT, _RIGHT, _BOX = 52, 426, 334  # where both columns begin, and how wide their boxes are
_LINE, _PADDING, _FONT = 18, 10, 14
_LETTERS = 44  # of a line in a box, about


class FlowBoxes(NamedTuple):
    """A box, and one beside it, which may be empty: lines of text, those of lists with two spaces before them."""

    phase: str
    left: list[str]
    right: list[str]


class _Row(NamedTuple):
    """What stands side by side: the lines of the left box, those of the right one, if there is one, and the height."""

    phase: str
    left: list[str]
    right: list[str]
    height: int


def draw_flow(title: str, description: str, boxes: Sequence[FlowBoxes], *, is_page: bool = False) -> str:
    """Return a flow diagram as SVG.

    Parameters
    ----------
    title, description : str
        What those read who do not see the diagram.
    boxes : sequence of FlowBoxes
        From top to bottom. Those of one phase follow each other.
    is_page : bool, default False
        Whether the diagram is part of a page: it takes the page's colours and has no ground of its own.
    """
    rows = _rows(boxes)
    tops = [_PADDING]
    for row in rows:
        tops.append(tops[-1] + row.height + _GAP)
    height = tops[-1] - _GAP + _PADDING
    parts = []
    for number, (row, top) in enumerate(zip(rows, tops, strict=False)):
        parts.append(_box(_LEFT, top, row.height, row.left))
        if row.right:
            parts.append(_box(_RIGHT, top, row.height, row.right))
            parts.append(_arrow(_LEFT + _BOX, top + row.height // 2, _RIGHT, top + row.height // 2))
        if number + 1 < len(rows):
            middle = _LEFT + _BOX // 2
            parts.append(_arrow(middle, top + row.height, middle, top + row.height + _GAP))
    for phase in dict.fromkeys(row.phase for row in rows):
        of_phase = [number for number, row in enumerate(rows) if row.phase == phase]
        top, bottom = tops[of_phase[0]], tops[of_phase[-1]] + rows[of_phase[-1]].height
        parts.append(_phase(phase, top, bottom))
    ground = "" if is_page else f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>'
    colour = "" if is_page else ' color="#000000"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" viewBox="0 0 {_WIDTH} {height}" '
        f'role="img" aria-labelledby="flow-title flow-desc" font-family="system-ui, Helvetica, Arial, sans-serif" '
        f'font-size="{_FONT}"{colour}><title id="flow-title">{_text(title)}</title>'
        f'<desc id="flow-desc">{_text(description)}</desc>'
        f"{ground}{''.join(parts)}</svg>"
    )


def _rows(boxes: Sequence[FlowBoxes]) -> list[_Row]:
    """Return boxes with their lines wrapped, and with their heights; a phase of one row is as high as its name."""
    drawn_rows = []
    for phase, left, right in boxes:
        lines, more_lines = _wrapped(left), _wrapped(right)
        height = _LINE * max(len(lines), len(more_lines)) + 2 * _PADDING
        is_alone = sum(other.phase == phase for other in boxes) == 1
        drawn_rows.append(_Row(phase, lines, more_lines, max(height, _bar_height(phase) if is_alone else 0)))
    return drawn_rows


def _bar_height(phase: str) -> int:
    """Return how high a bar must be for the name of a phase."""
    return 8 * len(phase) + 2 * _PADDING


def _wrapped(lines: Sequence[str]) -> list[str]:
    """Return lines that fit a box, without breaks within ``(n = 7)``; what continues a line is indented further."""
    wrapped = []
    for line in lines:
        line = line.replace("(n = ", "(n\u00a0=\u00a0")
        indent = line[: len(line) - len(line.lstrip())]
        wrapped += textwrap.wrap(line.strip(), _LETTERS, initial_indent=indent, subsequent_indent=f"{indent}  ")
    return wrapped


def _box(left: int, top: int, height: int, lines: Sequence[str]) -> str:
    """Return a box with lines of text, in the middle of its height."""
    first = top + (height - _LINE * len(lines)) // 2 + _FONT
    texts = "".join(
        f'<text x="{left + _PADDING + 7 * (len(line) - len(line.lstrip()))}" y="{first + _LINE * number}">'
        f"{_text(line.strip())}</text>"
        for number, line in enumerate(lines)
    )
    frame = f'<rect x="{left}" y="{top}" width="{_BOX}" height="{height}" fill="none" stroke="currentColor"/>'
    return f'{frame}<g fill="currentColor">{texts}</g>'


def _arrow(left: int, top: int, right: int, bottom: int) -> str:
    """Return an arrow to the right, or down."""
    tip = f"M{right - 8} {bottom - 4}L{right} {bottom}L{right - 8} {bottom + 4}Z"
    if left == right:
        tip = f"M{right - 4} {bottom - 8}L{right} {bottom}L{right + 4} {bottom - 8}Z"
    line = f'<path d="M{left} {top}L{right} {bottom}" stroke="currentColor"/>'
    return f'{line}<path d="{tip}" fill="currentColor"/>'


def _phase(name: str, top: int, bottom: int) -> str:
    """Return the bar on the left with the name of a phase, from bottom to top."""
    x, y = 8 + _BAR // 2 + 5, (top + bottom) // 2
    frame = f'<rect x="8" y="{top}" width="{_BAR}" height="{bottom - top}" rx="6" fill="none" stroke="currentColor"/>'
    label = f'<text x="{x}" y="{y}" transform="rotate(-90 {x} {y})" text-anchor="middle" font-weight="600"'
    return f'{frame}{label} fill="currentColor">{_text(name)}</text>'


def _text(text: str) -> str:
    return escape(clean(text), quote=True)
