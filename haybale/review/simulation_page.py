"""Write a page about simulated reviews: recall curves with the stops, measures, and what the rules promise."""

from __future__ import annotations

import math
import warnings
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from haybale.folders import check_file
from haybale.reports.charts import screening_chart
from haybale.reports.page import write_page
from haybale.review.simulation_results import SHARES_READ, Simulation, formatted
from haybale.review.stopping import parse_rule

if TYPE_CHECKING:
    import pandas as pd

_START_TEXTS = {
    "random": "one relevant and one irrelevant document",
    "text": "the topic's text",
    "both": "the topic's text, one relevant and one irrelevant document",
}


def write_simulation(simulation: Simulation, out: Path | str, *, title: str | None = None) -> None:
    """Write one self-contained HTML page about simulated reviews. Needs the extra ``reports``.

    Parameters
    ----------
    simulation : Simulation
        What :func:`haybale.review.simulate` returns.
    out : str or Path
        The HTML file. An existing file is replaced.
    title : str, optional
        The title of the page. Default: the name of the collection.

    Raises
    ------
    InputError
        If the file cannot be written.
    """
    check_file(Path(out))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from")  # the browser draws them
        write_page(Path(out), files("haybale.review") / "simulation.html", {"title": title} | _content(simulation))


def _content(simulation: Simulation) -> dict[str, Any]:
    """Return the variables of the template."""
    runs, starts = simulation.runs, simulation.starts
    topics, seeds = {run.topic for run in runs}, {run.seed for run in runs}
    rules = [parse_rule(rule) for rule in simulation.rules]
    absent = {} if rules else {"stops": "No stopping rule was asked for. Give rules as --stop."}
    n = sorted({run.n_documents for run in runs})
    head = [
        ("collection", simulation.name),
        ("topics", f"{len(topics):,}"),
        ("documents", f"{n[0]:,}" if len(n) == 1 else f"{n[0]:,} to {n[-1]:,}"),
        ("start", ", ".join(starts)),
        ("seeds", f"{len(seeds):,}"),
        ("target", f"recall {simulation.target:g}"),
        ("date", f"{datetime.now(UTC):%Y-%m-%d}"),
    ]
    return {
        "simulation": simulation,
        "target": f"{simulation.target:g}",
        "absent": absent,
        "head": head,
        "lead": _lead(simulation),
        "chart": _chart(simulation),
        "curves": _about_curves(simulation),
        "table": _cells(simulation.table()),
        "stopped": _cells(simulation.stops_table()),
        "promises": [(str(rule), rule.kind, rule.promise) for rule in rules],
        "each": _cells(_every_run(simulation)),
    }


def _lead(simulation: Simulation) -> str:
    """Return what was simulated and what it gave, in words."""
    measure = next(name for name in simulation.runs[0].measures if name.startswith("WSS@"))
    parts = []
    for start in simulation.starts:
        values = [run.measures[measure] for run in simulation.runs if run.start == start]
        parts.append(f"from {_START_TEXTS[start]} {np.nanmean(values):.1%}")
    recall = f"{simulation.target:.0%} of the relevant documents"
    saved = "; ".join(parts)
    return (
        f"{len(simulation.runs):,} reviews were simulated, one document at a time. "
        f"Work saved over sampling until {recall} were found, {measure}, in the mean: {saved}."
    )


def _about_curves(simulation: Simulation) -> str:
    n = len({run.topic for run in simulation.runs})
    if n == 1:
        return "A curve is the mean over seeds, and the area behind it their range."
    return "A curve is the mean over seeds." + (" Topics: their mean, the best and the worst." if n > 7 else "")


def _chart(simulation: Simulation) -> Any:
    curves = {
        name: (SHARES_READ.tolist(), values.mean(axis=0).tolist())
        for name, values in simulation.recall_curves().items()
    }
    stops = [
        [
            f"{rule}: {run.topic}, start {run.start}, seed {run.seed}: {stop.read:,} read, recall {stop.recall:.3f}"
            for run in simulation.runs
            if (stop := run.stops[rule]).read is not None
        ]
        for rule in simulation.rules
    ]
    label = f"Recall of {len(simulation.runs):,} simulated reviews over the share of documents read"
    return screening_chart(simulation.draw(), curves, [titles for titles in stops if titles], label)


def _every_run(simulation: Simulation) -> pd.DataFrame:
    import pandas as pd

    rows = [
        {"topic": run.topic, "start": run.start, "seed": str(run.seed), "seconds": run.seconds}
        | run.measures
        | {f"stop of {rule}": math.nan if (at := run.stops[rule].read) is None else at for rule in simulation.rules}
        for run in simulation.runs
    ]
    return pd.DataFrame(rows).set_index("topic")


def _cells(table: pd.DataFrame) -> dict[str, Any]:
    """Return the texts of a table: its columns, and each row's name with its cells."""
    rows = [(str(row[0]), [formatted(value) for value in row[1:]]) for row in table.itertuples()]
    return {"columns": list(map(str, table.columns)), "rows": rows}
