"""Split tables of delimited text into rows, and find the lines that are no rows of their table.

A row has as many cells as the header. A row with more cells would put texts and labels into other columns, so it is
left out; the cells that a row has too few are empty. A line with a quote that does not fit is left out, and reading
goes on in the next line. All this is told with the number of the line.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

DELIMITERS = ",;\t|"
_MAX_CELL_CHARACTERS = 2**27
_QUOTED = re.compile(r'"(?:[^"]|"")*"')
_SEPARATOR_LINE = re.compile(r'"?sep=(.)"?[,;\t|]*', re.I)  # as Excel writes and reads it
_QUOTINGS: tuple[Mapping[str, Any], ...] = (
    {"doublequote": True, "strict": True},
    {"doublequote": True, "strict": True, "escapechar": "\\"},
    {"quoting": csv.QUOTE_NONE},
)


@dataclass(frozen=True)
class DelimitedTable:
    """The rows of a table of delimited text.

    Parameters
    ----------
    columns : list of str
        The names in the header; a name may be empty, or occur twice.
    header_line : int
        The line of the header, counted from 1.
    rows : list of (int, list of str)
        The line of each row, and its cells: as many as there are columns.
    problems : list of (int, str)
        The line and the reason of each row that was left out, or that has too few cells.
    """

    columns: list[str]
    header_line: int
    rows: list[tuple[int, list[str]]]
    problems: list[tuple[int, str]]


def read_delimited(text: str, delimiters: str = DELIMITERS) -> DelimitedTable:
    r"""Split a table into rows. Its lines end with ``\n``; the delimiter is the one that the header has most.

    Quotes in cells are doubled, or escaped with a backslash, or, in tables with tabs, have no meaning: the reading with
    the fewest problems is taken.

    >>> read_delimited('sep=;\nid;text\n1;"a;b"\n2;a;b\n3')
    ... # doctest: +NORMALIZE_WHITESPACE
    DelimitedTable(columns=['id', 'text'], header_line=2, rows=[(3, ['1', 'a;b']), (5, ['3', ''])],
        problems=[(4, "expected 2 cells, found 3; put texts with the delimiter ';' in quotes"),
                  (5, 'expected 2 cells, found 1; the others are empty')])
    """
    lines = text.split("\n")
    start = next((number for number, line in enumerate(lines) if line.strip()), 0)
    separator = _SEPARATOR_LINE.fullmatch(lines[start].strip(" "))
    if separator is not None:
        delimiter, start = separator[1], start + 1
        start = next((number for number in range(start, len(lines)) if lines[number].strip()), len(lines) - 1)
    else:
        delimiter = max(delimiters, key=_QUOTED.sub("", lines[start]).count)
    csv.field_size_limit(_MAX_CELL_CHARACTERS)
    best: DelimitedTable | None = None
    for quoting in _QUOTINGS if delimiter == "\t" else _QUOTINGS[:-1]:
        table = _table(lines, start, delimiter, quoting)
        if best is None or len(table.problems) < len(best.problems):
            best = table
        if not best.problems:
            break
    assert best is not None
    return best


def _table(lines: Sequence[str], start: int, delimiter: str, quoting: Mapping[str, Any]) -> DelimitedTable:
    columns: list[str] | None = None
    header_line = start + 1
    rows: list[tuple[int, list[str]]] = []
    problems: list[tuple[int, str]] = []
    for line, cells in _records(lines, start, delimiter, quoting):
        if isinstance(cells, str):
            problems.append((line, cells))
        elif columns is None:
            columns, header_line = [cell.strip() for cell in cells], line
        elif cells:
            n_cells, n_columns = len(cells), len(columns)
            if any(cells[n_columns:]):
                reason = f"expected {n_columns} cells, found {n_cells}; "
                problems.append((line, f"{reason}put texts with the delimiter {delimiter!r} in quotes"))
                continue
            if n_cells < n_columns:
                problems.append((line, f"expected {n_columns} cells, found {n_cells}; the others are empty"))
            rows.append((line, [*cells[:n_columns], *[""] * (n_columns - n_cells)]))
    return DelimitedTable(columns or [], header_line, rows, problems)


def _records(
    lines: Sequence[str], start: int, delimiter: str, quoting: Mapping[str, Any]
) -> Iterator[tuple[int, list[str] | str]]:
    """Yield the first line and the cells of each record, or the reason why a line is none."""
    while start < len(lines):
        following = (f"{lines[number]}\n" for number in range(start, len(lines)))
        reader = csv.reader(following, delimiter=delimiter, **quoting)
        begin, line = start, start
        try:
            for cells in reader:
                yield line + 1, cells
                line = begin + reader.line_num
            return
        except csv.Error as error:
            yield line + 1, f"expected CSV, found a quote that does not fit ({error}); double the quotes in a cell"
            start = line + 1


def named_cells(columns: Sequence[str], cells: Sequence[Any]) -> dict[str, Any]:
    """Return the cells of a row by the names of their columns.

    A column without a name is called by its number; the values of columns with one name are a list.

    >>> named_cells(["id", "text", "text", ""], ["1", "one", "two", "three"])
    {'id': '1', 'text': ['one', 'two'], 'column 4': 'three'}
    """
    names = set(columns)
    if len(names) == len(columns) and "" not in names:
        return dict(zip(columns, cells, strict=False))
    values: dict[str, Any] = {}
    for number, (name, cell) in enumerate(zip(columns, cells, strict=False), 1):
        empty = cell is None or cell == ""
        if columns.count(name) > 1 and name:
            values.setdefault(name, []).extend([] if empty else [cell])
        elif name or not empty:
            values[name or f"column {number}"] = cell
    return values
