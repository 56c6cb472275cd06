"""Run the commands of reproductions.yaml and compare what they give with what is written there.

    python benchmarks/reproduce.py [NAMES …] [--only pydocs] [--collections FOLDER …] [--record]

A folder belongs to the collection that it is called by: …/gesetze. Entries whose collection was not given are listed
and do not fail. Every command runs in a fresh temporary folder, with this Python's programs and this checkout's
haybale. The exit status is 0 if all that ran agree, 1 if one does not, 2 if nothing could be run.

``--record`` writes what was found into the file: of a ranker that is there the measures that are there, of one that
is new MRR@10, nDCG@10 and Recall@100. To add a ranker, add it to the command and record.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import re
import shlex
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from reproductions import COLLECTIONS, Measures, Reproduction, read, write
from rich.table import Table

from haybale.cli.output import console_for_tables
from haybale.errors import InputError, UnknownNameError

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "benchmarks" / "reproductions.yaml"
MEASURES = ("MRR@10", "nDCG@10", "Recall@100")
EDITION = ("numpy", "scipy", "scikit-learn", "pandas")  # pydocs is their docstrings


@dataclass(frozen=True)
class Check:
    """One measure of one ranker."""

    entry: str
    ranker: str
    measure: str
    expected: float
    found: float
    ok: bool


def agrees(expected: float, found: float, tolerance: float) -> bool:
    """Whether they differ by the tolerance or less. NaN agrees with nothing.

    >>> agrees(0.5, 0.502, 0.002), agrees(0.5, 0.5021, 0.002), agrees(0.5, float("nan"), 0.002)
    (True, False, False)
    """
    return abs(found - expected) <= tolerance + 1e-9  # decimals are not binary: 0.502 - 0.5 is above 0.002


def run(entry: Reproduction, folder: str) -> Measures:
    """What the command's results.json holds. Raises InputError if it fails, or leaves no such file."""
    with tempfile.TemporaryDirectory(prefix="reproduce-") as temporary:
        out = Path(temporary) / "out"
        command = entry.command.replace("{folder}", shlex.quote(folder)).replace("{out}", shlex.quote(str(out)))
        paths = {"PATH": sysconfig.get_path("scripts"), "PYTHONPATH": str(ROOT)}
        before = {name: os.pathsep.join(filter(None, [path, os.environ.get(name)])) for name, path in paths.items()}
        done = subprocess.run(
            command,
            shell=True,
            cwd=temporary,
            env=os.environ | before,
            capture_output=True,
            text=True,
            errors="replace",
        )
        if done.returncode != 0:
            said = (done.stderr.strip() or done.stdout.strip() or "nothing").splitlines()[-1]
            raise InputError(f"{entry.name}: the command ended with {done.returncode}: {said}")
        try:
            found = json.loads((out / "results.json").read_text(encoding="utf-8"))["rankers"]
            return {ranker: dict(values["measures"]) for ranker, values in found.items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(f"{entry.name}: no results.json with measures of rankers in {{out}} ({error!r})") from None


def checks(entry: Reproduction, found: Mapping[str, Mapping[str, Any]]) -> Iterator[Check]:
    """Every expected measure beside what was found. Raises InputError for one that the results do not have."""
    for ranker, measures in entry.expected.items():
        for measure, expected in measures.items():
            value = value_of(entry, found, ranker, measure)
            yield Check(entry.name, ranker, measure, expected, value, agrees(expected, value, entry.tolerance))


def recorded(entry: Reproduction, found: Mapping[str, Mapping[str, Any]]) -> Reproduction:
    """The entry with what was found, to four decimals. Raises InputError for an expected ranker that is not there."""
    names = [*found, *(ranker for ranker in entry.expected if ranker not in found)]
    expected = {
        ranker: {
            measure: round(value_of(entry, found, ranker, measure), 4)
            for measure in entry.expected.get(ranker, dict.fromkeys(MEASURES))
        }
        for ranker in names
    }
    return replace(entry, expected=expected)


def value_of(entry: Reproduction, found: Mapping[str, Mapping[str, Any]], ranker: str, measure: str) -> float:
    if ranker not in found:
        raise InputError(f"{entry.name}: the results have no ranker {ranker!r}; they have {', '.join(found)}")
    value = found[ranker].get(measure)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise InputError(f"{entry.name}, {ranker}: the results have no number for {measure!r}")
    return float(value)


def folders_of(given: list[str]) -> dict[str, str]:
    """Where each collection is: pydocs is built in, others are folders of their names."""
    folders = {"pydocs": "pydocs"}
    for name in given:
        folder = Path(name).expanduser().absolute()
        if not folder.is_dir():
            raise InputError(f"{name} is no folder")
        if folder.name not in COLLECTIONS or folder.name in folders:
            raise InputError(f"{name}: expected one folder each, called {', '.join(COLLECTIONS[1:])}")
        folders[folder.name] = str(folder)
    return folders


def chosen(entries: list[Reproduction], names: list[str], only: str | None) -> list[Reproduction]:
    """The entries of these names, or all; of one collection, or all."""
    known = [entry.name for entry in entries]
    for name in names:
        if name not in known:
            raise UnknownNameError("entry", name, known)
    return [e for e in entries if (not names or e.name in names) and only in (None, e.collection)]


def other_edition() -> str:
    """The packages that pydocs is made of and that are not those pinned; empty if all are."""
    pins = dict(re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.M))
    differ = []
    for package in EDITION:
        try:
            here = version(package)
        except PackageNotFoundError:
            here = "none"
        if here != pins[package]:
            differ.append(f"{package} {here}, not {pins[package]}")
    return "; ".join(differ)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="entries; all, if none is named")
    parser.add_argument("--collections", nargs="+", default=[], metavar="FOLDER")
    parser.add_argument("--only", choices=COLLECTIONS, help="entries of this collection")
    parser.add_argument("--record", action="store_true", help="write what was found into the file")
    parser.add_argument("--file", type=Path, default=FILE, help="another list of entries")
    given = parser.parse_args(arguments)
    try:
        entries = read(given.file)
        wanted, folders = chosen(entries, given.names, given.only), folders_of(given.collections)
    except (InputError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    return reproduce(entries, wanted, folders, given.file if given.record else None)


def reproduce(
    entries: list[Reproduction], wanted: list[Reproduction], folders: dict[str, str], record: Path | None
) -> int:
    """Run, print, and record into a file where one is given; the exit status."""
    table = Table("entry", "ranker", "measure")
    for column in ("expected", "found", "difference", ""):
        table.add_column(column, justify="right")
    console, failed, new = console_for_tables(), False, {entry.name: entry for entry in entries}
    for entry in wanted:
        if entry.collection not in folders:
            table.add_row(entry.name, "", "", "", "", "", "not given")
            continue
        print(f"{entry.name}: {entry.command} (about {entry.minutes:g} min)", file=sys.stderr, flush=True)
        try:
            if not entry.expected and record is None:
                raise InputError(f"{entry.name}: nothing is expected yet; --record writes what is found")
            found = run(entry, folders[entry.collection])
            if record is not None:
                entry = new[entry.name] = recorded(entry, found)
            rows = list(checks(entry, found))
        except InputError as error:
            failed = True
            print(error, file=sys.stderr)
            table.add_row(entry.name, "", "", "", "", "", "FAILED")
            continue
        for row in rows:
            failed |= not row.ok
            numbers = f"{row.expected:.4f}", f"{row.found:.4f}", f"{round(row.found - row.expected, 4) + 0.0:+.4f}"
            table.add_row(row.entry, row.ranker, row.measure, *numbers, "ok" if row.ok else "FAILED")
        table.add_section()
    console.print(table)
    if record is not None:
        write(record, list(new.values()))
    if (differ := other_edition()) and any(entry.collection == "pydocs" for entry in wanted):
        print(f"pydocs is made of other docstrings here than the numbers: {differ}", file=sys.stderr)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
