"""Charts of the page: drawn by Matplotlib, then made inline SVG in the page's colours, with titles and links."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from xml.etree import ElementTree

import numpy as np
from numpy.typing import NDArray

from haybale.drawing import draw_heatmap, draw_lines
from haybale.extras import require

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.figure import Figure

SERIES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#000000", "#e69f00", "#56b4e9")
SOFT, WIN, LOSS = "#777777", "#0072b1", "#d55e01"
# What is drawn in a colour has that of the style sheet, where it is another by day than by night.
_NAMES = {"#ffffff": "ground", "#000000": "ink", "#e5e5e5": "rule", SOFT: "soft", WIN: "win", LOSS: "loss"}
_NAMES = {colour: f"s{number}" for number, colour in enumerate(SERIES)} | _NAMES
_SVG, _LINK = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}href"
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")
_MOST = 2000  # cells of a heatmap that say what they are, the strongest ones

Titles = Mapping[str, Sequence[str]]  # by the gid of what is drawn, one for each of its marks


def clean(text: str) -> str:
    """A text without what neither HTML nor XML allows: control characters become the sign for what is unknown."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def inline(figure: Figure, name: str, label: str, titles: Titles | None = None) -> Markup:
    """A figure as an SVG element, its texts as texts; the same figure gives the same characters.

    ``name`` tells its ids from those of other figures; ``label`` is what it says to those who do not see it. A gid
    ``series-3`` becomes the class ``series`` and ``data-series="3"``.
    """
    file = io.BytesIO()
    with require("matplotlib").rc_context({"svg.hashsalt": name, "svg.fonttype": "none"}):
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    root = ElementTree.fromstring(file.getvalue())
    for gid, of_marks in (titles or {}).items():
        group = root.find(f".//*[@id='{gid}']")
        for mark, title in zip([] if group is None else _marks(group), of_marks, strict=False):
            ElementTree.SubElement(mark, f"{_SVG}title").text = clean(title)
    used = set(re.findall(r"#([\w-]+)", " ".join(value for each in root.iter() for value in each.attrib.values())))
    for parent in root.iter():
        parent.tag = parent.tag.removeprefix(_SVG)
        for child in [child for child in parent if child.tag in (f"{_SVG}metadata", f"{_SVG}style")]:
            parent.remove(child)
        if _LINK in parent.attrib:
            parent.set("href", parent.attrib.pop(_LINK))
            parent.attrib.pop("target", None)
        if "style" in parent.attrib:
            parent.set("style", re.sub("#[0-9a-f]{6}", _variable, parent.attrib["style"]))
        kind, _, number = parent.attrib.get("id", "").partition("-")
        if parent.tag == "g" and parent.attrib.pop("id", "") and number:
            parent.attrib |= {"class": kind, f"data-{kind}": number}
        elif parent.get("id") not in used:
            parent.attrib.pop("id", None)
    root.attrib |= {"class": f"chart {name}", "role": "group", "aria-label": label}
    markup: Markup = require("markupsafe").Markup(ElementTree.tostring(root, encoding="unicode"))
    return markup


def _marks(group: ElementTree.Element) -> list[ElementTree.Element]:
    """What is drawn for each point of an artist, in its order: uses of a shape, else paths."""
    shapes = {each for defs in group.iter(f"{_SVG}defs") for each in defs.iter()}
    found = [[each for each in group.iter(f"{_SVG}{tag}") if each not in shapes] for tag in ("use", "path")]
    return found[0] or found[1]


def _variable(colour: re.Match[str]) -> str:
    return f"var(--{_NAMES[colour[0]]})" if colour[0] in _NAMES else colour[0]


def _axes(width: float, height: float) -> tuple[Figure, Any]:
    """A figure of that many inches, and its axes without a frame."""
    figure: Figure = require("matplotlib.figure").Figure(figsize=(width, height), layout="constrained")
    axes = figure.add_subplot()
    axes.tick_params(labelsize=8, length=0)
    axes.set_axisbelow(True)
    axes.spines[:].set_visible(False)
    return figure, axes


def _boxes(corners: Sequence[tuple[float, float, float, float]], gid: str, **how: Any) -> Any:
    """Rectangles (left, bottom, right, top) as one collection."""
    shapes = [[(a, b), (c, b), (c, d), (a, d)] for a, b, c, d in corners]
    return require("matplotlib.collections").PolyCollection(shapes, gid=gid, linewidths=0, **how)


def recall_chart(curves: Mapping[str, tuple[Sequence[int], Sequence[float]]], label: str) -> Markup:
    """Lines over a logarithmic axis; the page's script hides and shows them by their names in the legend."""
    figure = draw_lines(
        {clean(name): values for name, values in curves.items()},
        x_label="documents looked at",
        y_label="recall",
        log_x=True,
    )
    axes = figure.axes[0]
    legend: Any = axes.get_legend()
    for number, line in enumerate(axes.get_lines()):
        line.set_gid(f"series-{number}")
        legend.legend_handles[number].set_gid(f"switch-{number}")
        legend.get_texts()[number].set_gid(f"switch-{number}")
    titles = {
        f"series-{number}": [f"{name}: {y:.4f} at {x:,}" for x, y in zip(*values, strict=True)]
        for number, (name, values) in enumerate(curves.items())
    }
    return inline(figure, "recall-chart", label, titles)


def difference_chart(values: Mapping[str, float], links: Mapping[str, str], label: str) -> Markup:
    """A bar for each name in the order given, up where its value is above 0; those in ``links`` lead there."""
    figure, axes = _axes(9.5, 2.7)
    shown = [(place, name, value) for place, (name, value) in enumerate(values.items()) if value]
    corners = [(place, min(value, 0), place + 0.86, max(value, 0)) for place, _, value in shown]
    bars = _boxes(corners, "bars", facecolors=[WIN if value > 0 else LOSS for *_, value in shown])
    bars.set_urls([links.get(name) for _, name, _ in shown])
    axes.add_collection(bars)
    axes.axhline(0, color=SOFT, linewidth=0.8)
    reach = max(0.1, *map(abs, values.values()))
    axes.set(xlim=(0, len(values)), ylim=(-1.02 * reach, 1.02 * reach), xticks=[], xlabel="queries")
    axes.grid(axis="y", color="#e5e5e5")
    return inline(figure, "difference-chart", label, {"bars": [f"{name}: {value:+.3f}" for _, name, value in shown]})


def share_chart(
    shares: NDArray[np.float64],
    rows: Sequence[str],
    columns: Sequence[str],
    titles: Mapping[tuple[int, int], str],
    strongest: Sequence[tuple[int, int]],
    *,
    label: str,
    x_label: str,
    y_label: str,
) -> Markup:
    """Shares (n, m) as a heatmap; cells with a title say it, the ``strongest`` carry 1, 2, …."""
    names = [[clean(name) for name in part] for part in (rows, columns)]
    figure = draw_heatmap(shares, *names, x_label=clean(x_label), y_label=y_label, value_label="share of the score")
    cells = sorted(titles, key=lambda cell: -shares[cell])[:_MOST]
    corners = [(column - 0.5, row - 0.5, column + 0.5, row + 0.5) for row, column in cells]
    figure.axes[0].add_collection(_boxes(corners, "cells", facecolors="#ffffff", alpha=0.004))
    sign = {"boxstyle": "circle,pad=0.15", "facecolor": "#ffffff", "edgecolor": "none"}
    for number, (row, column) in enumerate(strongest, 1):
        figure.axes[0].text(column, row, str(number), ha="center", va="center", fontsize=8, weight="bold", bbox=sign)
    return inline(figure, "share-chart", label, {"cells": [titles[cell] for cell in cells]})


class Points(NamedTuple):
    """Points of one shape and size: rows of the places, a colour and a title each."""

    marker: str
    size: float
    alpha: float
    rows: list[int]
    colours: list[str]
    titles: list[str]


def scatter_chart(
    places: NDArray[np.float64], groups: Sequence[Points], joins: Sequence[tuple[int, int, str]], label: str
) -> Markup:
    """``places`` (n, 2) as groups of points, later ones on top; ``joins`` are lines from row to row with a colour."""
    figure, axes = _axes(10, 6.5)
    ends = [places[[start, end]] for start, end, _ in joins]
    colours = [colour for *_, colour in joins]
    widths = [0.6 if colour == SOFT else 1.2 for colour in colours]
    lines = require("matplotlib.collections").LineCollection(ends, colors=colours, linewidths=widths, alpha=0.7)
    axes.add_collection(lines)
    for number, (marker, size, alpha, rows, colour, _) in enumerate(groups):
        how = {"linewidths": 1.5} if marker == "x" else {"linewidths": 0}
        axes.scatter(*places[rows].T, s=size, marker=marker, c=colour, alpha=alpha, gid=f"points-{number}", **how)
    axes.set_axis_off()
    axes.set_aspect("equal", adjustable="datalim")
    return inline(figure, "scatter-chart", label, {f"points-{n}": group.titles for n, group in enumerate(groups)})
