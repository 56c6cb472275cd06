"""What the parts of bench_gpu.py share: a device, sizes, a stopwatch that waits, and the lines of a part.

A part is a generator of lines. Each line is written as soon as it is there, so that a part that is stopped leaves what
it measured.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import synthetic
from provenance import alternating, row, table

from haybale import PassageIndex
from haybale.device import Device

PASSAGES, PER_DOCUMENT, TRAINING, RANKED, WIDTH, CANDIDATES = 3_095_383, 24, 98_380, 12_297, 768, 50  # GerDaLIR's


class Cells(NamedTuple):
    """A row of a table; rows with the same columns that follow each other are one table."""

    columns: str
    cells: tuple[Any, ...]


Line = str | Cells


class Times(NamedTuple):
    """Seconds of the first call, which compiles kernels; the median of the later ones; and the last result."""

    first: float
    later: float
    result: Any


@dataclass(frozen=True)
class Bench:
    """A device, a scale of all counts, and the number of timed rounds."""

    device: Device
    scale: float
    rounds: int

    def count(self, full: float, least: int = 1) -> int:
        return max(least, round(full * self.scale))

    def collection(self, passages: int = PASSAGES, per_document: int = PER_DOCUMENT) -> Any:
        made = synthetic.collection(self.count(passages, 2000), WIDTH, per_document, self.device)
        return made, PassageIndex(made.vectors, made.doc_offsets)

    def wait(self) -> None:
        if not self.device.is_cpu:
            with self.device.current() as current:
                current.synchronize()

    def times(self, works: dict[str, Callable[[], Any]], rounds: int | None = None) -> dict[str, Times]:
        """Call each work once, then all of them by turns."""
        first = alternating(works, 1, self.wait)
        later = alternating(works, self.rounds if rounds is None else rounds, self.wait)
        return {
            name: Times(first[name][0][0], statistics.median(seconds), result)
            for name, (seconds, result) in later.items()
        }


def plain(line: Line) -> dict[str, Any]:
    """Return a line as plain values for JSON."""
    return {"text": line} if isinstance(line, str) else {"columns": line.columns, "cells": list(line.cells)}


def markdown(lines: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Yield the Markdown of lines that :func:`plain` returned."""
    columns = ""
    for line in lines:
        if "text" in line:
            yield ("\n" if columns else "") + line["text"]
            columns = ""
            continue
        if line["columns"] != columns:
            columns = line["columns"]
            yield from table(columns)
        yield row(*line["cells"])
