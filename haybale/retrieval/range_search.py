"""Find the best passages or documents of one query from the postings of its terms, one range of passages at a time.

The sums of a range stay in the processor's cache, are compared with the k-th best score of the ranges before it, and
are cleared for the next range. So postings are all that is read from main memory, where sums over all passages would be
written, read and cleared there.

*Values* are those of :mod:`haybale.retrieval.score_values`. Arrays are indexed by unsigned numbers
where possible, because numba checks whether a signed index is negative, which takes as long as an addition.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from haybale.retrieval.hits import Ints
from haybale.retrieval.score_values import ZERO, Values

Compiled = Callable[..., Any]

RANGE = 2**16  # passages in a range; the sums and values of a range take 0.8 MB
_GROUP, _LANES = 16, 64  # sums in a group, which is skipped if its maximum is low; groups side by side
_MIN_SURPLUS = 64  # the best are selected when there are more than k + max(k // 4, this) candidates
_DIGITS = ((21, 11), (10, 11), (0, 10))  # (shift, bits) of the digits of a value, from the highest
# Of functions that only compiled functions call; numba compiles them faster if Python cannot call them.
_OPTIONS: dict[str, Any] = {"nogil": True, "cache": True, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
_compiled_within: Callable[[Compiled], Compiled] = njit(**_OPTIONS)


class SearchBuffers:
    """The arrays that searches use again and again, for one thread.

    Parameters
    ----------
    edges : (n_ranges + 1,) uint32
        Where ranges of passages begin.
    n_documents : int
        Number of documents if they are searched for by their best passage, else 0.
    sums : dtype
        In which products are summed: float32 or float64.
    """

    def __init__(self, edges: Values, n_documents: int, sums: type[np.float32] | type[np.float64]) -> None:
        self.edges, size = edges, int(np.diff(edges).max(initial=0))
        self.sums = np.full(size, -0.0, dtype=sums)
        self.bits = self.sums.view(f"i{self.sums.itemsize}")
        self.values, self.tops = np.empty(size, dtype=np.uint32), np.empty(size // _GROUP, dtype=self.bits.dtype)
        room = int(edges[-1]) + size + 1  # all may tie; memory that is never written is never used
        self.found, self.found_values = np.empty(room, dtype=np.uint32), np.empty(room, dtype=np.uint32)
        self.best = np.zeros(n_documents, dtype=np.uint32)

    @property
    def arrays(self) -> tuple[NDArray[Any], ...]:
        """The arrays, in the order in which :func:`search_ranges` takes them."""
        return self.sums, self.bits, self.values, self.tops, self.found, self.found_values, self.best


def range_edges(n: int, doc_offsets: Ints | None = None) -> Values:
    """Return where ranges of ``n`` passages begin, and the end of the last one.

    With ``doc_offsets`` (n_documents + 1,), no document lies in two ranges.
    """
    edges = np.append(np.arange(0, n, RANGE), n)
    if doc_offsets is not None:
        edges = np.unique(doc_offsets[np.searchsorted(doc_offsets, edges)])
    return edges.astype(np.uint32)


@njit(nogil=True, cache=True)
def search_ranges(
    terms: Any,
    factors: Any,
    offsets: Any,
    passages: Any,
    weights: Any,
    edges: Any,
    hidden: int,
    shown: int,
    days: Any,
    before: int,
    doc_of: Any,
    doc_offsets: Any,
    top: int,
    k: int,
    least: Any,
    sums: Any,
    bits: Any,
    values: Any,
    tops: Any,
    hit_numbers: Any,
    hit_values: Any,
    best: Any,
) -> Any:  # pragma: no cover - compiled
    """Write the numbers and values of the k best passages or documents, with ties at the k-th; return their number.

    The postings of term t are ``offsets[t]:offsets[t + 1]`` of ``passages`` and ``weights``. Passages ``hidden:shown``
    are not found, nor are those whose ``days`` (n_passages, or none) are ``before`` or later. Values below ``least``
    are no hits. Passages are found if ``top`` is 0; documents by their best
    passage if it is 1, with ``doc_of``; documents by the sum of their ``top`` best passages if it is more, with
    ``doc_offsets``, where no document lies in two ranges. The other arrays are those of :class:`SearchBuffers`:
    its ``found`` and ``found_values`` are ``hit_numbers`` and ``hit_values``.
    """
    cursors, ends = np.empty(len(terms), dtype=np.uint64), np.empty(len(terms), dtype=np.uint64)
    for t in range(len(terms)):
        cursors[t], ends[t] = offsets[terms[t]], offsets[terms[t] + 1]
    # Without their types, the functions that take these numbers are compiled twice: for the literal 0, too.
    n, threshold, document, changed = np.int64(0), least, np.int64(0), False
    few = most = k + max(k // 4, _MIN_SURPLUS)
    highest = np.empty(top, dtype=np.uint32)
    for number in range(len(edges) - 1):
        start, end = edges[number], edges[number + 1]
        size = end - start
        _add_postings(factors, cursors, ends, passages, weights, start, end, sums)
        for passage in range(max(start, hidden), min(end, shown)):
            sums[passage - start] = -0.0
        if len(days):
            for passage in range(start, end):
                if days[passage] >= before:
                    sums[passage - start] = -0.0
        if top > 1:
            _encode(sums[:size], values)
            while document < len(doc_offsets) - 1 and doc_offsets[document + 1] <= end:
                first, last = doc_offsets[document] - start, doc_offsets[document + 1] - start
                value = _sum_value(values[first:last], least, highest)
                hit_numbers[n], hit_values[n] = document, value  # overwritten by the next document if it is too low
                n += value >= threshold
                document += 1
            changed = True
        else:
            maxima = tops[: _LANES * (size // np.uint32(_GROUP * _LANES))]
            _group_maxima(bits, maxima)
            bound = _bound(threshold, sums, bits)
            if top == 0 and threshold == least:  # k groups have a value that reaches the k-th highest maximum
                threshold = _kth_highest(_lower_values(maxima, sums), k, least)
                bound = _bound(threshold, sums, bits)
            if top == 1 and 2 * (maxima > bound).sum() > len(maxima):
                _encode(sums[:size], values)
                n = _all_documents(values[:size], start, end, least, doc_of, doc_offsets, best, hit_numbers, n)
                changed = True
            else:
                n_before = n
                n = _collect(sums[:size], bits, maxima, bound, start, threshold, hit_numbers, hit_values, n)
                changed |= n > n_before
                if top == 1:
                    n = _to_documents(hit_numbers, hit_values, n_before, n, doc_of, best)
        sums[:size] = -0.0
        if n > most or (threshold == least and n >= k):
            n, threshold = _keep_best(hit_numbers, hit_values, n, k, least, best)
            most, changed = max(few, 2 * n), False  # many hits may tie with the k-th
    if changed:
        n, threshold = _keep_best(hit_numbers, hit_values, n, k, least, best)
    if len(best):
        for i in range(n):
            best[hit_numbers[i]] = 0
    return n


@_compiled_within
def _add_postings(
    factors: Any, cursors: Any, ends: Any, passages: Any, weights: Any, start: Any, end: Any, sums: Any
) -> None:  # pragma: no cover - compiled
    """Add the products of the passages ``start:end`` to ``sums``, term by term, and advance the cursors."""
    for t in range(len(factors)):
        low, last, factor = cursors[t], ends[t], factors[t]
        if low < last and passages[low] < end:
            step = np.uint64(1)
            high = low + step
            while high < last and passages[high] < end:  # passages[low + step // 2] < end
                step += step
                high = low + step
            first, low, high = low, low + step // np.uint64(2), min(high, last)
            while low < high:
                middle = (low + high) // np.uint64(2)
                if passages[middle] < end:
                    low = middle + np.uint64(1)
                else:
                    high = middle
            for posting in range(first, low):
                sums[passages[posting] - start] += factor * weights[posting] + np.float32(0)
            cursors[t] = low


@_compiled_within
def _value(score: Any) -> Any:  # pragma: no cover - compiled
    """Return the value of a score: the bits of positive floats rise with it, those of negative ones fall."""
    bits = np.float32(score).view(np.uint32)
    rising = ~bits if bits >> np.uint32(31) else bits | ZERO
    return np.uint32(0) if bits == ZERO else rising


@_compiled_within
def _encode(sums: Any, values: Any) -> None:  # pragma: no cover - compiled
    """Write the value of each sum."""
    for i in range(len(sums)):
        values[i] = _value(sums[i])


@_compiled_within
def _bound(threshold: Any, sums: Any, bits: Any) -> Any:  # pragma: no cover - compiled
    """Return a number that is less than the bits of each sum whose value is at least the threshold.

    The bits are read as signed integers: those of an empty sum are the lowest, and those of negative sums are negative.
    """
    score = np.full(1, -0.0, dtype=sums.dtype)
    if threshold > ZERO:  # a sum that is rounded up to the score of the threshold is above the score of the value below
        score[0] = np.uint32((threshold - np.uint32(1)) ^ ZERO).view(np.float32)
    return score.view(bits.dtype)[0]


@_compiled_within
def _lower_values(maxima: Any, sums: Any) -> Any:  # pragma: no cover - compiled
    """Return for each maximum of :func:`_group_maxima` a value that the highest value of its group reaches."""
    values = np.zeros(len(maxima), dtype=np.uint32)
    scores = maxima.view(sums.dtype)
    for i in range(len(maxima)):
        values[i] = _value(scores[i]) if maxima[i] >= 0 else np.uint32(0)
    return values


@_compiled_within
def _group_maxima(bits: Any, tops: Any) -> None:  # pragma: no cover - compiled
    """Write the maximum of each group of bits.

    In each block of 16 · 64 numbers, number i is in group i modulo 64, so that 64 maxima are compared at once.
    """
    for first in range(0, len(tops), _LANES):
        of_block = tops[first : first + _LANES]
        block = bits[_GROUP * first : _GROUP * (first + _LANES)]
        for lane in range(_LANES):  # numba takes seconds to compile the assignment of a slice
            of_block[lane] = block[lane]
        for row in range(1, _GROUP):
            line = block[row * _LANES : (row + 1) * _LANES]
            for lane in range(_LANES):
                of_block[lane] = max(of_block[lane], line[lane])


@_compiled_within
def _collect(
    sums: Any, bits: Any, tops: Any, bound: Any, start: Any, threshold: Any, hit_numbers: Any, hit_values: Any, n: Any
) -> Any:  # pragma: no cover - compiled
    """Append the passages whose values are at least the threshold; return the number of hits."""
    kept = n
    for group in range(len(tops)):
        if tops[group] > bound:
            lane = group % _LANES
            first = (group - lane) * _GROUP + lane
            for i in range(first, first + _GROUP * _LANES, _LANES):
                hit_numbers[n] = i  # overwritten by the next passage if its bits are too low
                n += bits[i] > bound
    for i in range(_GROUP * len(tops), len(sums)):
        hit_numbers[n] = i
        n += bits[i] > bound
    for hit in range(kept, n):
        i = hit_numbers[hit]
        value = _value(sums[i])
        hit_numbers[kept], hit_values[kept] = start + i, value
        kept += value >= threshold
    return kept


@_compiled_within
def _all_documents(
    values: Any, start: Any, end: Any, least: Any, doc_of: Any, doc_offsets: Any, best: Any, hit_numbers: Any, n: Any
) -> Any:  # pragma: no cover - compiled
    """Raise ``best`` to the highest values of the documents of a range, and append these documents."""
    for document in range(doc_of[start], doc_of[end - np.uint32(1)] + np.uint64(1)):
        first, last = max(doc_offsets[document], start) - start, min(doc_offsets[document + np.uint64(1)], end) - start
        highest = np.uint32(0)
        for i in range(first, last):
            highest = max(highest, values[i])
        if highest >= least:
            hit_numbers[n] = document
            n += best[document] == 0  # a document may begin in the range before
            best[document] = max(best[document], highest)
    return n


@_compiled_within
def _to_documents(
    hit_numbers: Any, hit_values: Any, first: Any, n: Any, doc_of: Any, best: Any
) -> Any:  # pragma: no cover - compiled
    """Replace passages by their documents, raise ``best`` to their highest values; return the number of documents."""
    kept = first
    for i in range(first, n):
        document, value = doc_of[hit_numbers[i]], hit_values[i]
        hit_numbers[kept] = document
        kept += best[document] == 0
        best[document] = max(best[document], value)
    return kept


@_compiled_within
def _sum_value(values: Any, least: Any, highest: Any) -> Any:  # pragma: no cover - compiled
    """Return the value of the sum of a document's best passages, 0 without a hit; see :mod:`.passage_sums`."""
    n = 0  # highest[:n] has the highest values so far, falling
    for value in values:
        if value >= least and (n < len(highest) or value > highest[n - 1]):
            rank = min(n, len(highest) - 1)
            while rank > 0 and highest[rank - 1] < value:
                highest[rank] = highest[rank - 1]
                rank -= 1
            highest[rank] = value
            n = min(n + 1, len(highest))
    if n == 0:
        return np.uint32(0)
    for rank in range(n):
        value = highest[rank]
        highest[rank] = value ^ ZERO if value >> np.uint32(31) else ~value
    scores = highest.view(np.float32)
    total = np.float64(scores[0])
    for rank in range(1, n):
        total += max(np.float64(scores[rank]), 0.0)
    scores[0] = total
    return _value(scores[0])


@_compiled_within
def _keep_best(
    hit_numbers: Any, hit_values: Any, n: Any, k: Any, least: Any, best: Any
) -> Any:  # pragma: no cover - compiled
    """Keep the k best hits, with ties at the k-th; return their number and the k-th value."""
    if len(best):
        for i in range(n):
            hit_values[i] = best[hit_numbers[i]]
    threshold, kept = _kth_highest(hit_values[:n].copy(), k, least), 0
    for i in range(n):
        number, value = hit_numbers[i], hit_values[i]
        if len(best) and value < threshold:
            best[number] = 0
        hit_numbers[kept], hit_values[kept] = number, value
        kept += value >= threshold
    return kept, threshold


@_compiled_within
def _kth_highest(values: Any, k: Any, least: Any) -> Any:  # pragma: no cover - compiled
    """Return the k-th highest value, at least ``least``, by radix selection; the values are reordered."""
    n = len(values)
    if n < k:
        return least
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
    return max(values[0], least)
