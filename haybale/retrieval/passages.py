"""What every index knows of its passages: whose they are, and their ids. Strings outside, numbers inside."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa

from haybale.collections.collection import Strings, numbers_of
from haybale.device import device_of, to_numpy
from haybale.errors import InputError
from haybale.retrieval.hits import NO_PASSAGE, Hits, Ints

Ids = Sequence[str] | Strings
Exclude = Sequence[int] | Sequence[str | None] | Ints  # a document for each query: numbers (-1: none) or ids (None)


class PassageTable:
    """Passages 0..n-1 of documents, those of a document side by side; the base of the indexes.

    ``doc_offsets`` (n_documents + 1,), where documents begin (default: every passage its own document);
    ``passage_ids`` and ``doc_ids`` (default: the numbers as strings).
    """

    def __init__(
        self, n: int, doc_offsets: Ints | None = None, passage_ids: Ids | None = None, doc_ids: Ids | None = None
    ) -> None:
        if n == 0:
            raise InputError("an index needs at least one passage")
        self.doc_offsets: Ints = np.arange(n + 1) if doc_offsets is None else np.asarray(doc_offsets, dtype=np.int64)
        if self.doc_offsets[0] != 0 or self.doc_offsets[-1] != n or (np.diff(self.doc_offsets) < 0).any():
            raise InputError(f"doc_offsets must rise from 0 to the number of passages, {n}")
        self.passage_ids = _strings(passage_ids, n, "passage_ids")
        self.doc_ids = _strings(doc_ids, len(self.doc_offsets) - 1, "doc_ids")

    def __len__(self) -> int:
        return int(self.doc_offsets[-1])

    @cached_property
    def doc_of(self) -> Ints:
        """(n,) the document of each passage."""
        return np.repeat(np.arange(len(self.doc_ids)), np.diff(self.doc_offsets))

    def numbers(self, passage_ids: Sequence[str]) -> Ints:
        """Passage numbers of passage ids; an unknown id raises and is named."""
        return numbers_of(self.passage_ids, passage_ids, "passage")

    def document_number(self, doc_id: str) -> int:
        """The number of a document; an unknown id raises and is named."""
        return int(numbers_of(self.doc_ids, [doc_id], "document")[0])

    def ids(self, hits: Hits) -> list[list[str]]:
        """The passage ids of hits, row by row, without padding; hits on a device are copied from it."""
        hits = hits.to_numpy()
        real = hits.passages != NO_PASSAGE
        flat = self.passage_ids.take(pa.array(hits.passages[real])).to_pylist()
        ends = np.cumsum(real.sum(axis=1))
        return [flat[start:end] for start, end in zip([0, *ends[:-1]], ends, strict=True)]

    def _check_k(self, k: int) -> None:
        if not 1 <= k <= len(self):
            raise InputError(f"k must lie between 1 and the number of passages in the index, {len(self)}; found {k}")

    def excluded(self, exclude: Exclude | None, m: int) -> Ints:
        """(m,) the number of the document each query leaves out, -1 for none."""
        if exclude is None:
            return np.full(m, -1)
        if not device_of(exclude).is_cpu:
            exclude = to_numpy(exclude)
        if any(document is None or isinstance(document, str) for document in exclude):
            named = [i for i, document in enumerate(exclude) if document is not None]
            own = np.full(len(exclude), -1)
            own[named] = numbers_of(self.doc_ids, [str(exclude[i]) for i in named], "document")
        else:
            own = np.asarray(exclude, dtype=np.int64)
        if own.shape != (m,) or (own >= len(self.doc_ids)).any() or (own < -1).any():
            raise InputError(
                f"exclude must hold {m} document ids, or numbers below {len(self.doc_ids)} and -1 for none"
            )
        return own


def document_offsets(doc_ids: Strings) -> tuple[Ints, list[str]]:
    """Where documents begin (n_documents + 1,), and their ids, from the document id of each passage.

    >>> document_offsets(pa.chunked_array([["a", "a", "b"]]))
    (array([0, 2, 3]), ['a', 'b'])
    """
    column = np.asarray(doc_ids.to_pylist(), dtype=object)
    starts = np.flatnonzero(np.append(len(column) > 0, column[1:] != column[:-1]))
    return np.append(starts, len(column)), column[starts].tolist()


def _strings(ids: Ids | None, n: int, name: str) -> Strings:
    if ids is None:
        ids = [str(i) for i in range(n)]
    column = ids if isinstance(ids, pa.ChunkedArray) else pa.chunked_array([pa.array(ids, type=pa.large_string())])
    if len(column) != n:
        raise InputError(f"expected {n} {name}, found {len(column)}")
    if len(column.unique()) != n:
        raise InputError(f"{name} hold an id twice")
    return column
