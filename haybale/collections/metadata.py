"""Metadata of documents: a table with a row for each document and typed columns.

A column has strings, integers, floats, dates, booleans or lists of strings; null is no value. Texts such as those of a
CSV file become numbers, dates or booleans if all values of the column can be read so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime
from itertools import count, islice
from typing import Any

import numpy as np
import pyarrow as pa

_INTEGER = re.compile(r"[+-]?(0|[1-9]\d{0,17})")
_FLOAT = re.compile(r"[+-]?(0|[1-9]\d*)?\.\d+([eE][+-]?\d+)?|[+-]?[1-9]\d*[eE][+-]?\d+")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_BOOLEANS = {"true": True, "false": False}
_STRINGS = pa.list_(pa.large_string())


def metadata_table(rows: Sequence[Mapping[str, Any]]) -> pa.Table | None:
    """Return the metadata of documents as a table, or None if no document has any.

    >>> table = metadata_table([{"court": "BGH", "year": "2015"}, {"year": "2017", "decided": "2017-03-01"}])
    >>> {field.name: str(field.type) for field in table.schema}
    {'court': 'large_string', 'year': 'int64', 'decided': 'date32[day]'}
    """
    names = dict.fromkeys(name for row in rows for name in row)
    if not names:
        return None
    return pa.table({name: _column([row.get(name) for row in rows]) for name in names})


def documents_table(
    ids: pa.ChunkedArray, titles: pa.ChunkedArray, n_passages: pa.Array, metadata: pa.Table | None
) -> pa.Table:
    """Return a table of documents: ``id``, ``title``, ``passages`` (their number), and the columns of the metadata.

    Names are unique without regard to case, as in SQL: a column of the metadata whose name is taken gets a number.
    """
    columns = {"id": ids, "title": titles, "passages": n_passages}
    for name, column in () if metadata is None else zip(metadata.column_names, metadata.columns, strict=True):
        columns[unique_name(name, columns)] = column
    return pa.table(columns)


def unique_name(name: str, taken: Iterable[str]) -> str:
    """Return a name that no other equals without regard to case.

    >>> unique_name("Title", ["id", "title"])
    'Title_2'
    """
    known = {other.lower() for other in taken}
    candidates = (f"{name}_{number}" for number in count(2))
    return next(each for each in (name, *islice(candidates, len(known) + 1)) if each.lower() not in known)


def joined_metadata(one: pa.Table | None, n_one: int, two: pa.Table | None, n_two: int) -> pa.Table | None:
    """Return the metadata of two collections, of which either may have columns that the other lacks.

    A column with different types becomes one of floats if both are numbers, else one of strings.
    """
    if one is None and two is None:
        return None
    parts = [(pa.table({}) if part is None else part, n) for part, n in ((one, n_one), (two, n_two))]
    names = dict.fromkeys(name for part, _ in parts for name in part.column_names)
    columns = {}
    for name in names:
        types = [part.schema.field(name).type for part, _ in parts if name in part.column_names]
        kind = types[0] if len(set(types)) == 1 else _common(types)
        columns[name] = pa.chunked_array(
            [chunk for part, n in parts for chunk in _cast(part, name, n, kind).chunks], type=kind
        )
    return pa.table(columns)


def with_values(metadata: pa.Table | None, n: int, values: Mapping[int, Mapping[str, Any]]) -> pa.Table:
    """Return the metadata of n documents with further values of some, by document number and column.

    The columns of these values are typed as in :func:`metadata_table`, by their old and new values.

    >>> table = metadata_table([{"court": "BGH", "year": "2015"}, {"year": "2017"}])
    >>> with_values(table, 2, {1: {"year": "2018", "court": "OLG"}}).to_pylist()
    [{'court': 'BGH', 'year': 2015}, {'court': 'OLG', 'year': 2018}]
    """
    columns = {} if metadata is None else dict(zip(metadata.column_names, metadata.columns, strict=True))
    for name in dict.fromkeys(name for given in values.values() for name in given):
        column: list[Any] = columns[name].to_pylist() if name in columns else [None] * n
        for number, given in values.items():
            column[number] = given.get(name, column[number])
        columns[name] = _column([_as_text(plain_value(value)) for value in column])
    return pa.table(columns)


def _as_text(value: Any) -> Any:
    """Return a value as the text that :func:`_read_strings` reads as the same value; lists stay lists."""
    if value is None or isinstance(value, list):
        return value
    return str(value).lower() if isinstance(value, bool) else str(value)


def _common(types: Sequence[pa.DataType]) -> pa.DataType:
    numeric = all(pa.types.is_integer(kind) or pa.types.is_floating(kind) for kind in types)
    return pa.float64() if numeric else _STRINGS if all(map(pa.types.is_list, types)) else pa.large_string()


def _cast(part: pa.Table, name: str, n: int, kind: pa.DataType) -> pa.ChunkedArray:
    if name not in part.column_names:
        return pa.chunked_array([pa.nulls(n, kind)])
    column = part[name]
    if column.type.equals(kind):
        return column
    if pa.types.is_list(column.type):
        return pa.chunked_array([[None if v is None else "; ".join(v) for v in column.to_pylist()]], type=kind)
    return column.cast(kind)


def _column(values: list[Any]) -> pa.Array:
    """Return a typed column; values of several types become strings, which may be read as one type."""
    values = [plain_value(value) for value in values]
    present = [value for value in values if value is not None]
    kinds = {type(value) for value in present}
    if kinds == {str}:
        return _read_strings(values)
    if list in kinds:
        return pa.array([_strings(value) for value in values], _STRINGS)
    if kinds == {date}:
        return pa.array(values, pa.date32())
    if kinds == {bool}:
        return pa.array(values, pa.bool_())
    if kinds == {int} and all(-(2**63) <= value < 2**63 for value in present):
        return pa.array(values, pa.int64())
    if kinds <= {int, float} and all(isinstance(value, float) or abs(value) < 2**1000 for value in present):
        return pa.array([None if v is None else float(v) for v in values], pa.float64())
    if str in kinds:  # such as a year from a table beside one from a file's own metadata
        return _read_strings([_as_text(value) for value in values])
    return pa.array([None if v is None else str(v) for v in values], pa.large_string())


def plain_value(value: Any) -> Any:
    """Return a string, a number, a date, a boolean, a list or None; an object becomes JSON, and a time its date."""
    if isinstance(value, np.datetime64):
        value = value.astype("datetime64[D]")
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Mapping):
        return json.dumps(dict(value), ensure_ascii=False, default=str)
    if isinstance(value, set | frozenset):
        return sorted(map(str, value))
    if isinstance(value, list | tuple | np.ndarray):
        return [plain_value(each) for each in value]
    if value == "" or value != value:  # NaN, or not a time
        return None
    return value.date() if isinstance(value, datetime) else value


def _strings(value: Any) -> list[str] | None:
    return None if value is None else [str(each) for each in value] if isinstance(value, list) else [str(value)]


def _read_strings(values: list[str | None]) -> pa.Array:
    """Return strings as integers, floats, dates or booleans if each of them can be read so."""
    cleaned = [value.strip() or None if value is not None else None for value in values]
    present = [value for value in cleaned if value is not None]
    readings: list[tuple[Callable[[str], bool], Callable[[str], Any], pa.DataType]] = [
        (lambda v: _INTEGER.fullmatch(v) is not None, int, pa.int64()),
        (lambda v: (_INTEGER.fullmatch(v) or _FLOAT.fullmatch(v)) is not None, float, pa.float64()),
        (_is_date, date.fromisoformat, pa.date32()),
        (lambda v: v.lower() in _BOOLEANS, lambda v: _BOOLEANS[v.lower()], pa.bool_()),
    ]
    for fits, read, kind in readings:
        if present and all(map(fits, present)):
            return pa.array([None if value is None else read(value) for value in cleaned], kind)
    return pa.array(cleaned, pa.large_string())


def _is_date(value: str) -> bool:
    if not _DATE.fullmatch(value):
        return False
    try:
        date.fromisoformat(value)
    except ValueError:
        return False
    return True
