"""Convert ids: validate them as strings, find their positions in a column, and encode them as codes into a table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from numbers import Integral
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import WeakValueDictionary

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from haybale.arrow import number_array, numbers_of, true_rows
from haybale.cached import cached_property
from haybale.errors import InputError, told_apart

if TYPE_CHECKING:
    import pandas as pd

Ints = NDArray[np.int64]
Strings: TypeAlias = pa.ChunkedArray
_NUL = "\0"  # rejected, because trec_eval and its bindings end a string at a NUL
# Tables that were checked and have no NUL; many runs share one.
_without_nul: WeakValueDictionary[int, Strings] = WeakValueDictionary()


def as_id(value: Any, what: str) -> str:
    """Return an id, given as a string or a whole number, as a string; error messages begin with ``what``.

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
    """Convert each id as :func:`as_id` does, and reject ids with NUL characters or lone surrogates."""
    if isinstance(values, str | bytes) or not isinstance(values, Iterable):
        raise InputError(f"{what}: expected a sequence of ids, found {values!r}")
    if isinstance(values, pa.Array | pa.ChunkedArray):
        values = values.to_pylist()
    ids = [value if type(value) is str else as_id(value, what) for value in values]
    joined = "".join(ids)  # faster than a check of each id
    if _NUL in joined:
        wrong = next(name for name in ids if _NUL in name)
        raise InputError(f"{what}: expected ids without NUL characters, found {wrong!r}")
    check_characters(joined, what)
    return ids


def check_characters(text: str, what: str) -> None:
    """Reject lone surrogates, which Python strings and JSON can contain but UTF-8 cannot."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        wrong = error.object[error.start]
        raise InputError(f"{what}: expected UTF-8 characters, found the lone surrogate {wrong!r}") from None


def distinct_ids(values: Iterable[Any], what: str) -> list[str]:
    """Convert ids as :func:`as_ids` does, and reject an id that occurs twice."""
    ids = as_ids(values, what)
    if len(set(ids)) != len(ids):
        repeated = Counter(ids).most_common(1)[0][0]
        raise InputError(f"{what}: {repeated!r} occurs twice, expected unique ids; rename or remove one")
    return ids


def id_strings(values: Iterable[Any], kind: str) -> Strings:
    """Return ids as a column of large strings, without copying an Arrow column; ``kind`` is for error messages.

    >>> id_strings(["a", 7], "document").to_pylist()
    ['a', '7']
    """
    if isinstance(values, pa.ChunkedArray) and not values.null_count and _is_strings(values.type):
        return values.cast(pa.large_string())
    return pa.chunked_array([pa.array(as_ids(values, f"{kind} ids"), type=pa.large_string())])


def id_codes(column: pd.Series, what: str) -> tuple[Ints, list[str]]:
    """Return the codes (n,) of a column of ids, and the distinct ids in the order of their first occurrence.

    >>> import pandas as pd
    >>> codes, ids = id_codes(pd.Series([7, "b", "7"], dtype=object), "run")
    >>> codes.tolist(), ids
    ([0, 1, 0], ['7', 'b'])
    """
    import pandas as pd

    try:
        codes, uniques = pd.factorize(column)
    except UnicodeEncodeError:  # a lone surrogate, which pandas cannot hash
        as_ids(column.tolist(), what)
        raise
    merged, distinct = pd.factorize(np.array(as_ids(uniques.tolist(), what), dtype=object))  # 7 and "7" are one id
    return merged[codes].astype(np.int64), distinct.tolist()


def id_table(doc_ids: Iterable[Any]) -> Strings:
    """Return distinct document ids as a column of strings; an Arrow column is returned as it is, for sharing."""
    if isinstance(doc_ids, pa.ChunkedArray) and _is_strings(doc_ids.type):
        if _without_nul.get(id(doc_ids)) is not doc_ids:
            if pc.any(pc.match_substring(doc_ids, _NUL)).as_py():
                as_ids(doc_ids, "document ids")  # raises an error that names the id
            _without_nul[id(doc_ids)] = doc_ids
        return doc_ids
    return pa.chunked_array([pa.array(distinct_ids(doc_ids, "document ids"), type=pa.large_string())])


def in_order_of_ids(table: Strings, codes: Ints) -> tuple[Ints, Ints]:
    """Return the distinct ones of ``codes`` (n,), sorted by id, and the position (n,) of each code among them.

    >>> distinct, positions = in_order_of_ids(id_table(["b", "c", "a"]), np.array([1, 2, 1]))
    >>> distinct.tolist(), positions.tolist()
    ([2, 1], [1, 0, 1])
    """
    used, inverse = np.unique(codes, return_inverse=True)
    order = numbers_of(pc.sort_indices(table.take(number_array(used))))  # by UTF-8 bytes: the order of code points
    positions = np.empty(len(used), dtype=np.int64)
    positions[order] = np.arange(len(used))
    return used[order], positions[inverse]


def in_one_table(tables: Sequence[Strings], codes: Sequence[Ints]) -> tuple[Strings, list[Ints]]:
    """Translate codes (n_i,) into several tables to codes into one table, which is reused if all tables are equal.

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
    """Find the positions of ids in a column of distinct strings; a hash table is built on first use.

    >>> lookup = Lookup(pa.chunked_array([["bgb", "stgb"]]))
    >>> lookup.numbers(["stgb", "bgb"], "document")
    array([1, 0])
    >>> lookup.numbers(["StGB"], "document")
    Traceback (most recent call last):
    haybale.errors.InputError: unknown document id 'StGB'; give one of the 2 document ids, such as 'bgb'
    """

    def __init__(self, ids: Strings) -> None:
        self.ids = ids

    @cached_property
    def _number_of(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(self.ids.to_pylist())}

    def find(self, ids: Iterable[Any], kind: str) -> Ints:
        """Return the positions (n,) of ids, -1 for unknown ids."""
        names, number_of = as_ids(ids, f"{kind} ids"), self._number_of
        return np.fromiter((number_of.get(name, -1) for name in names), np.int64, len(names))

    def numbers(self, ids: Iterable[Any], kind: str) -> Ints:
        """Return the positions (n,) of ids; an unknown id raises :class:`InputError`."""
        names = as_ids(ids, f"{kind} ids")
        positions = self.find(names, kind)
        if (positions < 0).any():
            all_ids = self.ids.to_pylist()
            shown = told_apart(names[int(positions.argmin())], all_ids)
            example = f", such as {all_ids[0]!r}" if all_ids else ""
            raise InputError(f"unknown {kind} id {shown}; give one of the {len(all_ids):,} {kind} ids{example}")
        return positions


def first_in_both(some: Strings, others: Strings) -> str | None:
    """Return the first id of a column that also occurs in another column, or None."""
    position = pc.index(pc.is_in(some, value_set=others.combine_chunks()), True).as_py()
    return None if position < 0 else some[position].as_py()


def places_of(column: Strings, ids: Strings | pa.Array) -> Ints:
    """Return the positions (n,), in a column, of the values that ``ids`` has, too.

    >>> places_of(pa.chunked_array([["a", "b", "a"]]), pa.array(["a", "c"]))
    array([0, 2])
    """
    values = ids.combine_chunks() if isinstance(ids, pa.ChunkedArray) else ids
    return true_rows(pc.is_in(column, value_set=values))


def latest_with_id(ids: Strings, n_first: int) -> Ints | None:
    """Return the last position (n,) with the id of each position; None if all ids are distinct.

    The first ``n_first`` ids must be distinct.

    >>> latest_with_id(pa.chunked_array([["a", "b", "a"]]), 2)
    array([2, 1, 2])
    """
    later = ids.slice(n_first)
    places = places_of(ids, later)
    if not len(places):
        return None
    encoded = ids.take(number_array(places)).combine_chunks().dictionary_encode()
    codes, n_distinct = numbers_of(encoded.indices), len(encoded.dictionary)
    if n_distinct == len(places):
        return None
    last, latest = np.full(n_distinct, -1), np.arange(len(ids))
    np.maximum.at(last, codes, places)
    latest[places] = last[codes]
    return latest


def _is_strings(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))
