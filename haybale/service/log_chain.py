"""Lines of a log in which each has the SHA-256 of the line before, so that a change of any line is noticed.

A line is a JSON object in one line, with these values before all others:

    number    of the line, from 1
    time      ISO 8601, in UTC
    user      who did it; empty for nobody
    action    what was done
    before    the SHA-256 of the line before, in hexadecimal, without its line feed; 64 zeros in line 1

A log may be cut at its beginning. The line that says so has the action ``cut``, and the number and the SHA-256 of the
last line that was cut. The end of a log is known by its head: the number and the SHA-256 of its last line. Whoever can
write a log can write another one, with other digests from any line on; only a head, or an exported copy, that was kept
where that person cannot write says that lines were changed, or cut at the end.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from haybale.errors import InputError

ORIGIN = "0" * 64  # what line 1 has in place of the digest of a line before
CUT = "cut"
_DIGEST = re.compile(r"[0-9a-f]{64}")


class LogHead(NamedTuple):
    """The number and the SHA-256 of a line, by which a log is recognised later.

    Attributes
    ----------
    number : int
        0 for a log without lines.
    digest : str
        64 hexadecimal digits; zeros for a log without lines.
    """

    number: int
    digest: str


@dataclass(frozen=True)
class LogCheck:
    """What :func:`check_lines` found.

    Parameters
    ----------
    n_lines : int
    first, last : int
        The numbers of the first and the last line; 0 and 0 without lines.
    head : LogHead
        Of the last line.
    n_heads : int
        How many heads that were kept apart are those of lines that are here.
    n_heads_cut : int
        How many are of lines that were cut at the beginning, so that they say nothing.
    problem : str
        Where the lines, or the heads, do not fit, and why; empty if all do.
    """

    n_lines: int
    first: int
    last: int
    head: LogHead
    n_heads: int
    n_heads_cut: int
    problem: str

    @property
    def is_whole(self) -> bool:
        """Whether every line, and every head, fits."""
        return not self.problem


def line_of(number: int, time: str, user: str, action: str, details: Mapping[str, Any], before: str) -> str:
    """Return a line of the log, without a line feed."""
    values = {"number": number, "time": time, "user": user, "action": action, "before": before, **details}
    return json.dumps(values, separators=(",", ":"))


def digest_of_line(line: str) -> str:
    """Return the SHA-256 of a line without its line feed, in hexadecimal."""
    return hashlib.sha256(line.encode()).hexdigest()


def check_lines(lines: Iterable[str], heads: Iterable[LogHead] = ()) -> LogCheck:
    """Check that each line has the digest of the one before, and that no line is missing.

    Parameters
    ----------
    lines : iterable of str
        The lines of a log, with or without line feeds at their ends.
    heads : iterable of LogHead, optional
        Heads that the log had earlier. Default: none; lines that are missing at the end are not noticed then.

    Examples
    --------
    >>> first = line_of(1, "2026-01-01T09:00:00+00:00", "Ada", "search", {"text": "dogs"}, ORIGIN)
    >>> second = line_of(2, "2026-01-01T09:00:05+00:00", "Ada", "open", {"doc_id": "a"}, digest_of_line(first))
    >>> check = check_lines([first, second])
    >>> check.is_whole, check.head.number
    (True, 2)
    >>> check_lines([first.replace("dogs", "cats"), second]).problem
    'line 2: expected the SHA-256 of line 1, found another one: line 1 was changed, or line 2 was'
    >>> check_lines([first], heads=[check.head]).problem
    'line 2 was there when a head was kept, and is missing: lines were removed at the end'
    """
    expected, seen = {head.number: head.digest for head in heads}, dict[int, str]()
    start: LogHead | None = None  # the last line before those that are here
    head, n_lines, problem, cuts = LogHead(0, ORIGIN), 0, "", list[LogHead]()
    for line in lines:
        line = line.rstrip("\r\n")
        if not line:
            continue
        number, before, cut = _read(line)
        previous = head if start is not None or number is None else LogHead(number - 1, before)
        if number is None:
            problem = f"the line after line {head.number} is no line of a log: it was changed"
        elif number != previous.number + 1:
            problem = f"line {previous.number + 1} is missing: line {number} comes after line {previous.number}"
        elif before != previous.digest:
            problem = (
                f"line {number}: expected the SHA-256 of line {previous.number}, found another one: "
                f"line {previous.number} was changed, or line {number} was"
            )
        if problem:
            break
        start = start or previous
        head, n_lines = LogHead(number, digest_of_line(line)), n_lines + 1
        cuts += [cut] if cut is not None else []
        if number in expected:
            seen[number] = head.digest
    start = start or LogHead(0, ORIGIN)
    if not problem and start != LogHead(0, ORIGIN) and start not in cuts:
        problem = (
            f"line {start.number} is missing, and no line says that it was cut: lines were removed at the beginning"
        )
    if start.number in expected:
        seen[start.number] = start.digest
    for number in sorted(expected):
        if not problem and number > head.number:
            problem = f"line {number} was there when a head was kept, and is missing: lines were removed at the end"
        elif not problem and number >= start.number and seen[number] != expected[number]:
            problem = (
                f"line {number} has another SHA-256 than the head that was kept: it, or a line before, was changed"
            )
    n_cut = sum(number < start.number for number in expected)
    first = start.number + 1 if n_lines else 0
    return LogCheck(n_lines, first, head.number if n_lines else 0, head, len(expected) - n_cut, n_cut, problem)


def _read(line: str) -> tuple[Any, str, LogHead | None]:
    """Return the number of a line, the digest that it has, and what was cut; None for what is no line."""
    try:
        values = json.loads(line)
        number, before = values["number"], values["before"]
        cut = LogHead(int(values["through"]), str(values["digest"])) if values["action"] == CUT else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None, "", None
    is_line = type(number) is int and number > 0 and isinstance(before, str)
    return (number, before, cut) if is_line else (None, "", None)


def read_heads(text: str) -> list[LogHead]:
    """Return the heads in a text: each line has the number and the SHA-256 of a line of the log.

    >>> read_heads("2 " + "ab" * 32)[0].number
    2
    """
    heads = []
    for line in filter(None, map(str.strip, text.splitlines())):
        number, _, digest = line.partition(" ")
        if not number.isdecimal() or not _DIGEST.fullmatch(digest):
            raise InputError(
                f"heads must be lines with the number and the SHA-256 of a line of the log, found {line!r:.100}; give "
                "what haybale log --head has printed"
            )
        heads.append(LogHead(int(number), digest))
    return heads
