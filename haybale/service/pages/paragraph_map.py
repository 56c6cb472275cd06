"""PARM's heatmap: how much each pair of a query paragraph and a passage of the document adds to the score.

It is an SVG of plain rectangles without styles of its own, so that the page's style sheet colours it in light and dark.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from haybale.retrieval import ParagraphExplanation

_MAX_PAIRS = 5  # of paragraphs whose texts are shown, those with the largest shares
_MAX_CELLS = 4000  # that are drawn, those with the largest shares
_WIDTH, _HEIGHT, _LEFT_MARGIN, _BOTTOM_MARGIN = 640.0, 280.0, 34.0, 30.0  # in the units of the drawing


@dataclass(frozen=True)
class MapCell:
    """A rectangle of the heatmap: its corner, its opacity and its tooltip."""

    x: float
    y: float
    opacity: float
    title: str


@dataclass(frozen=True)
class StrongPair:
    """A query paragraph and a passage, side by side."""

    number: int
    x: float
    y: float
    query_label: str
    passage_label: str
    amount: str
    query_text: str
    passage_text: str


@dataclass(frozen=True)
class ParagraphMap:
    """The heatmap with the strongest pairs, which are numbered in it.

    ``rows`` and ``columns`` are labels with their positions: paragraphs of the query, and passages of the document.
    """

    width: float
    height: float
    left: float
    cell_width: float
    cell_height: float
    cells: list[MapCell]
    rows: list[tuple[str, float]]
    columns: list[tuple[str, float]]
    pairs: list[StrongPair]
    label: str


def paragraph_map(why: ParagraphExplanation, query_texts: list[str]) -> ParagraphMap:
    """Return the heatmap of an explanation; ``query_texts`` are the paragraphs of the query."""
    n, m = why.share.shape
    width, height = (_WIDTH - _LEFT_MARGIN) / m, min(26.0, _HEIGHT / n)
    shares = np.maximum(why.share, 0)
    names = [passage.removeprefix(f"{why.doc_id}:") for passage in why.passage_ids]
    order = np.argsort(-shares, axis=None, kind="stable")[:_MAX_CELLS]
    rows, columns = (indices.tolist() for indices in np.unravel_index(order[shares.ravel()[order] > 0], shares.shape))
    largest = float(shares.max(initial=0)) or 1.0

    def amount(row: int, column: int) -> str:
        share = float(why.share[row, column])
        return f"{100 * share / why.score:.1f} %" if why.in_percent and why.score else f"{share:+.4f}"

    cells: list[MapCell] = []
    pairs: list[StrongPair] = []
    for row, column in zip(rows, columns, strict=True):
        x, y = _LEFT_MARGIN + column * width, row * height
        title = f"paragraph {row + 1} of the query, passage {names[column]} of the document: {amount(row, column)}"
        cells.append(MapCell(round(x, 2), round(y, 2), round(0.1 + 0.9 * shares[row, column] / largest, 3), title))
        if len(pairs) < _MAX_PAIRS:
            text = (why.passage_texts or [])[column : column + 1]
            middle = round(x + width / 2, 2), round(y + height / 2, 2)
            shown = str(row + 1), names[column], amount(row, column), query_texts[row], *(text or [""])
            pairs.append(StrongPair(len(pairs) + 1, *middle, *shown))
    return ParagraphMap(
        _WIDTH,
        round(n * height + _BOTTOM_MARGIN, 2),
        _LEFT_MARGIN,
        round(width, 2),
        round(height, 2),
        cells,
        [(str(row + 1), round((row + 0.5) * height, 2)) for row in _some(n, height)],
        [(names[column], round(_LEFT_MARGIN + (column + 0.5) * width, 2)) for column in _some(m, width / 2)],
        pairs,
        f"Shares of {n:,} paragraphs of the query by {m:,} passages of the document in its score",
    )


def _some(n: int, space: float) -> range:
    """Return which of n labels are shown, so that each has 12 units of space."""
    return range(0, n, max(1, math.ceil(12 / space)))
