"""``haybale report``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from haybale.cli.output import check_file, reporter, say, visible
from haybale.reports import write_report
from haybale.reports.table import reading


def run_report(runs: Sequence[Path], out: Path, **options: object) -> None:
    """Write the page, and say what it says; ``options`` as for :func:`haybale.reports.write_report`."""
    check_file(out)
    about = write_report(runs, out, report=reporter(), **options)  # type: ignore[arg-type]
    print(visible(reading(about)))
    say(f"{out}: {out.stat().st_size / 1000:,.0f} kB")
