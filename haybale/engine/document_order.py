"""Sort documents by a column of their table, such as a date or the title."""

from __future__ import annotations

import re
import unicodedata

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from haybale.collections.collection import Ints
from haybale.engine.snapshot import Documents
from haybale.errors import InputError, UnknownNameError


def sorted_documents(documents: Documents, where: str | None, sort: str | None, descending: bool) -> Ints:
    """Return the numbers (n,) of the documents that fulfil a condition, sorted by a column.

    Documents without a value come last in both directions, and those with equal values are sorted by their ids. Texts
    are sorted without regard to case and accents, and their numbers by value: "§ 9" is before "§ 10". The title of a
    document without one is its id.

    Parameters
    ----------
    documents : Documents
    where : str or None
        An SQL condition. None: all documents.
    sort : str or None
        A column of the table of documents. None: the order of the documents.
    descending : bool
        Whether the largest value comes first.

    Raises
    ------
    InputError
        For a wrong condition, an unknown column, or one whose values are lists.
    """
    numbers = np.arange(documents.whole.n_documents) if where is None else documents.filter.numbers(where)
    if sort is None:
        return numbers
    values, ids = documents.cached(
        ("order of documents", sort), lambda: _ranks(documents.whole.documents_table(), sort)
    )
    ranks = values[numbers]
    has_value = ranks >= 0
    key = np.where(has_value, -ranks if descending else ranks, len(values))
    return numbers[np.lexsort((ids[numbers], key))]


def _ranks(table: pa.Table, name: str) -> tuple[Ints, Ints]:
    """Return the rank (n,) of each document's value in a column, -1 without one, and the rank (n,) of its id."""
    if name not in table.column_names:
        raise UnknownNameError("column to sort by", name, table.column_names)
    column = table[name].combine_chunks()
    if pa.types.is_nested(column.type):
        raise InputError(f"sort must be a column with one value for a document, found {name!r}, which has lists")
    ids = table["id"].combine_chunks()
    if name == "title":
        trimmed = pc.utf8_trim_whitespace(column)
        column = pc.if_else(pc.equal(pc.fill_null(trimmed, ""), ""), ids.cast(trimmed.type), trimmed)
    encoded = column.dictionary_encode()
    distinct = encoded.dictionary.to_pylist()
    keys = [_text_key(value) for value in distinct] if distinct and isinstance(distinct[0], str) else distinct
    rank_of_key = {key: rank for rank, key in enumerate(sorted(set(keys)))}
    rank_of_value = np.array([*(rank_of_key[key] for key in keys), -1], dtype=np.int64)
    values = rank_of_value[pc.fill_null(encoded.indices, len(distinct)).to_numpy(zero_copy_only=False)]
    id_ranks = np.empty(len(ids), dtype=np.int64)
    id_ranks[pc.sort_indices(ids).to_numpy()] = np.arange(len(ids))
    return values, id_ranks


def _text_key(text: str) -> str:
    """Return a text by which others are sorted as people do: its numbers have equal lengths.

    >>> sorted(["§ 10", "§ 9", "Äpfel", "apple"], key=_text_key)
    ['Äpfel', 'apple', '§ 9', '§ 10']
    """
    folded = text if text.isascii() else "".join(filter(_is_no_accent, unicodedata.normalize("NFKD", text)))
    return re.sub("[0-9]+", lambda number: number[0].zfill(20), folded.casefold().strip())


def _is_no_accent(sign: str) -> bool:
    return not unicodedata.combining(sign)
