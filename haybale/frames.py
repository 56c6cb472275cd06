"""Convert frames of pandas, cuDF, polars and pyarrow, through narwhals; results are of the library of the input.

Internally, haybale works with pandas and Arrow. Only the columns that are read are copied from GPU memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from haybale.errors import InputError, UnknownNameError
from haybale.extras import import_optional

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa
    from narwhals.typing import IntoDataFrame

Frame: TypeAlias = "IntoDataFrame"  # a frame of one of the libraries
FrameT = TypeVar("FrameT", bound="IntoDataFrame")
LIBRARIES = ("pandas", "cudf", "polars", "pyarrow")


def library_of(frame: Any) -> str:
    """Return the library of a frame, one of :data:`LIBRARIES`, without importing it.

    >>> library_of([1, 2])
    Traceback (most recent call last):
    haybale.errors.InputError: expected a frame of pandas, cudf, polars or pyarrow, found list
    """
    from narwhals import dependencies

    for library in LIBRARIES:
        kind = "table" if library == "pyarrow" else "dataframe"
        if getattr(dependencies, f"is_{library}_{kind}")(frame):
            return library
    raise InputError(f"expected a frame of pandas, cudf, polars or pyarrow, found {type(frame).__name__}")


def column_names(frame: Any) -> list[str]:
    """Return the names of the columns, in order."""
    return list(frame.column_names if library_of(frame) == "pyarrow" else frame.columns)


def to_pandas(frame: Any, columns: Sequence[str] | None = None, what: str = "frame") -> pd.DataFrame:
    """Convert a frame, or some ``columns`` of it, to pandas; a whole pandas frame is returned without a copy.

    A column that is missing or occurs twice raises :class:`InputError`; the message begins with ``what``.
    """
    names = column_names(frame)
    for name in columns or ():
        if names.count(name) != 1:
            raise InputError(f"{what}: expected one column {name}, found {names.count(name)}")
    if library_of(frame) == "pandas":
        return frame if columns is None else frame[list(columns)]  # type: ignore[no-any-return]
    # Without these options, metadata could turn a column into an index, and nulls could turn integers into floats.
    converted: pd.DataFrame = to_arrow(frame, columns).to_pandas(ignore_metadata=True, integer_object_nulls=True)
    return converted


def to_arrow(frame: Any, columns: Sequence[str] | None = None) -> pa.Table:
    """Convert a frame, or some ``columns`` of it, to an Arrow table without an index."""
    import narwhals as nw
    import pyarrow as pa

    if library_of(frame) == "pandas":
        return pa.Table.from_pandas(frame if columns is None else frame[list(columns)], preserve_index=False)
    whole = nw.from_native(frame, eager_only=True)
    return (whole if columns is None else whole.select(list(columns))).to_arrow()


def like(result: pd.DataFrame, frame: FrameT) -> FrameT:
    """Convert a result to the library of the input ``frame``; see :func:`in_library`."""
    converted: FrameT = in_library(result, library_of(frame))
    return converted


def in_library(result: pd.DataFrame, library: str) -> Any:
    """Convert a pandas frame to one of the :data:`LIBRARIES`; in other libraries, a named index becomes a column."""
    import narwhals as nw
    import pyarrow as pa

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
    """Reject a frame with a missing value; the message names its column and its row, counted from 0."""
    for name in frame.columns:
        missing = frame[name].isna().to_numpy()
        if missing.any():
            raise InputError(f"{what}: row {int(missing.argmax())} has no {name}; add a value or remove the row")


def numbers(frame: pd.DataFrame, name: str, what: str) -> NDArray[np.float64]:
    """Return a column as float64 (n,); other types than numbers raise :class:`InputError`."""
    try:
        if frame[name].dtype.kind in "cmM":  # complex numbers and times, which NumPy would convert
            raise TypeError(f"expected numbers, found {frame[name].dtype}")
        return frame[name].to_numpy(dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{what}: column {name}: expected numbers, found other values ({error})") from None
