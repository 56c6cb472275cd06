"""Run the commands of reproductions.yaml and compare what they give with what is written there.

    python benchmarks/reproduce.py [NAMES …] [--collections FOLDER …] [--results benchmarks/results]

A folder belongs to the collection that it is called by: …/gesetze. Entries whose collection was not given are listed
and do not fail. Every command runs in a fresh temporary folder, with this Python's programs and this checkout's
haybale. With --results, what was found is kept in `reproduced.json` and shown in `reproduced.md`, beside earlier finds
of the same commit. The exit status is 0 if all that ran agree, 1 if one does not, 2 if nothing could be run.
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
from importlib.metadata import version
from pathlib import Path
from typing import Any

import yaml
from provenance import made, measures, origin, read_json, table, write_json, write_page

from haybale import InputError

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "benchmarks" / "reproductions.yaml"
COLLECTIONS = ("pydocs", "gesetze", "irled", "peps", "scifact", "obliqa-mp")
EDITION = ("numpy", "scipy", "scikit-learn", "pandas")  # pydocs is their docstrings

Entry = dict[str, Any]
Measures = dict[str, dict[str, float]]  # ranker -> measure -> value


def agrees(expected: float, found: float, tolerance: float) -> bool:
    """Whether they differ by the tolerance or less. NaN agrees with nothing."""
    return abs(found - expected) <= tolerance + 1e-9  # decimals are not binary: 0.502 - 0.5 is above 0.002


def run(entry: Entry, folder: str) -> Measures:
    """What the command's results.json holds. Raises InputError if it fails, or leaves no such file."""
    with tempfile.TemporaryDirectory(prefix="reproduce-") as temporary:
        out = Path(temporary) / "out"
        command = entry["command"].replace("{folder}", shlex.quote(folder)).replace("{out}", shlex.quote(str(out)))
        paths = {"PATH": sysconfig.get_path("scripts"), "PYTHONPATH": str(ROOT)}
        before = {name: os.pathsep.join(filter(None, [path, os.environ.get(name)])) for name, path in paths.items()}
        given: dict[str, Any] = {"shell": True, "cwd": temporary, "env": os.environ | before}
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", **given)
        if done.returncode != 0:
            said = (done.stderr.strip() or done.stdout.strip() or "nothing").splitlines()[-1]
            raise InputError(f"{entry['name']}: the command ended with {done.returncode}: {said}")
        try:
            found = json.loads((out / "results.json").read_text(encoding="utf-8"))["rankers"]
            return {ranker: dict(values["measures"]) for ranker, values in found.items()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(f"{entry['name']}: no results.json with measures in {{out}} ({error!r})") from None


def folders_of(given: list[str]) -> dict[str, str]:
    """Where each collection is: pydocs is built in, others are folders of their names."""
    folders = {"pydocs": "pydocs"}
    for name in given:
        folder = Path(name).expanduser().absolute()
        if not folder.is_dir() or folder.name not in COLLECTIONS or folder.name in folders:
            raise InputError(f"{name}: expected one folder each, called {', '.join(COLLECTIONS[1:])}")
        folders[folder.name] = str(folder)
    return folders


def other_edition() -> str:
    """The packages that pydocs is made of and that are not those pinned; empty if all are."""
    pins = dict(re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.M))
    return "; ".join(f"{p} {version(p)}, not {pins[p]}" for p in EDITION if version(p) != pins[p])


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="entries; all, if none is named")
    parser.add_argument("--collections", nargs="+", default=[], metavar="FOLDER")
    parser.add_argument("--results", type=Path, help="the folder of reproduced.json and reproduced.md; default: none")
    parser.add_argument("--file", type=Path, default=FILE, help="another list of entries")
    a = parser.parse_args(arguments)
    try:
        entries = yaml.safe_load(a.file.read_text(encoding="utf-8"))
        folders, known = folders_of(a.collections), [entry["name"] for entry in entries]
        if unknown := set(a.names) - set(known):
            raise InputError(f"unknown entry {min(unknown)!r}; known: {', '.join(known)}")
    except (InputError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    failed, kept = False, {}
    for entry in entries:
        name, collection = entry["name"], entry["collection"]
        if a.names and name not in a.names:
            continue
        if collection not in folders:
            print(f"{name}: not given")
            continue
        print(f"{name}: {entry['command']} (about {entry['minutes']:g} min)", file=sys.stderr, flush=True)
        if collection == "pydocs" and (differ := other_edition()):
            print(f"pydocs is made of other docstrings here than the numbers: {differ}", file=sys.stderr)
        try:
            found = run(entry, folders[collection])
            agrees_all = reported(entry, found)
            failed |= not agrees_all
            kept[name] = {"agrees": agrees_all, "found": found}
        except InputError as error:
            failed = True
            print(error, file=sys.stderr)
            print(f"{name}: FAILED")
    if a.results is not None:
        keep(a.results, entries, kept)
    return int(failed)


def keep(folder: Path, entries: list[Entry], found: dict[str, Any]) -> None:
    """Write what was found as `reproduced.json`, and as a page; earlier finds stay if they are of the same commit."""
    record = made("reproduce.py", [])
    before = read_json(folder / "reproduced.json", {"made": {}, "entries": {}})
    if before["made"].get("commit") == record["commit"]:
        found = before["entries"] | found
    write_json(folder / "reproduced.json", {"made": record, "entries": found})
    write_page(folder / "reproduced.md", page(entries, found, record))


def page(entries: list[Entry], found: dict[str, Any], record: dict[str, Any]) -> list[str]:
    """Return the lines of `reproduced.md`."""
    lines = ["# Measures that `make reproduce` finds", ""]
    lines += [
        "Each entry is one command. A measure agrees if it differs from the expected one by the tolerance at most."
    ]
    for entry in entries:
        if (of := found.get(entry["name"])) is not None:
            lines += ["", f"## {entry['name']}", "", "```text", entry["command"], "```"]
            columns = f"ranker|{'|'.join(next(iter(entry['expected'].values())))}"
            rows = [
                [f"`{ranker}`", *(f"{of['found'][ranker][m]:.4f} ({expected:.4f})" for m, expected in values.items())]
                for ranker, values in entry["expected"].items()
            ]
            lines += table(columns, rows)
            lines += ["", f"Found, and in parentheses expected; tolerance {entry['tolerance']:g}."]
    lines += [
        "",
        measures("reproduce.py"),
        f"- command: `make reproduce`, that is `{record['command']} --collections …`",
    ]
    return [*lines, f"- {origin(record)}"]


def reported(entry: Entry, found: Measures) -> bool:
    """A line for every expected measure beside what was found; whether all agree."""
    whole = True
    for ranker, of_ranker in entry["expected"].items():
        for measure, expected in of_ranker.items():
            value = found.get(ranker, {}).get(measure, math.nan)
            ok = agrees(expected, value, entry["tolerance"])
            whole &= ok
            numbers = f"expected {expected:.4f}  found {value:.4f}  {round(value - expected, 4) + 0.0:+.4f}"
            print(f"{entry['name']:<22}{ranker:<30}{measure:<12}{numbers}  {'ok' if ok else 'FAILED'}", flush=True)
    return whole


if __name__ == "__main__":
    sys.exit(main())
