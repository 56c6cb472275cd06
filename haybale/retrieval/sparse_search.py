"""Sparse vectors, never densified: exact search, and inner products of rows.

On the CPU an inverted index is read term by term (Turtle & Flood 1995) by compiled loops, whose sums do not depend on
the rows around a row; on a device there are products of sparse matrices.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy import sparse

from haybale.device import device_of, to_device
from haybale.machine import fitting, in_threads, in_tiles
from haybale.retrieval.hits import NO_PASSAGE, Ints, select
from haybale.vectors import Floats

_QUERIES = 32  # a thread takes at once; they share its sums
_PAIRS = 2**16  # pairs a thread takes at once
_FEW = 4  # postings are few where the passages are so many times more: hits are then noted one by one


class InvertedIndex:
    """The passages of each term, and search in them.

    ``postings``, (n, d) float32 CSC, are passages by term; ``doc_offsets`` (n_documents + 1,) where documents begin.
    What a thread adds up in is kept for the next search: 13 bytes a passage (17 where there are more than 2^31
    postings), and does not travel to other processes.
    """

    name = "inverted index"

    def __init__(self, postings: sparse.csc_matrix, doc_offsets: Ints) -> None:
        self.postings, self.doc_offsets = postings, doc_offsets
        self._sums: deque[tuple[Any, ...]] = deque()

    def __reduce__(self) -> tuple[Any, ...]:
        return InvertedIndex, (self.postings, self.doc_offsets)

    def search(self, queries: sparse.csr_matrix, k: int, excluded: Ints) -> tuple[Ints, Floats]:
        """``(numbers, scores)``, (m, k) each, in the total order; -1 and -inf where there are fewer hits.

        ``queries`` (m, d) are float32 CSR in canonical form; ``excluded`` (m,) the document to leave out (-1: none).
        Scores are summed in float64, terms in rising order, and rounded to float32. A passage without a common term
        is no hit.
        """
        m = queries.shape[0]
        numbers = np.full((m, k), NO_PASSAGE, dtype=np.int64)
        best = np.full((m, k), -np.inf, dtype=np.float32)
        end = self.doc_offsets[excluded + 1]
        first = np.where(excluded < 0, end, self.doc_offsets[excluded])  # nothing to leave out
        given = *_frozen(queries), *_frozen(self.postings)

        def search(rows: range) -> None:
            sums = self._clean_sums()
            _search(rows.start, rows.stop, *given, first, end, *sums, numbers, best)  # type: ignore[call-arg]
            self._sums.append(sums)

        parts = [range(start, min(start + _QUERIES, m)) for start in range(0, m, _QUERIES)]
        if len(parts) == 1:
            search(parts[0])
        else:
            in_threads(search, parts)
        return numbers, best

    def documents(
        self, queries: sparse.csr_matrix, k: int, excluded: Ints, doc_of: Ints
    ) -> tuple[Ints, Ints, NDArray[np.float32]]:
        """Documents by their best passage, over all passages: ``(query row, document, score)``, flat, rows rising.

        Of each query, every document is found that scores at least as high as its ``k``-th best; ``doc_of`` (n,) is
        the document of each passage; the rest as in :meth:`search`.
        """
        n_documents = len(self.doc_offsets) - 1
        offsets, terms, values = _frozen(queries)
        postings = _frozen(self.postings)

        def search(rows: range) -> list[tuple[Ints, Ints, Any]]:
            sums = self._clean_sums()
            best, listed = np.full(n_documents, -np.inf, dtype=np.float32), np.empty(n_documents, dtype=np.int64)
            parts = []
            for row in rows:
                query = slice(offsets[row], offsets[row + 1])
                given = terms[query], values[query], *postings, excluded[row], doc_of, *sums, best, listed
                n = _best_of_documents(*given)
                found = np.sort(listed[:n])
                scores = best[found]
                best[found] = -np.inf
                if n > k:
                    kept = scores >= np.partition(scores, n - k)[n - k]
                    found, scores = found[kept], scores[kept]
                parts.append((np.full(len(found), row), found, scores))
            self._sums.append(sums)
            return parts

        m = queries.shape[0]
        done = in_threads(search, [range(start, min(start + _QUERIES, m)) for start in range(0, m, _QUERIES)])
        columns = zip(*(part for parts in done for part in parts), strict=True)
        rows, documents, scores = (np.concatenate(column) for column in columns)
        return rows, documents, scores

    def _clean_sums(self) -> tuple[Any, ...]:
        """What a thread adds up in."""
        try:
            return self._sums.pop()
        except IndexError:
            n = self.postings.shape[0]
            return np.zeros(n), np.zeros(n, dtype=bool), np.empty(n + 1, dtype=self.postings.indices.dtype)


class ProductSearch:
    """The same search on a CUDA device: products of sparse passages (n, d) with tiles of queries, summed in float64."""

    name = "cupyx"

    def __init__(self, vectors: Any, doc_offsets: Ints, memory: float | None = None) -> None:
        self.device, self.memory = device_of(vectors), memory
        self._vectors = vectors.astype(np.float64)
        # Where nothing is negative, a shared term is a score above 0; else products of the magnitudes tell.
        self._magnitudes = None if not vectors.nnz or bool(vectors.data.min() >= 0) else self._positive(self._vectors)
        self._doc_of = to_device(np.repeat(np.arange(len(doc_offsets) - 1), np.diff(doc_offsets)), self.device)

    def search(self, queries: Any, k: int, excluded: Ints) -> tuple[Any, Any]:
        """As :meth:`InvertedIndex.search`, on the device."""
        xp, (n, width) = self.device.xp, self._vectors.shape
        left_out = to_device(excluded, self.device)
        memory = self.device.half_of_memory() if self.memory is None else self.memory

        def search(rows: slice) -> tuple[Any, Any]:
            asked = queries[rows].astype(np.float64)
            scores = self._scores(self._vectors, asked)
            if self._magnitudes is None and not bool((asked.data < 0).any()):
                shared = scores > 0
            else:
                magnitudes = self._vectors if self._magnitudes is None else self._magnitudes
                shared = self._scores(magnitudes, self._positive(asked)) > 0
            shared &= self._doc_of[None, :] != left_out[rows][:, None]
            return select(xp.where(shared, scores.astype(np.float32), np.float32(-np.inf)), k)

        size = fitting(memory, 8 * width + 64 * n)
        found = list(in_tiles(int(queries.shape[0]), size, search, what="queries"))
        return xp.concatenate([part[0] for part in found]), xp.concatenate([part[1] for part in found])

    def _scores(self, passages: Any, queries: Any) -> Any:
        """(m, n) inner products; only the queries are densified."""
        return (passages @ queries.toarray().T).T

    def _positive(self, matrix: Any) -> Any:
        parts = self.device.xp.abs(matrix.data), matrix.indices, matrix.indptr
        return self.device.sparse.csr_matrix(parts, shape=matrix.shape)


def add_products(a: sparse.csr_matrix, b: sparse.csc_matrix, out: Floats) -> None:
    """Add the inner products of the rows of ``a`` (n, d) and of ``b`` (m, d) to ``out`` (n, m)."""
    _add(a.indptr, a.indices, a.data, b.indptr, b.indices, b.data, out)


def paired_products(
    a: sparse.csr_matrix, i: NDArray[Any], b: sparse.csr_matrix, j: NDArray[Any]
) -> NDArray[np.float64]:
    """(n,) inner products of rows ``i`` of ``a`` with rows ``j`` of ``b``, summed in float64.

    Both in canonical form, as :func:`haybale.vectors.check_sparse` gives them.
    """
    out = np.empty(len(i))

    def fill(part: slice) -> None:
        _pair(a.indptr, a.indices, a.data, b.indptr, b.indices, b.data, i[part], j[part], out[part])

    in_threads(fill, [slice(start, start + _PAIRS) for start in range(0, len(out), _PAIRS)])
    return out


def _frozen(matrix: Any) -> list[Any]:
    """A matrix's arrays as ones not to be written to, as those of a file are: the search is compiled for them alone."""
    views = [array.view() for array in (matrix.indptr, matrix.indices, matrix.data)]
    for view in views:
        view.flags.writeable = False
    return views


@njit(nogil=True, cache=True)
def _before(score: Any, number: Any, other_score: Any, other_number: Any) -> Any:  # pragma: no cover - compiled
    return score > other_score or (score == other_score and number < other_number)


@njit(nogil=True, cache=True)
def _sink(numbers: Any, scores: Any, place: Any, size: Any) -> None:  # pragma: no cover - compiled
    """Mend a heap whose root is the last in the order, from a place whose hit may be too far up."""
    number, score = numbers[place], scores[place]
    while 2 * place + 1 < size:
        below = 2 * place + 1
        if below + 1 < size and _before(scores[below], numbers[below], scores[below + 1], numbers[below + 1]):
            below += 1
        if not _before(score, number, scores[below], numbers[below]):
            break
        numbers[place], scores[place] = numbers[below], scores[below]
        place = below
    numbers[place], scores[place] = number, score


@njit(nogil=True, cache=True)
def _heapify(numbers: Any, scores: Any, size: Any) -> None:  # pragma: no cover - compiled
    for place in range(size // 2 - 1, -1, -1):
        _sink(numbers, scores, place, size)


@njit(nogil=True, cache=True)
def _gather(
    terms: Any, values: Any, starts: Any, passages: Any, weights: Any, sums: Any, seen: Any, found: Any
) -> Any:  # pragma: no cover - compiled
    """How many passages share a term with a query; which, in ``found``; and what they add up to, in ``sums``."""
    n = postings = 0
    for place in range(len(terms)):
        postings += starts[terms[place] + 1] - starts[terms[place]]
    few = _FEW * postings < len(seen)
    for place in range(len(terms)):
        term, value = terms[place], float(values[place])
        for posting in range(starts[term], starts[term + 1]):
            passage = passages[posting]
            if few:  # no jump that could be guessed wrong: the place is taken if the passage is new
                found[n] = passage
                n += not seen[passage]
            seen[passage] = True
            sums[passage] += value * float(weights[posting])
    if not few:
        for passage in range(len(seen)):
            found[n] = passage
            n += seen[passage]
    return n


@njit(nogil=True, cache=True)
def _best_of_documents(
    terms: Any, values: Any, starts: Any, passages: Any, weights: Any, excluded: Any, doc_of: Any,
    sums: Any, seen: Any, found: Any, best: Any, listed: Any,
) -> Any:  # fmt: skip # pragma: no cover - compiled
    """How many documents have a common term; which, in ``listed``, and in ``best``, all -inf before, their scores."""
    n_listed = 0
    for hit in range(_gather(terms, values, starts, passages, weights, sums, seen, found)):
        passage = found[hit]
        score = np.float32(sums[passage])
        sums[passage] = 0.0
        seen[passage] = False
        document = doc_of[passage]
        if document == excluded or score == -np.inf:
            continue
        if best[document] == -np.inf:
            listed[n_listed] = document
            n_listed += 1
        if score > best[document]:
            best[document] = score
    return n_listed


@njit(nogil=True, cache=True)
def _search(
    row: Any, end_row: Any, offsets: Any, terms: Any, values: Any, starts: Any, passages: Any, weights: Any,
    excluded: Any, end_excluded: Any, sums: Any, seen: Any, found: Any, numbers: Any, best: Any,
) -> None:  # fmt: skip # pragma: no cover - compiled
    """Fill the rows of ``numbers`` and ``best``, which hold -1 and -inf. ``sums`` and ``seen`` are left clean."""
    k = numbers.shape[1]
    for query in range(row, end_row):
        first, end = offsets[query], offsets[query + 1]
        heap, scores, size = numbers[query], best[query], 0
        for hit in range(_gather(terms[first:end], values[first:end], starts, passages, weights, sums, seen, found)):
            passage = np.int64(found[hit])
            score = np.float32(sums[passage])
            sums[passage] = 0.0
            seen[passage] = False
            if score == -np.inf or (passage >= excluded[query] and passage < end_excluded[query]):
                continue
            if size < k:
                heap[size], scores[size] = passage, score
                size += 1
                if size == k:
                    _heapify(heap, scores, k)
            elif _before(score, passage, scores[0], heap[0]):
                heap[0], scores[0] = passage, score
                _sink(heap, scores, 0, k)
        if size < k:
            _heapify(heap, scores, size)
        for last in range(size - 1, 0, -1):  # the root is the last of those that are left
            heap[0], heap[last] = heap[last], heap[0]
            scores[0], scores[last] = scores[last], scores[0]
            _sink(heap, scores, 0, last)


@njit(nogil=True, cache=True)
def _add(offsets: Any, terms: Any, values: Any, starts: Any, rows: Any, weights: Any, out: Any) -> None:
    """out[i, j] += Σ_t a[i, t] b[j, t]: a by rows, b by terms."""  # pragma: no cover - compiled
    for i in range(len(offsets) - 1):
        line = out[i]
        for place in range(offsets[i], offsets[i + 1]):
            term, value = terms[place], values[place]
            for posting in range(starts[term], starts[term + 1]):
                line[rows[posting]] += value * weights[posting]


@njit(nogil=True, cache=True)
def _pair(
    offsets_a: Any, terms_a: Any, values_a: Any, offsets_b: Any, terms_b: Any, values_b: Any, i: Any, j: Any, out: Any
) -> None:  # pragma: no cover - compiled
    """out[n] = <a[i[n]], b[j[n]]>, by walking both rows at once."""
    for n in range(len(out)):
        total = 0.0
        x, end_x = offsets_a[i[n]], offsets_a[i[n] + 1]
        y, end_y = offsets_b[j[n]], offsets_b[j[n] + 1]
        while x < end_x and y < end_y:
            if terms_a[x] == terms_b[y]:
                total += float(values_a[x]) * float(values_b[y])
                x += 1
                y += 1
            elif terms_a[x] < terms_b[y]:
                x += 1
            else:
                y += 1
        out[n] = total
