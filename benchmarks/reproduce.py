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
from importlib.metadata import version
from pathlib import Path
from typing import Any

import yaml

from haybale import InputError

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "benchmarks" / "reproductions.yaml"
COLLECTIONS = ("pydocs", "gesetze", "irled", "peps")
MEASURES = ("MRR@10", "nDCG@10", "Recall@100")
KEYS = ("name", "collection", "command", "tolerance", "minutes", "expected")
LARGEST_TOLERANCE = 0.05  # more would call anything a reproduction
EDITION = ("numpy", "scipy", "scikit-learn", "pandas")  # pydocs is their docstrings

Entry = dict[str, Any]  # of KEYS
Measures = dict[str, dict[str, float]]  # ranker -> measure -> value


# the file -------------------------------------------------------------------------------------------------


def read(path: Path) -> list[Entry]:
    """The entries of a file; {out} and {folder} of a command stand for the output folder and the collection.

    Raises InputError, in one line, naming the entry.
    """
    try:
        entries = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise InputError(f"{path.name}: no YAML: {' '.join(str(error).split())}") from None
    if not isinstance(entries, list):
        raise InputError(f"{path.name}: expected a list of entries")
    for number, entry in enumerate(entries, start=1):
        name = entry.get("name") if isinstance(entry, dict) else None
        where = f"{path.name}, {name if isinstance(name, str) else f'entry {number}'}"
        _check(entry, where)
        if [other["name"] for other in entries[:number]].count(name) > 1:
            raise InputError(f"{where}: the name is there twice")
    return entries


def _check(entry: Any, where: str) -> None:
    if not isinstance(entry, dict) or set(entry) != set(KEYS):
        raise InputError(f"{where}: expected the keys {', '.join(KEYS)}; found {entry!r:.200}")
    for key in ("name", "collection", "command"):
        if not isinstance(entry[key], str) or not entry[key] or "\n" in entry[key]:
            raise InputError(f"{where}: {key} is {entry[key]!r}; expected one line of text")
    if entry["collection"] not in COLLECTIONS:
        raise InputError(f"{where}: unknown collection {entry['collection']!r}; known: {', '.join(COLLECTIONS)}")
    if "{out}" not in entry["command"]:
        raise InputError(f"{where}: the command has no {{out}}, the folder that gets results.json")
    _check_number(entry["tolerance"], 1e-4, LARGEST_TOLERANCE, f"{where}: tolerance")
    _check_number(entry["minutes"], 0.0, 1e4, f"{where}: minutes")
    if not isinstance(entry["expected"], dict):
        raise InputError(f"{where}: expected is {entry['expected']!r}; expected ranker: measure: value, or {{}}")
    for ranker, measures in entry["expected"].items():
        if not isinstance(ranker, str) or not isinstance(measures, dict) or not measures:
            raise InputError(f"{where}, {ranker}: {measures!r}; expected measure: value")
        for measure, value in measures.items():
            _check_number(value, 0.0, 1.0, f"{where}, {ranker}: {measure}")


def _check_number(value: object, low: float, high: float, where: str) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
        raise InputError(f"{where} is {value!r}; expected a number from {low:g} to {high:g}")


def write(path: Path, entries: list[Entry]) -> None:
    """Put the entries in place of the file's, whole or not at all; the comment at its head stays."""
    head = re.match(r"(?:[ \t]*(?:#.*)?\n)*", path.read_text(encoding="utf-8"))[0]
    style = {"sort_keys": False, "default_flow_style": None, "width": 110, "allow_unicode": True}
    dumped = [yaml.safe_dump([entry], **style) for entry in entries]
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        aside.write_text(head + "\n".join(dumped), encoding="utf-8")
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)


# runs -----------------------------------------------------------------------------------------------------


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


def recorded(entry: Entry, found: Measures) -> Entry:
    """The entry with what was found, to four decimals, in place of what was expected."""
    wanted = dict.fromkeys(found, MEASURES) | entry["expected"]
    return entry | {"expected": {r: {m: round(value_of(entry, found, r, m), 4) for m in wanted[r]} for r in wanted}}


def value_of(entry: Entry, found: Measures, ranker: str, measure: str) -> float:
    """Raises InputError for one that the results do not have."""
    value = found.get(ranker, {}).get(measure)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise InputError(f"{entry['name']}, {ranker}: the results have no number for {measure!r}, only {found}")
    return float(value)


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
    parser.add_argument("--only", choices=COLLECTIONS, help="entries of this collection")
    parser.add_argument("--record", action="store_true", help="write what was found into the file")
    parser.add_argument("--file", type=Path, default=FILE, help="another list of entries")
    a = parser.parse_args(arguments)
    try:
        entries, folders = {entry["name"]: entry for entry in read(a.file)}, folders_of(a.collections)
        if unknown := [name for name in a.names if name not in entries]:
            raise InputError(f"unknown entry {unknown[0]!r}; known: {', '.join(entries)}")
    except (InputError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    failed = False
    wanted = [
        e for e in entries.values() if (not a.names or e["name"] in a.names) and a.only in (None, e["collection"])
    ]
    for entry in wanted:
        name, collection = entry["name"], entry["collection"]
        if collection not in folders:
            print(f"{name}: not given")
            continue
        print(f"{name}: {entry['command']} (about {entry['minutes']:g} min)", file=sys.stderr, flush=True)
        try:
            if not entry["expected"] and not a.record:
                raise InputError(f"{name}: nothing is expected yet; --record writes what is found")
            found = run(entry, folders[collection])
            if a.record:
                entry = entries[name] = recorded(entry, found)
            failed |= not reported(entry, found)
        except InputError as error:
            failed = True
            print(error, file=sys.stderr)
            print(f"{name}: FAILED")
    if a.record:
        write(a.file, list(entries.values()))
    if (differ := other_edition()) and any(entry["collection"] == "pydocs" for entry in wanted):
        print(f"pydocs is made of other docstrings here than the numbers: {differ}", file=sys.stderr)
    return int(failed)


def reported(entry: Entry, found: Measures) -> bool:
    """A line for every expected measure beside what was found; whether all agree."""
    whole = True
    for ranker, measures in entry["expected"].items():
        for measure, expected in measures.items():
            value = value_of(entry, found, ranker, measure)
            ok = agrees(expected, value, entry["tolerance"])
            whole &= ok
            numbers = f"expected {expected:.4f}  found {value:.4f}  {round(value - expected, 4) + 0.0:+.4f}"
            print(f"{entry['name']:<22}{ranker:<30}{measure:<12}{numbers}  {'ok' if ok else 'FAILED'}", flush=True)
    return whole


if __name__ == "__main__":
    sys.exit(main())
