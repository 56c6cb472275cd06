"""BM25 over an inverted index: the best passages or documents of queries, some queries to a thread."""

from __future__ import annotations

from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from haybale.machine import in_threads
from haybale.retrieval.bm25_kernels import GROUP, score_within, search_documents, search_rows, unpack
from haybale.retrieval.hits import Ints
from haybale.vectors import Floats

_QUERIES = 32  # a thread takes at once; they share its sums
_KEYS = 2**20  # at most, of them together: 8 MiB


class Weighted(NamedTuple):
    """An inverted index: the passages of each term and their weights, and the passages of each document."""

    offsets: Ints  # (n_terms + 1,)
    passages: NDArray[np.uint32]  # (n_pairs,)
    weights: Floats  # (n_pairs,)
    doc_offsets: Ints  # (n_documents + 1,)

    @property
    def n(self) -> int:
        """Passages."""
        return int(self.doc_offsets[-1])


class Queries(NamedTuple):
    """Terms of queries by number, in reading order: those of query q are ``terms[offsets[q]:offsets[q + 1]]``."""

    terms: NDArray[np.int32]
    offsets: Ints

    @classmethod
    def of(cls, ids: list[list[int]]) -> Queries:
        """From lists of numbers."""
        offsets = np.cumsum([0, *map(len, ids)], dtype=np.int64)
        return cls(np.fromiter(chain.from_iterable(ids), dtype=np.int32, count=int(offsets[-1])), offsets)

    @property
    def m(self) -> int:
        """How many queries."""
        return len(self.offsets) - 1

    def part(self, rows: slice) -> Queries:
        """Some of them."""
        return Queries(self.terms, self.offsets[rows.start : rows.stop + 1])


def best_passages(index: Weighted, queries: Queries, own: Ints, numbers: Ints, scores: Floats) -> None:
    """Write the k best passages of each query to ``numbers`` and ``scores`` (m, k); -1 and -inf follow the last.

    ``own`` (m,): the document that is left out of each row, -1 for none.
    """
    k = numbers.shape[1]
    first, end = (np.where(own >= 0, index.doc_offsets[own + i], 0) for i in (0, 1))

    def search(rows: slice) -> None:
        keys = np.empty((rows.stop - rows.start, k), dtype=np.uint64)
        work = *_sums(index.n), _keys(index.n, k)
        search_rows(*index[:3], *queries.part(rows), first[rows], end[rows], *work, keys)
        keys.sort(axis=1)
        unpack(keys, numbers[rows], scores[rows])

    in_threads(search, slices(queries.m, max(1, min(_QUERIES, _KEYS // k))))


def best_documents(
    index: Weighted, queries: Queries, depth: int, own: Ints, doc_of: NDArray[np.uint32]
) -> tuple[Ints, Ints, Floats]:
    """Of each query the documents that score at least as high as the ``depth``-th best, by their best passage.

    ``(how many of each query, document, score)``, documents rising within a query. ``own`` (m,): the document that is
    left out of each row, -1 for none; ``doc_of`` (n,) the document of each passage.
    """
    n_documents = len(index.doc_offsets) - 1

    def search(rows: slice) -> tuple[Ints, NDArray[np.uint64]]:
        work = *_sums(index.n), *_sums(n_documents), _keys(n_documents, depth)
        part = queries.part(rows)
        return search_documents(*index[:3], *part, own[rows], doc_of, depth, *work)  # type: ignore[no-any-return]

    parts = in_threads(search, slices(queries.m, _QUERIES))
    counts = np.concatenate([np.empty(0, dtype=np.int64), *(counts for counts, _ in parts)])
    keys = np.concatenate([np.empty(0, dtype=np.uint64), *(keys for _, keys in parts)])
    return counts, (keys >> np.uint64(32)).astype(np.int64), keys.astype(np.uint32).view(np.float32)


def scores_within(index: Weighted, queries: Queries, document: int) -> Floats:
    """(m, passages of the document) their scores, 0 for none."""
    first, end = (int(place) for place in index.doc_offsets[document : document + 2])
    out = np.zeros((queries.m, end - first), dtype=np.float32)
    score_within(*index[:3], *queries, first, end, out)
    return out


def slices(m: int, step: int) -> list[slice]:
    """0 to m in steps."""
    return [slice(start, min(start + step, m)) for start in range(0, m, step)]


def _sums(n: int) -> tuple[Floats, NDArray[np.uint32]]:
    """Of n passages, zero; and room for a list of them."""
    return np.zeros(n, dtype=np.float32), np.empty(n + 1, dtype=np.uint32)


def _keys(n: int, k: int) -> NDArray[np.uint64]:
    """Room for more than the k best of n, twice."""
    return np.empty((2, min(2 * k + 1024, n) + GROUP), dtype=np.uint64)
