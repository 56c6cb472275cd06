"""A stand-in for cuDF over pandas, stricter: what would have to leave the GPU does so only when it is told to.

Its frames and columns are none of pandas; iterating over a column, making a NumPy array of one, or giving one to pandas
raises, as it does in cuDF. It has what haybale, and narwhals for it, use of cuDF 26, and no other.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa


class _OnDevice:
    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("Implicit conversion to a host NumPy array via __array__ is not allowed")

    def __iter__(self) -> Any:
        raise TypeError(f"{type(self).__name__} object is not iterable. Consider using `.to_arrow()`")

    def __bool__(self) -> bool:
        raise TypeError(f"The truth value of a {type(self).__name__} is ambiguous")

    __hash__ = None  # type: ignore[assignment]


class Series(_OnDevice):
    """A column."""

    def __init__(self, values: pd.Series) -> None:
        self._values = values


class DataFrame(_OnDevice):
    """A frame; made from columns by name, or from Arrow."""

    def __init__(self, columns: dict[Any, Any]) -> None:
        self._frame = pd.DataFrame(columns)

    @classmethod
    def _of(cls, frame: pd.DataFrame) -> DataFrame:
        made = cls({})
        made._frame = frame.copy()
        return made

    @classmethod
    def from_arrow(cls, table: pa.Table) -> DataFrame:
        return cls._of(table.to_pandas())

    @property
    def columns(self) -> pd.Index:
        return self._frame.columns

    @property
    def shape(self) -> tuple[int, int]:
        return self._frame.shape

    @property
    def index(self) -> Any:
        raise NotImplementedError("haybale has no need of an index in GPU memory")

    def __len__(self) -> int:
        return len(self._frame)

    def __getitem__(self, key: Any) -> DataFrame | Series:
        if isinstance(key, list):
            return DataFrame._of(self._frame[key])
        return Series(self._frame[key])

    @property
    def loc(self) -> _Rows:
        return _Rows(self)

    def assign(self, **columns: Any) -> DataFrame:
        if not all(isinstance(values, np.ndarray) for values in columns.values()):
            raise TypeError("the double takes NumPy arrays")
        return DataFrame._of(self._frame.assign(**columns))

    def to_arrow(self, *, preserve_index: bool | None = None) -> pa.Table:
        return pa.Table.from_pandas(self._frame, preserve_index=preserve_index)


class _Rows:
    """``DataFrame.loc``, of all rows."""

    def __init__(self, frame: DataFrame) -> None:
        self._frame = frame

    def __getitem__(self, key: tuple[slice, list[str]]) -> Any:
        assert key[0] == slice(None)
        return self._frame[key[1]]


Series.__module__ = "cudf.core.series"
DataFrame.__module__ = "cudf.core.dataframe"


@contextmanager
def installed() -> Iterator[types.ModuleType]:
    """A module under the name ``cudf``."""
    import pytest

    double = types.ModuleType("cudf")
    double.DataFrame, double.Series, double.Index = DataFrame, Series, pd.RangeIndex
    double.__version__ = "26.10.0"
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "cudf", double)
        yield double
