"""Facets: the values by which documents can be filtered, with counts, and the SQL condition for chosen values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from haybale.collections.collection import Ints
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


class FacetTable:
    """The facets of a table of documents, counted among all or some of its documents.

    Parameters
    ----------
    table : pyarrow.Table
        Empty columns are left out.

    Examples
    --------
    >>> table = pa.table({"id": ["a", "b", "c"], "court": ["BGH", "BGH", None], "year": [2001, 2005, 2011]})
    >>> [(facet.name, facet.values, facet.least, facet.most) for facet in FacetTable(table).facets]
    [('court', [('BGH', 2)], None, None), ('year', [], 2001, 2011)]
    >>> FacetTable(table).counted("court", np.array([True, False, True])).values
    [('BGH', 1)]
    """

    def __init__(self, table: pa.Table) -> None:
        self.documents = table
        self._columns: dict[str, _Values] = {}
        self.facets: list[Facet] = []  # in the order of the columns
        for name in table.column_names:
            if name in _NOT_METADATA:
                continue
            kind = table.schema.field(name).type
            if _is_list(kind) or pa.types.is_boolean(kind) or _is_string(kind):
                self._columns[name] = values = _Values(table[name].combine_chunks())
                facet = values.facet(name, np.ones(len(table), dtype=bool))
            else:
                facet = _range(name, table[name])
            if facet is not None:
                self.facets.append(facet)

    def counted(self, name: str, documents: NDArray[np.bool_]) -> Facet | None:
        """Return the facet of a column of values with the numbers of some documents (n,); None if none has a value."""
        return self._columns[name].facet(name, documents)


class _Values:
    """The values of a column: which documents have which, so that they are counted without reading them again."""

    def __init__(self, column: pa.Array) -> None:
        self.rows: Ints | None = None  # the document of each value, of lists
        if _is_list(column.type):
            self.rows = pc.list_parent_indices(column).to_numpy()
            column = pc.list_flatten(column)
        has_value = pc.is_valid(column).to_numpy(zero_copy_only=False)
        if not has_value.all():
            self.rows = np.flatnonzero(has_value) if self.rows is None else self.rows[has_value]
            column = column.drop_null()
        encoded = pc.dictionary_encode(column)
        values = encoded.dictionary.to_pylist()
        order = sorted(range(len(values)), key=lambda number: str(values[number]))
        self.values: list[str | bool] = [values[number] for number in order]  # sorted
        number_of = np.empty(len(values), dtype=np.int64)
        number_of[order] = np.arange(len(values))
        self.numbers = number_of[encoded.indices.to_numpy(zero_copy_only=False)]

    def facet(self, name: str, documents: NDArray[np.bool_]) -> Facet | None:
        """Return the facet of the column with the numbers of some documents; None if none of them has a value."""
        counted = self.numbers[documents if self.rows is None else documents[self.rows]]
        counts = np.bincount(counted, minlength=len(self.values))
        n_values = int(np.count_nonzero(counts))
        if not n_values:
            return None
        first = np.argsort(-counts, kind="stable")[: min(MAX_VALUES, n_values)].tolist()
        return Facet(name, "value", [(self.values[number], int(counts[number])) for number in first], n_values)


def _range(name: str, column: pa.ChunkedArray) -> Facet | None:
    """Return the facet of a column of numbers or dates; None without a value."""
    column = column.drop_null()
    if pa.types.is_floating(column.type):
        column = column.filter(pc.is_finite(column))  # a range has two ends
    if not len(column):
        return None
    ends = pc.min_max(column).as_py()
    least, most = (end.isoformat() if isinstance(end, date) else end for end in (ends["min"], ends["max"]))
    return Facet(name, "range", [], 0, least, most)


def _is_string(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


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
        if _is_list(kind):
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
