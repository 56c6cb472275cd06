"""``haybale report``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from haybale.cli.output import report
from haybale.reports import write_report
from haybale.reports.table import reading


def run_report(runs: Sequence[Path], out: Path, **options: object) -> None:
    """Write the page, and say what it says; ``options`` as for :func:`haybale.reports.write_report`."""
    about = write_report(runs, out, report=report, **options)  # type: ignore[arg-type]
    Console(highlight=False, markup=False).print(reading(about), soft_wrap=True)
    size = out.stat().st_size / 1000
    Console(stderr=True, highlight=False, markup=False).print(f"{out}: {size:,.0f} kB", soft_wrap=True)
