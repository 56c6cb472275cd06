"""Draw the PRISMA 2020 flow diagram as SVG."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from html import escape
from typing import NamedTuple

from haybale.drawing import clean
from haybale.review.prisma import PrismaNumbers

# Sizes in units of the SVG, which are pixels at its natural size.
_WIDTH, _BAR, _GAP = 780, 30, 26
_LEFT, _RIGHT, _BOX = 52, 426, 334  # where both columns begin, and how wide their boxes are
_LINE, _PADDING, _FONT = 18, 10, 14
_LETTERS = 44  # of a line in a box, about
_MAX_PARTS = 12  # sources or reasons that are listed; others are summed


class _Row(NamedTuple):
    """What stands side by side: the lines of the left box, those of the right one, if there is one, and the height."""

    phase: str
    left: list[str]
    right: list[str]
    height: int


def drawn(numbers: PrismaNumbers, *, is_page: bool = False) -> str:
    """Return the diagram as SVG; as part of a page, it takes the page's colours and has no ground of its own."""
    rows = _rows(numbers)
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
    name = _text(f"PRISMA 2020 flow diagram: {numbers.topic}")
    said = _text(". ".join(f"{item.what}: {item.n:,}" for item in numbers.items()) + ".")
    ground = "" if is_page else f'<rect width="{_WIDTH}" height="{height}" fill="#ffffff"/>'
    colour = "" if is_page else ' color="#000000"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" viewBox="0 0 {_WIDTH} {height}" '
        f'role="img" aria-labelledby="prisma-title prisma-desc" font-family="system-ui, Helvetica, Arial, sans-serif" '
        f'font-size="{_FONT}"{colour}><title id="prisma-title">{name}</title><desc id="prisma-desc">{said}</desc>'
        f"{ground}{''.join(parts)}</svg>"
    )


def _rows(numbers: PrismaNumbers) -> list[_Row]:
    identified = [f"Records identified (n = {numbers.n_identified:,}):", *_listed(numbers.identified)]
    removed = ["Records removed before screening:", f"  Duplicate records (n = {numbers.n_duplicates:,})"]
    removed += [f"  Not read, ranked behind those that were (n = {numbers.n_not_read:,})"] if numbers.n_not_read else []
    excluded = [f"Records excluded (n = {numbers.n_excluded:,})", *_listed(numbers.excluded)]
    rows = [
        ("Identification", identified, removed),
        ("Screening", [f"Records screened (n = {numbers.n_screened:,})"], excluded),
    ]
    if numbers.n_stages == 2:
        missing = [f"Reports not retrieved (n = {numbers.n_not_retrieved:,})"]
        missing += [f"Reports not assessed yet (n = {numbers.n_waiting:,})"] if numbers.n_waiting else []
        out = [f"Reports excluded (n = {numbers.n_full_texts_excluded:,})", *_listed(numbers.full_texts_excluded)]
        rows += [
            ("Screening", [f"Reports sought for retrieval (n = {numbers.n_sought:,})"], missing),
            ("Screening", [f"Reports assessed for eligibility (n = {numbers.n_assessed:,})"], out),
        ]
    rows.append(("Included", [f"Reports included in review (n = {numbers.n_included:,})"], []))
    drawn_rows = []
    for phase, left, right in rows:
        lines, more_lines = _wrapped(left), _wrapped(right)
        height = _LINE * max(len(lines), len(more_lines)) + 2 * _PADDING
        is_alone = sum(name == phase for name, _, _ in rows) == 1
        drawn_rows.append(_Row(phase, lines, more_lines, max(height, _bar_height(phase) if is_alone else 0)))
    return drawn_rows


def _bar_height(phase: str) -> int:
    """Return how high a bar must be for the name of a phase."""
    return 8 * len(phase) + 2 * _PADDING


def _listed(counts: Mapping[str, int]) -> list[str]:
    """Return a line for each source or reason; the least frequent ones are summed if there are many."""
    entries = list(counts.items())
    shown, others = entries[:_MAX_PARTS], entries[_MAX_PARTS:]
    if others:
        shown.append((f"{len(others):,} others", sum(n for _, n in others)))
    return [f"  {textwrap.shorten(name, 2 * _LETTERS, placeholder='…') or '–'} (n = {n:,})" for name, n in shown]


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
