"""Heatmaps and lines as Matplotlib figures, and figures as files. All that knows Matplotlib is here.

Figures are made without pyplot and without changes to the global settings, so they work in threads, on machines
without a display, and beside a caller's own plots.

The colours are those of Okabe & Ito, "Color Universal Design", 2008: they differ for colour-blind readers too.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from haybale.errors import InputError
from haybale.extras import import_optional
from haybale.folders import replaced

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SUFFIXES: dict[str, dict[str, None]] = {".svg": {"Date": None}, ".png": {}, ".pdf": {"CreationDate": None}}
_DPI = 150
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#000000", "#e69f00", "#56b4e9")
_DASHES = ("-", "--", "-.", ":")  # as many as have no divisor in common with the colours: 28 different lines
_MARKERS = ("o", "s", "^", "D", "v")
_FONT = 8  # points, of tick labels
_LETTER, _LINE = 0.07, 0.17  # width and height of a letter of that size, in inches
_LONGEST = 32  # letters of a tick label
_CELL = 0.45  # inches of a heatmap's cell, where the bounds allow
_WIDTH, _HEIGHT = (2.4, 13.0), (1.8, 9.0)  # bounds of a heatmap's cells together, in inches
# Control characters, those that turn text round, and what is none.
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
_FEW_POINTS = 24  # with more, markers hide the line


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
    greatest = float(np.nanmax(np.abs(table), initial=0)) or 1.0
    low = -greatest if np.nanmin(table, initial=0) < 0 else 0
    maps = import_optional("matplotlib", "reports").colormaps
    colours = maps["RdBu_r" if low else "Blues"].with_extremes(bad="#c8c8c8")
    image = axes.imshow(table, colours, vmin=low, vmax=greatest, aspect="auto")
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
    names = _labels(points)
    figure = _figure(7.8 + _LETTER * max(map(len, names)), max(4.5, _LINE * len(names) + 1))
    axes = figure.add_subplot()
    drawn: list[Any] = []
    for number, (x, y) in enumerate(points.values()):
        marker = _MARKERS[number % len(_MARKERS)] if len(x) <= _FEW_POINTS else None
        colour, dashes = COLOURS[number % len(COLOURS)], _DASHES[number % len(_DASHES)]
        drawn += axes.plot(x, y, color=colour, linestyle=dashes, marker=marker, markersize=4)
    if log_x:
        axes.set_xscale("log")
        marks = np.unique(np.concatenate([x for x, _ in points.values()]))
        if len(marks) <= _FEW_POINTS // 2:
            axes.set_xticks(marks, [f"{mark:,g}" if mark < 1e6 else f"{mark:g}" for mark in marks])
            axes.minorticks_off()
    axes.tick_params(labelsize=_FONT)
    axes.grid(color="#e5e5e5")
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(drawn, names, loc="outside right upper", fontsize=_FONT, frameon=False, handlelength=3.5)
    return _finished(figure, title, x_label, y_label, path)


def check_figure(path: Path) -> str:
    """The kind of file that a figure is saved as; another suffix is refused, and so is a host without Matplotlib."""
    kind = path.suffix.lower()
    if kind not in _SUFFIXES:
        raise InputError(f"{path}: a figure is saved as one of {', '.join(_SUFFIXES)}; found {path.suffix!r}")
    import_optional("matplotlib", "reports")
    return kind


def save_figure(figure: Figure, path: Path | str) -> None:
    """Save as SVG, PNG or PDF, by the suffix; written aside first, then renamed. The same figure gives the same bytes.

    Folders above the file are made. Errors: :class:`InputError` for another suffix.
    """
    kind = check_figure(Path(path))
    matplotlib = import_optional("matplotlib", "reports")
    fixed = {"svg.hashsalt": "haybale", "svg.fonttype": "path"}
    with replaced(Path(path)) as aside, matplotlib.rc_context(fixed):
        figure.savefig(aside, format=kind[1:], dpi=_DPI, metadata=_SUFFIXES[kind])


def _figure(width: float, height: float) -> Figure:
    import_optional("matplotlib", "reports")
    figures = import_optional("matplotlib.figure", "reports")
    figure: Figure = figures.Figure(figsize=(width, height), layout="constrained")
    import_optional("matplotlib.backends.backend_agg", "reports").FigureCanvasAgg(figure)
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


def _ticks(axis: Any, labels: Sequence[str], pitch: float, room: float) -> None:
    """Every label where there is room, else every second, fifth, tenth …; ``pitch`` and ``room`` in inches."""
    step = next(step for power in range(9) for step in (10**power * np.array([1, 2, 5])) if step * pitch >= room)
    first = step - 1 if labels[0] == "1" and step <= len(labels) else 0  # 50, 100 … read better than 1, 51, 101 …
    shown: NDArray[np.int64] = np.arange(first, len(labels), step)
    axis.set_ticks(shown, [labels[i] for i in shown], fontsize=_FONT)


def _labels(names: Iterable[str]) -> list[str]:
    return [_plain(name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…") for name in names]


def _plain(text: str) -> str:
    """The text as it is: Matplotlib reads what stands between two dollar signs as a formula."""
    return clean(text).replace("$", r"\$")


def clean(text: str) -> str:
    """A text in which control characters, which HTML and XML forbid, and those that turn text round are shown.

    >>> clean("\\x1b[2J \\u202e")
    '\\\\x1b[2J \\\\u202e'
    """
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)
