"""The charts of how far pairs of judges agreed over time, as paths of SVG that a template draws."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

WIDTH, HEIGHT, TOP = 320.0, 84.0, 6.0  # of the area of a chart, in its own units
_MAX_POINTS = 120  # of a line
_LEAST_DOCUMENTS = 2  # that both have judged, to draw a line


@dataclass(frozen=True)
class AgreementChart:
    """The chart of a pair of judges: kappa and PABAK, from −1 at the bottom to 1 at the top.

    Parameters
    ----------
    judges : str
        Both names.
    kappa, pabak : str
        The paths of the lines. That of kappa has gaps where it is not defined.
    n_documents : int
        The number of documents that both have judged, which is at the right end.
    label : str
        What the chart shows, in words.
    """

    judges: str
    kappa: str
    pabak: str
    n_documents: int
    label: str


def height_of(value: float) -> float:
    """Return the vertical position of a value from −1 to 1.

    >>> height_of(1.0), height_of(0.0), height_of(-1.0)
    (6.0, 45.0, 84.0)
    """
    return TOP + (HEIGHT - TOP) * (1 - value) / 2


def agreement_charts(over_time: pd.DataFrame) -> list[AgreementChart]:
    """Return a chart for each pair of judges, given the table of ``Judges.agreement_over_time``."""
    charts = []
    for (judge, other), rows in over_time.groupby(["judge", "other"], sort=False):
        n = len(rows)
        if n >= _LEAST_DOCUMENTS:
            steps = np.unique(np.linspace(0, n - 1, min(n, _MAX_POINTS)).round().astype(int))
            across = WIDTH * steps / (n - 1)
            kappa, pabak = rows["kappa"].to_numpy()[steps], rows["pabak"].to_numpy()[steps]
            names = f"{judge or 'no name'} and {other or 'no name'}"
            last = "not defined" if np.isnan(kappa[-1]) else f"{kappa[-1]:.2f}"
            label = f"{names} over {n:,} documents: at the end, kappa is {last} and PABAK {pabak[-1]:.2f}"
            charts.append(AgreementChart(names, _path(across, kappa), _path(across, pabak), n, label))
    return charts


def _path(across: np.ndarray, values: np.ndarray) -> str:
    """Return the path of a line, with a gap at each NaN."""
    parts, is_drawing = [], False
    for x, value in zip(across.tolist(), values.tolist(), strict=True):
        if np.isnan(value):
            is_drawing = False
            continue
        parts.append(f"{'L' if is_drawing else 'M'}{x:.1f} {height_of(value):.1f}")
        is_drawing = True
    return "".join(parts)
