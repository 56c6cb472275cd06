"""Results of simulated reviews: measures and stops of each run, tables, JSON and recall curves."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from haybale.errors import MissingExtraError
from haybale.folders import check_output, whole_folder, write_json
from haybale.review.workload import documents_until, screening_measures

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

SHARES_READ = np.linspace(0, 1, 201)  # shares of all documents, at which recall curves are drawn
_MAX_CURVES = 7  # one for each colour


@dataclass(frozen=True)
class Stop:
    """Where a stopping rule stopped a simulated review.

    Parameters
    ----------
    read : int or None
        The number of documents read by then, without those of the random sample that the ranking had not reached; None
        if the rule never stopped.
    cost : int or None
        The number of documents judged by then, the random sample included.
    recall : float or None
        The share of the relevant documents found by the ranking.
    reached : bool
        Whether that is at least the target.
    """

    read: int | None
    cost: int | None
    recall: float | None
    reached: bool


@dataclass(frozen=True)
class SimulatedRun:
    """One simulated review.

    Parameters
    ----------
    topic, start : str
    seed : int
    known : tuple of str
        Ids of the documents that were known before; nothing counts them.
    n_documents, n_relevant : int
        Numbers of documents and of relevant ones, without the known ones.
    found_at : tuple of int
        After how many documents each relevant one was found, rising.
    measures : dict of str to float
        As in :func:`~haybale.review.workload`.
    stops : dict of str to Stop
        By the text of the rule.
    oracle : int
        The number of documents read when the target was reached, which no rule can know.
    seconds : float
        How long the simulation took.
    """

    topic: str
    start: str
    seed: int
    known: tuple[str, ...]
    n_documents: int
    n_relevant: int
    found_at: tuple[int, ...]
    measures: dict[str, float]
    stops: dict[str, Stop]
    oracle: int
    seconds: float

    @classmethod
    def of(
        cls,
        topic: str,
        start: str,
        seed: int,
        known: Sequence[str],
        labels: NDArray[np.bool_],
        sampled: NDArray[np.bool_],
        target: float,
        stops: Mapping[str, int | Stop | None],
        seconds: float,
    ) -> SimulatedRun:
        """Return the run of a reading order.

        ``stops`` has the number of documents read at the stop of each rule, or the stop of another reading.
        """
        found_at = np.flatnonzero(labels) + 1
        oracle = documents_until(labels, target) or 0

        def stop(read: int | Stop | None) -> Stop:
            if isinstance(read, Stop):
                return read
            if read is None:
                return Stop(None, None, None, False)
            recall = float((found_at <= read).sum() / len(found_at))
            return Stop(read, read + int(sampled[read:].sum()), recall, read >= oracle)

        return cls(
            topic, start, seed, tuple(known), len(labels), len(found_at), tuple(found_at.tolist()),
            screening_measures(labels, target), {name: stop(at) for name, at in stops.items()}, oracle, seconds,
        )  # fmt: skip

    def recall_curve(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Return numbers of documents read, and the recall after each; between them, the recall does not change."""
        read = np.array([0, *self.found_at, self.n_documents])
        return read, np.array([*range(self.n_relevant + 1), self.n_relevant]) / self.n_relevant


@dataclass(frozen=True)
class Simulation:
    """Simulated reviews of one collection.

    Parameters
    ----------
    name : str
        The name of the collection.
    target : float
        The recall at which work saved and stops are measured.
    rules : tuple of str
        The stopping rules.
    runs : tuple of SimulatedRun
    """

    name: str
    target: float
    rules: tuple[str, ...]
    runs: tuple[SimulatedRun, ...]

    @property
    def starts(self) -> tuple[str, ...]:
        """What was known before the first judgement: the starts of the runs, each once."""
        return tuple(dict.fromkeys(run.start for run in self.runs))

    def table(self) -> pd.DataFrame:
        """Return the means over seeds: a row for each topic and, if there are several, one for their mean.

        If there are several starts, each has rows of its own, with the start after a comma.
        """
        import pandas as pd

        rows = pd.DataFrame([{"topic": self._named(run.topic, run.start)} | run.measures for run in self.runs])
        means = rows.groupby("topic", sort=False).mean()
        if len({run.topic for run in self.runs}) > 1:
            for start in self.starts:
                start_means = means.loc[[*dict.fromkeys(self._named(run.topic, start) for run in self.runs)]]
                name = self._named("mean", start)
                means.loc[name if name not in means.index else f"({name})"] = start_means.mean()
        counts = {self._named(run.topic, run.start): (run.n_documents, run.n_relevant) for run in self.runs}
        sizes = pd.DataFrame.from_dict(counts, orient="index", columns=["documents", "relevant"])
        return sizes.reindex(means.index).astype("Int64").join(means)

    def stops_table(self) -> pd.DataFrame:
        """Return, for each rule, how often it reached the target, and what it cost.

        The columns are ``runs``; ``stopped`` and ``reached``, shares of the runs; the means ``recall`` and ``read`` (of
        documents judged, the random sample included, as a share of all) of the runs that stopped; and ``oracle``, the
        mean share that had to be read for the target in the same runs. If there are several starts, each has rows of
        its own, with the start after a comma.
        """
        import pandas as pd

        rows = []
        for rule, start in product(self.rules, self.starts):
            runs = [run for run in self.runs if run.start == start]
            stopped = [run for run in runs if run.stops[rule].read is not None]
            stops = [run.stops[rule] for run in stopped]
            rows.append(
                {
                    "rule": self._named(rule, start),
                    "runs": len(runs),
                    "stopped": len(stopped) / len(runs),
                    "reached": sum(stop.reached for stop in stops) / len(runs),
                    "recall": _mean([stop.recall for stop in stops]),
                    "read": _mean([(s.cost or 0) / run.n_documents for s, run in zip(stops, stopped, strict=True)]),
                    "oracle": _mean([run.oracle / run.n_documents for run in stopped]),
                }
            )
        columns = ["rule", "runs", "stopped", "reached", "recall", "read", "oracle"]
        return pd.DataFrame(rows, columns=columns).set_index("rule")

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON; a measure that is not defined is None."""
        runs = [asdict(run) for run in self.runs]
        for run in runs:
            run["measures"] = {k: None if math.isnan(v) else v for k, v in run["measures"].items()}
        means = self.table().astype(object)
        return {
            "name": self.name,
            "target": self.target,
            "rules": list(self.rules),
            "means": means.where(means.notna(), None).to_dict("index"),
            "runs": runs,
        }

    def to_json(self, indent: int | None = None) -> str:
        """Return all runs as JSON."""
        return json.dumps(self.to_dict(), ensure_ascii=False, allow_nan=False, indent=indent)

    def draw(self, path: str | Path | None = None) -> Figure:
        """Draw the recall over the share of documents read, with the stops marked.

        There is a curve for each topic and start, the mean over seeds; behind the curve of a single topic is the range
        of its seeds. The curves of more than seven topics are their mean, the best and the worst. Needs the extra
        ``reports``.

        Parameters
        ----------
        path : str or Path, optional
            A file that ends in ``.svg``, ``.png`` or ``.pdf``.
        """
        from haybale.drawing import COLOURS, draw_lines, save_figure

        curves = self.recall_curves()
        shown = {name: (SHARES_READ, values.mean(axis=0)) for name, values in curves.items()}
        figure = draw_lines(shown, title=self.name, x_label="share of the documents read", y_label="recall")
        axes = figure.axes[0]
        if len({run.topic for run in self.runs}) == 1:
            for number, values in enumerate(curves.values()):
                colour = COLOURS[number % len(COLOURS)]
                axes.fill_between(SHARES_READ, values.min(axis=0), values.max(axis=0), color=colour, alpha=0.15, lw=0)
        for number, rule in enumerate(self.rules):
            stops = [(run.stops[rule], run.n_documents) for run in self.runs]
            points = [(stop.read / n, stop.recall) for stop, n in stops if stop.read is not None]
            if points:
                marker, colour = "osD^vPX"[number % 7], COLOURS[number % len(COLOURS)]
                x_stop, y_stop = np.array(points).T
                axes.scatter(x_stop, y_stop, marker=marker, c="none", edgecolors=colour, label=f"stop of {rule}")
        axes.axhline(self.target, color="#777777", linewidth=0.8)
        if axes.get_legend_handles_labels()[1]:
            axes.legend(loc="lower right", fontsize=8, frameon=False)
        if path is not None:
            save_figure(figure, path)
        return figure

    def recall_curves(self) -> dict[str, NDArray[np.float64]]:
        """Return the recall at 201 shares of documents read, (n_runs, 201), by the name of the curve.

        There is a curve for each topic and start; of more than seven topics, for each start their mean, the best and
        the worst topic.
        """
        curves_of_runs: dict[tuple[str, str], list[NDArray[np.float64]]] = {}
        for run in self.runs:
            curves_of_runs.setdefault((run.topic, run.start), []).append(_recall_at(run, SHARES_READ))
        curves_of = {key: np.array(curves) for key, curves in curves_of_runs.items()}
        if len({run.topic for run in self.runs}) <= _MAX_CURVES:
            return {self._named(*key): curves for key, curves in curves_of.items()}
        shown = {}
        for start in self.starts:
            means = {topic: curves.mean(axis=0) for (topic, of_start), curves in curves_of.items() if of_start == start}
            ordered = sorted(means, key=lambda name: (means[name].sum(), name))
            shown[self._named(f"mean of {len(means)} topics", start)] = np.array(list(means.values()))
            for topic in (ordered[-1], ordered[0]):
                shown[self._named(topic, start)] = curves_of[topic, start]
        return shown

    def _named(self, name: str, start: str) -> str:
        """Return a name with the start, if there are several."""
        return name if len(self.starts) == 1 else f"{name}, {start}"

    def write(self, folder: str | Path) -> None:
        """Write ``results.json``, ``table.md`` and, with the extra ``reports``, ``recall.svg`` to a new folder.

        Raises
        ------
        OutputExistsError
            If the folder is not empty.
        """
        folder = Path(folder)
        check_output(folder)
        with whole_folder(folder) as aside:
            write_json(aside / "results.json", self.to_dict())
            tables = [self.table().reset_index(), *([self.stops_table().reset_index()] if self.rules else [])]
            (aside / "table.md").write_text("\n".join(map(_markdown, tables)), encoding="utf-8")
            with suppress(MissingExtraError):
                self.draw(aside / "recall.svg")

    def __repr__(self) -> str:
        return f"Simulation of {self.name!r}: {len({run.topic for run in self.runs}):,} topics, {len(self.runs):,} runs"

    def _repr_html_(self) -> str:
        """Return the tables for notebooks."""
        tables = [self.table(), *([self.stops_table()] if self.rules else [])]
        return "".join(table.to_html(float_format="{:.4g}".format) for table in tables)


def _recall_at(run: SimulatedRun, shares: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the recall after shares of all documents have been read."""
    read = np.floor(shares * run.n_documents + 1e-9)
    return np.searchsorted(run.found_at, read, side="right") / run.n_relevant


def _mean(values: Sequence[float | None]) -> float:
    defined_values = [value for value in values if value is not None]
    return sum(defined_values) / len(defined_values) if defined_values else math.nan


def _markdown(table: pd.DataFrame) -> str:
    """Return a table in Markdown, with three decimals and empty cells for what is missing."""
    lines = [f"| {' | '.join(map(str, table.columns))} |", "| --- |" + " ---: |" * (len(table.columns) - 1)]
    for row in table.itertuples(index=False):
        lines.append(f"| {' | '.join(formatted(value) for value in row)} |")
    return "\n".join(lines) + "\n"


def formatted(value: Any) -> str:
    """Return a cell of a table: three decimals for shares, one for counts, and nothing for what is missing."""
    import pandas as pd

    if isinstance(value, str):
        return value.replace("|", "\\|")
    if pd.isna(value):
        return ""
    if isinstance(value, float):
        return f"{value:.1f}" if abs(value) > 1 else f"{value:.3f}"
    return f"{value:,}"
