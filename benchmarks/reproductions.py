"""The entries of reproductions.yaml: read, checked, and written back.

One fault gives one error, which names the file and the entry. The file is written by a small emitter of our own: it
keeps the comment at the head and the order of the entries, and quotes the names of the rankers, which hold commas and
parentheses.
"""

from __future__ import annotations

import os
import re
import textwrap
from collections.abc import Hashable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from haybale.errors import FileFormatError, InputError

COLLECTIONS = ("pydocs", "gesetze", "irled", "peps")
LARGEST_TOLERANCE = 0.05  # more would call anything a reproduction

Measures = dict[str, dict[str, float]]  # ranker -> measure -> value


@dataclass(frozen=True)
class Reproduction:
    """A command, and what its results.json must hold.

    ``command``: a line for the shell; ``{folder}`` stands for the collection, ``{out}`` for the output folder.
    ``tolerance``: absolute, for every measure. ``minutes``: roughly. ``expected``: empty until it is recorded.
    """

    name: str
    collection: str
    command: str
    tolerance: float
    minutes: float
    expected: Measures = field(default_factory=dict)


def read(path: Path) -> list[Reproduction]:
    """The entries of a file. Raises InputError, in one line, naming the entry."""
    try:
        found = yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        line = None if error.problem_mark is None else error.problem_mark.line + 1
        raise FileFormatError(path.name, line, f"no YAML: {error.problem or error.context}") from None
    if not isinstance(found, list):
        raise InputError(f"{path.name}: expected a list of entries")
    entries = [_entry(value, f"{path.name}, {_called(value, number)}") for number, value in enumerate(found, start=1)]
    names = [entry.name for entry in entries]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"{path.name}, {name}: the name is there twice")
    return entries


class _Loader(yaml.SafeLoader):
    """Plain YAML, which refuses a key that is there twice: the first one's values would be lost."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if key.value in seen:
                raise yaml.MarkedYAMLError(problem=f"{key.value!r} is there twice", problem_mark=key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def _called(value: object, number: int) -> str:
    name = value.get("name") if isinstance(value, dict) else None
    return name if isinstance(name, str) else f"entry {number}"


def _entry(value: object, where: str) -> Reproduction:
    required = ("name", "collection", "command", "tolerance", "minutes")
    if not isinstance(value, dict):
        raise InputError(f"{where}: expected a mapping with {', '.join(required)} and expected")
    if unknown := [str(key) for key in value if key not in (*required, "expected")]:
        raise InputError(f"{where}: unknown key {unknown[0]!r}; known: {', '.join(required)}, expected")
    if missing := [key for key in required if key not in value]:
        raise InputError(f"{where}: {missing[0]} is missing")
    for key in ("name", "collection", "command"):
        if not isinstance(value[key], str) or not value[key] or "\n" in value[key]:
            raise InputError(f"{where}: {key} is {value[key]!r}; expected one line of text")
    if value["collection"] not in COLLECTIONS:
        raise InputError(f"{where}: unknown collection {value['collection']!r}; known: {', '.join(COLLECTIONS)}")
    if "{out}" not in value["command"]:
        raise InputError(f"{where}: the command has no {{out}}, the folder that gets results.json")
    tolerance = _number(value["tolerance"], 1e-4, LARGEST_TOLERANCE, f"{where}: tolerance")
    minutes = _number(value["minutes"], 0.0, 1e4, f"{where}: minutes")
    expected = _expected(value.get("expected"), where)
    return Reproduction(value["name"], value["collection"], value["command"], tolerance, minutes, expected)


def _expected(value: object, where: str) -> Measures:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InputError(f"{where}: expected is {value!r}; expected ranker: measure: value")
    for ranker, measures in value.items():
        if not isinstance(ranker, str) or not isinstance(measures, dict) or not measures:
            raise InputError(f"{where}, {ranker}: {measures!r}; expected measure: value")
    return {
        ranker: {
            str(name): _number(number, 0.0, 1.0, f"{where}, {ranker}: {name}") for name, number in measures.items()
        }
        for ranker, measures in value.items()
    }


def _number(value: object, low: float, high: float, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
        raise InputError(f"{where} is {value!r}; expected a number from {low:g} to {high:g}")
    return value


def write(path: Path, entries: list[Reproduction]) -> None:
    """Put the entries in place of the file's, whole or not at all; the comment at its head stays."""
    head = re.match(r"(?:[ \t]*(?:#.*)?\n)*", path.read_text(encoding="utf-8") if path.exists() else "")
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        aside.write_text((head[0] if head else "") + emitted(entries), encoding="utf-8")
        if not _holds(aside, entries):
            raise InputError(f"{path.name}: an entry cannot be written as it is; the file was left alone")
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)


def _holds(path: Path, entries: list[Reproduction]) -> bool:
    try:
        return read(path) == entries
    except InputError:
        return False


def emitted(entries: list[Reproduction]) -> str:
    """The entries as YAML; a long command is folded at its spaces.

    >>> expected = {"rrf(bm25,knn)": {"MAP": 0.5}}
    >>> one = Reproduction("a", "peps", "haybale compare {folder} --out {out}", 0.002, 1, expected)
    >>> print(emitted([one]).strip())
    - name: a
      collection: peps
      command: >-
        haybale compare {folder} --out {out}
      tolerance: 0.002
      minutes: 1
      expected:
        "rrf(bm25,knn)": {MAP: 0.5000}
    """
    return "\n".join(_block(entry) for entry in entries)


def _block(entry: Reproduction) -> str:
    command = textwrap.wrap(entry.command, 112, break_long_words=False, break_on_hyphens=False)
    if " ".join(command) != entry.command:  # it has spaces side by side, which folding would lose
        command = [entry.command]
    width = max((len(ranker) for ranker in entry.expected), default=0) + 3
    rankers = [
        f"    {f'{_quoted(ranker)}:':<{width}} {{"
        + ", ".join(f"{_plain(m)}: {_decimals(v)}" for m, v in values.items())
        + "}"
        for ranker, values in entry.expected.items()
    ]
    lines = [
        f"- name: {entry.name}",
        f"  collection: {entry.collection}",
        "  command: >-",
        *(f"    {line}" for line in command),
        f"  tolerance: {entry.tolerance}",
        f"  minutes: {entry.minutes}",
        "  expected:" if rankers else "  expected: {}",
        *rankers,
    ]
    return "\n".join(lines) + "\n"


def _plain(measure: str) -> str:
    return measure if re.fullmatch(r"[A-Za-z]+@?\d*", measure) else _quoted(measure)


def _quoted(name: str) -> str:
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _decimals(value: float) -> str:
    text = f"{value:.4f}" if round(value, 4) == value else repr(value)
    return text if "." in text else text.replace("e", ".0e")  # to YAML 1e-12 is a word, and 1.0e-12 a number
