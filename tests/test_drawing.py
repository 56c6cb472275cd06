"""Test figures: their labels, sizes and files, and that equal figures give equal bytes."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from haybale.drawing import draw_heatmap, draw_lines, save_figure
from haybale.errors import InputError, MissingExtraError

matplotlib = pytest.importorskip("matplotlib")


def texts(labels: list[Any]) -> list[str]:
    return [label.get_text() for label in labels]


def heatmap(path: Path | None = None, **labels: str) -> Any:
    values = np.array([[0.0, 1.0, 2.0], [3.0, np.nan, 5.0]])
    return draw_heatmap(values, ["I", "S"], ["1", "2", "later"], path=path, **labels)


def lines(path: Path | None = None, n: int = 3, **options: Any) -> Any:
    curves = {f"run {i}": ([1, 10, 100], [0.1, 0.2 + i / 100, 0.9]) for i in range(n)}
    return draw_lines(curves, path=path, **options)


ALL = pytest.mark.parametrize("draw", [heatmap, lines])


@ALL
def test_titles_and_labels_are_escaped(draw: Callable[..., Any]) -> None:
    figure = draw(title="the title\x07 \u202e", x_label="costs $5 to $6", y_label="the y")
    axes = figure.axes[0]
    assert (axes.get_title(), axes.get_ylabel()) == (r"the title\x07 \u202e", "the y")  # not valid in SVG
    assert axes.get_xlabel() == r"costs \$5 to \$6"  # not a formula


@ALL
@pytest.mark.parametrize("suffix", ["svg", "png", "pdf"])
def test_equal_figures_give_equal_bytes(draw: Callable[..., Any], suffix: str, tmp_path: Path) -> None:
    before = matplotlib.rcParams.copy()
    figure = draw(tmp_path / f"new/one.{suffix}", title="again")
    save_figure(figure, tmp_path / f"two.{suffix}")
    draw(tmp_path / f"three.{suffix.upper()}", title="again")
    written = {path.read_bytes() for path in tmp_path.rglob("*.*")}
    assert len(written) == 1
    assert next(iter(written)).startswith({"svg": b"<?xml", "png": b"\x89PNG", "pdf": b"%PDF"}[suffix])
    assert not list(tmp_path.rglob(".*"))
    assert matplotlib.rcParams.copy() == before
    draw(tmp_path / f"other.{suffix}", title="another")
    assert (tmp_path / f"other.{suffix}").read_bytes() not in written


def test_other_suffixes_are_rejected(tmp_path: Path) -> None:
    for name in ("figure.gif", "figure"):
        with pytest.raises(InputError, match=rf"{name}: .*\.svg, \.png, \.pdf"):
            save_figure(heatmap(), tmp_path / "folder" / name)
    assert not list(tmp_path.iterdir())


@ALL
def test_without_matplotlib_the_error_has_the_pip_command(
    draw: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError, match=r"haybale\[reports\]"):
        draw()


def test_a_small_heatmap() -> None:
    figure = heatmap(value_label="hits")
    axes, bar = figure.axes
    assert texts(axes.get_xticklabels()) == ["1", "2", "later"]
    assert texts(axes.get_yticklabels()) == ["I", "S"]
    (image,) = axes.get_images()
    np.testing.assert_array_equal(np.ma.filled(image.get_array(), np.nan), [[0, 1, 2], [3, np.nan, 5]])
    assert image.get_clim() == (0, 5)
    assert bar.get_ylabel() == "hits (grey: none)"
    assert min(image.cmap(image.norm(0.0))[:3]) > 0.95  # near white
    low, top = axes.get_ylim()
    assert low > top  # the first row is at the top


@pytest.mark.parametrize(("r", "c"), [(9, 1400), (1400, 9), (3000, 2000), (1, 1)])
def test_a_heatmap_of_any_size_is_readable(r: int, c: int) -> None:
    """The size is bounded, tick labels do not overlap, and each is at its cell."""
    names = [f"{i + 1}" for i in range(c)]
    figure = draw_heatmap(np.ones((r, c)), ["a long name of a paragraph " + str(i) for i in range(r)], names)
    assert max(figure.get_size_inches() / [17, 12.5]) <= 1
    figure.canvas.draw()
    axes = figure.axes[0]
    for axis, low, high in ((axes.xaxis, "x0", "x1"), (axes.yaxis, "y0", "y1")):
        boxes = sorted((label.get_window_extent() for label in axis.get_ticklabels()), key=lambda b: getattr(b, low))
        assert all(getattr(a, high) <= getattr(b, low) for a, b in itertools.pairwise(boxes))
    shown = texts(axes.get_xticklabels())
    assert [names[int(place)] for place in axes.get_xticks()] == shown
    assert len(shown) <= 50
    assert c != 1400 or shown[:2] == ["50", "100"]


def test_a_logarithmic_axis_has_ticks_at_the_points() -> None:
    figure = draw_lines({"_hidden": ([1, 20, 1000], [0.0, 0.5, 1.0])}, log_x=True)
    (axes,) = figure.axes
    assert axes.get_xscale() == "log"
    assert texts(axes.get_xticklabels()) == ["1", "20", "1,000"]
    assert texts(figure.legends[0].get_texts()) == ["_hidden"]
    assert axes.get_lines()[0].get_xydata().tolist() == [[1, 0], [20, 0.5], [1000, 1]]


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: draw_heatmap(np.ones((2, 2)), ["a"], ["b", "c"]), r"1 rows and 2 columns.*\(2, 2\)"),
        (lambda: draw_heatmap([[np.inf]], ["a"], ["b"]), "'values'"),
        (lambda: draw_lines({}), "'curves'"),
        (lambda: draw_lines({"a": ([1, 2], [1])}), r"'a': .*\(2,\) and \(1,\)"),
        (lambda: draw_lines({"a": ([0, 2], [1, 1])}, log_x=True), "'a': .* 0$"),
    ],
)
def test_invalid_values_are_rejected(draw: Callable[[], Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        draw()
