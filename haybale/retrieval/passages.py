"""What every index knows of its passages: whose they are, and their ids. Strings outside, numbers inside."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

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
from haybale.errors import FileFormatError, InputError
from haybale.manifest import read_table, write_table
from haybale.retrieval.hits import Hits, Ints

Ids = Sequence[str] | Strings
Exclude = Sequence[int] | Sequence[str | None] | Ints  # a document for each query: numbers (-1: none) or ids (None)

_DOCUMENTS, _PASSAGES = "documents.parquet", "passages.parquet"
TABLE_FILES = (_DOCUMENTS, _PASSAGES)  # what a table is on disk
_SCHEMAS = {
    _DOCUMENTS: pa.schema([("id", pa.large_string()), ("passages", pa.int64())]),  # how many it has
    _PASSAGES: pa.schema([("id", pa.large_string())]),
}


class Columns(NamedTuple):
    """All that a table of passages is made of; what holds it need not be checked again."""

    doc_offsets: Ints  # (n_documents + 1,)
    passage_ids: Strings  # (n,)
    doc_ids: Strings  # (n_documents,)

    @classmethod
    def checked(cls, n: int, doc_offsets: Ints | None, passage_ids: Ids | None, doc_ids: Ids | None) -> Columns:
        """Columns of n passages from what was given; see :class:`PassageTable`."""
        offsets: Ints = np.arange(n + 1) if doc_offsets is None else whole_numbers(doc_offsets, "doc_offsets")
        if not len(offsets) or offsets[0] != 0 or offsets[-1] != n or (np.diff(offsets) < 0).any():
            raise InputError(f"doc_offsets must rise from 0 to the number of passages, {n}")
        return cls(offsets, _strings(passage_ids, n, "passage"), _strings(doc_ids, len(offsets) - 1, "doc"))

    def take(self, documents: Sequence[int] | Ints) -> tuple[Ints, Columns]:
        """``(passage numbers, columns)`` of some documents, whose numbers rise and which have a passage."""
        chosen = rising_numbers(documents, len(self.doc_ids), "document")
        rows, offsets = ragged_take(self.doc_offsets, chosen)
        if not len(rows):
            raise InputError(f"none of the {len(chosen)} documents to be taken has a passage")
        return rows, Columns(offsets, strings_at(self.passage_ids, rows), strings_at(self.doc_ids, chosen))

    def joined(self, other: Columns) -> Columns:
        """The documents of ``other`` behind these; an id that both have is refused."""
        for mine, more, kind in zip(self[1:], other[1:], ("passage", "document"), strict=True):
            if (twice := first_in_both(mine, more)) is not None:
                raise InputError(f"{kind} id {twice!r} is in the index already")
        ids = (joined_strings(mine, more) for mine, more in zip(self[1:], other[1:], strict=True))
        return Columns(joined_offsets(self.doc_offsets, other.doc_offsets), *ids)

    def write(self, folder: Path) -> None:
        """Write the :data:`TABLE_FILES`."""
        documents = [self.doc_ids, pa.chunked_array([pa.array(np.diff(self.doc_offsets))])]
        write_table(folder / _DOCUMENTS, pa.table(documents, schema=_SCHEMAS[_DOCUMENTS]))
        write_table(folder / _PASSAGES, pa.table([self.passage_ids], schema=_SCHEMAS[_PASSAGES]))

    @classmethod
    def read(cls, folder: Path) -> Columns:
        """What :meth:`write` wrote; that no id is there twice is not looked at."""
        documents, passages = (read_table(folder / name, _SCHEMAS[name]) for name in TABLE_FILES)
        counts = documents.column("passages").to_numpy()
        offsets = indptr_from_counts(counts)
        if (counts < 0).any() or offsets[-1] != len(passages) or not len(passages):
            message = f"expected numbers of passages that sum to {len(passages)}, found {offsets[-1]}"
            raise FileFormatError(folder / _DOCUMENTS, None, message)
        return cls(offsets, passages.column("id"), documents.column("id"))


class PassageTable:
    """Passages 0..n-1 of documents, those of a document side by side; the base of the indexes.

    ``doc_offsets`` (n_documents + 1,), where documents begin (default: every passage its own document);
    ``passage_ids`` and ``doc_ids``, strings or whole numbers (default: the numbers as strings).
    """

    doc_offsets: Ints
    passage_ids: Strings
    doc_ids: Strings

    def __init__(
        self, n: int, doc_offsets: Ints | None = None, passage_ids: Ids | None = None, doc_ids: Ids | None = None
    ) -> None:
        if n == 0:
            raise InputError("an index needs at least one passage")
        self._adopt(Columns.checked(n, doc_offsets, passage_ids, doc_ids))

    def _adopt(self, columns: Columns) -> None:
        self.doc_offsets, self.passage_ids, self.doc_ids = columns

    @property
    def _columns(self) -> Columns:
        return Columns(self.doc_offsets, self.passage_ids, self.doc_ids)

    def __len__(self) -> int:
        return int(self.doc_offsets[-1])

    @cached_property
    def doc_of(self) -> Ints:
        """(n,) the document of each passage."""
        return np.repeat(np.arange(len(self.doc_ids)), np.diff(self.doc_offsets))

    @cached_property
    def _passages(self) -> Lookup:
        return Lookup(self.passage_ids)

    @cached_property
    def _documents(self) -> Lookup:
        return Lookup(self.doc_ids)

    def numbers(self, passage_ids: Iterable[Any]) -> Ints:
        """(n,) passage numbers of passage ids; an unknown id raises and is named."""
        return self._passages.numbers(passage_ids, "passage")

    def document_numbers(self, doc_ids: Iterable[Any]) -> Ints:
        """(n,) document numbers of document ids; an unknown id raises and is named."""
        return self._documents.numbers(doc_ids, "document")

    def document_number(self, doc_id: str) -> int:
        """The number of a document; an unknown id raises and is named."""
        return int(self.document_numbers([doc_id])[0])

    def ids(self, hits: Hits) -> list[list[str]]:
        """The passage ids of hits, row by row, without padding; hits on a device are copied from it."""
        rows, _, passages, _ = hits.to_numpy().flat()
        names = np.array(take_strings(self.passage_ids, passages), dtype=object)
        return [part.tolist() for part in np.split(names, np.searchsorted(rows, np.arange(1, len(hits))))][: len(hits)]

    def _check_k(self, k: int) -> None:
        if isinstance(k, bool) or not isinstance(k, int | np.integer) or not 1 <= k <= len(self):
            raise InputError(f"k must lie between 1 and the number of passages in the index, {len(self)}; found {k}")

    def excluded(self, exclude: Exclude | None, m: int) -> Ints:
        """(m,) the number of the document each query leaves out, -1 for none."""
        if exclude is None or (m == 0 and len(exclude) == 0):
            return np.full(m, -1)
        numbers = given = to_numpy(exclude)
        if given.dtype.kind in "UO" and given.ndim == 1:
            named = [place for place, document in enumerate(given) if document is not None]
            numbers = np.full(len(given), -1)
            numbers[named] = self.document_numbers(given[named].tolist())
        whole = numbers.dtype.kind in "iu" and numbers.shape == (m,)
        if not whole or (numbers >= len(self.doc_ids)).any() or (numbers < -1).any():
            raise InputError(
                f"exclude must hold {m} document ids, or numbers below {len(self.doc_ids)} and -1 for none"
            )
        return numbers.astype(np.int64)  # type: ignore[no-any-return]


def document_offsets(doc_ids: Strings) -> tuple[Ints, list[str]]:
    """Where documents begin (n_documents + 1,), and their ids, from the document id of each passage.

    >>> document_offsets(pa.chunked_array([["a", "a", "b"]]))
    (array([0, 2, 3]), ['a', 'b'])
    """
    column = np.asarray(doc_ids.to_pylist(), dtype=object)
    starts = np.flatnonzero(np.append(len(column) > 0, column[1:] != column[:-1]))
    return np.append(starts, len(column)), column[starts].tolist()


def _strings(ids: Ids | None, n: int, kind: str) -> Strings:
    column = id_strings(range(n) if ids is None else ids, kind)
    if len(column) != n:
        raise InputError(f"expected {n} {kind}_ids, found {len(column)}")
    if len(column.unique()) != n:
        raise InputError(f"{kind}_ids hold an id twice: {Counter(column.to_pylist()).most_common(1)[0][0]!r}")
    return column
