"""Ids to numbers, many times: a hash table over the bytes of an Arrow column, without a Python object an id."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numba import njit
from numpy.typing import NDArray

from haybale.errors import InputError


class Lookup:
    """The numbers of ids: their places in a column, none of which is there twice.

    The table is made on first use, 16 to 32 bytes an id, in one compiled pass; after that a few ids cost microseconds,
    however many there are. It does not travel to other processes, which make their own.

    Parameters
    ----------
    ids
        (n,) strings, an Arrow array or chunked array.

    Examples
    --------
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


def id_strings(ids: Iterable[Any], kind: str) -> pa.Array | pa.ChunkedArray:
    """Ids as an Arrow column of strings; whole numbers become strings, as ids in files may be either.

    Parameters
    ----------
    ids
        (n,) strings or whole numbers: of Python, NumPy or Arrow, or scalars of Arrow, in any sequence or array.
    kind
        What they are ids of, for messages.

    Returns
    -------
    pyarrow.Array or pyarrow.ChunkedArray
        (n,) large_string.

    Raises
    ------
    InputError
        For one string in place of several, and for what is neither string nor whole number.

    Examples
    --------
    >>> id_strings([np.str_("a"), 7, pa.scalar("b")], "document").to_pylist()
    ['a', '7', 'b']
    >>> id_strings([None], "document")
    Traceback (most recent call last):
    haybale.errors.InputError: document ids must be strings or whole numbers, found None
    """
    if isinstance(ids, pa.Array | pa.ChunkedArray):
        whole = pa.types.is_integer(ids.type) or pa.types.is_string(ids.type) or pa.types.is_large_string(ids.type)
        if whole and not ids.null_count:
            return ids.cast(pa.large_string())
        ids = ids.to_pylist()
    if isinstance(ids, str | bytes):
        raise InputError(f"expected a sequence of {kind} ids, found one string: {ids!r}")
    if not isinstance(ids, Iterable):
        raise InputError(f"expected a sequence of {kind} ids, found {ids!r}")
    values = list(ids)
    if not all(type(value) is str for value in values):
        values = [_id_string(value, kind) for value in values]
    try:
        return pa.array(values, type=pa.large_string())
    except UnicodeEncodeError as error:
        raise InputError(f"{kind} id {error.object!r} is not Unicode text") from None


def _id_string(value: Any, kind: str) -> str:
    if isinstance(value, pa.Scalar):
        value = value.as_py()
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return str(int(value))
    raise InputError(f"{kind} ids must be strings or whole numbers, found {value!r}")


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
