"""Dates of documents and queries, as days since 1970-01-01.

A date may be a year, a month or a day: ``2019``, ``2019-05`` or ``2019-05-01``, also with a time behind the day. A year
or a month means any of its days. A document counts by the last of them and a query by the first, so that a document is
earlier than a query only if it certainly is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import date, datetime
from typing import Any

import numpy as np
import pyarrow as pa

from haybale.collections.ids import Ints
from haybale.collections.metadata import plain_value
from haybale.errors import InputError

UNDATED = np.iinfo(np.int64).min  # the first day of a query without a date
_DATE = re.compile(r"(\d{4})(?:-(\d\d)(?:-(\d\d)(?:[T ].*)?)?)?", re.DOTALL)
_FORMS = "a year, a month or a day, such as 2019, 2019-05 or 2019-05-01"


def first_day(value: Any, where: str) -> int:
    """Return the first day that a date may mean, UNDATED for no value; error messages begin with ``where``.

    >>> first_day("2019-05", "query 'q'") - first_day(2019, "query 'q'")
    120
    """
    days = _days(value, where)
    return UNDATED if days is None else days[0]


def first_days(values: Sequence[Any], names: Sequence[str], where: str) -> Ints | None:
    """Return the first day (m,) of each of the named queries; None if none has a date."""
    days = [first_day(value, f"{where}query {name!r}") for value, name in zip(values, names, strict=True)]
    return np.array(days, dtype=np.int64) if any(day != UNDATED for day in days) else None


def days_of(column: pa.ChunkedArray, ids: pa.ChunkedArray, none: int) -> tuple[Ints, Ints]:
    """Return the first and the last day, each (n,), that the date of each document may mean; ``none`` for no date.

    Raises :class:`InputError` for a value that is not a date.
    """
    if pa.types.is_date32(column.type):
        days = np.asarray(column.cast(pa.int32()).cast(pa.int64()).fill_null(none).to_numpy(), dtype=np.int64)
        return days, days
    first, last = (np.full(len(column), none, dtype=np.int64) for _ in range(2))
    encoded = column.combine_chunks().dictionary_encode()
    numbers = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    for number, value in enumerate(encoded.dictionary.to_pylist()):
        is_value = numbers == number
        interval = _days(value, f"document {ids[int(is_value.argmax())].as_py()!r}")
        if interval is not None:
            first[is_value], last[is_value] = interval
    return first, last


def _days(value: Any, where: str) -> tuple[int, int] | None:
    """Return the first and the last day that a date may mean; None for no value."""
    value = plain_value(value)
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    if isinstance(value, date | datetime):
        day = int(np.datetime64(value, "D").astype(np.int64))
        return day, day
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    is_year = isinstance(value, int) and not isinstance(value, bool)
    match = _DATE.fullmatch(f"{value:04d}" if is_year else str(value).strip())
    try:
        if match is None:
            raise ValueError
        start = np.datetime64("-".join(filter(None, match.groups())))  # its unit is the precision of the text
    except ValueError:
        raise InputError(f"{where}: a date must be {_FORMS}, found {value!r:.40}") from None
    first, end = (int(time.astype("datetime64[D]").astype(np.int64)) for time in (start, start + 1))
    return first, end - 1
