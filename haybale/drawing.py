"""Draw heatmaps and line charts with Matplotlib, and save figures. No other module uses Matplotlib.

Figures are created without pyplot and without changes to the global settings, so that they work in threads, on machines
without a display, and next to the plots of the caller.

The colours are those of Okabe & Ito, "Color Universal Design", 2008, which colour-blind readers can distinguish.
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
_DASHES = ("-", "--", "-.", ":")  # 4 and the 7 colours have no common divisor: 28 different lines
_MARKERS = ("o", "s", "^", "D", "v")
_FONT = 8  # points; size of tick labels
_LETTER, _LINE = 0.07, 0.17  # inches; width and height of a letter of this size
_MAX_LETTERS = 32  # longest tick label
_CELL = 0.45  # inches; preferred size of a cell of a heatmap
_WIDTH, _HEIGHT = (2.4, 13.0), (1.8, 9.0)  # inches; least and greatest size of all cells together
# Control characters, characters that change the direction of text, surrogates and non-characters.
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
_MAX_MARKERS = 24  # of a line; more would hide it


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
    """Draw values as colours, with the first row at the top.

    A colour near white stands for 0. If there are negative values, the colours diverge from 0. The figure has at most
    17 × 12.5 inches (2,550 × 1,875 pixels as PNG).

    Parameters
    ----------
    values : (r, c) array-like
        NaN, for a missing value, is grey. Infinity or another shape raises :class:`InputError`.
    rows, columns : (r,) and (c,) sequences of str
        Tick labels; if there are too many, only every second, fifth, tenth … is shown.
    title, x_label, y_label, value_label : str
    path : str or Path, optional
        File to save the figure to, see :func:`save_figure`.
    """
    table = np.asarray(values, dtype=np.float64)
    if table.shape != (len(rows), len(columns)) or not table.size:
        expected = f"{len(rows)} rows and {len(columns)} columns, at least 1 each"
        raise InputError(f"heatmap: expected values for {expected}, found shape {table.shape}")
    if np.isinf(table).any():
        raise InputError("heatmap: 'values' must be finite or NaN, found infinity")
    rows, columns = _labels(rows), _labels(columns)
    width, height = np.clip(_CELL * len(columns), *_WIDTH), np.clip(_CELL * len(rows), *_HEIGHT)
    across = _LETTER * max(map(len, columns)) + 0.08  # width of a horizontal column label
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
    """Draw one line per curve; neighbouring lines differ in colour, dashes and marker.

    Parameters
    ----------
    curves : mapping of str to (x, y)
        Coordinates (n,) of each line, by its name in the legend; other shapes raise :class:`InputError`.
    title, x_label, y_label : str
    path : str or Path, optional
        File to save the figure to, see :func:`save_figure`.
    log_x : bool, default False
        Whether the x axis is logarithmic; all x must then be above 0.
    """
    if not curves:
        raise InputError("lines: 'curves' must have at least one line, found none")
    points = {name: (np.asarray(x, float), np.asarray(y, float)) for name, (x, y) in curves.items()}
    for name, (x, y) in points.items():
        if x.ndim != 1 or x.shape != y.shape:
            raise InputError(f"lines: {name!r}: expected x and y of one shape (n,), found {x.shape} and {y.shape}")
        if log_x and (x <= 0).any():
            raise InputError(f"lines: {name!r}: x must be above 0 on a logarithmic axis, found {x.min():g}")
    names = _labels(points)
    figure = _figure(7.8 + _LETTER * max(map(len, names)), max(4.5, _LINE * len(names) + 1))
    axes = figure.add_subplot()
    drawn: list[Any] = []
    for number, (x, y) in enumerate(points.values()):
        marker = _MARKERS[number % len(_MARKERS)] if len(x) <= _MAX_MARKERS else None
        colour, dashes = COLOURS[number % len(COLOURS)], _DASHES[number % len(_DASHES)]
        drawn += axes.plot(x, y, color=colour, linestyle=dashes, marker=marker, markersize=4)
    if log_x:
        axes.set_xscale("log")
        marks = np.unique(np.concatenate([x for x, _ in points.values()]))
        if len(marks) <= _MAX_MARKERS // 2:
            axes.set_xticks(marks, [f"{mark:,g}" if mark < 1e6 else f"{mark:g}" for mark in marks])
            axes.minorticks_off()
    axes.tick_params(labelsize=_FONT)
    axes.grid(color="#e5e5e5")
    axes.spines[["top", "right"]].set_visible(False)
    figure.legend(drawn, names, loc="outside right upper", fontsize=_FONT, frameon=False, handlelength=3.5)
    return _finished(figure, title, x_label, y_label, path)


def check_figure(path: Path) -> str:
    """Return the suffix of a figure's file; reject other suffixes, and require Matplotlib."""
    suffix = path.suffix.lower()
    if suffix not in _SUFFIXES:
        raise InputError(f"{path}: expected a file name that ends in {', '.join(_SUFFIXES)}, found {path.suffix!r}")
    import_optional("matplotlib", "reports")
    return suffix


def save_figure(figure: Figure, path: Path | str) -> None:
    """Save a figure as SVG, PNG or PDF; another suffix raises :class:`InputError`. Equal figures give equal bytes.

    Missing folders are created, and an existing file is replaced when the new one is complete.
    """
    suffix = check_figure(Path(path))
    matplotlib = import_optional("matplotlib", "reports")
    fixed = {"svg.hashsalt": "haybale", "svg.fonttype": "path", "pdf.fonttype": 42}  # publishers refuse Type 3 fonts
    with replaced(Path(path)) as aside, matplotlib.rc_context(fixed):
        figure.savefig(aside, format=suffix[1:], dpi=_DPI, metadata=_SUFFIXES[suffix])


def _figure(width: float, height: float) -> Figure:
    import_optional("matplotlib", "reports")
    figures = import_optional("matplotlib.figure", "reports")
    figure: Figure = figures.Figure(figsize=(width, height), layout="constrained")
    import_optional("matplotlib.backends.backend_agg", "reports").FigureCanvasAgg(figure)
    return figure


def _finished(figure: Figure, title: str, x_label: str, y_label: str, path: Path | str | None) -> Figure:
    axes = figure.axes[0]
    letters = int(figure.get_figwidth() / 0.1)  # letters of the title that fit into a line
    axes.set_title("\n".join(textwrap.wrap(_plain(title), letters)), fontsize=11)
    axes.set_xlabel(_plain(x_label))
    axes.set_ylabel(_plain(y_label))
    # Each draw moves the layout a little, since it starts from the previous one: let it settle, then fix it.
    for _ in range(2):
        figure.draw_without_rendering()
    figure.set_layout_engine("none")
    if path is not None:
        save_figure(figure, path)
    return figure


def _ticks(axis: Any, labels: Sequence[str], pitch: float, room: float) -> None:
    """Show every label, or only every second, fifth, tenth … that fits.

    ``pitch`` is the distance of two labels, and ``room`` the space that one needs, both in inches.
    """
    step = next(step for power in range(9) for step in (10**power * np.array([1, 2, 5])) if step * pitch >= room)
    first = step - 1 if labels[0] == "1" and step <= len(labels) else 0  # show 50, 100 …, not 1, 51, 101 …
    shown: NDArray[np.int64] = np.arange(first, len(labels), step)
    axis.set_ticks(shown, [labels[i] for i in shown], fontsize=_FONT)


def _labels(names: Iterable[str]) -> list[str]:
    return [_plain(name if len(name) <= _MAX_LETTERS else f"{name[: _MAX_LETTERS - 1]}…") for name in names]


def _plain(text: str) -> str:
    """Escape dollar signs, because Matplotlib parses text between two of them as a formula."""
    return clean(text).replace("$", r"\$")


def clean(text: str) -> str:
    """Escape control characters, which HTML and XML forbid, and characters that change the direction of text.

    >>> clean("\\x1b[2J \\u202e")
    '\\\\x1b[2J \\\\u202e'
    """
    return _CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode(), text)
