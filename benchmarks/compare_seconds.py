"""What whole commands cost, version by version: results/compare-seconds.md from compare-seconds.json.

    /usr/bin/time -f "%U %S %e %M" haybale demo    # CPU seconds (user, system), seconds by the clock, peak in kB
    python benchmarks/compare_seconds.py [RESULTS]

The numbers of another version go into the JSON file by hand, under its commit; ``peak`` is in MB.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def page(found: dict[str, Any]) -> str:
    """Rows are commands; versions after the first have one more column, how their CPU seconds compare with it."""
    versions = found["versions"]
    first = next(iter(versions))
    head, rule = "| |", "| --- |"
    for commit in versions:
        head += f" {commit}: CPU s, user + system | s | peak, MB |" + (" × CPU |" if commit != first else "")
        rule += " ---: |" * (3 if commit == first else 4)
    lines = ["# Whole commands, version by version", "", f"By `/usr/bin/time`; {found['machine']}.", "", head, rule]
    for work, words in found["work"].items():
        line = f"| {words} |"
        for commit, measured in versions.items():
            line += cells(measured.get(work, {}))
            if commit != first:
                line += f" {times(versions[first].get(work), measured.get(work))} |"
        lines.append(line)
    return "\n".join([*lines, ""])


def cells(of: dict[str, float]) -> str:
    cpu = f"{of['user']:g} + {of['system']:g}" if of else ""
    peak = f"{of['peak']:,.0f}" if "peak" in of else ""
    return f" {cpu} | {of.get('wall', '')} | {peak} |"


def times(before: dict[str, float] | None, after: dict[str, float] | None) -> str:
    if not before or not after:
        return ""
    return f"{(after['user'] + after['system']) / (before['user'] + before['system']):.2f}"


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "results"
    record = json.loads((folder / "compare-seconds.json").read_text(encoding="utf-8"))
    (folder / "compare-seconds.md").write_text(page(record), encoding="utf-8")
