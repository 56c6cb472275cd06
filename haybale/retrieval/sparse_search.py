"""Exact search over sparse vectors: an inverted index, read term by term (Turtle & Flood 1995), never densified."""

from __future__ import annotations

from collections import deque
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy import sparse

from haybale.machine import in_threads
from haybale.retrieval.hits import NO_PASSAGE, Ints
from haybale.vectors import Floats

_QUERIES = 32  # a thread takes at once; they share its sums
_FEW = 4  # postings are few where the passages are so many times more: hits are then noted one by one


class InvertedIndex:
    """The passages of each term, and search in them.

    What a thread adds up in is kept for the next search: 13 bytes a passage (17 where there are more than 2^31
    postings), and does not travel to other processes.

    Parameters
    ----------
    postings
        (n, d) float32 CSC, the passages by term; its arrays are not written to.
    doc_offsets
        (n_documents + 1,) where documents begin.
    """

    def __init__(self, postings: sparse.csc_matrix, doc_offsets: Ints) -> None:
        self.postings, self.doc_offsets = postings, doc_offsets
        self._sums: deque[tuple[Any, ...]] = deque()

    def __reduce__(self) -> tuple[Any, ...]:
        return InvertedIndex, (self.postings, self.doc_offsets)

    def search(self, queries: sparse.csr_matrix, k: int, own: Ints) -> tuple[Ints, Floats]:
        """The k best passages of each query in the total order.

        Scores are summed in float64, terms in rising order, and rounded to float32. A passage without a common term is
        no hit.

        Parameters
        ----------
        queries
            (m, d) float32 CSR in canonical form.
        k
            Hits of a query, at most.
        own
            (m,) documents left out, -1 for none.

        Returns
        -------
        tuple
            Passage numbers, -1 where there are fewer, and float32 scores, -inf there; (m, k) each.
        """
        m = queries.shape[0]
        numbers = np.full((m, k), NO_PASSAGE, dtype=np.int64)
        best = np.full((m, k), -np.inf, dtype=np.float32)
        end = self.doc_offsets[own + 1]
        first = np.where(own < 0, end, self.doc_offsets[own])  # nothing to leave out
        offsets, terms, values = _frozen(queries)
        starts, passages, weights = _frozen(self.postings)

        def search(rows: range) -> None:
            sums = self._clean_sums()
            _search(
                rows.start, rows.stop, offsets, terms, values, starts, passages, weights, first, end,
                sums[0], sums[1], sums[2], numbers, best,
            )  # fmt: skip
            self._sums.append(sums)

        parts = [range(start, min(start + _QUERIES, m)) for start in range(0, m, _QUERIES)]
        if len(parts) == 1:
            search(parts[0])
        else:
            in_threads(search, parts)
        return numbers, best

    def documents(
        self, queries: sparse.csr_matrix, depth: int, own: Ints, doc_of: Ints
    ) -> tuple[Ints, Ints, NDArray[np.float32]]:
        """Documents by their best passage (MaxP), over all passages: no list of passages is cut off.

        Parameters
        ----------
        queries
            (m, d) float32 CSR in canonical form.
        depth
            Of each query, every document is found that scores at least as high as its ``depth``-th best.
        own
            (m,) documents left out, -1 for none.
        doc_of
            (n,) the document of each passage.

        Returns
        -------
        tuple
            Query rows, which rise, document numbers, float32 scores as of :meth:`search`; each flat.
        """
        n_documents = len(self.doc_offsets) - 1
        offsets, terms, values = _frozen(queries)
        starts, passages, weights = _frozen(self.postings)

        def search(rows: range) -> list[tuple[Ints, Ints, Any]]:
            sums = self._clean_sums()
            best, listed = np.full(n_documents, -np.inf, dtype=np.float32), np.empty(n_documents, dtype=np.int64)
            parts = []
            for row in rows:
                query = slice(offsets[row], offsets[row + 1])
                posted = starts, passages, weights, own[row], doc_of
                n = _best_of_documents(terms[query], values[query], *posted, *sums, best, listed)  # type: ignore[call-arg]
                found = np.sort(listed[:n])
                scores = best[found]
                best[found] = -np.inf
                if n > depth:
                    kept = scores >= np.partition(scores, n - depth)[n - depth]
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
def _best_of_documents(
    terms: Any, values: Any, starts: Any, passages: Any, weights: Any, own: Any, doc_of: Any,
    sums: Any, seen: Any, found: Any, best: Any, listed: Any,
) -> Any:  # fmt: skip # pragma: no cover - compiled
    """How many documents have a passage with a common term; which, in ``listed``, and the best score of each.

    ``sums`` and ``seen`` are left clean; ``best`` holds -inf, and is left for the caller to clean.
    """
    n = n_listed = 0
    for place in range(len(terms)):
        term, value = terms[place], float(values[place])
        for posting in range(starts[term], starts[term + 1]):
            passage = passages[posting]
            found[n] = passage
            n += not seen[passage]
            seen[passage] = True
            sums[passage] += value * float(weights[posting])
    for hit in range(n):
        passage = found[hit]
        score = np.float32(sums[passage])
        sums[passage] = 0.0
        seen[passage] = False
        document = doc_of[passage]
        if document == own or score == -np.inf:
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
    left_out: Any, end_left_out: Any, sums: Any, seen: Any, found: Any, numbers: Any, best: Any,
) -> None:  # fmt: skip # pragma: no cover - compiled
    """Fill the rows of ``numbers`` and ``best``, which hold -1 and -inf. ``sums`` and ``seen`` are left clean."""
    k = numbers.shape[1]
    for query in range(row, end_row):
        n = postings = 0
        for place in range(offsets[query], offsets[query + 1]):
            postings += starts[terms[place] + 1] - starts[terms[place]]
        few = _FEW * postings < len(seen)
        for place in range(offsets[query], offsets[query + 1]):
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
        heap, scores, size = numbers[query], best[query], 0
        for hit in range(n):
            passage = np.int64(found[hit])
            score = np.float32(sums[passage])
            sums[passage] = 0.0
            seen[passage] = False
            if score == -np.inf or (passage >= left_out[query] and passage < end_left_out[query]):
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
