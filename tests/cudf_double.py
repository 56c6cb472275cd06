"""A stand-in for cuDF over pandas, stricter: what would have to leave the GPU does so only when it is told to.

Its frames and columns are none of pandas; iterating over a column, making a NumPy array of one, or giving one to pandas
raises, as it does in cuDF. It has what haybale uses of cuDF 26, and no other.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq


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

    def __len__(self) -> int:
        return len(self._values)

    @property
    def str(self) -> StringMethods:
        return StringMethods(self._values)

    def sum(self) -> Any:
        return self._values.sum()

    def to_arrow(self) -> pa.Array:
        return pa.array(self._values, from_pandas=True)


class StringMethods:
    """``Series.str``."""

    def __init__(self, values: pd.Series) -> None:
        self._values = values

    def byte_count(self) -> Series:
        return Series(pd.Series([len(_bytes(text)) for text in self._values], dtype="int32"))

    def rstrip(self, characters: str) -> Series:
        return Series(_strings(text.rstrip(characters) for text in self._values))

    def partition(self, separator: str) -> DataFrame:
        parts = [text.partition(separator) for text in self._values]
        return DataFrame({i: _strings(part[i] for part in parts) for i in range(3)})


class DataFrame(_OnDevice):
    """A frame; made from columns by name, from pandas or from Arrow."""

    def __init__(self, columns: dict[Any, Any]) -> None:
        self._frame = pd.DataFrame(columns)

    @classmethod
    def from_pandas(cls, frame: pd.DataFrame) -> DataFrame:
        if not isinstance(frame, pd.DataFrame):
            raise TypeError(f"Could not construct DataFrame from {type(frame)}")
        made = cls({})
        made._frame = frame.copy()
        return made

    @classmethod
    def from_arrow(cls, table: pa.Table) -> DataFrame:
        return cls.from_pandas(table.to_pandas())

    @property
    def columns(self) -> pd.Index:
        return self._frame.columns

    @property
    def index(self) -> Any:
        raise NotImplementedError("haybale has no need of an index in GPU memory")

    def __len__(self) -> int:
        return len(self._frame)

    def __getitem__(self, key: Any) -> DataFrame | Series:
        if isinstance(key, list):
            return DataFrame.from_pandas(self._frame[key])
        return Series(self._frame[key])

    def assign(self, **columns: Any) -> DataFrame:
        if not all(isinstance(values, np.ndarray) for values in columns.values()):
            raise TypeError("the double takes NumPy arrays")
        return DataFrame.from_pandas(self._frame.assign(**columns))

    def to_pandas(self) -> pd.DataFrame:
        return self._frame.copy()

    def to_arrow(self, *, preserve_index: bool | None = None) -> pa.Table:
        return pa.Table.from_pandas(self._frame, preserve_index=preserve_index)


Series.__module__ = "cudf.core.series"
DataFrame.__module__ = "cudf.core.dataframe"


def read_text(path: str, *, delimiter: str, byte_range: tuple[int, int], strip_delimiters: bool) -> Series:
    """The lines that begin in the byte range; whether they are UTF-8 is nobody's business here."""
    assert (delimiter, strip_delimiters) == ("\n", True)
    data, start = Path(path).read_bytes(), 0
    lines = []
    for line in data.split(b"\n"):
        if byte_range[0] <= start < min(sum(byte_range), len(data)):
            lines.append(line.decode(errors="surrogateescape"))
        start += len(line) + 1
    return Series(_strings(lines))


def read_parquet(path: str, *, columns: list[str], row_groups: list[int], use_pandas_metadata: bool) -> DataFrame:
    """Row groups of a file."""
    assert not use_pandas_metadata
    with pq.ParquetFile(path) as file:
        return DataFrame.from_arrow(file.read_row_groups(row_groups, columns=columns))


def _strings(texts: Any) -> pd.Series:
    return pd.Series(list(texts), dtype=object)


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogateescape")


def module() -> types.ModuleType:
    """A module to stand under the name ``cudf``."""
    double = types.ModuleType("cudf")
    double.DataFrame, double.Series = DataFrame, Series
    double.from_pandas = DataFrame.from_pandas
    double.read_text, double.read_parquet = read_text, read_parquet
    double.__version__ = "double"
    return double


@contextmanager
def installed() -> Iterator[types.ModuleType]:
    """The double in cuDF's place."""
    import pytest

    with pytest.MonkeyPatch.context() as patch:
        double = module()
        patch.setitem(sys.modules, "cudf", double)
        yield double
