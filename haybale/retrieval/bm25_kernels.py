"""BM25's search: the best passages, or documents by their best passage, of many queries by compiled loops.

Sums are float32, read as uint32 where they are compared: of numbers that are not negative both rise alike, and 0 is a
passage without any of the query's terms. A key is a score and a number in one integer: keys rise as scores fall, and
among equal scores with the number.

A query with many terms sums into all passages, and what it found is read in their order; one with few lists the
passages it comes by. Where terms repeat much, as they do in a document that is a query, they are summed once first,
times their number, and only what can be among the best by that is summed as it has to be: term after term.

Numbers that are indexes are uint32: numba checks signed ones for being negative, which takes as long as the addition.
What queries of one thread share is left clean by each.
"""

from __future__ import annotations

import sys
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import NDArray

from haybale.machine import in_threads
from haybale.retrieval.hits import Ints
from haybale.vectors import Floats

_QUERIES = 32  # a thread takes at once; they share its sums
_KEYS = 2**20  # at most, of them together: 8 MiB
_INVERTED = 0xFFFFFFFF
_LOW = 0 if sys.byteorder == "little" else 1  # where the lower half of a key is
_GROUP = 16  # sums of which the highest is looked at first
_BITS, _BUCKETS = 13, 2**13  # of a key, that one pass of the selection looks at
_SORTED = 256  # keys that are sorted, not selected
_DENSE = 4  # a query whose terms have a quarter as many postings as there are passages sums into all of them
# What it takes to sum repeated terms once first, in additions: for each posting of a term, and for each passage.
_ONCE, _ONCE_FOR_ALL = 2.5, 4
_FEW = 2**22  # weights of chosen passages: 32 MiB; where there are more, all are summed as they have to be
_LEAST = np.float32(1e-45)  # above 0
_ULP = 2.0**-24  # the relative error of an addition


class Weighted(NamedTuple):
    """An inverted index: the passages of each term and their weights, and the passages of each document."""

    offsets: Ints  # (n_terms + 1,)
    passages: NDArray[np.uint32]  # (n_pairs,)
    weights: Floats  # (n_pairs,)
    doc_offsets: Ints  # (n_documents + 1,)


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


def best(
    index: Weighted, queries: Queries, k: int, excluded: Ints, doc_of: NDArray[np.uint32] | None = None
) -> tuple[Ints, Ints, Floats]:
    """``(how many of each query, number, score)`` of what is best, in the order of the keys, or of the documents.

    The k best passages of each query, those with any; or, with the document ``doc_of`` (n,) of each passage, the
    documents that score at least as high as the k-th best. ``excluded`` (m,): a document to leave out, -1 for none.
    """
    n, n_documents = int(index.doc_offsets[-1]), len(index.doc_offsets) - 1
    by_document = doc_of is not None
    of = np.empty(0, dtype=np.uint32) if doc_of is None else doc_of
    most = n_documents if by_document else n
    first, end = (np.where(excluded >= 0, index.doc_offsets[excluded + i], 0) for i in (0, 1))

    def search(rows: slice) -> tuple[Ints, Ints, Floats]:
        room = most if by_document else 0
        work = (
            *(np.zeros(n, dtype=np.float32), np.empty(n + 1, dtype=np.uint32)),
            *(np.zeros(room, dtype=np.float32), np.empty(room + 1, dtype=np.uint32)),
            np.empty((2, min(2 * k + 1024, most) + _GROUP), dtype=np.uint64),
        )
        counts, keys = _search(*index[:3], *queries.part(rows), first[rows], end[rows], of, k, *work)
        ends = np.cumsum(counts)
        for start, stop in zip((ends - counts).tolist(), ends.tolist(), strict=True):
            keys[start:stop].sort()
        low, high = keys.view(np.uint32)[_LOW::2], keys.view(np.uint32)[1 - _LOW :: 2]
        numbers, bits = (high, low) if by_document else (low, ~high)
        return counts, numbers.astype(np.int64), np.ascontiguousarray(bits).view(np.float32)

    found = in_threads(search, slices(queries.m, max(1, min(_QUERIES, _KEYS // k))))
    none = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64), np.empty(0, dtype=np.float32)
    counts, numbers, scores = (np.concatenate(column) for column in zip(none, *found, strict=True))
    return counts, numbers, scores


def scores_within(index: Weighted, queries: Queries, document: int) -> Floats:
    """(m, passages of the document) their scores, 0 for none."""
    first, end = (int(place) for place in index.doc_offsets[document : document + 2])
    out = np.zeros((queries.m, end - first), dtype=np.float32)
    _score_within(*index[:3], *queries, first, end, out)
    return out


def slices(m: int, step: int) -> list[slice]:
    """0 to m in steps."""
    return [slice(start, min(start + step, m)) for start in range(0, m, step)]


@njit(nogil=True, cache=True)
def _search(
    offsets: Any,
    passages: Any,
    weights: Any,
    terms: Any,
    rows: Any,
    first: Any,
    end: Any,
    doc_of: Any,
    k: int,
    sums: Any,
    found: Any,
    highest: Any,
    listed: Any,
    keys: Any,
) -> Any:  # pragma: no cover - compiled
    """How many keys each row has, and all of them: see :func:`best`.

    ``terms[rows[r]:rows[r + 1]]`` are a row's; ``first[r]:end[r]`` the passages it leaves out. ``sums`` (n,) zeros and
    ``found`` (n + 1,), ``highest`` (n_documents,) zeros and ``listed`` (n_documents + 1,), ``keys`` (2, some) are what
    is worked with.
    """
    by_document, n = len(doc_of) > 0, len(sums)
    bits, highest_bits = sums.view(np.uint32), highest.view(np.uint32)
    values = highest_bits if by_document else bits
    counts = np.zeros(len(rows) - 1, dtype=np.int64)
    out, total = np.empty(max(1024, 0 if by_document else k * len(counts)), dtype=np.uint64), 0
    for row in range(len(rows) - 1):
        asked = terms[rows[row] : rows[row + 1]]
        pairs, several = _pairs(offsets, asked), -1  # how many are listed: -1 for all
        if pairs * _DENSE >= n:
            if _is_repetitive(offsets, asked, pairs, n):
                slack = _add_once(offsets, passages, weights, asked, sums)
                _clear(sums, first[row], end[row])
                _best_of_documents(bits, doc_of, highest_bits)
                size = _collect(values, k, keys)
                least = _score(_last(keys, size)) if size == k else np.float32(0)
                _sum_again(offsets, passages, weights, asked, sums, least * np.float32(1 - slack), found)
            else:
                _add(offsets, passages, weights, asked, sums)
            _clear(sums, first[row], end[row])
            _best_of_documents(bits, doc_of, highest_bits)
            size = _collect(values, k, keys)
        else:
            several = _add_listed(offsets, passages, weights, asked, sums, found)
            for i in range(several):
                if first[row] <= found[i] < end[row]:
                    bits[found[i]] = 0
            if by_document:
                several = _list_documents(bits, found, several, doc_of, highest_bits, listed)
            size = _collect_listed(values, listed if by_document else found, several, k, keys)
        start = total
        if by_document:  # all with the score of the last
            limit = max(_bits(_last(keys, size)), np.uint32(1)) if size == k else np.uint32(1)
            room = several
            if several < 0:
                room = 0
                for document in range(len(values)):
                    room += values[document] >= limit
            out = _with_room(out, total, room)
            if several < 0:
                for document in range(len(values)):
                    if values[document] >= limit:
                        out[total] = (np.uint64(document) << np.uint64(32)) | np.uint64(values[document])
                        total += 1
            for i in range(several):
                if values[listed[i]] >= limit:
                    out[total] = (np.uint64(listed[i]) << np.uint64(32)) | np.uint64(values[listed[i]])
                    total += 1
        else:
            for i in range(size):
                out[total + i] = keys[0, i]
            total += size
        counts[row] = total - start
        if several < 0:
            _clear(sums, 0, n)
            _clear(highest, 0, len(highest))
        else:
            for i in range(several):
                values[listed[i] if by_document else found[i]] = 0
    return counts, out[:total]


@njit(nogil=True, cache=True)
def _score_within(
    offsets: Any, passages: Any, weights: Any, terms: Any, rows: Any, first: int, end: int, out: Any
) -> None:  # pragma: no cover - compiled
    """Add the scores of the passages ``first:end`` to ``out`` (m, end - first)."""
    for row in range(len(rows) - 1):
        for term in terms[rows[row] : rows[row + 1]]:
            of_term = passages[offsets[term] : offsets[term + 1]]
            for place in range(_place(of_term, first), len(of_term)):
                if of_term[place] >= end:
                    break
                out[row, of_term[place] - first] += weights[offsets[term] + place]


@njit(nogil=True, cache=True)
def _clear(values: Any, start: int, end: int) -> None:  # pragma: no cover - compiled
    for i in range(start, end):
        values[i] = 0


@njit(nogil=True, cache=True)
def _last(keys: Any, size: int) -> Any:  # pragma: no cover - compiled
    """The highest of ``keys[0, :size]``."""
    last = np.uint64(0)
    for i in range(size):
        last = max(last, keys[0, i])
    return last


# order: NumPy's sort, unique and searchsorted would take a user's first search 15 seconds to compile -----------


@njit(nogil=True, cache=True)
def _sink(values: Any, place: int, n: int) -> None:  # pragma: no cover - compiled
    value = values[place]
    while 2 * place + 1 < n:
        below = 2 * place + 1
        if below + 1 < n and values[below + 1] > values[below]:
            below += 1
        if values[below] <= value:
            break
        values[place] = values[below]
        place = below
    values[place] = value


@njit(nogil=True, cache=True)
def _sort(values: Any) -> None:  # pragma: no cover - compiled
    """Heapsort, in place (Williams 1964)."""
    n = len(values)
    for place in range(n // 2 - 1, -1, -1):
        _sink(values, place, n)
    for end in range(n - 1, 0, -1):
        values[0], values[end] = values[end], values[0]
        _sink(values, 0, end)


@njit(nogil=True, cache=True)
def _distinct(terms: Any) -> Any:  # pragma: no cover - compiled
    """The different ones, ascending."""
    ordered, n = terms.copy(), 0
    _sort(ordered)
    for term in ordered:
        if n == 0 or ordered[n - 1] != term:
            ordered[n] = term
            n += 1
    return ordered[:n]


@njit(nogil=True, cache=True)
def _place(ordered: Any, value: Any) -> int:  # pragma: no cover - compiled
    """Where the first that is not lower than ``value`` stands."""
    low, high = 0, len(ordered)
    while low < high:
        middle = (low + high) // 2
        if ordered[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low


# sums -----------------------------------------------------------------------------------------------------


@njit(nogil=True, cache=True)
def _pairs(offsets: Any, terms: Any) -> int:  # pragma: no cover - compiled
    """Postings that the terms have together."""
    pairs = 0
    for term in terms:
        pairs += offsets[term + 1] - offsets[term]
    return pairs


@njit(nogil=True, cache=True)
def _add(offsets: Any, passages: Any, weights: Any, terms: Any, sums: Any) -> None:  # pragma: no cover - compiled
    for term in terms:
        of_term, term_weights = passages[offsets[term] : offsets[term + 1]], weights[offsets[term] : offsets[term + 1]]
        for i in range(len(of_term)):
            sums[of_term[i]] += term_weights[i]


@njit(nogil=True, cache=True)
def _add_listed(
    offsets: Any, passages: Any, weights: Any, terms: Any, sums: Any, found: Any
) -> int:  # pragma: no cover - compiled
    """The same; how many passages have a sum, which are then in ``found``."""
    n = 0
    for term in terms:
        of_term, term_weights = passages[offsets[term] : offsets[term + 1]], weights[offsets[term] : offsets[term + 1]]
        for i in range(len(of_term)):
            passage, weight = of_term[i], term_weights[i]
            before = sums[passage]
            found[n] = passage  # stays where the passage is a new one
            n += (before == 0) & (weight > 0)
            sums[passage] = before + weight
    return n


@njit(nogil=True, cache=True)
def _is_repetitive(offsets: Any, terms: Any, pairs: int, n: int) -> bool:  # pragma: no cover - compiled
    """Whether terms repeat so much that each is worth to be summed once first; not where that would blur the sums."""
    if pairs < _ONCE_FOR_ALL * n or len(terms) > 2**20:
        return False
    return pairs > _ONCE * _pairs(offsets, _distinct(terms)) + _ONCE_FOR_ALL * n


@njit(nogil=True, cache=True)
def _add_once(offsets: Any, passages: Any, weights: Any, terms: Any, sums: Any) -> float:  # pragma: no cover - compiled
    """Add each term once, times its number; how far, relatively, a sum may fall behind one that is really lower.

    n additions of floats that are not negative have a relative error of at most n / 2^24: those here and those that
    are compared, of the one and of the other passage.
    """
    different = _distinct(terms)
    times = np.zeros(len(different), dtype=np.float32)
    for term in terms:
        times[_place(different, term)] += np.float32(1)
    for i in range(len(different)):
        term, factor = different[i], times[i]
        of_term, term_weights = passages[offsets[term] : offsets[term + 1]], weights[offsets[term] : offsets[term + 1]]
        for pair in range(len(of_term)):
            sums[of_term[pair]] += factor * term_weights[pair]
    return 2.2 * (len(terms) + len(different) + 4) * _ULP


@njit(nogil=True, cache=True)
def _sum_again(
    offsets: Any, passages: Any, weights: Any, terms: Any, sums: Any, least: Any, found: Any
) -> None:  # pragma: no cover - compiled
    """Replace each sum of at least ``least`` by that of term after term; others by it, or by 0."""
    n, chosen, most = len(sums), 0, 0
    least = max(least, _LEAST)
    for passage in range(n):
        found[chosen] = passage  # stays where it is one of them
        chosen += sums[passage] >= least
    different = _distinct(terms)
    for term in different:
        most += min(chosen, offsets[term + 1] - offsets[term])
    if most > _FEW:
        _clear(sums, 0, n)
        _add(offsets, passages, weights, terms, sums)
        return
    places = np.full(n, chosen, dtype=np.uint32)
    for i in range(chosen):
        places[found[i]] = i
    few, few_weights = np.empty(most + 1, dtype=np.uint32), np.empty(most + 1, dtype=np.float32)
    few_offsets = np.zeros(len(different) + 1, dtype=np.int64)
    size = 0
    for i in range(len(different)):
        term = different[i]
        of_term, term_weights = passages[offsets[term] : offsets[term + 1]], weights[offsets[term] : offsets[term + 1]]
        for pair in range(len(of_term)):
            place = places[of_term[pair]]
            few[size], few_weights[size] = place, term_weights[pair]  # stay where the passage is among them
            size += place < chosen
        few_offsets[i + 1] = size
    exact = np.zeros(chosen, dtype=np.float32)
    numbers = np.empty(len(terms), dtype=np.int64)
    for i in range(len(terms)):
        numbers[i] = _place(different, terms[i])
    _add(few_offsets, few, few_weights, numbers, exact)
    _clear(sums, 0, n)
    for i in range(chosen):
        sums[found[i]] = exact[i]


@njit(nogil=True, cache=True)
def _best_of_documents(bits: Any, doc_of: Any, highest: Any) -> None:  # pragma: no cover - compiled
    """The highest sum among each document's passages."""
    _clear(highest, 0, len(highest))
    for passage in range(len(doc_of)):  # a loop over documents would be mispredicted at the end of each
        document, value = doc_of[passage], bits[passage]
        before = highest[document]
        highest[document] = value if value > before else before


@njit(nogil=True, cache=True)
def _list_documents(
    bits: Any, found: Any, n: int, doc_of: Any, highest: Any, listed: Any
) -> int:  # pragma: no cover - compiled
    """The same of listed passages, whose sums are cleared; how many documents, which are then in ``listed``."""
    documents = 0
    for i in range(n):
        value, document = bits[found[i]], doc_of[found[i]]
        listed[documents] = document  # stays where the document is a new one
        documents += (highest[document] == 0) & (value > 0)
        highest[document] = max(highest[document], value)
        bits[found[i]] = 0
    return documents


# selection ------------------------------------------------------------------------------------------------


@njit(nogil=True, cache=True)
def _key(bits: Any, number: Any) -> Any:  # pragma: no cover - compiled
    return (np.uint64(_INVERTED - np.int64(bits)) << np.uint64(32)) | np.uint64(number)


@njit(nogil=True, cache=True)
def _bits(key: Any) -> Any:  # pragma: no cover - compiled
    """Of the score."""
    return np.uint32(_INVERTED - np.int64(key >> np.uint64(32)))


@njit(nogil=True, cache=True)
def _score(key: Any) -> Any:  # pragma: no cover - compiled
    one = np.empty(1, dtype=np.uint32)
    one[0] = _bits(key)
    return one.view(np.float32)[0]


@njit(nogil=True, cache=True)
def _collect(bits: Any, k: int, keys: Any) -> int:  # pragma: no cover - compiled
    """Put the keys of the k highest of ``bits`` (n,) that are not 0 into ``keys[0]``, in any order; how many.

    First of groups: number i is of group i modulo their number, so their highest are found by whole rows at once. As
    many groups as there are above the k-th highest of these have a number at least as high: no lower one is looked at.
    """
    groups = len(bits) // _GROUP
    tops = np.empty(groups, dtype=np.uint32)
    for group in range(groups):
        tops[group] = bits[group]
    for row in range(1, _GROUP):
        line = bits[row * groups : (row + 1) * groups]
        for group in range(groups):
            tops[group] = max(tops[group], line[group])
    size, limit = 0, np.uint32(1)
    if k < groups:
        limit = max(limit, _kth_highest(tops, k))
    for group in range(groups):
        if tops[group] >= limit:
            for number in range(group, _GROUP * groups, groups):
                if bits[number] >= limit:
                    keys[0, size] = _key(bits[number], number)
                    size += 1
            if size > keys.shape[1] - _GROUP:
                size, limit = _cut(keys, size, k)
    for number in range(_GROUP * groups, len(bits)):
        if bits[number] >= limit:
            keys[0, size] = _key(bits[number], number)
            size += 1
    return _cut(keys, size, k)[0]  # type: ignore[no-any-return]


@njit(nogil=True, cache=True)
def _collect_listed(bits: Any, listed: Any, n: int, k: int, keys: Any) -> int:  # pragma: no cover - compiled
    """The same of the n listed numbers alone."""
    size, limit = 0, np.uint32(1)
    for i in range(n):
        if bits[listed[i]] >= limit:
            keys[0, size] = _key(bits[listed[i]], listed[i])
            size += 1
            if size == keys.shape[1]:
                size, limit = _cut(keys, size, k)
    return _cut(keys, size, k)[0]  # type: ignore[no-any-return]


@njit(nogil=True, cache=True)
def _kth_highest(values: Any, k: int) -> Any:  # pragma: no cover - compiled
    keys = np.empty((2, len(values)), dtype=np.uint64)
    for i in range(len(values)):
        keys[0, i] = _key(values[i], i)
    return _cut(keys, len(values), k)[1]


@njit(nogil=True, cache=True)
def _cut(keys: Any, size: int, k: int) -> Any:  # pragma: no cover - compiled
    """Keep the k lowest of ``keys[0, :size]``: how many there are now, and the bits of the k-th score, 1 if fewer."""
    if size < k:
        return size, np.uint32(1)
    if size > k:
        _lowest(keys[0], keys[1], size, k)
    return k, _bits(_last(keys, k))


@njit(nogil=True, cache=True)
def _lowest(keys: Any, spare: Any, n: int, k: int) -> None:  # pragma: no cover - compiled
    """Move the k lowest of the first n keys to the front, in any order: a radix selection from the highest bits."""
    start, shift = 0, 63 - _BITS  # the highest bit is set in all
    histogram = np.empty(_BUCKETS, dtype=np.int32)
    mask = np.uint64(_BUCKETS - 1)
    while n - start > _SORTED and start < k < n:
        _clear(histogram, 0, _BUCKETS)
        for i in range(start, n):
            histogram[np.int64((keys[i] >> np.uint64(shift)) & mask)] += 1
        bucket, below = 0, start
        while below + histogram[bucket] < k:
            below += histogram[bucket]
            bucket += 1
        # Keys below the bucket stay, at the front; those in it follow, to be selected among; the others are dropped.
        low, inside = start, 0
        for i in range(start, n):
            key = keys[i]
            place = np.int64((key >> np.uint64(shift)) & mask)
            if place < bucket:
                keys[low] = key
                low += 1
            elif place == bucket:
                spare[inside] = key
                inside += 1
        for i in range(inside):
            keys[low + i] = spare[i]
        start, n = low, low + inside
        shift = max(0, shift - _BITS)
    if start < k < n:
        _sort(keys[start:n])


@njit(nogil=True, cache=True)
def _with_room(out: Any, size: int, more: int) -> Any:  # pragma: no cover - compiled
    """``out``, or a copy of its first ``size`` values with room for more."""
    if size + more <= len(out):
        return out
    wider = np.empty(max(2 * len(out), size + more), dtype=np.uint64)
    for i in range(size):
        wider[i] = out[i]
    return wider
