"""Select the best passages or documents from term-at-a-time scores of an inverted index (Turtle & Flood 1995).

A *scorer* maps a query row to the values of all passages, uint32 numbers that rise with the score. A passage that
shares no term with the query has the value 0. Arrays are indexed by uint32 where possible, because numba checks whether
a signed index is negative, which takes as long as an addition.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numba import njit
from numpy.typing import NDArray

from haybale.parallel import in_threads
from haybale.progress import track
from haybale.retrieval.hits import NO_PASSAGE, Ints
from haybale.retrieval.id_order import IdOrder
from haybale.retrieval.passage_sums import sum_by_document
from haybale.vectors import Floats

T = TypeVar("T")
Values = NDArray[np.uint32]
Scorer = Callable[[int], Values]  # query row -> (n_passages,) values, which the caller may overwrite
NewScorer = Callable[[], Scorer]  # makes a scorer with its own buffers, for one thread
Decode = Callable[[Values], Floats]  # values -> scores

_BATCH = 1024  # queries between two steps of the progress bar
_QUERIES = 32  # queries of one task, which share a scorer
_GROUP = 16  # values in a group; groups with a low maximum are skipped
_HIGHEST = np.uint64(2**32 - 1)  # value
_NO_PLACES = np.empty(0, dtype=np.uint32)
_DIGITS = ((21, 11), (10, 11), (0, 10))  # (shift, bits) of the digits of a value, from the highest


def top_passages(
    m: int, k: int, scorer: NewScorer, doc_offsets: Ints, excluded: Ints, order: IdOrder
) -> tuple[Ints, Values]:
    """Return the numbers and values of the k best passages of each of m queries, (m, k), padded with -1 and 0.

    ``doc_offsets`` (n_documents + 1,) says where the passages of each document begin, and ``excluded`` (m,) has the
    document that each query excludes, -1 for none.
    """
    passages, values = np.full((m, k), NO_PASSAGE), np.zeros((m, k), dtype=np.uint32)

    def search(rows: range) -> None:
        score = scorer()
        found = np.empty(int(doc_offsets[-1]) + 1, dtype=np.uint32)
        for row in rows:
            of_row = _exclude(score(row), doc_offsets, excluded[row])
            numbers = found[: _find_top(of_row, k, found)]
            places = order.places if order.is_known else None  # ids are not sorted before the first tie
            keys = np.sort(_sort_keys(of_row, numbers, _NO_PLACES if places is None else places))
            if places is None and (np.diff(keys >> np.uint64(32)) == 0).any() and order.places is not None:
                places = order.places
                keys = np.sort(_sort_keys(of_row, numbers, places))
            by_place = _NO_PLACES if places is None else order.passages
            _write_top(keys, by_place, passages[row], values[row])

    _map_rows(search, m)
    return passages, values


def top_documents(
    m: int, k: int, scorer: NewScorer, doc_offsets: Ints, excluded: Ints, doc_of: Ints
) -> tuple[Ints, Ints, Values]:
    """Return ``(query row, document, value)``, each (n_found,), of the k best documents by their best passage.

    Documents that tie with the k-th are included. The result is sorted by row, then by document. ``doc_of``
    (n_passages,) is the document of each passage; the other parameters are those of :func:`top_passages`.
    """
    of = doc_of.astype(np.uint32)

    def search(rows: range) -> list[tuple[Values, Values]]:
        score, best = scorer(), np.empty(len(doc_offsets) - 1, dtype=np.uint32)
        found, parts = np.empty(len(doc_offsets), dtype=np.uint32), []
        for row in rows:
            _max_by_document(_exclude(score(row), doc_offsets, excluded[row]), of, best)
            numbers = np.sort(found[: _find_top(best, k, found)])
            parts.append((numbers, best[numbers]))
        return parts

    parts = [part for done in _map_rows(search, m) for part in done]
    rows = np.repeat(np.arange(m), [len(numbers) for numbers, _ in parts])
    none = np.empty(0, dtype=np.uint32)
    documents, values = (np.concatenate([none, *(part[column] for part in parts)]) for column in (0, 1))
    return rows, documents.astype(np.int64), values


def top_document_sums(
    m: int, k: int, top: int, scorer: NewScorer, decode: Decode, doc_offsets: Ints, excluded: Ints
) -> tuple[Ints, Ints, Floats]:
    """Return ``(query row, document, score)``, each (n_found,), of the k best documents by their ``top`` best passages.

    See :mod:`haybale.retrieval.passage_sums`. The order is that of :func:`top_documents`, as are ties and parameters.
    """
    offsets = read_only(doc_offsets)

    def search(rows: range) -> list[tuple[Values, Floats]]:
        score, sums = scorer(), np.empty(len(doc_offsets) - 1, dtype=np.float32)
        best, found, parts = np.empty(top, dtype=np.float32), np.empty(len(doc_offsets), dtype=np.uint32), []
        for row in rows:
            values = _exclude(score(row), doc_offsets, excluded[row])
            sum_by_document(decode(values), values > 0, offsets, best, sums)
            numbers = np.sort(found[: _find_top(_encoded(sums), k, found)])
            parts.append((numbers, sums[numbers]))
        return parts

    parts = [part for done in _map_rows(search, m) for part in done]
    rows = np.repeat(np.arange(m), [len(numbers) for numbers, _ in parts])
    documents = np.concatenate([np.empty(0, dtype=np.uint32), *(numbers for numbers, _ in parts)])
    scores = np.concatenate([np.empty(0, dtype=np.float32), *(sums for _, sums in parts)])
    return rows, documents.astype(np.int64), scores


def read_only(array: NDArray[Any]) -> NDArray[Any]:
    """Return a read-only view. All arrays are passed so, because numba compiles a loop once more for writable ones."""
    array = array.view()
    array.flags.writeable = False
    return array


def _map_rows(work: Callable[[range], T], m: int) -> list[T]:
    """Call ``work`` on slices of the query rows, in threads; return the results in order."""
    done: list[T] = []
    for start in track(range(0, m, _BATCH), "searching terms"):
        end = min(start + _BATCH, m)
        done += in_threads(work, [range(row, min(row + _QUERIES, end)) for row in range(start, end, _QUERIES)])
    return done


def _exclude(values: Values, doc_offsets: Ints, document: int) -> Values:
    """Set the values of a document's passages to 0; -1 stands for no document."""
    if document >= 0:
        values[doc_offsets[document] : doc_offsets[document + 1]] = 0
    return values


def _encoded(scores: Floats) -> Values:
    """Return values that rise with the scores; -inf has the value 0."""
    bits = (scores + np.float32(0)).view(np.uint32)  # -0.0 + 0.0 is 0.0
    return np.where(np.isneginf(scores), 0, np.where(bits >> 31, ~bits, bits | 0x80000000)).astype(np.uint32)


@njit(nogil=True, cache=True)
def _max_by_document(values: Any, doc_of: Any, best: Any) -> None:  # pragma: no cover - compiled
    """Set ``best`` to the highest value of each document's passages."""
    for document in range(len(best)):
        best[document] = 0
    for passage in range(len(doc_of)):  # a nested loop mispredicts the end of each document
        document, value = doc_of[passage], values[passage]
        before = best[document]
        best[document] = value if value > before else before


@njit(nogil=True, cache=True)
def _sort_keys(values: Any, numbers: Any, places: Any) -> Any:  # pragma: no cover - compiled
    """Return one key of value and place for each number; keys rise with falling values, then with rising places.

    Without ``places``, the place of a number is the number.
    """
    keys = np.empty(len(numbers), dtype=np.uint64)
    for i in range(len(numbers)):
        number = numbers[i]
        place = places[number] if len(places) else number
        keys[i] = np.uint64(_HIGHEST - values[number]) << np.uint64(32) | np.uint64(place)
    return keys


@njit(nogil=True, cache=True)
def _write_top(keys: Any, by_place: Any, passages: Any, values: Any) -> None:  # pragma: no cover - compiled
    """Write the passages and values of the first sorted keys; ``by_place`` has the passage of each place."""
    for i in range(min(len(keys), len(passages))):
        place = keys[i] & _HIGHEST
        passages[i] = by_place[place] if len(by_place) else place
        values[i] = _HIGHEST - (keys[i] >> np.uint64(32))


@njit(nogil=True, cache=True)
def _find_top(values: Any, k: int, found: Any) -> int:  # pragma: no cover - compiled
    """Write the numbers of the k highest positive values, with ties at the k-th, to ``found``; return how many.

    ``found`` is (n + 1,). Value i is in group i modulo the number of groups. Let t be the k-th highest group maximum:
    at least k values are t or more, so groups with a lower maximum are skipped.
    """
    groups, n = len(values) // _GROUP, 0
    tops = values[:groups].copy()
    for row in range(1, _GROUP):
        line = values[row * groups : (row + 1) * groups]
        for group in range(groups):
            tops[group] = max(tops[group], line[group])
    threshold = _kth_highest(tops.copy(), k)
    for group in range(groups):
        if tops[group] >= threshold:
            for number in range(group, _GROUP * groups, groups):
                found[n] = number  # overwritten by the next number if its value is too low
                n += values[number] >= threshold
    for number in range(_GROUP * groups, len(values)):
        found[n] = number
        n += values[number] >= threshold
    threshold, kept = _kth_highest(values[found[:n]], k), 0
    for number in found[:n]:
        found[kept] = number
        kept += values[number] >= threshold
    return kept


@njit(nogil=True, cache=True)
def _kth_highest(values: Any, k: int) -> Any:  # pragma: no cover - compiled
    """Return the k-th highest value, at least 1, by radix selection; the values are reordered."""
    n = len(values)
    if n < k:
        return np.uint32(1)
    counts = np.empty(2**11, dtype=np.int64)
    for shift, bits in _DIGITS:
        low, mask = np.uint32(shift), np.uint32(2**bits - 1)
        counts[:] = 0
        for i in range(n):
            counts[(values[i] >> low) & mask] += 1
        digit = mask
        while counts[digit] < k:
            k -= counts[digit]
            digit -= np.uint32(1)
        kept = 0
        for i in range(n):
            value = values[i]
            values[kept] = value  # overwritten by the next value if its digit differs
            kept += ((value >> low) & mask) == digit
        n = kept
    return max(values[0], np.uint32(1))
