"""Frames of the user's own library, by narwhals: pandas, cuDF, polars or pyarrow come in, the answer goes out in it.

Inside, haybale works with pandas and Arrow. Of a frame of cuDF, in GPU memory, only columns that are read are copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import narwhals as nw
import numpy as np
import pandas as pd
import pyarrow as pa
from narwhals import dependencies
from numpy.typing import NDArray

from haybale.errors import InputError, UnknownNameError
from haybale.extras import import_optional

Frame: TypeAlias = Any  # a frame of one of the libraries
_TESTS = {
    "pandas": dependencies.is_pandas_dataframe,
    "cudf": dependencies.is_cudf_dataframe,
    "polars": dependencies.is_polars_dataframe,
    "pyarrow": dependencies.is_pyarrow_table,
}
LIBRARIES = tuple(_TESTS)


def library_of(frame: Frame) -> str:
    """The library a frame is of, one of :data:`LIBRARIES`; none of them is imported for that.

    >>> library_of([1, 2])
    Traceback (most recent call last):
    haybale.errors.InputError: expected a frame of pandas, cudf, polars or pyarrow, found list
    """
    for library, is_one in _TESTS.items():
        if is_one(frame):
            return library
    raise InputError(f"expected a frame of pandas, cudf, polars or pyarrow, found {type(frame).__name__}")


def column_names(frame: Frame) -> list[str]:
    """The names of the columns, in their order."""
    return list(frame.column_names if library_of(frame) == "pyarrow" else frame.columns)


def to_pandas(frame: Frame, columns: Sequence[str] | None = None, what: str = "frame") -> pd.DataFrame:
    """A frame of any library as pandas, whole or some ``columns`` of it; one of pandas is not copied.

    ``what`` begins the message about a column that is not there, or twice.
    """
    names = column_names(frame)
    for name in columns or ():
        if names.count(name) != 1:
            wrong = f"the column {name} stands there twice" if name in names else f"the frame has no column {name}"
            raise InputError(f"{what}: {wrong}")
    if library_of(frame) == "pandas":
        found: pd.DataFrame = frame if columns is None else frame[list(columns)]
    else:
        found = to_arrow(frame, columns).to_pandas(ignore_metadata=True)  # else a column may return as an index
    return found


def to_arrow(frame: Frame, columns: Sequence[str] | None = None) -> pa.Table:
    """A frame of any library, or some ``columns`` of it, as an Arrow table without its index."""
    if library_of(frame) == "pandas":
        return pa.Table.from_pandas(frame if columns is None else frame[list(columns)], preserve_index=False)
    whole = nw.from_native(frame, eager_only=True)
    return (whole if columns is None else whole.select(list(columns))).to_arrow()


def like(result: pd.DataFrame, frame: Frame) -> Frame:
    """A result in the library of the frame it was made from; see :func:`in_library`."""
    return in_library(result, library_of(frame))


def in_library(result: pd.DataFrame, library: str) -> Frame:
    """A frame of pandas in one of the :data:`LIBRARIES`; in others than pandas, an index with a name is a column."""
    if library not in LIBRARIES:
        raise UnknownNameError("frame library", library, LIBRARIES)
    if library == "pandas":
        return result
    import_optional(library, "gpu" if library == "cudf" else None)
    result = result.reset_index(drop=result.index.name is None)
    table = pa.Table.from_pandas(result, preserve_index=False).replace_schema_metadata(None)
    backend: Any = library
    return nw.DataFrame.from_arrow(table, backend=backend).to_native()


def check_filled(frame: pd.DataFrame, what: str) -> None:
    """Refuse a frame with a missing value, by its column and row, counted from 0."""
    for name in frame.columns:
        missing = frame[name].isna().to_numpy()
        if missing.any():
            raise InputError(f"{what}: row {int(missing.argmax())} has no {name}")


def numbers(frame: pd.DataFrame, name: str, what: str) -> NDArray[np.float64]:
    """(n,) a column as numbers."""
    try:
        if frame[name].dtype.kind in "cmM":  # which NumPy would make numbers of
            raise TypeError(f"found {frame[name].dtype}")
        return frame[name].to_numpy(dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{what}: column {name}: expected numbers ({error})") from None
