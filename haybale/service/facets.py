"""Facets: the values by which documents can be filtered, with counts, and the SQL condition for chosen values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from haybale.errors import InputError, UnknownNameError

MAX_VALUES = 50  # values that a facet lists, the most frequent ones
_NOT_METADATA = ("id", "title", "passages")  # columns of the documents' table


@dataclass(frozen=True)
class Facet:
    """A column of the metadata, as a filter shows it.

    Parameters
    ----------
    name : str
        The name of the column, as conditions have it.
    kind : {"value", "range"}
        ``"value"`` for strings, lists of strings and booleans; ``"range"`` for numbers and dates.
    values : list of (str or bool, int)
        The most frequent values with their numbers of documents, at most 50; empty for ranges.
    n_values : int
        How many different values there are; 0 for ranges.
    least, most : int, float, str or None
        The ends of a range; dates are ISO strings. None for values.
    """

    name: str
    kind: str
    values: list[tuple[str | bool, int]]
    n_values: int = 0
    least: Any = None
    most: Any = None

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        values = [{"value": value, "documents": count} for value, count in self.values]
        about = {"name": self.name, "kind": self.kind, "values": values, "n_values": self.n_values}
        return about | {"least": self.least, "most": self.most}


def facets_of(table: pa.Table) -> list[Facet]:
    """Return the facets of a table of documents, in the order of its columns, without empty columns.

    >>> table = pa.table({"id": ["a", "b", "c"], "court": ["BGH", "BGH", None], "year": [2001, 2005, 2011]})
    >>> [(facet.name, facet.values, facet.least, facet.most) for facet in facets_of(table)]
    [('court', [('BGH', 2)], None, None), ('year', [], 2001, 2011)]
    """
    named = [name for name in table.column_names if name not in _NOT_METADATA]
    return [facet for name in named if (facet := _facet(name, table[name])) is not None]


def _facet(name: str, column: pa.ChunkedArray) -> Facet | None:
    if pa.types.is_list(column.type) or pa.types.is_large_list(column.type):
        column = pc.list_flatten(column)
    column = column.drop_null()
    if pa.types.is_floating(column.type):
        column = column.filter(pc.is_finite(column))  # a range has two ends
    if not len(column):
        return None
    if not (pa.types.is_boolean(column.type) or _is_string(column.type)):
        ends = pc.min_max(column).as_py()
        least, most = (end.isoformat() if isinstance(end, date) else end for end in (ends["min"], ends["max"]))
        return Facet(name, "range", [], 0, least, most)
    counted = [(count["values"], count["counts"]) for count in pc.value_counts(column).to_pylist()]
    counted.sort(key=lambda pair: (-pair[1], str(pair[0])))
    return Facet(name, "value", counted[:MAX_VALUES], len(counted))


def _is_string(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def condition(table: pa.Table, chosen: Mapping[str, Sequence[Any]]) -> str | None:
    """Return the SQL condition, for ``where``, on documents with the chosen values; None if nothing is chosen.

    Parameters
    ----------
    table : pyarrow.Table
        The documents: ``engine.documents_table()``.
    chosen : mapping of str to sequence
        The chosen values by column, of which a document must have one. For a range, its two ends; an end that is None
        or empty sets no limit.

    Raises
    ------
    InputError
        For an unknown column, or a value that the column cannot have.

    Examples
    --------
    >>> table = pa.table({"id": ["a"], "court": ["O'Hara"], "year": [2001], "topics": [["tax"]]})
    >>> condition(table, {"court": ["O'Hara", "BGH"], "year": [2001, None], "topics": ["tax"]})
    '"court" in (\\'O\\'\\'Hara\\', \\'BGH\\') and "year" >= 2001 and list_has_any("topics", [\\'tax\\'])'
    """
    parts = []
    for name, values in chosen.items():
        if name not in table.column_names:
            raise UnknownNameError("column of the metadata", name, table.column_names)
        kind, column = table.schema.field(name).type, '"' + name.replace('"', '""') + '"'
        if pa.types.is_list(kind) or pa.types.is_large_list(kind):
            wanted = [_quoted(value) for value in values]
            parts += [f"list_has_any({column}, [{', '.join(wanted)}])"] if wanted else []
        elif pa.types.is_boolean(kind):
            wanted = [_boolean(name, value) for value in values]
            parts += [f"{column} in ({', '.join(wanted)})"] if wanted else []
        elif _is_string(kind):
            wanted = [_quoted(value) for value in values]
            parts += [f"{column} in ({', '.join(wanted)})"] if wanted else []
        else:
            if len(values) != 2:
                raise InputError(f"{name} needs the two ends of a range, found {list(values)!r:.100}; leave one empty")
            ends = [_end(name, kind, value) for value in values]
            parts += [f"{column} {sign} {end}" for sign, end in zip((">=", "<="), ends, strict=True) if end]
    return " and ".join(parts) or None


def _quoted(value: Any) -> str:
    return "'" + str(value).replace("'", "''") + "'"


def _boolean(name: str, value: Any) -> str:
    literal = str(value).lower()
    if literal not in ("true", "false"):
        raise InputError(f"{name} must be true or false, found {value!r:.100}")
    return literal


def _end(name: str, kind: pa.DataType, value: Any) -> str:
    """Return the end of a range as SQL; an empty text for no end."""
    if value is None or str(value).strip() == "":
        return ""
    try:
        if pa.types.is_date(kind):
            return _quoted(date.fromisoformat(str(value).strip()).isoformat())
        number = int(str(value)) if pa.types.is_integer(kind) else float(str(value))
        if number != number or abs(number) > 2**63:
            raise ValueError
        return str(number)
    except (ValueError, OverflowError):
        what = "a date such as 2015-01-31" if pa.types.is_date(kind) else "a number"
        raise InputError(f"{name} must be {what}, found {value!r:.100}") from None
