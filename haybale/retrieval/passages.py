"""Map the passages of an index to their documents, and numbers to ids.

Users name passages and documents by ids, which are strings. Indexes number them from 0.
"""

from __future__ import annotations

import reprlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from haybale.arrow import free_unused, number_array, numbers_of
from haybale.cached import cached_property
from haybale.collections.collection import (
    Strings,
    indptr_from_counts,
    joined_offsets,
    joined_strings,
    ragged_take,
    rising_numbers,
    strings_at,
    take_strings,
    whole_numbers,
)
from haybale.collections.ids import Lookup, first_in_both, id_strings
from haybale.device import to_numpy
from haybale.errors import InputError
from haybale.manifest import read_table, write_table
from haybale.retrieval.exclusion import Cutoffs, Exclusion
from haybale.retrieval.hits import NO_PASSAGE, Hits, Ints
from haybale.retrieval.id_order import IdOrder

Ids = Sequence[str] | Strings
# The document that each query excludes: its number (-1 for none) or its id (None for none); or all that they exclude.
Exclude = Sequence[int] | Sequence[str | None] | Ints | Exclusion

_DOCUMENTS, _PASSAGES = "documents.parquet", "passages.parquet"
TABLE_FILES = (_DOCUMENTS, _PASSAGES)
_SCHEMAS = {
    _DOCUMENTS: pa.schema([("id", pa.large_string()), ("passages", pa.int64())]),  # number of passages
    _PASSAGES: pa.schema([("id", pa.large_string())]),
}


@dataclass(frozen=True, eq=False)
class Columns:
    """The documents of passages, and the ids of both. Indexes of the same passages share one instance."""

    doc_offsets: Ints  # (n_documents + 1,)
    passage_ids: Strings  # (n,)
    doc_ids: Strings  # (n_documents,)
    whole: tuple[Columns, Ints] | None = None  # the columns these are taken from, and the passages' numbers there

    @classmethod
    def validated(
        cls,
        n: int,
        doc_offsets: Ints | None,
        passage_ids: Ids | None,
        doc_ids: Ids | None,
        *,
        distinct: bool = True,
    ) -> Columns:
        """Make the columns of n passages from the arguments of :class:`PassageTable`, after checking them.

        With ``distinct=False``, ids may repeat.
        """
        offsets = np.arange(n + 1) if doc_offsets is None else check_offsets(doc_offsets, n, "doc_offsets", "passages")
        passages, documents = (passage_ids, n, "passage"), (doc_ids, len(offsets) - 1, "doc")
        return cls(offsets, _checked_ids(*passages, distinct), _checked_ids(*documents, distinct))

    @cached_property
    def doc_of(self) -> Ints:
        """The document of each passage, (n,)."""
        return np.repeat(np.arange(len(self.doc_ids)), np.diff(self.doc_offsets))

    @cached_property
    def order(self) -> IdOrder:
        """The order of passages with equal scores."""
        whole = None if self.whole is None else (self.whole[0].order, self.whole[1])
        return IdOrder(self.doc_ids, self.doc_offsets, whole)

    @cached_property
    def passage_lookup(self) -> Lookup:
        return Lookup(self.passage_ids)

    @cached_property
    def document_lookup(self) -> Lookup:
        return Lookup(self.doc_ids)

    def take(self, documents: Sequence[int] | Ints) -> tuple[Ints, Columns]:
        """Return the passage numbers and the columns of some documents, given by rising document numbers."""
        chosen = rising_numbers(documents, len(self.doc_ids), "document")
        rows, offsets = ragged_take(self.doc_offsets, chosen)
        if not len(rows):
            raise InputError(f"none of the {len(chosen)} chosen documents has a passage; choose at least one that has")
        ids = strings_at(self.passage_ids, rows), strings_at(self.doc_ids, chosen)
        return rows, Columns(offsets, *ids, whole=(self, rows))

    def joined(self, other: Columns, *, distinct: bool = True) -> Columns:
        """Append the documents of ``other``; raise InputError for an id that both have, if ids must be distinct."""
        ids = []
        for name, kind in (("passage_ids", "passage"), ("doc_ids", "document")):
            mine, more = getattr(self, name), getattr(other, name)
            if distinct and (twice := first_in_both(mine, more)) is not None:
                raise InputError(f"{kind} id {twice!r} is in the index already; give new ids")
            ids.append(joined_strings(mine, more))
        return Columns(joined_offsets(self.doc_offsets, other.doc_offsets), *ids)

    def write(self, folder: Path) -> None:
        """Write the :data:`TABLE_FILES`."""
        documents = [self.doc_ids, pa.chunked_array([number_array(np.diff(self.doc_offsets))])]
        write_table(folder / _DOCUMENTS, pa.table(documents, schema=_SCHEMAS[_DOCUMENTS]))
        write_table(folder / _PASSAGES, pa.table([self.passage_ids], schema=_SCHEMAS[_PASSAGES]))

    @classmethod
    def read(cls, folder: Path) -> Columns:
        """Read the :data:`TABLE_FILES`, without a check for duplicate ids."""
        documents, passages = (read_table(folder / name, _SCHEMAS[name]) for name in TABLE_FILES)
        offsets = indptr_from_counts(numbers_of(documents.column("passages")))
        return cls(offsets, passages.column("id"), documents.column("id"))


class PassageTable:
    """Passages numbered from 0 and grouped by document: the base class of the indexes.

    Parameters
    ----------
    n : int
        Number of passages.
    doc_offsets : (n_documents + 1,) int, optional
        Passages ``doc_offsets[i]:doc_offsets[i + 1]`` belong to document i. By default, every passage is a document.
    passage_ids, doc_ids : (n,) and (n_documents,) strings or whole numbers, optional
        Distinct ids. The defaults are the numbers as strings.
    """

    columns: Columns

    def __init__(
        self, n: int, doc_offsets: Ints | None = None, passage_ids: Ids | None = None, doc_ids: Ids | None = None
    ) -> None:
        if n == 0:
            raise InputError(f"an index needs at least one passage, found {n}")
        self.columns = Columns.validated(n, doc_offsets, passage_ids, doc_ids)

    @property
    def doc_offsets(self) -> Ints:
        return self.columns.doc_offsets

    @property
    def passage_ids(self) -> Strings:
        return self.columns.passage_ids

    @property
    def doc_ids(self) -> Strings:
        return self.columns.doc_ids

    @property
    def doc_of(self) -> Ints:
        """The document of each passage, (n,)."""
        return self.columns.doc_of

    def __len__(self) -> int:
        return int(self.doc_offsets[-1])

    def passages_of(self, hits: Hits, documents: Sequence[int] = ()) -> tuple[Ints, Hits]:
        """Return the rising numbers (n,), at least one, of the passages of hits and of all passages of documents.

        The hits are returned, too, with positions among these numbers in place of the numbers.
        """
        real = hits.passages != NO_PASSAGE
        whole = [np.arange(*self.doc_offsets[document : document + 2]) for document in documents]
        used = np.unique(np.concatenate([hits.passages[real], *whole]))
        used = used if len(used) else np.zeros(1, dtype=np.int64)  # an index needs at least one passage
        return used, Hits(np.where(real, np.searchsorted(used, hits.passages), NO_PASSAGE), hits.scores)

    def numbers(self, passage_ids: Iterable[Any]) -> Ints:
        """Return the numbers (n,) of passage ids; raise InputError for an unknown id."""
        return self.columns.passage_lookup.numbers(passage_ids, "passage")

    def document_numbers(self, doc_ids: Iterable[Any]) -> Ints:
        """Return the numbers (n,) of document ids; raise InputError for an unknown id."""
        return self.columns.document_lookup.numbers(doc_ids, "document")

    def ids(self, hits: Hits) -> list[list[str]]:
        """Return the passage ids of each row of hits, without padding."""
        rows, _, passages, _ = hits.to_numpy().flat()
        names = np.array(take_strings(self.passage_ids, passages), dtype=object)
        return [part.tolist() for part in np.split(names, np.searchsorted(rows, np.arange(1, len(hits))))][: len(hits)]

    def check_k(self, k: int) -> None:
        """Raise InputError unless k is a whole number from 1 to the number of passages."""
        if isinstance(k, bool) or not isinstance(k, int | np.integer) or not 1 <= k <= len(self):
            raise InputError(f"k must lie between 1 and the number of passages in the index, {len(self)}; found {k}")

    def check_passage(self, passage: int) -> None:
        """Raise InputError unless a number is that of a passage."""
        if not 0 <= passage < len(self):
            raise InputError(f"passage must be a number below {len(self)}, found {passage}")

    def excluded(self, exclude: Exclude | None, m: int) -> Exclusion:
        """Return what each of m queries excludes."""
        cutoffs: Cutoffs | None = None
        if isinstance(exclude, Exclusion):
            cutoffs, exclude = exclude.cutoffs, exclude.documents
            if cutoffs is not None and len(cutoffs.documents) != len(self.doc_ids):
                n = len(cutoffs.documents)
                raise InputError(f"exclude must have a date for each of {len(self.doc_ids)} documents, found {n}")
        if exclude is None or (m == 0 and len(exclude) == 0):
            return Exclusion(np.full(m, -1), cutoffs)
        numbers = documents = to_numpy(exclude)
        if documents.dtype.kind in "UO" and documents.ndim == 1:
            named = [row for row, document in enumerate(documents) if document is not None]
            numbers = np.full(len(documents), -1)
            numbers[named] = self.document_numbers(documents[named].tolist())
        whole = numbers.dtype.kind in "iu" and numbers.shape == (m,)
        if not whole or (numbers >= len(self.doc_ids)).any() or (numbers < -1).any():
            allowed = f"{m} document ids, or numbers below {len(self.doc_ids)} and -1 for none"
            raise InputError(f"exclude must hold {allowed}; give one for each query")
        return Exclusion(numbers.astype(np.int64), cutoffs)


def check_offsets(offsets: Any, n: int, name: str, items: str) -> Ints:
    """Return offsets as integers; raise InputError unless they rise from 0 to n, the number of ``items``."""
    values = whole_numbers(to_numpy(offsets), name)
    if not len(values) or values[0] != 0 or values[-1] != n or (np.diff(values) < 0).any():
        raise InputError(
            f"{name} must rise from 0 to the number of {items}, {n}; found {reprlib.repr(values.tolist())}"
        )
    return values


def document_offsets(doc_ids: Strings) -> tuple[Ints, list[str]]:
    """Return the offsets (n_documents + 1,) and the ids of documents, given the document id of each passage.

    >>> document_offsets(pa.chunked_array([["a", "a", "b"]]))
    (array([0, 2, 3]), ['a', 'b'])
    """
    column = np.asarray(doc_ids.to_pylist(), dtype=object)
    starts = np.flatnonzero(np.append(len(column) > 0, column[1:] != column[:-1]))
    return np.append(starts, len(column)), column[starts].tolist()


def _checked_ids(ids: Ids | None, n: int, kind: str, distinct: bool) -> Strings:
    """Return n ids as a column of strings, by default the numbers; raise InputError for duplicates if ``distinct``."""
    column = id_strings(range(n) if ids is None else ids, kind)
    if len(column) != n:
        raise InputError(f"expected {n} {kind}_ids, found {len(column)}")
    if distinct and len(column.unique()) != n:
        twice = Counter(column.to_pylist()).most_common(1)[0][0]
        raise InputError(f"{kind}_ids hold an id twice: {twice!r}; give ids that do not repeat")
    free_unused()  # that of the table of distinct ids
    return column
