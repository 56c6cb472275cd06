"""Frames of the user's own library: pandas, cuDF or pyarrow tables come in, and the answer goes out in the same.

Inside, haybale works with pandas and Arrow. A frame of cuDF is in GPU memory: only the columns that are read are
copied from there. Frames of other libraries that speak Arrow (polars and others with ``__arrow_c_stream__``) come in as
well; what is made from them goes out as pandas.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from haybale.errors import InputError, UnknownNameError
from haybale.extras import require

Frame: TypeAlias = Any  # a frame of pandas or cuDF, or a table of pyarrow
LIBRARIES = ("pandas", "cudf", "pyarrow")


def library_of(frame: Frame) -> str:
    """The library a frame is of: one of :data:`LIBRARIES`, or ``"arrow"`` for others that speak Arrow.

    >>> library_of(pa.table({"a": [1]}))
    'pyarrow'
    >>> library_of([1, 2])
    Traceback (most recent call last):
    haybale.errors.InputError: expected a frame of pandas or cuDF, or a table of pyarrow, found list
    """
    if isinstance(frame, pd.DataFrame):
        return "pandas"
    if isinstance(frame, pa.Table):
        return "pyarrow"
    kind = type(frame)
    # Not by importing cuDF: that takes seconds, and asks for a device.
    if kind.__module__.partition(".")[0] == "cudf" and kind.__name__ == "DataFrame":
        return "cudf"
    if hasattr(frame, "__arrow_c_stream__") and hasattr(frame, "columns"):
        return "arrow"
    name = kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
    raise InputError(f"expected a frame of pandas or cuDF, or a table of pyarrow, found {name}")


def column_names(frame: Frame) -> list[str]:
    """The names of the columns, in their order."""
    return list(frame.column_names if library_of(frame) == "pyarrow" else frame.columns)


def to_pandas(frame: Frame, columns: Sequence[str] | None = None, what: str = "frame") -> pd.DataFrame:
    """A frame of any library as pandas, whole or some ``columns`` of it; one of pandas is not copied.

    ``what`` begins the message about a column that is not there.

    >>> to_pandas(pa.table({"query_id": ["q"], "score": [0.5]}), ["score"])
       score
    0    0.5
    >>> to_pandas(pd.DataFrame({"query_id": ["q"]}), ["query_id", "doc_id", "score"], "run")
    Traceback (most recent call last):
    haybale.errors.InputError: run: the frame has no column doc_id, score
    """
    library = library_of(frame)
    if columns is not None:
        columns = list(columns)
        need_columns(frame, columns, what)
    if library in ("pandas", "cudf"):
        part = frame if columns is None else frame[columns]
        found: pd.DataFrame = part if library == "pandas" else part.to_pandas()
    else:
        found = _table(frame, columns).to_pandas(ignore_metadata=True)  # else a column may return as an index
    return found


def to_arrow(frame: Frame) -> pa.Table:
    """A frame of any library as an Arrow table, without its index.

    >>> to_arrow(pd.DataFrame({"doc_id": ["a", "b"]})).column_names
    ['doc_id']
    """
    library = library_of(frame)
    if library == "pandas":
        return pa.Table.from_pandas(frame, preserve_index=False)
    if library == "cudf":
        return frame.to_arrow(preserve_index=False)
    return _table(frame, None)


def like(result: pd.DataFrame, frame: Frame) -> Frame:
    """A result in the library of the frame it was made from; see :func:`in_library`."""
    library = library_of(frame)
    return in_library(result, "pandas" if library == "arrow" else library)


def in_library(result: pd.DataFrame, library: str) -> Frame:
    """A frame of pandas in one of the :data:`LIBRARIES`; in others than pandas, an index with a name is a column.

    >>> table = pd.DataFrame({"MAP": [0.5]}, index=pd.Index(["q"], name="query_id"))
    >>> in_library(table, "pyarrow").column_names
    ['query_id', 'MAP']
    >>> in_library(table, "polars")
    Traceback (most recent call last):
    haybale.errors.UnknownNameError: unknown frame library 'polars'; known: pandas, cudf, pyarrow
    """
    if library not in LIBRARIES:
        raise UnknownNameError("frame library", library, LIBRARIES)
    if library == "pandas":
        return result
    result = result.reset_index(drop=result.index.name is None)
    if library == "cudf":
        return require("cudf", "gpu").DataFrame.from_pandas(result)
    return pa.Table.from_pandas(result, preserve_index=False).replace_schema_metadata(None)


def with_column(frame: Frame, name: str, values: Any) -> Frame:
    """The frame, of its library, with the column ``values``, a NumPy array in the order of the rows, set or added.

    >>> with_column(pa.table({"a": [1, 2]}), "b", [0.5, 1.0]).column_names
    ['a', 'b']
    """
    library = library_of(frame)
    if library in ("pandas", "cudf"):
        return frame.assign(**{name: values})
    if library == "arrow":
        return to_pandas(frame).assign(**{name: values})
    if name in frame.column_names:
        return frame.set_column(frame.column_names.index(name), name, pa.array(values))
    return frame.append_column(name, pa.array(values))


def need_columns(frame: Frame, columns: Sequence[str], what: str) -> None:
    """Refuse a frame that lacks one of the columns, or has one twice."""
    names = column_names(frame)
    twice = [name for name in columns if names.count(name) > 1]
    if twice:
        raise InputError(f"{what}: the column {twice[0]} stands there twice")
    missing = set(columns) - set(names)
    if missing:
        raise InputError(f"{what}: the frame has no column {', '.join(sorted(missing))}")


def check_filled(frame: pd.DataFrame, what: str) -> None:
    """Refuse a frame with a missing value, by its column and row, counted from 0.

    >>> check_filled(pd.DataFrame({"query_id": ["q", None]}), "qrels")
    Traceback (most recent call last):
    haybale.errors.InputError: qrels: row 1 has no query_id
    """
    for name in frame.columns:
        missing = frame[name].isna().to_numpy()
        if missing.any():
            raise InputError(f"{what}: row {int(missing.argmax())} has no {name}")


def numbers(frame: pd.DataFrame, name: str, what: str) -> NDArray[np.float64]:
    """(n,) a column as numbers.

    >>> numbers(pd.DataFrame({"score": ["high"]}), "score", "run")
    Traceback (most recent call last):
    haybale.errors.InputError: run: column score: expected numbers (could not convert string to float: 'high')
    """
    try:
        return frame[name].to_numpy(dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{what}: column {name}: expected numbers ({error})") from None


def _table(frame: Frame, columns: list[str] | None) -> pa.Table:
    table = frame if isinstance(frame, pa.Table) else pa.table(frame)
    return table if columns is None else table.select(columns)
