"""Metadata of documents: a table with a row for each document and typed columns.

A column has strings, integers, floats, dates, booleans or lists of strings; null is no value. Texts such as those of a
CSV file become numbers, dates or booleans if all values of the column can be read so.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from haybale.errors import InputError

_INTEGER = re.compile(r"[+-]?(0|[1-9]\d{0,17})")
_FLOAT = re.compile(r"[+-]?(0|[1-9]\d*)?\.\d+([eE][+-]?\d+)?|[+-]?[1-9]\d*[eE][+-]?\d+")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_BOOLEANS = {"true": True, "false": False}
_STRINGS = pa.list_(pa.large_string())
_MAX_EXACT_INTEGER = 2**53  # floats represent every integer up to this one exactly
_MAX_DIGITS = 1000  # digits of an integer
_FIRST_TYPE = b"first type"  # the key, in the metadata of an Arrow field, of the type that the column had first


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
    table = pa.table({"id": ids, "title": titles, "passages": n_passages})
    if metadata is None:
        return table
    for field in metadata.schema:
        table = table.append_column(field.with_name(unique_name(field.name, table.column_names)), metadata[field.name])
    return table


def filter_table(documents: pa.Table) -> pa.Table:
    """Return a table of documents whose columns have the types that they had first, for filters.

    A value of another type, from a document that was added later, becomes null.

    >>> one, two = metadata_table([{"year": 2015}]), metadata_table([{"year": "unknown"}])
    >>> joined = joined_metadata(one, 1, two, 1)
    >>> joined["year"].to_pylist(), filter_table(joined)["year"].to_pylist()
    (['2015', 'unknown'], [2015, None])
    """
    columns = []
    for field in documents.schema:
        column, kind = documents[field.name], _first_type(field)
        columns.append(
            column if kind == field.type else pa.array([_read_as(v, kind) for v in column.to_pylist()], kind)
        )
    return pa.table(columns, names=documents.column_names)


def unique_name(name: str, taken: Iterable[str]) -> str:
    """Return a name, with a number if needed, that differs from all taken names without regard to case.

    >>> unique_name("Title", ["id", "title"])
    'Title_2'
    """
    taken_names = {other.lower() for other in taken}
    candidates = (name, *(f"{name}_{number}" for number in range(2, len(taken_names) + 3)))
    return next(candidate for candidate in candidates if candidate.lower() not in taken_names)


def joined_metadata(one: pa.Table | None, n_one: int, two: pa.Table | None, n_two: int) -> pa.Table | None:
    """Return the metadata of two collections, of which either may have columns that the other lacks.

    A column of ``one`` keeps its type if it can hold the values of ``two``: in a column of lists a single value becomes
    a list with one member, in a column of strings a value becomes a text, and integers become floats if all of them are
    exact as floats. Otherwise all values become texts, and the field keeps the first type for :func:`filter_table`, so
    that filters still find the documents of ``one`` that they found before.
    """
    if one is None and two is None:
        return None
    parts = [(pa.table({}) if part is None else part, n) for part, n in ((one, n_one), (two, n_two))]
    names = dict.fromkeys(name for part, _ in parts for name in part.column_names)
    fields, columns = [], []
    for name in names:
        present = [part for part, _ in parts if name in part.column_names]
        field = _joined_field([(part.schema.field(name), part[name]) for part in present])
        chunks = [chunk for part, n in parts for chunk in _cast(part, name, n, field.type).chunks]
        fields.append(field)
        columns.append(pa.chunked_array(chunks, type=field.type))
    return pa.table(columns, schema=pa.schema(fields))


def with_values(metadata: pa.Table | None, n: int, values: Mapping[int, Mapping[str, Any]]) -> pa.Table:
    """Return the metadata of n documents with further values of some, by document number and column.

    A column keeps its type as in :func:`joined_metadata`, unless all its values are new. New values, and all values of
    a column with values of other types, are typed as in :func:`metadata_table`.

    >>> table = metadata_table([{"court": "BGH", "year": "2015"}, {"year": "2017"}])
    >>> with_values(table, 2, {1: {"year": "2018", "court": "OLG"}}).to_pylist()
    [{'court': 'BGH', 'year': 2015}, {'court': 'OLG', 'year': 2018}]
    """
    table = pa.table({}) if metadata is None else metadata
    for name in dict.fromkeys(name for columns in values.values() for name in columns):
        changed = {number: plain_value(columns[name]) for number, columns in values.items() if name in columns}
        if name not in table.column_names:
            column = _column([changed.get(number) for number in range(n)])
            table = table.append_column(name, column) if table.num_columns else pa.table({name: column})
            continue
        field, column_number = table.schema.field(name), table.column_names.index(name)
        kept = [None if number in changed else value for number, value in enumerate(table[name].to_pylist())]
        old = pa.table([pa.chunked_array([pa.array(kept, field.type)])], schema=pa.schema([field]))
        new = pa.table({name: _new_values(list(changed.values()), field.type)})
        joined = joined_metadata(old, n, new, len(changed))
        assert joined is not None
        rows = np.arange(n)
        rows[list(changed)] = n + np.arange(len(changed))
        column, field = joined[name].take(pa.array(rows)), joined.schema.field(name)
        first = _first_type(field)
        if first != field.type and all(v is None or _read_as(v, first) is not None for v in column.to_pylist()):
            column = pa.chunked_array([pa.array([_read_as(v, first) for v in column.to_pylist()], first)])
            field = pa.field(name, first)
        table = table.set_column(column_number, field, column)
    return table


def _new_values(values: list[Any], kind: pa.DataType) -> pa.Array:
    """Return new values of a column as they are, if it has strings, so that '1.50' does not become a number."""
    is_text = kind == pa.large_string() and not any(isinstance(value, list) for value in values)
    return pa.array([_as_text(value) for value in values], kind) if is_text else _column(values)


def _as_text(value: Any) -> Any:
    """Return a value as the text that :func:`_read_strings` reads as an equal value; lists stay lists."""
    if value is None or isinstance(value, list):
        return value
    if isinstance(value, float) and value.is_integer() and abs(value) <= _MAX_EXACT_INTEGER:
        return str(int(value))  # an integer that was widened to a float
    return str(value).lower() if isinstance(value, bool) else str(value)


def _first_type(field: pa.Field) -> pa.DataType:
    """Return the type that a column had before values of other types came to it."""
    name = (field.metadata or {}).get(_FIRST_TYPE, b"").decode()
    return _READINGS[name][2] if name in _READINGS else field.type


def _joined_field(parts: Sequence[tuple[pa.Field, pa.ChunkedArray]]) -> pa.Field:
    """Return the field of a column that one or two tables have."""
    parts = [(field, column) for field, column in parts if column.null_count < len(column)] or list(parts)[:1]
    field, column = parts[0]
    if len(parts) == 1:
        return field
    other = parts[1][0]
    first, second = _first_type(field), _first_type(other)
    if pa.types.is_list(first) or (field.type == other.type and first == second):
        return field
    if first == pa.float64() and other.type == pa.int64() and field.type == first:
        return field
    is_widened = first == pa.int64() and other.type == pa.float64() and field.type == first
    if is_widened and all(value is None or abs(value) <= _MAX_EXACT_INTEGER for value in column.to_pylist()):
        return pa.field(field.name, pa.float64())
    # Integers that have become floats, and then texts, are still numbers to filters.
    first = second if (first, second) == (pa.int64(), pa.float64()) and other.type != second else first
    name = next((name for name, (_, _, kind) in _READINGS.items() if kind == first), None)
    return pa.field(field.name, pa.large_string(), metadata=None if name is None else {_FIRST_TYPE: name.encode()})


def _cast(part: pa.Table, name: str, n: int, kind: pa.DataType) -> pa.ChunkedArray:
    if name not in part.column_names:
        return pa.chunked_array([pa.nulls(n, kind)])
    column = part[name]
    if column.type.equals(kind):
        return column
    if column.null_count == len(column):
        return pa.chunked_array([pa.nulls(n, kind)])
    values = column.to_pylist()
    if pa.types.is_list(kind):
        return pa.chunked_array([[_strings(_as_text(value)) for value in values]], type=kind)
    if kind == pa.float64():
        return pa.chunked_array([[None if value is None else float(value) for value in values]], type=kind)
    texts = ["; ".join(value) if isinstance(value, list) else _as_text(value) for value in values]
    return pa.chunked_array([texts], type=kind)


def _column(values: list[Any]) -> pa.Array:
    """Return a typed column; values of several types become strings, which may be read as one type."""
    values = [plain_value(value) for value in values]
    present = [value for value in values if value is not None]
    kinds = {type(value) for value in present}
    if kinds == {str}:
        return _read_strings(values)
    if list in kinds:
        return pa.array([_strings(_as_text(value)) for value in values], _STRINGS)
    if kinds == {date}:
        return pa.array(values, pa.date32())
    if kinds == {bool}:
        return pa.array(values, pa.bool_())
    if kinds == {int} and all(-(2**63) <= value < 2**63 for value in present):
        return pa.array(values, pa.int64())
    if kinds <= {int, float} and all(map(_is_exact_as_float, present)):
        return pa.array([None if v is None else float(v) for v in values], pa.float64())
    if str in kinds:  # such as a year from a table beside one from a file's own metadata
        return _read_strings([_as_text(value) for value in values])
    return pa.array([_as_text(value) for value in values], pa.large_string())


def _is_exact_as_float(value: int | float) -> bool:
    return isinstance(value, float) or (abs(value) < 2**1000 and int(float(value)) == value)


def plain_value(value: Any) -> Any:
    """Return a string, a number, a date, a boolean, a list or None; an object becomes JSON, and a time its date.

    Nothing, such as NaN, NaT, ``pandas.NA`` or an empty string, is None, and left out of lists. A whole ``Decimal`` is
    an integer, and another one a float; bytes are UTF-8 texts.
    """
    if isinstance(value, np.datetime64) and not np.isnat(value):
        return _date_of(value)
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, Mapping):
        return json.dumps(dict(value), ensure_ascii=False, default=str)
    if isinstance(value, set | frozenset):
        value = sorted(map(str, value))
    if isinstance(value, list | tuple | np.ndarray):
        parts = [plain_value(part) for part in value]
        return [json.dumps(part, default=str) if isinstance(part, list) else part for part in parts if part is not None]
    if isinstance(value, bytes | bytearray):
        value = _decoded(bytes(value))
    if isinstance(value, Decimal):
        value = None if value.is_nan() else float(value) if value.is_infinite() else _number_of(value)
    if isinstance(value, int) and abs(value) >= 10**_MAX_DIGITS:
        raise InputError(f"metadata must have integers of at most {_MAX_DIGITS:,} digits, found more; give a text")
    if value is None or type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, float) and value != value):
        return None
    if isinstance(value, str):
        return str(value) or None
    return value.date() if isinstance(value, datetime) else value


def _date_of(time: np.datetime64) -> date | str:
    """Return the date of a time; the text of one that Python's dates cannot hold, such as a year after 9999."""
    day = time.astype("datetime64[D]")
    value = day.item()
    return value if isinstance(value, date) else str(day)


def _decoded(value: bytes) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise InputError(f"metadata must be text, found bytes that are not UTF-8: {value!r:.60}; decode them") from None


def _number_of(value: Decimal) -> int | float | str:
    """Return a decimal number as an integer if it is whole, else as a float; as a text if it is too large for both."""
    if abs(value.adjusted()) > 300:
        return str(value)
    return int(value) if value == value.to_integral_value() else float(value)


def _strings(value: Any) -> list[str] | None:
    return None if value is None else [str(part) for part in value] if isinstance(value, list) else [str(value)]


def _read_strings(values: list[str | None]) -> pa.Array:
    """Return strings as integers, floats, dates or booleans if each of them can be read so."""
    cleaned = [value.strip() or None if value is not None else None for value in values]
    present = [value for value in cleaned if value is not None]
    for fits, read, kind in _READINGS.values():
        if present and all(map(fits, present)):
            return pa.array([None if value is None else read(value) for value in cleaned], kind)
    return pa.array(cleaned, pa.large_string())


def _read_as(value: str | None, kind: pa.DataType) -> Any:
    """Return a text as a value of a type; None if it is not one."""
    if kind == pa.float64() and value in ("inf", "-inf"):
        return float(value)
    fits, read = next((fits, read) for fits, read, other in _READINGS.values() if other == kind)
    return read(value) if value is not None and fits(value) else None


def _is_float(text: str) -> bool:
    """Return whether a text is a number that a float can hold; a long integer must be equal to it."""
    if _INTEGER.fullmatch(text):
        return _is_exact_as_float(int(text))
    return _FLOAT.fullmatch(text) is not None and math.isfinite(float(text))


def _is_date(value: str) -> bool:
    if not _DATE.fullmatch(value):
        return False
    try:
        date.fromisoformat(value)
    except ValueError:
        return False
    return True


# How a column of texts is read, in this order: whether a text fits, the function that reads it, and the type.
_READINGS: dict[str, tuple[Callable[[str], bool], Callable[[str], Any], pa.DataType]] = {
    "integer": (lambda text: _INTEGER.fullmatch(text) is not None, int, pa.int64()),
    "float": (_is_float, float, pa.float64()),
    "date": (_is_date, date.fromisoformat, pa.date32()),
    "boolean": (lambda text: text.lower() in _BOOLEANS, lambda text: _BOOLEANS[text.lower()], pa.bool_()),
}
