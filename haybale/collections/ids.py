"""Ids: strings, whatever they came as; their numbers in a column; and tables of ids, which runs have codes into.

A hash table over the bytes of an Arrow column finds numbers without a Python object an id. What is found out about a
table of distinct ids once, that they are sound and how they are sorted, is kept as long as the table lives: searches of
one index share one table object.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from numba import njit
from numpy.typing import NDArray

from haybale.errors import InputError

Ints = NDArray[np.int64]
Strings: TypeAlias = pa.ChunkedArray
_NUL = "\0"  # ends a string in trec_eval and all that is made of it


# ids as strings ----------------------------------------------------------------------------------------------------


def as_id(value: Any, what: str) -> str:
    """An id, a string or a whole number of Python, NumPy or Arrow, as a plain string; ``what`` begins the error.

    >>> as_id(pa.scalar("q"), "query ids"), as_id(np.int64(7), "query ids")
    ('q', '7')
    >>> as_id(7.5, "query ids")
    Traceback (most recent call last):
    haybale.errors.InputError: query ids: expected strings or whole numbers, found 7.5 (float)
    """
    if isinstance(value, pa.Scalar):
        value = value.as_py()
    if isinstance(value, bool) or not isinstance(value, str | Integral):
        raise InputError(f"{what}: expected strings or whole numbers, found {value!r} ({type(value).__name__})")
    return str(value)


def _listed(values: Iterable[Any], what: str) -> list[str]:
    if isinstance(values, str | bytes):
        raise InputError(f"{what}: expected a sequence of ids, found one string: {values!r}")
    if not isinstance(values, Iterable):
        raise InputError(f"{what}: expected a sequence of ids, found {values!r}")
    if isinstance(values, pa.Array | pa.ChunkedArray):
        values = values.to_pylist()
    return [value if type(value) is str else as_id(value, what) for value in values]


def as_ids(values: Iterable[Any], what: str) -> list[str]:
    """Each as :func:`as_id` has it; ids with a NUL, or that cannot be written as UTF-8, are refused too.

    >>> as_ids(np.array(["a", "b"]), "query ids")
    ['a', 'b']
    """
    ids = _listed(values, what)
    together = _NUL.join(ids)  # one pass over all
    if together.count(_NUL) >= max(1, len(ids)):
        raise InputError(f"{what}: {next(name for name in ids if _NUL in name)!r} holds a NUL")
    if not together.isascii():
        try:
            together.encode()
        except UnicodeEncodeError as error:
            raise InputError(f"{what}: {error.object[error.start]!r} in an id is no character of UTF-8") from None
    return ids


def distinct_ids(values: Iterable[Any], what: str) -> list[str]:
    """As :func:`as_ids`; an id that occurs twice raises.

    >>> distinct_ids(["q", "r", "q"], "query ids")
    Traceback (most recent call last):
    haybale.errors.InputError: query ids: 'q' occurs twice
    """
    ids = as_ids(values, what)
    if len(set(ids)) != len(ids):
        raise InputError(f"{what}: {Counter(ids).most_common(1)[0][0]!r} occurs twice")
    return ids


def id_strings(values: Iterable[Any], kind: str) -> pa.Array | pa.ChunkedArray:
    """Ids as an Arrow column of large strings, as :func:`as_id` has each; ``kind``: what they are ids of.

    >>> id_strings([np.str_("a"), 7, pa.scalar("b")], "document").to_pylist()
    ['a', '7', 'b']
    >>> id_strings([None], "document")
    Traceback (most recent call last):
    haybale.errors.InputError: document ids: expected strings or whole numbers, found None (NoneType)
    """
    column: Any = values if isinstance(values, pa.Array | pa.ChunkedArray) and not values.null_count else None
    if column is not None and (pa.types.is_integer(column.type) or _is_strings(column.type)):
        return column.cast(pa.large_string())
    try:
        return pa.array(_listed(values, f"{kind} ids"), type=pa.large_string())
    except UnicodeEncodeError as error:
        raise InputError(f"{kind} ids: {error.object!r} is not Unicode text") from None


def id_codes(column: pd.Series, what: str) -> tuple[Ints, list[str]]:
    """A column of ids as (n,) codes into the list of distinct ones, which are in the order they first occur.

    >>> codes, ids = id_codes(pd.Series([7, "b", "7"], dtype=object), "run")
    >>> codes.tolist(), ids
    ([0, 1, 0], ['7', 'b'])
    """
    codes, found = pd.factorize(column)
    names = as_ids(found.tolist(), what)
    again, distinct = pd.factorize(np.array(names, dtype=object))  # 7 and "7" are one id
    return again[codes].astype(np.int64), distinct.tolist()


def _is_strings(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


# tables of ids -----------------------------------------------------------------------------------------------------


class IdOrder(NamedTuple):
    """How the ids of a table are sorted."""

    codes: Ints  # (n,) codes by rising id
    places: Ints  # (n,) the place of each code among them


@dataclass
class _Known:
    """What is known of a table that lives."""

    table: weakref.ref[Strings]
    order: IdOrder | None = None


_known: dict[int, _Known] = {}  # by identity: arrays of pyarrow cannot be hashed


def id_table(doc_ids: Iterable[Any]) -> Strings:
    """Distinct document ids as a chunked array of strings; one that is that already is kept, and checked when new.

    >>> table = id_table(["a", "b"])
    >>> id_table(table) is table
    True
    """
    if not (isinstance(doc_ids, pa.ChunkedArray) and _is_strings(doc_ids.type)):
        ids = distinct_ids(doc_ids, "document ids")
        doc_ids = pa.chunked_array([pa.array(ids, type=pa.large_string())])
    elif id(doc_ids) in _known:
        return doc_ids
    elif (
        doc_ids.null_count
        or pc.count_distinct(doc_ids).as_py() != len(doc_ids)
        or pc.any(pc.match_substring(doc_ids, _NUL)).as_py()
    ):
        distinct_ids(doc_ids, "document ids")  # raises, and says which
    key = id(doc_ids)
    _known[key] = _Known(weakref.ref(doc_ids, lambda _: _known.pop(key, None)))
    return doc_ids


def id_order(table: Strings) -> IdOrder:
    """How the ids of a table are sorted, by code points; found out once for each table object.

    >>> order = id_order(id_table(["b", "c", "a"]))
    >>> order.codes.tolist(), order.places.tolist()
    ([2, 0, 1], [1, 2, 0])
    """
    known = _known[id(id_table(table))]
    if known.order is None:
        # Bytes of UTF-8 are sorted as the code points are.
        codes = pc.sort_indices(table).to_numpy().astype(np.int64)
        places = np.empty_like(codes)
        places[codes] = np.arange(len(codes))
        known.order = IdOrder(codes, places)
    return known.order


def in_one_table(tables: Sequence[Strings], codes: Sequence[Ints]) -> tuple[Strings, list[Ints]]:
    """Codes (n_i,) into each of several tables as codes into one: the one that all share, or a new one of ids in use.

    >>> table, codes = in_one_table([id_table(["a", "b"]), id_table(["c", "b"])], [np.array([1]), np.array([1, 0])])
    >>> table.to_pylist(), [part.tolist() for part in codes]
    (['b', 'c'], [[0], [0, 1]])
    """
    if not tables:
        return id_table([]), []
    first = tables[0]
    if all(table is first or table.equals(first) for table in tables[1:]):
        return first, list(codes)
    used = {id(table): np.zeros(len(table), dtype=bool) for table in tables}
    for table, part in zip(tables, codes, strict=True):
        used[id(table)][part] = True
    distinct = {id(table): table for table in tables}
    numbers = {key: np.flatnonzero(mark) for key, mark in used.items()}
    taken = [distinct[key].take(pa.array(part)).cast(pa.large_string()) for key, part in numbers.items()]
    encoded = pa.concat_arrays([chunk for ids in taken for chunk in ids.chunks]).dictionary_encode()
    parts = np.split(encoded.indices.to_numpy().astype(np.int64), np.cumsum([len(ids) for ids in taken])[:-1])
    new = {}
    for (key, old), part in zip(numbers.items(), parts, strict=True):
        new[key] = np.empty(len(distinct[key]), dtype=np.int64)
        new[key][old] = part
    joint = [new[id(table)][part] for table, part in zip(tables, codes, strict=True)]
    return id_table(pa.chunked_array([encoded.dictionary])), joint


def names_of(table: Strings, codes: Ints) -> list[str]:
    """The ids of codes (n,), the same object for the same code where there are many."""
    if len(codes) < len(table) // 8:
        return list(table.take(pa.array(codes)).to_pylist())
    used = np.zeros(len(table), dtype=bool)
    used[codes] = True
    names = np.empty(len(table), dtype=object)
    names[used] = table.filter(pa.array(used)).to_pylist()
    return list(names[codes].tolist())


# numbers of ids ----------------------------------------------------------------------------------------------------


class Lookup:
    """The numbers of ids: their places in a column of strings, none of which is there twice.

    The table is made on first use, 16 to 32 bytes an id, in one compiled pass; after that a few ids cost microseconds,
    however many there are. It does not travel to other processes, which make their own.

    >>> lookup = Lookup(pa.array(["bgb", "stgb"]))
    >>> lookup.numbers(["stgb", "bgb"], "document")
    array([1, 0])
    >>> lookup.numbers(["StGB"], "document")
    Traceback (most recent call last):
    haybale.errors.InputError: unknown document id 'StGB'
    """

    def __init__(self, ids: pa.ChunkedArray | pa.Array) -> None:
        self.ids = ids

    def __reduce__(self) -> tuple[Any, ...]:
        return Lookup, (self.ids,)

    def numbers(self, ids: Iterable[Any], kind: str) -> NDArray[np.int64]:
        """(len(ids),) numbers of ids, as :func:`id_strings` takes them; an unknown one raises and is named."""
        asked = id_strings(ids, kind)
        found = self.find(asked)
        if (found < 0).any():
            raise InputError(f"unknown {kind} id {asked[int(found.argmin())].as_py()!r}")
        return found

    def find(self, ids: pa.ChunkedArray | pa.Array) -> NDArray[np.int64]:
        """(len(ids),) the same for a column of strings, -1 for those that are unknown."""
        slots, offsets, data = self._table
        asked_offsets, asked = _bytes_of(ids)
        found = np.empty(len(ids), dtype=np.int64)
        _find(slots, offsets, data, asked_offsets, asked, found)
        return found

    @cached_property
    def _table(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.uint8]]:
        """Slots of the hash table, at least two an id: an id's number or -1; and the ids, as :func:`_bytes_of` them."""
        offsets, data = _bytes_of(self.ids)
        slots = np.full(2 << max(1, len(self.ids) - 1).bit_length(), -1, dtype=np.int64)
        _fill(slots, offsets, data)
        return slots, offsets, data


def _bytes_of(ids: pa.ChunkedArray | pa.Array) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """(n + 1,) offsets of the ids, and the bytes they are offsets in; both not to be written to."""
    if isinstance(ids, pa.ChunkedArray):
        ids = ids.combine_chunks()
        ids = pa.concat_arrays(ids.chunks) if isinstance(ids, pa.ChunkedArray) else ids
    ids = ids.cast(pa.large_string())
    _, offsets, data = ids.buffers() if len(ids) else (None, None, None)
    if offsets is None:
        return _frozen(np.zeros(1, dtype=np.int64)), _frozen(np.zeros(1, dtype=np.uint8))
    places = np.frombuffer(offsets, dtype=np.int64, count=len(ids) + 1, offset=8 * ids.offset)
    # A byte more keeps the array from being empty, which a buffer may not be.
    content = np.frombuffer(data, dtype=np.uint8) if data is not None and data.size else np.zeros(1, dtype=np.uint8)
    return _frozen(places), _frozen(content)


def _frozen(array: Any) -> Any:
    """The array as one not to be written to: the compiled functions below are compiled for one kind."""
    array = array.view()
    array.flags.writeable = False
    return array


@njit(nogil=True, cache=True)
def _slot(slots: Any, offsets: Any, data: Any, asked: Any, start: Any, end: Any) -> Any:  # pragma: no cover - compiled
    """The slot of the id ``asked[start:end]``, or the empty one where it would be: FNV-1a, then one after the other."""
    value = np.uint64(14695981039346656037)
    for place in range(start, end):
        value = (value ^ np.uint64(asked[place])) * np.uint64(1099511628211)
    value ^= value >> np.uint64(32)
    mask = np.uint64(len(slots) - 1)
    slot = value & mask
    while slots[slot] >= 0:
        first, last = offsets[slots[slot]], offsets[slots[slot] + 1]
        if last - first == end - start:
            same = True
            for place in range(end - start):
                if data[first + place] != asked[start + place]:
                    same = False
                    break
            if same:
                return slot
        slot = (slot + np.uint64(1)) & mask
    return slot


@njit(nogil=True, cache=True)
def _fill(slots: Any, offsets: Any, data: Any) -> None:  # pragma: no cover - compiled
    """Put every id into its slot; of equal ones the first."""
    for number in range(len(offsets) - 1):
        slot = _slot(slots, offsets, data, data, offsets[number], offsets[number + 1])
        if slots[slot] < 0:
            slots[slot] = number


@njit(nogil=True, cache=True)
def _find(
    slots: Any, offsets: Any, data: Any, asked_offsets: Any, asked: Any, found: Any
) -> None:  # pragma: no cover - compiled
    """found[i] = the number of the i-th id asked for, or -1."""
    for number in range(len(found)):
        slot = _slot(slots, offsets, data, asked, asked_offsets[number], asked_offsets[number + 1])
        found[number] = slots[slot]
