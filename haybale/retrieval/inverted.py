"""Search in an inverted index, term by term (Turtle & Flood 1995): the best passages, or documents by their best one.

What a query gives each passage is a uint32 that rises with the score, 0 where they share no term. Numbers that are
indexes are uint32 where they can be: numba checks signed ones for being negative, which takes as long as an addition.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from haybale.parallel import in_threads
from haybale.retrieval.hits import NO_PASSAGE, Ints

Values = NDArray[np.uint32]

_QUERIES = 32  # a thread takes at once; they share its arrays
_GROUP = 16  # values of which the highest is looked at first
_DIGITS = ((21, 11), (10, 11), (0, 10))  # of a value, from the highest: shift and bits


def top_k(
    m: int,
    k: int,
    doc_offsets: Ints,
    excluded: Ints,
    scorer: Callable[[], Callable[[int], Values]],
    doc_of: Ints | None = None,
) -> list[tuple[Values, Values]]:
    """``(numbers, values)`` of what is best for each query row.

    The k best passages, in the total order; or, with the document ``doc_of`` (n,) of each passage, every document whose
    best passage has at least the value of the k-th best, by rising number. ``excluded`` (m,): a document to leave out,
    -1 for none. ``scorer()`` makes for one thread what gives the values (n,) of a query row, an array that may be
    written to.
    """
    by_document, n_documents = doc_of is not None, len(doc_offsets) - 1
    of = np.empty(0, dtype=np.uint32) if doc_of is None else doc_of.astype(np.uint32)

    def search(rows: range) -> list[tuple[Values, Values]]:
        values_of, highest, parts = scorer(), np.empty(n_documents, dtype=np.uint32), []
        found = np.empty((n_documents if by_document else int(doc_offsets[-1])) + 1, dtype=np.uint32)
        for row in rows:
            values = values_of(row)
            if excluded[row] >= 0:
                values[doc_offsets[excluded[row]] : doc_offsets[excluded[row] + 1]] = 0
            if by_document:
                _best_of_documents(values, of, highest)
                numbers = np.sort(found[: _find(highest, k, found)])
                parts.append((numbers, highest[numbers]))
            else:
                numbers = found[: _find(values, k, found)]
                keys = np.sort((~values[numbers]).astype(np.uint64) << np.uint64(32) | numbers)[:k]
                parts.append((keys.astype(np.uint32), ~(keys >> np.uint64(32)).astype(np.uint32)))
        return parts

    done = in_threads(search, [range(start, min(start + _QUERIES, m)) for start in range(0, m, _QUERIES)])
    return [part for parts in done for part in parts]


def to_hits(parts: list[tuple[Values, Values]], k: int, floats: Callable[[Values], Any]) -> tuple[Ints, Any]:
    """The passages of :func:`best` and their scores, as ``floats`` makes them, (m, k) each; -1 and -inf where few."""
    numbers, scores = np.full((len(parts), k), NO_PASSAGE), np.full((len(parts), k), -np.inf, dtype=np.float32)
    for row, (found, values) in enumerate(parts):
        numbers[row, : len(found)], scores[row, : len(found)] = found, floats(values)
    return numbers, scores


def to_columns(parts: list[tuple[Values, Values]], floats: Callable[[Values], Any]) -> tuple[Ints, Ints, Any]:
    """The documents of :func:`best`, flat: ``(query row, document, score)``."""
    none = np.empty(0, dtype=np.uint32)
    numbers, values = (
        (np.concatenate([none, *column]) for column in zip(*parts, strict=True)) if parts else (none, none)
    )
    rows = np.repeat(np.arange(len(parts)), [len(found) for found, _ in parts])
    return rows, numbers.astype(np.int64), floats(values)


def frozen(array: NDArray[Any]) -> NDArray[Any]:
    """A view not to be written to, as arrays of a file are: loops are compiled for such ones alone."""
    array = array.view()
    array.flags.writeable = False
    return array


@njit(nogil=True, cache=True)
def _best_of_documents(values: Any, doc_of: Any, highest: Any) -> None:  # pragma: no cover - compiled
    """The highest value among each document's passages."""
    for document in range(len(highest)):
        highest[document] = 0
    for passage in range(len(doc_of)):  # a loop over documents would be mispredicted at the end of each
        document, value = doc_of[passage], values[passage]
        before = highest[document]
        highest[document] = value if value > before else before


@njit(nogil=True, cache=True)
def _find(values: Any, k: int, found: Any) -> int:  # pragma: no cover - compiled
    """How many values are above 0 and at least the k-th highest; which, in ``found`` (n + 1,).

    First of groups: number i is of group i modulo their number, so their highest are found by whole rows at once. As
    many groups as there are above the k-th highest of these have a value at least as high: no lower one is looked at.
    """
    groups, n = len(values) // _GROUP, 0
    tops = values[:groups].copy()
    for row in range(1, _GROUP):
        line = values[row * groups : (row + 1) * groups]
        for group in range(groups):
            tops[group] = max(tops[group], line[group])
    least = _selected(tops.copy(), k)
    for group in range(groups):
        if tops[group] >= least:
            for number in range(group, _GROUP * groups, groups):
                found[n] = number  # stays where its value is high enough
                n += values[number] >= least
    for number in range(_GROUP * groups, len(values)):
        found[n] = number
        n += values[number] >= least
    least, kept = _selected(values[found[:n]], k), 0
    for number in found[:n]:
        found[kept] = number
        kept += values[number] >= least
    return kept


@njit(nogil=True, cache=True)
def _selected(values: Any, k: int) -> Any:  # pragma: no cover - compiled
    """The k-th highest of values, which are moved, or 1 where fewer are above 0: a radix selection."""
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
            values[kept] = value  # stays where it has the digit
            kept += ((value >> low) & mask) == digit
        n = kept
    return max(values[0], np.uint32(1))
