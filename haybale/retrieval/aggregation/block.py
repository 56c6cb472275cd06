"""The hits of some whole query documents, numbered by (query, document): what every aggregation reads.

Hits stay in their table (r, N), a row a query paragraph, so that nothing is copied out and sorted; what does not
count (padding, paragraphs of weight 0) goes to one cell too many, which is thrown away.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haybale.errors import InputError, UnknownNameError
from haybale.retrieval.hits import NO_PASSAGE, Ints
from haybale.vectors import array_namespace

OCCURRENCES = ("all", "best")
Array = Any  # of the library the hits are in, NumPy or CuPy


@dataclass(frozen=True)
class Options:
    """What an aggregation may be told; see :func:`~haybale.retrieval.aggregate`."""

    n_hits: int
    rrf_k: float = 60
    occurrences: str = "all"
    code_variant: bool = False

    def __post_init__(self) -> None:
        if self.n_hits < 1:
            raise InputError(f"n_hits must be at least 1, found {self.n_hits}")
        if not self.rrf_k > -1:  # also refuses NaN
            raise InputError(f"rrf_k must be greater than -1, so that 1 / (rrf_k + rank) exists, found {self.rrf_k}")
        if self.occurrences not in OCCURRENCES:
            raise UnknownNameError("occurrences", self.occurrences, OCCURRENCES)


@dataclass(frozen=True)
class Documents:
    """Whose the passages are, on the device of the hits."""

    doc_of: Array  # (n_passages,) rising
    starts: Ints  # (n + 1,) where documents begin
    n: int
    n_passages: int

    @classmethod
    def of(cls, doc_of: NDArray[Any], xp: Any) -> Documents:
        n = int(doc_of[-1]) + 1
        return cls(xp.asarray(doc_of), np.searchsorted(doc_of, np.arange(n + 1)), n, len(doc_of))


@dataclass(frozen=True)
class Block:
    """r paragraphs of q query documents with up to N hits each."""

    passages: Array  # (r, N), -1 where there is no hit
    scores: Array  # (r, N)
    query: Array  # (r,) from 0, rising
    weight: Array  # (r,) float64, of the paragraph
    used: Array | None  # (r, N) whether the hit counts; None: all do
    cell: Array  # (r, N) query · (documents of the block) + document; n_cells where unused
    n_queries: int
    documents: Array | None  # (documents of the block,) their numbers; None: all there are
    width: int  # documents of the block
    starts: Ints  # (n_documents + 1,) where all documents begin
    options: Options

    @property
    def xp(self) -> Any:
        return array_namespace(self.passages)

    @property
    def n_cells(self) -> int:
        return self.n_queries * self.width

    @property
    def is_empty(self) -> bool:
        """Whether no hit counts."""
        return not self.cell.size or (self.used is not None and not bool(self.used.any()))

    @property
    def n_hits_of_query(self) -> Array:
        """(q,) hits that count."""
        r, n = self.cell.shape
        of_row = self.xp.full(r, n) if self.used is None else self.used.sum(axis=1)
        return self.xp.bincount(self.query, weights=of_row, minlength=self.n_queries)

    def masked(self, values: Array, otherwise: float = 0) -> Array:
        """``values`` (r, N), and ``otherwise`` where a hit does not count."""
        return values if self.used is None else self.xp.where(self.used, values, otherwise)

    def filled(self) -> tuple[Array, Array, Array]:
        """``(cells, query, document number)`` of the cells with a hit, rising."""
        xp = self.xp
        mark = xp.zeros(self.n_cells + 1, dtype=bool)
        mark[self.cell] = True
        cells = xp.flatnonzero(mark[:-1])
        query, column = xp.divmod(cells, self.width)
        return cells, query, column if self.documents is None else self.documents[column]


def block_of(
    passages: Array,
    scores: Array,
    query: Array,
    n_queries: int,
    weight: Array,
    documents: Documents,
    options: Options,
    *,
    only_first: bool = False,
) -> Block:
    """Number the hits of some query documents; ``only_first``: those on the first passage of a document only."""
    xp = array_namespace(passages)
    document = documents.doc_of[passages]  # -1 reads the last; it is not used
    used = None
    # Lists are padded at their ends, so the last column tells whether any is short.
    if only_first or options.occurrences == "best" or bool((weight <= 0).any() | (passages[:, -1:] < 0).any()):
        used = (passages != NO_PASSAGE) & (weight > 0)[:, None]
    if only_first:
        used &= (passages == 0) | (documents.doc_of[xp.maximum(passages, 1) - 1] != document)
    numbers, width = None, documents.n
    if n_queries * documents.n > passages.size:  # else a table of all documents is small beside the hits
        seen = xp.zeros(documents.n, dtype=bool)
        seen[document if used is None else document[used]] = True
        numbers = xp.flatnonzero(seen)
        width = int(numbers.size)
        document = (xp.cumsum(seen) - 1)[document]
    if options.occurrences == "best":
        used &= _best(document, used, width)
    cell = query[:, None] * width + document
    if used is not None:
        cell = xp.where(used, cell, n_queries * width)
    return Block(passages, scores, query, weight, used, cell, n_queries, numbers, width, documents.starts, options)


def _best(document: Array, used: Array, width: int) -> Array:
    """(r, N) whether a hit is the first of its document in its row."""
    xp = array_namespace(document)
    r, n = document.shape
    column = xp.broadcast_to(xp.arange(n, dtype=xp.int32), (r, n))  # CuPy has no minimum.at for int64
    place = xp.where(used, xp.arange(r)[:, None] * width + document, r * width)
    first = xp.full(r * width + 1, n, dtype=xp.int32)
    xp.minimum.at(first, place.ravel(), column.ravel())
    return first[place] == column
