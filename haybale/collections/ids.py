"""Convert ids: strings or whole numbers outside, strings inside; numbers in a column; codes into tables of ids."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from numbers import Integral
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import WeakValueDictionary

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from haybale.arrow import number_array, numbers_of
from haybale.errors import InputError, told_apart

if TYPE_CHECKING:
    import pandas as pd

Ints = NDArray[np.int64]
Strings: TypeAlias = pa.ChunkedArray
_NUL = "\0"  # ends a string in trec_eval and all that is made of it
_checked: WeakValueDictionary[int, Strings] = WeakValueDictionary()  # tables without a NUL, which many runs share


def as_id(value: Any, what: str) -> str:
    """Return an id, a string or a whole number, as a plain string; ``what`` begins the error.

    >>> as_id(np.int64(7), "query ids")
    '7'
    >>> as_id(7.5, "query ids")
    Traceback (most recent call last):
    haybale.errors.InputError: query ids: expected strings or whole numbers, found 7.5 (float)
    """
    if isinstance(value, pa.Scalar):
        value = value.as_py()
    if isinstance(value, bool) or not isinstance(value, str | Integral):
        raise InputError(f"{what}: expected strings or whole numbers, found {value!r} ({type(value).__name__})")
    return str(value)


def as_ids(values: Iterable[Any], what: str) -> list[str]:
    """Return each as :func:`as_id` does; ids with a NUL, or that cannot be written as UTF-8, are refused too."""
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        one = "one string: " if isinstance(values, str | bytes) else ""
        raise InputError(f"{what}: expected a sequence of ids, found {one}{values!r}")
    if isinstance(values, pa.Array | pa.ChunkedArray):
        values = values.to_pylist()
    ids = [value if type(value) is str else as_id(value, what) for value in values]
    together = "".join(ids)  # one pass over all
    if _NUL in together:
        raise InputError(f"{what}: {next(name for name in ids if _NUL in name)!r} holds a NUL")
    check_characters(together, what)
    return ids


def check_characters(text: str, what: str) -> None:
    """Refuse half of a surrogate pair, which Python's strings and JSON can hold and UTF-8 cannot."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(f"{what}: {error.object[error.start]!r} is no character of UTF-8") from None


def distinct_ids(values: Iterable[Any], what: str) -> list[str]:
    """Return ids as :func:`as_ids` does; an id that occurs twice is refused."""
    ids = as_ids(values, what)
    if len(set(ids)) != len(ids):
        raise InputError(f"{what}: {Counter(ids).most_common(1)[0][0]!r} occurs twice")
    return ids


def id_strings(values: Iterable[Any], kind: str) -> Strings:
    """Return ids as a column of large strings; an Arrow column is not copied. ``kind`` says of what they are ids.

    >>> id_strings(["a", 7], "document").to_pylist()
    ['a', '7']
    """
    if isinstance(values, pa.ChunkedArray) and not values.null_count and _is_strings(values.type):
        return values.cast(pa.large_string())
    return pa.chunked_array([pa.array(as_ids(values, f"{kind} ids"), type=pa.large_string())])


def id_codes(column: pd.Series, what: str) -> tuple[Ints, list[str]]:
    """Return (n,) codes of a column of ids, and the list of distinct ids in the order they first occur.

    >>> import pandas as pd
    >>> codes, ids = id_codes(pd.Series([7, "b", "7"], dtype=object), "run")
    >>> codes.tolist(), ids
    ([0, 1, 0], ['7', 'b'])
    """
    import pandas as pd

    try:
        codes, found = pd.factorize(column)
    except UnicodeEncodeError:  # half a character, which pandas cannot hash
        as_ids(column.tolist(), what)
        raise
    again, distinct = pd.factorize(np.array(as_ids(found.tolist(), what), dtype=object))  # 7 and "7" are one id
    return again[codes].astype(np.int64), distinct.tolist()


def id_table(doc_ids: Iterable[Any]) -> Strings:
    """Return distinct document ids as a column of strings; an Arrow column, which indexes share, is kept."""
    if isinstance(doc_ids, pa.ChunkedArray) and _is_strings(doc_ids.type):
        if _checked.get(id(doc_ids)) is not doc_ids:
            if pc.any(pc.match_substring(doc_ids, _NUL)).as_py():
                as_ids(doc_ids, "document ids")  # raises, and names it
            _checked[id(doc_ids)] = doc_ids
        return doc_ids
    return pa.chunked_array([pa.array(distinct_ids(doc_ids, "document ids"), type=pa.large_string())])


def in_order_of_ids(table: Strings, codes: Ints) -> tuple[Ints, Ints]:
    """Return the distinct codes into a table, sorted by id; and the position of each of the (n,) codes among them.

    >>> distinct, places = in_order_of_ids(id_table(["b", "c", "a"]), np.array([1, 2, 1]))
    >>> distinct.tolist(), places.tolist()
    ([2, 1], [1, 0, 1])
    """
    used, of = np.unique(codes, return_inverse=True)
    order = numbers_of(pc.sort_indices(table.take(number_array(used))))  # bytes of UTF-8 are sorted as code points are
    places = np.empty(len(used), dtype=np.int64)
    places[order] = np.arange(len(used))
    return used[order], places[of]


def in_one_table(tables: Sequence[Strings], codes: Sequence[Ints]) -> tuple[Strings, list[Ints]]:
    """Return one table for codes (n_i,) into several tables (the one that all share, or a new one), and the new codes.

    >>> table, codes = in_one_table([id_table(["a", "b"]), id_table(["c", "b"])], [np.array([1]), np.array([1, 0])])
    >>> table.to_pylist(), [part.tolist() for part in codes]
    (['a', 'b', 'c'], [[1], [1, 2]])
    """
    if not tables:
        return id_table([]), []
    if all(table is tables[0] or table.equals(tables[0]) for table in tables[1:]):
        return tables[0], list(codes)
    different = {id(table): table.cast(pa.large_string()) for table in tables}
    encoded = pa.concat_arrays([chunk for table in different.values() for chunk in table.chunks]).dictionary_encode()
    ends = np.cumsum([len(table) for table in different.values()])
    new = dict(zip(different, np.split(numbers_of(encoded.indices).astype(np.int64), ends[:-1]), strict=True))
    joint = [new[id(table)][part] for table, part in zip(tables, codes, strict=True)]
    return pa.chunked_array([encoded.dictionary]), joint


class Lookup:
    """Finds the positions of ids in a column of distinct strings; the hash table is made on first use.

    >>> lookup = Lookup(pa.chunked_array([["bgb", "stgb"]]))
    >>> lookup.numbers(["stgb", "bgb"], "document")
    array([1, 0])
    >>> lookup.numbers(["StGB"], "document")
    Traceback (most recent call last):
    haybale.errors.InputError: unknown document id 'StGB'
    """

    def __init__(self, ids: Strings) -> None:
        self.ids = ids

    @cached_property
    def _number_of(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.ids.to_pylist())}

    def find(self, ids: Iterable[Any], kind: str) -> Ints:
        """Return the numbers of ids, (n,); -1 for unknown ids."""
        asked, known = as_ids(ids, f"{kind} ids"), self._number_of
        return np.fromiter((known.get(each, -1) for each in asked), np.int64, len(asked))

    def numbers(self, ids: Iterable[Any], kind: str) -> Ints:
        """Return the same; an unknown id raises an error that names it."""
        asked = as_ids(ids, f"{kind} ids")
        found = self.find(asked, kind)
        if (found < 0).any():
            raise InputError(f"unknown {kind} id {told_apart(asked[int(found.argmin())], self.ids.to_pylist())}")
        return found


def first_in_both(some: Strings, others: Strings) -> str | None:
    """Return the first id of a column that occurs in another too, or None."""
    both = pc.index(pc.is_in(some, value_set=others.combine_chunks()), True).as_py()
    return None if both < 0 else some[both].as_py()


def _is_strings(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))
