"""The charts of a report: Matplotlib figures as inline SVG with the colours of the page, tooltips and links."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from xml.etree import ElementTree

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from haybale.drawing import COLOURS, clean, draw_heatmap, draw_lines, save_figure
from haybale.extras import import_optional

if TYPE_CHECKING:
    from markupsafe import Markup
    from matplotlib.figure import Figure

SOFT, WIN, LOSS = "#777777", "#0072b1", "#d55e01"
# Colours that are replaced by variables of the style sheet, whose values differ in the light and the dark theme.
_STYLE_VARIABLES = {"#ffffff": "ground", "#e5e5e5": "rule", SOFT: "soft", WIN: "win", LOSS: "loss"}
_STYLE_VARIABLES |= {colour: f"s{number}" for number, colour in enumerate(COLOURS)}
_SVG, _LINK = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}href"
_MAX_CELL_TITLES = 2000  # only this many cells of a heatmap, those with the largest shares, have a tooltip
# The shape, size and opacity of the points of each kind.
_MARKERS = {"other": ("o", 4, 0.3), "near": ("o", 12, 0.6), "relevant": ("D", 30, 0.9), "query": ("x", 45, 1.0)}


class Chart(NamedTuple):
    """A figure, and the SVG element that a page shows."""

    figure: Figure
    markup: Markup

    def __html__(self) -> str:
        """Return the SVG element; templates call this."""
        return str(self.markup)

    def save(self, path: Path) -> None:
        """Save the figure, without its links within the page, as SVG and as PDF; ``path`` has no suffix."""
        for collection in self.figure.axes[0].collections:
            collection.set_urls([])
        for suffix in (".svg", ".pdf"):
            save_figure(self.figure, path.with_name(path.name + suffix))


def recall_chart(curves: Mapping[str, tuple[Sequence[int], Sequence[float]]], label: str) -> Chart:
    """Draw recall curves over a logarithmic axis; a click on a name in the legend hides or shows its curve."""
    figure = draw_lines(curves, x_label="documents looked at", y_label="recall", log_x=True)
    titles = {}
    for number, (name, points) in enumerate(curves.items()):
        figure.axes[0].get_lines()[number].set_gid(f"series-{number}")
        figure.legends[0].get_texts()[number].set_gid(f"switch-{number}")
        titles[f"series-{number}"] = [f"{name}: {y:.4f} at {x:,}" for x, y in zip(*points, strict=True)]
    return _inline(figure, "recall-chart", label, titles)


def screening_chart(
    figure: Figure,
    curves: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    stops: Sequence[Sequence[str]],
    label: str,
) -> Chart:
    """Return the figure of simulated reviews; ``stops`` has the tooltips of each group of marks."""
    titles = {}
    for number, (name, points) in enumerate(curves.items()):
        figure.axes[0].get_lines()[number].set_gid(f"series-{number}")
        figure.legends[0].get_texts()[number].set_gid(f"switch-{number}")
        titles[f"series-{number}"] = [f"{name}: {y:.3f} at {x:.1%}" for x, y in zip(*points, strict=True)]
    groups = [group for group in figure.axes[0].collections if str(group.get_label()).startswith("stop of ")]
    for number, (group, texts) in enumerate(zip(groups, stops, strict=True)):
        group.set_gid(f"stops-{number}")
        titles[f"stops-{number}"] = list(texts)
    return _inline(figure, "screening-chart", label, titles)


def difference_chart(values: pd.Series, links: Mapping[str, str], label: str) -> Chart:
    """Draw a bar for each value in the given order; the bars of names in ``links`` are links."""
    figure, axes = _axes(9.5, 2.7)
    shown = [(left, str(name), value) for left, (name, value) in enumerate(values.items()) if value]
    bars = _boxes(
        [(left, min(value, 0), left + 0.86, max(value, 0)) for left, _, value in shown],
        gid="bars",
        facecolors=[WIN if value > 0 else LOSS for *_, value in shown],
        urls=[links.get(name) for _, name, _ in shown],
    )
    axes.add_collection(bars)
    axes.axhline(0, color=SOFT, linewidth=0.8)
    reach = 1.02 * max(0.1, values.abs().max())
    axes.set(xlim=(0, len(values)), ylim=(-reach, reach), xticks=[], xlabel="queries")
    axes.grid(axis="y", color="#e5e5e5")
    return _inline(figure, "difference-chart", label, {"bars": [f"{name}: {value:+.3f}" for _, name, value in shown]})


def share_chart(
    shares: NDArray[np.float64],
    rows: Sequence[str],
    columns: Sequence[str],
    titles: Mapping[tuple[int, int], str],
    strongest: Sequence[tuple[int, int]],
    label: str,
    **labels: str,
) -> Chart:
    """Draw shares (n, m) as a heatmap with tooltips; the cells in ``strongest`` are numbered from 1."""
    figure = draw_heatmap(shares, rows, columns, value_label="share of the score", **labels)
    axes = figure.axes[0]
    cells = sorted(titles, key=lambda cell: -shares[cell])[:_MAX_CELL_TITLES]
    corners = [(column - 0.5, row - 0.5, column + 0.5, row + 0.5) for row, column in cells]
    axes.add_collection(_boxes(corners, gid="cells", facecolors="#ffffff", alpha=0.004))
    sign = {"boxstyle": "circle,pad=0.15", "facecolor": "#ffffff", "edgecolor": "none"}
    for number, (row, column) in enumerate(strongest, 1):
        axes.text(column, row, str(number), ha="center", va="center", fontsize=8, weight="bold", bbox=sign)
    return _inline(figure, "share-chart", label, {"cells": [titles[cell] for cell in cells]})


def scatter_chart(
    places: NDArray[np.float64],
    points: Mapping[str, Sequence[tuple[int, str, str]]],
    joins: Sequence[tuple[int, int, str]],
    label: str,
) -> Chart:
    """Draw points with the coordinates ``places`` (n, 2), and lines between them.

    ``points`` has a row, a colour and a tooltip for each point, by kind; the last kind is drawn on top. ``joins`` has
    two rows and a colour for each line.
    """
    figure, axes = _axes(10, 6.5)
    lines = import_optional("matplotlib.collections", "reports").LineCollection
    ends = [places[[start, end]] for start, end, _ in joins]
    axes.add_collection(lines(ends, colors=[colour for *_, colour in joins], linewidths=0.9, alpha=0.7))
    titles = {}
    for kind, marks in points.items():
        rows, colours, titles[f"points-{kind}"] = zip(*marks, strict=True)
        marker, size, alpha = _MARKERS[kind]
        how = {"s": size, "marker": marker, "alpha": alpha, "linewidths": 1.5 * (marker == "x")}
        axes.scatter(*places[list(rows)].T, c=colours, gid=f"points-{kind}", **how)
    axes.set_axis_off()
    axes.set_aspect("equal", adjustable="datalim")
    return _inline(figure, "scatter-chart", label, titles)


def _axes(width: float, height: float) -> tuple[Figure, Any]:
    """Return a figure of this size in inches and its axes, without a frame."""
    figures = import_optional("matplotlib.figure", "reports")
    figure: Figure = figures.Figure(figsize=(width, height), layout="constrained")
    axes = figure.add_subplot()
    axes.tick_params(labelsize=8, length=0)
    axes.set_axisbelow(True)
    axes.spines[:].set_visible(False)
    return figure, axes


def _boxes(corners: Sequence[tuple[float, float, float, float]], **how: Any) -> Any:
    """Return rectangles, each (left, bottom, right, top), as one Matplotlib collection."""
    shapes = [[(a, b), (c, b), (c, d), (a, d)] for a, b, c, d in corners]
    return import_optional("matplotlib.collections", "reports").PolyCollection(shapes, linewidths=0, **how)


def _inline(figure: Figure, name: str, label: str, titles: Mapping[str, Sequence[str]]) -> Chart:
    """Return a figure with an SVG element that has searchable texts; equal figures give equal elements.

    Parameters
    ----------
    name : str
        Makes the ids unique among the figures of the page, and is the class of the element.
    label : str
        The description for screen readers.
    titles : mapping
        The tooltips of each group's marks, by the gid of the group. A gid ``series-3`` becomes the class ``series`` and
        the attribute ``data-series="3"``.
    """
    file = io.BytesIO()
    with import_optional("matplotlib", "reports").rc_context({"svg.hashsalt": name, "svg.fonttype": "none"}):
        figure.savefig(file, format="svg", transparent=True, metadata={"Date": None})
    root = ElementTree.fromstring(file.getvalue())
    # The shapes that <use> elements draw elsewhere.
    shapes = {shape for defs in root.iter(f"{_SVG}defs") for shape in defs.iter()}
    for gid, texts in titles.items():
        group = root.find(f".//*[@id='{gid}']")
        drawn = [] if group is None else [element for element in group.iter() if element not in shapes]
        uses = [element for element in drawn if element.tag == f"{_SVG}use"]
        marks = uses or [element for element in drawn if element.tag == f"{_SVG}path"]
        for mark, title in zip(marks, texts, strict=False):
            ElementTree.SubElement(mark, f"{_SVG}title").text = clean(title)
    attributes = " ".join(value for element in root.iter() for value in element.attrib.values())
    used = set(re.findall(r"#([\w-]+)", attributes))
    for element in root.iter():
        element.tag = element.tag.removeprefix(_SVG)
        for child in [child for child in element if child.tag in (f"{_SVG}metadata", f"{_SVG}style")]:
            element.remove(child)
        if _LINK in element.attrib:
            element.set("href", element.attrib.pop(_LINK))
            element.attrib.pop("target", None)
        if "style" in element.attrib:
            element.set("style", re.sub("#[0-9a-f]{6}", _theme_colour, element.attrib["style"]))
        kind, _, number = element.get("id", "").partition("-")
        if element.get("id") not in used:
            element.attrib.pop("id", None)
        if element.tag == "g" and number:
            element.attrib |= {"class": kind, f"data-{kind}": number}
    root.attrib |= {"class": f"chart {name}", "role": "group", "aria-label": clean(label)}
    markup: Markup = import_optional("markupsafe", "reports").Markup(ElementTree.tostring(root, encoding="unicode"))
    return Chart(figure, markup)


def _theme_colour(colour: re.Match[str]) -> str:
    return f"var(--{_STYLE_VARIABLES[colour[0]]})" if colour[0] in _STYLE_VARIABLES else colour[0]
