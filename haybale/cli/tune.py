"""``haybale tune``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from haybale.cli.output import check_file, console_for_tables, reporter, say, visible
from haybale.collections import open_collection
from haybale.errors import UnknownNameError
from haybale.evaluation.tuning import DEFAULT, Tuned, tune_bm25
from haybale.folders import check_new_file, new_json
from haybale.stages import listening, stage

UNITS = {"passage": ("passage",), "document": ("document",), "both": ("passage", "document")}


def run_tune(name: str, layout: str | None, unit: str, out: Path | None, **how: Any) -> None:
    """Tune, print the grid and the options to use, and write where a file is given; ``how`` as for tune_bm25."""
    if unit not in UNITS:
        raise UnknownNameError("unit", unit, UNITS)
    if out is not None:
        check_new_file(out)
        check_file(out)
    with listening(reporter()):
        with stage("read collection"):
            collection = open_collection(name, layout)
        found = [tune_bm25(collection, each, **how) for each in UNITS[unit]]
    console = console_for_tables()
    for tuned in found:
        _show(console, tuned, collection.name)
    print("\nfor the other commands: " + " ".join(tuned.options for tuned in found))
    if out is not None:
        new_json(out, {"collection": collection.name, "tuned": [tuned.to_dict() for tuned in found]})
        say(f"all values are in {out}")


def _show(console: Console, tuned: Tuned, name: str) -> None:
    """A line a k1, a column a b; the best is marked."""
    table = Table()
    table.add_column("k1", justify="right")
    columns = sorted({b for _, b, _ in tuned.grid})
    for b in columns:
        table.add_column(f"b {b:g}", justify="right")
    values = {(k1, b): value for k1, b, value in tuned.grid}
    for k1 in sorted({k1 for k1, _ in values}):
        cells = (f"{'* ' * ((k1, b) == (tuned.k1, tuned.b))}{values[k1, b]:.4f}" for b in columns)
        table.add_row(f"{k1:g}", *cells)
    print(
        visible(f"BM25 over {tuned.unit}s, {name}, {tuned.split}: {tuned.measure} of {tuned.n_queries:,} queries"),
        flush=True,
    )
    console.print(table)
    print(
        f"* best: k1 {tuned.k1:g}, b {tuned.b:g}, {tuned.value:.4f}; by default, k1 {DEFAULT[0]:g}, b {DEFAULT[1]:g}: "
        f"{tuned.default:.4f}\n",
        flush=True,
    )
