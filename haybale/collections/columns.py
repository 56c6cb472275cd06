"""Columns of Arrow tables as what a collection is made of: strings and grades; an error names column and row."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from haybale.collections.collection import Ints
from haybale.errors import FileFormatError, InputError

Source = Path | str  # a file, or what a frame is called


def refuse(source: Source, message: str) -> NoReturn:
    """Raise the one error of a bad table."""
    if isinstance(source, Path):
        raise FileFormatError(source, None, message)
    raise InputError(f"{source}: {message}")


def check_columns(names: Sequence[str], needed: Sequence[str], source: Source) -> None:
    """Refuse a table without one of the columns, or with one twice.

    >>> check_columns(["id", "text"], ["doc_id", "text"], "passages")
    Traceback (most recent call last):
    haybale.errors.InputError: passages: expected a column doc_id; found id, text
    """
    missing = [name for name in needed if name not in names]
    twice = [name for name in needed if list(names).count(name) > 1]
    if twice:
        refuse(source, f"column {twice[0]} stands there twice")
    if missing:
        columns = "columns" if len(missing) > 1 else "a column"
        refuse(source, f"expected {columns} {', '.join(missing)}; found {', '.join(map(str, names)) or 'none'}")


def strings(table: pa.Table, name: str, source: Source, first_row: int = 0, *, missing: bool = False) -> pa.Array:
    """(n,) large_string: a column of strings, of categories, or of whole numbers, which ids may be.

    Rows of an error are counted from ``first_row``. Missing values are refused unless ``missing``.

    >>> strings(pa.table({"doc_id": [1, 2]}), "doc_id", "passages").to_pylist()
    ['1', '2']
    >>> strings(pa.table({"doc_id": ["a", None]}), "doc_id", "passages")
    Traceback (most recent call last):
    haybale.errors.InputError: passages: row 1, column doc_id: expected a string, found nothing
    """
    column = table.column(name)
    kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if not (_is_string(kind) or pa.types.is_integer(kind) or pa.types.is_null(kind)):
        refuse(source, f"column {name}: expected strings, found {column.type}")
    if not missing and column.null_count:
        row = first_row + int(pc.index(column.is_null(), True).as_py())
        refuse(source, f"row {row}, column {name}: expected a string, found nothing")
    parts = [chunk.cast(kind).cast(pa.large_string()) for chunk in column.chunks]
    found = pa.concat_arrays(parts) if parts else pa.array([], type=pa.large_string())
    try:
        found.validate(full=True)
    except pa.ArrowInvalid:
        refuse(source, f"column {name}: expected UTF-8 text")
    return found


def grades(table: pa.Table, name: str, source: Source) -> Ints:
    """(n,) whole numbers; without such a column, 1 for each row.

    >>> grades(pa.table({"relevance": [1.0, 0.5]}), "relevance", "qrels")
    Traceback (most recent call last):
    haybale.errors.InputError: qrels: row 1, column relevance: expected a whole number, found 0.5
    """
    if name not in table.column_names:
        return np.ones(len(table), dtype=np.int64)
    values = table.column(name).to_pylist()
    for row, value in enumerate(values):
        if not isinstance(value, int | float) or not float(value).is_integer() or abs(value) >= 2**31:
            found = "nothing" if value is None else repr(value)
            refuse(source, f"row {row}, column {name}: expected a whole number, found {found}")
    return np.array(values, dtype=np.int64)


def _is_string(kind: Any) -> bool:
    tests = (pa.types.is_string, pa.types.is_large_string, getattr(pa.types, "is_string_view", lambda kind: False))
    return any(test(kind) for test in tests)
