"""Ids at the door: strings, whatever they came as; and tables of distinct document ids, which runs have codes into.

What is found out about a table once, that its ids are sound and how they are sorted, is kept as long as the table
lives: searches of one index share one table object.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from haybale.collections.collection import Strings
from haybale.errors import InputError
from haybale.retrieval.hits import Ints

_NUL = "\0"  # ends a string in trec_eval and all that is made of it


def as_id(value: Any, what: str) -> str:
    """An id as a string.

    Parameters
    ----------
    value : a string, also NumPy's or a scalar of pyarrow, or a whole number.
    what : how the message about anything else begins.

    Returns
    -------
    The id, a plain :class:`str`.

    Raises
    ------
    InputError
        For a missing value and any other type.

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


def as_ids(values: Iterable[Any], what: str) -> list[str]:
    """Ids as strings, each as :func:`as_id` has it.

    Parameters
    ----------
    values : (n,) ids, a sequence, a NumPy array or an array of pyarrow.
    what : how an error's message begins.

    Returns
    -------
    (n,) strings.

    Raises
    ------
    InputError
        For one string in place of several, and ids that are no ids, hold a NUL or cannot be written as UTF-8.

    >>> as_ids(np.array(["a", "b"]), "query ids")
    ['a', 'b']
    """
    if isinstance(values, str | bytes):
        raise InputError(f"{what}: expected a sequence of ids, found {values!r}")
    if isinstance(values, pa.Array | pa.ChunkedArray):
        values = values.to_pylist()
    ids = [value if type(value) is str else as_id(value, what) for value in values]
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


def id_codes(column: pd.Series, what: str) -> tuple[Ints, list[str]]:
    """A column of ids as codes into the list of distinct ones, which are in the order they first occur.

    Parameters
    ----------
    column : (n,) ids without a missing one, of any type that :func:`as_id` takes.
    what : how an error's message begins.

    Returns
    -------
    (n,) int64 codes, and the distinct ids.

    >>> codes, ids = id_codes(pd.Series([7, "b", "7"], dtype=object), "run")
    >>> codes.tolist(), ids
    ([0, 1, 0], ['7', 'b'])
    """
    codes, found = pd.factorize(column)
    names = as_ids(found.tolist(), what)
    again, distinct = pd.factorize(np.array(names, dtype=object))  # 7 and "7" are one id
    return again[codes].astype(np.int64), distinct.tolist()


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
    """Document ids as a table; one that is a table already is kept as it is, and checked when first seen.

    Parameters
    ----------
    doc_ids : (n,) distinct ids: a chunked array of strings, or what :func:`as_ids` takes.

    Returns
    -------
    (n,) chunked array of (large) strings.

    Raises
    ------
    InputError
        For ids that are missing, occur twice, hold a NUL or are no ids.

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

    Parameters
    ----------
    table : (n,) of :func:`id_table`.

    Returns
    -------
    (n,) codes by rising id, and (n,) the place of each code, both int64.

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
    """Codes into several tables as codes into one: the table that all share, or a new one of the ids in use.

    Parameters
    ----------
    tables : (k,) tables of :func:`id_table`; often one object k times, and then no id is looked at.
    codes : (k,) of them (n_i,) int64.

    Returns
    -------
    The one table, and (k,) codes into it.

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
    """The ids of codes.

    Parameters
    ----------
    table : (n_documents,) of :func:`id_table`.
    codes : (n,) int64.

    Returns
    -------
    (n,) strings, the same object for the same code where there are many.
    """
    if len(codes) < len(table) // 8:
        return list(table.take(pa.array(codes)).to_pylist())
    used = np.zeros(len(table), dtype=bool)
    used[codes] = True
    names = np.empty(len(table), dtype=object)
    names[used] = table.filter(pa.array(used)).to_pylist()
    return list(names[codes].tolist())


def _is_strings(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))
