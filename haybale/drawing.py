"""Heatmaps, lines and bars as Matplotlib figures, and figures as files. All that knows Matplotlib is here.

Figures are made without pyplot and without changes to the global settings, so they work in threads, on machines
without a display, and beside a caller's own plots.

The colours are those of Okabe & Ito, "Color Universal Design", 2008: they differ for colour-blind readers too.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from haybale.errors import InputError
from haybale.extras import require
from haybale.folders import replaced

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SUFFIXES: dict[str, dict[str, None]] = {".svg": {"Date": None}, ".png": {}, ".pdf": {"CreationDate": None}}
_DPI = 150
_LINES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#000000", "#e69f00", "#56b4e9")
_DASHES = ("-", "--", "-.", ":")  # as many as have no divisor in common with the colours: 28 different lines
_MARKERS = ("o", "s", "^", "D", "v")
_SEGMENTS = ("#0072b2", "#009e73", "#e69f00", "#bbbbbb", "#cc79a7", "#56b4e9", "#d55e00")
_FONT = 8  # points, of tick labels
_LETTER, _LINE = 0.07, 0.17  # width and height of a letter of that size, in inches
_LONGEST = 32  # letters of a tick label
_CELL = 0.45  # inches of a heatmap's cell, where the bounds allow
_WIDTH, _HEIGHT = (2.4, 13.0), (1.8, 9.0)  # bounds of a heatmap's cells together, in inches
_CELLS = (1250, 1800)  # rows and columns, each at least a pixel; of more, neighbours are drawn as one
_FEW_POINTS = 24  # with more, markers hide the line
_FEW_LINES = 4  # with more, the legend stands beside the lines


def draw_heatmap(
    values: ArrayLike,
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    title: str = "",
    x_label: str = "",
    y_label: str = "",
    value_label: str = "",
    path: Path | str | None = None,
) -> Figure:
    """Values (r, c) as colours, the first row at the top; NaN, for "no value", is grey.

    ``rows`` (r,) and ``columns`` (c,) label them; of too many labels every second, fifth, tenth … is shown.
    Colours begin near white at 0; with a negative value they have two sides, with 0 between. The figure is at
    most 17 × 12.5 inches (2,550 × 1,875 pixels as PNG). ``path``: also save it, see :func:`save_figure`.
    """
    table = np.asarray(values, dtype=np.float64)
    if table.shape != (len(rows), len(columns)) or not table.size:
        raise InputError(f"heatmap: values of shape {table.shape} for {len(rows)} rows and {len(columns)} columns")
    if np.isinf(table).any():
        raise InputError("heatmap: a value is infinite")
    rows, columns = _labels(rows), _labels(columns)
    width, height = np.clip(_CELL * len(columns), *_WIDTH), np.clip(_CELL * len(rows), *_HEIGHT)
    across = _LETTER * max(map(len, columns)) + 0.08  # room of a column's label that lies
    upright = width / len(columns) < across and max(map(len, columns)) > 5
    below = _LETTER * max(map(len, columns)) if upright else _LINE
    figure = _figure(width + _LETTER * max(map(len, rows)) + 1.7, height + below + 1.1)
    axes = figure.add_subplot()
    image = _cells(axes, table)
    _ticks(axes.xaxis, columns, width / len(columns), _LINE if upright else across)
    _ticks(axes.yaxis, rows, height / len(rows), _LINE)
    axes.tick_params(axis="x", rotation=90 if upright else 0)
    bar = figure.colorbar(image, ax=axes, fraction=0.3 / width, pad=0.15 / width, aspect=height / 0.18)
    bar.ax.tick_params(labelsize=_FONT)
    bar.set_label(f"{_plain(value_label)} (grey: none)".strip() if np.isnan(table).any() else _plain(value_label))
    return _finished(figure, title, x_label, y_label, path)


def draw_lines(
    curves: Mapping[str, tuple[ArrayLike, ArrayLike]],
    *,
    title: str = "",
    x_label: str = "",
    y_label: str = "",
    path: Path | str | None = None,
    log_x: bool = False,
) -> Figure:
    """A line for each name from its ``(x, y)``, each (n,); neighbours differ in colour, dashes and marker.

    ``log_x``: x on a logarithmic axis, all of it above 0. ``path``: also save it, see :func:`save_figure`.
    """
    if not curves:
        raise InputError("lines: there is nothing to draw")
    points = {name: (np.asarray(x, float), np.asarray(y, float)) for name, (x, y) in curves.items()}
    for name, (x, y) in points.items():
        if x.ndim != 1 or x.shape != y.shape:
            raise InputError(f"lines: {name!r} has x of shape {x.shape} and y of shape {y.shape}")
        if log_x and (x <= 0).any():
            raise InputError(f"lines: {name!r} has x = {x.min():g}, which a logarithmic axis does not have")
    outside = len(points) > _FEW_LINES
    names = _labels(points)
    figure = _figure(7 + (_LETTER * max(map(len, names)) + 0.8 if outside else 0), max(4.5, _LINE * len(names) + 1))
    axes = figure.add_subplot()
    drawn: list[Any] = []
    for number, (x, y) in enumerate(points.values()):
        drawn += axes.plot(
            x,
            y,
            color=_LINES[number % len(_LINES)],
            linestyle=_DASHES[number % len(_DASHES)],
            marker=_MARKERS[number % len(_MARKERS)] if len(x) <= _FEW_POINTS else None,
            markersize=4,
        )
    if log_x:
        axes.set_xscale("log")
        marks = np.unique(np.concatenate([x for x, _ in points.values()]))
        if len(marks) <= _FEW_POINTS // 2:
            axes.set_xticks(marks, [f"{mark:,g}" if mark < 1e6 else f"{mark:g}" for mark in marks])
            axes.minorticks_off()
    axes.tick_params(labelsize=_FONT)
    axes.grid(color="#e5e5e5")
    axes.spines[["top", "right"]].set_visible(False)
    beside = {"loc": "upper left", "bbox_to_anchor": (1.01, 1), "borderaxespad": 0} if outside else {"loc": "best"}
    axes.legend(drawn, names, fontsize=_FONT, frameon=not outside, handlelength=3.5, **beside)
    return _finished(figure, title, x_label, y_label, path)


def draw_bars(
    bars: Mapping[str, Mapping[str, float]],
    *,
    title: str = "",
    x_label: str = "",
    y_label: str = "",
    path: Path | str | None = None,
) -> Figure:
    """A lying bar for each name, made of segments with values from 0 up, the same in every bar.

    Segments that are wide enough carry their number. ``path``: also save it, see :func:`save_figure`.
    """
    segments = list(next(iter(bars.values()), {}))
    if not segments or any(list(bar) != segments for bar in bars.values()):
        raise InputError("bars: expected the same segments, at least one, in every bar")
    values = np.array([list(bar.values()) for bar in bars.values()], dtype=np.float64)  # (bars, segments)
    if not (values >= 0).all():
        raise InputError("bars: a segment has a value below 0, or none")
    names = _labels(bars)
    figure = _figure(7 + _LETTER * max(map(len, names)), 1.7 + 0.5 * len(names))
    axes = figure.add_subplot()
    starts = values.cumsum(axis=1) - values
    least = 0.012 * (values.sum(axis=1).max() or 1.0)  # room of one digit
    for number, segment in enumerate(_labels(segments)):
        colour = _SEGMENTS[number % len(_SEGMENTS)]
        part = values[:, number]
        boxes = axes.barh(range(len(names)), part, 0.7, starts[:, number], color=colour, label=segment)
        texts = [text if value >= least * (len(text) + 1) else "" for value in part for text in [f"{value:,g}"]]
        axes.bar_label(boxes, texts, label_type="center", fontsize=_FONT, color="white" if number < 2 else "black")
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.tick_params(labelsize=_FONT)
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right"]].set_visible(False)
    handles, labels = axes.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, fontsize=_FONT, frameon=False)
    return _finished(figure, title, x_label, y_label, path)


def check_figure(path: Path) -> str:
    """The kind of file that a figure is saved as; another suffix is refused, and so is a host without Matplotlib."""
    kind = path.suffix.lower()
    if kind not in _SUFFIXES:
        raise InputError(f"{path}: a figure is saved as one of {', '.join(_SUFFIXES)}; found {path.suffix!r}")
    require("matplotlib")
    return kind


def save_figure(figure: Figure, path: Path | str) -> None:
    """Save as SVG, PNG or PDF, by the suffix; written aside first, then renamed. The same figure gives the same bytes.

    Folders above the file are made. Errors: :class:`InputError` for another suffix.
    """
    kind = check_figure(Path(path))
    matplotlib = require("matplotlib")
    fixed = {"svg.hashsalt": "haybale", "svg.fonttype": "path"}
    with replaced(Path(path)) as aside, matplotlib.rc_context(fixed):
        figure.savefig(aside, format=kind[1:], dpi=_DPI, metadata=_SUFFIXES[kind])


def _figure(width: float, height: float) -> Figure:
    require("matplotlib")
    figure: Figure = require("matplotlib.figure").Figure(figsize=(width, height), layout="constrained")
    require("matplotlib.backends.backend_agg").FigureCanvasAgg(figure)
    return figure


def _finished(figure: Figure, title: str, x_label: str, y_label: str, path: Path | str | None) -> Figure:
    axes = figure.axes[0]
    letters = int(figure.get_figwidth() / 0.1)  # of the title's size, in the figure's width
    axes.set_title("\n".join(textwrap.wrap(_plain(title), letters)), fontsize=11)
    axes.set_xlabel(_plain(x_label))
    axes.set_ylabel(_plain(y_label))
    # The layout starts from the one before and would move a little with every draw or save: let it settle, and stop.
    for _ in range(2):
        figure.draw_without_rendering()
    figure.set_layout_engine("none")
    if path is not None:
        save_figure(figure, path)
    return figure


def _cells(axes: Any, table: NDArray[np.float64]) -> Any:
    """The values as an image, a cell around each pair of whole coordinates."""
    values = table[~np.isnan(table)]
    greatest = float(np.abs(values).max(initial=0)) or 1.0
    signed = bool((values < 0).any())
    colours = require("matplotlib").colormaps["RdBu_r" if signed else "Blues"].with_extremes(bad="#c8c8c8")
    down, across = (-(-n // most) for n, most in zip(table.shape, _CELLS, strict=True))  # cells drawn as one
    pixels = _strongest(_strongest(table, down, 0), across, 1)
    image = axes.imshow(
        pixels,
        colours,
        vmin=-greatest if signed else 0,
        vmax=greatest,
        extent=(-0.5, across * pixels.shape[1] - 0.5, down * pixels.shape[0] - 0.5, -0.5),
        aspect="auto",
        interpolation="nearest",
    )
    axes.set(xlim=(-0.5, table.shape[1] - 0.5), ylim=(table.shape[0] - 0.5, -0.5))
    return image


def _ticks(axis: Any, labels: Sequence[str], pitch: float, room: float) -> None:
    """Every label where there is room, else every second, fifth, tenth …; ``pitch`` and ``room`` in inches."""
    step = next(step for power in range(9) for step in (10**power * np.array([1, 2, 5])) if step * pitch >= room)
    first = step - 1 if labels[0] == "1" and step <= len(labels) else 0  # 50, 100 … read better than 1, 51, 101 …
    shown: NDArray[np.int64] = np.arange(first, len(labels), step)
    axis.set_ticks(shown, [labels[i] for i in shown], fontsize=_FONT)


def _strongest(table: NDArray[np.float64], together: int, axis: int) -> NDArray[np.float64]:
    """Of so many neighbours, drawn as one, the value farthest from 0: a single high one stays visible."""
    starts = np.arange(0, table.shape[axis], together)
    high, low = (part.reduceat(table, starts, axis=axis) for part in (np.fmax, np.fmin))
    return np.where(-low > high, low, high)


def _labels(names: Sequence[str] | Mapping[str, Any]) -> list[str]:
    return [_plain(name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…") for name in names]


def _plain(text: str) -> str:
    """The text as it is: Matplotlib reads what stands between two dollar signs as a formula."""
    return text.replace("$", r"\$")
