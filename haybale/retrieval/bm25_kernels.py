"""BM25's compiled loops. Every row is one query; what they share is left clean by each.

Sums are float32, read as uint32 where they are compared: of numbers that are not negative both rise alike, and 0 is a
passage without any of the query's terms. A key is a score and a number in one integer: keys rise as scores fall, and
among equal scores with the number.

A query with many terms sums into all passages, and what it found is read in their order; one with few lists the
passages it comes by. Where terms repeat much, as they do in a document that is a query, they are summed once first,
times their number, and only what can be among the best by that is summed as it has to be: term after term.

Numbers that are indexes are uint32: numba checks signed ones for being negative, which takes as long as the addition.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from haybale.retrieval.hits import NO_PASSAGE

INVERTED = 0xFFFFFFFF
PADDING = np.uint64(0xFFFFFFFFFFFFFFFF)
GROUP = 16  # sums of which the highest is looked at first
_BITS, _BUCKETS = 13, 2**13  # of a key, that one pass of the selection looks at
_SORTED = 256  # keys that are sorted, not selected
_DENSE = 4  # a query whose terms have a quarter as many postings as there are passages sums into all of them
# What it takes to sum repeated terms once first, in additions: for each posting of a term, and for each passage.
_ONCE, _ONCE_FOR_ALL = 2.5, 4
_FEW = 2**22  # weights of chosen passages: 32 MiB; where there are more, all are summed as they have to be
_LEAST = np.float32(1e-45)  # above 0
_ULP = 2.0**-24  # the relative error of an addition


@njit(nogil=True, cache=True)
def search_rows(
    offsets: Any,
    passages: Any,
    weights: Any,
    terms: Any,
    rows: Any,
    first: Any,
    end: Any,
    sums: Any,
    found: Any,
    keys: Any,
    out: Any,
) -> None:  # pragma: no cover - compiled
    """The keys of the best passages of each row, in any order, padding behind them.

    ``terms[rows[r]:rows[r + 1]]`` are a row's; ``first[r]:end[r]`` the passages it leaves out. ``sums`` (n,) zeros,
    ``found`` (n + 1,), ``keys`` (2, some) what is worked with.
    """
    bits, k, n = sums.view(np.uint32), out.shape[1], len(sums)
    for row in range(len(rows) - 1):
        asked = terms[rows[row] : rows[row + 1]]
        pairs = _pairs(offsets, asked)
        if pairs * _DENSE >= n:
            if _is_repetitive(offsets, asked, pairs, n):
                slack = _add_once(offsets, passages, weights, asked, sums)
                _clear(sums, first[row], end[row])
                size = _collect(bits, k, keys)
                least = _score(_last(keys, size)) if size == k else np.float32(0)
                _sum_again(offsets, passages, weights, asked, sums, least * np.float32(1 - slack), found)
            else:
                _add(offsets, passages, weights, asked, sums)
                _clear(sums, first[row], end[row])
            size = _collect(bits, k, keys)
            _clear(sums, 0, len(sums))
        else:
            touched = _add_listed(offsets, passages, weights, asked, sums, found)
            size, limit = 0, np.uint32(1)
            for i in range(touched):
                passage = found[i]
                if bits[passage] >= limit and not first[row] <= passage < end[row]:
                    keys[0, size] = _key(bits[passage], passage)
                    size += 1
                    if size == keys.shape[1]:
                        size, limit = _cut(keys, size, k)
                bits[passage] = 0
            size, limit = _cut(keys, size, k)
        for i in range(k):
            out[row, i] = keys[0, i] if i < size else PADDING


@njit(nogil=True, cache=True)
def search_documents(
    offsets: Any,
    passages: Any,
    weights: Any,
    terms: Any,
    rows: Any,
    own: Any,
    doc_of: Any,
    depth: int,
    sums: Any,
    found: Any,
    best: Any,
    listed: Any,
    keys: Any,
) -> Any:  # pragma: no cover - compiled
    """How many documents each row has that score at least as high as its ``depth``-th best; and all of them.

    A document and its score, that of its best passage, are one integer; a row's rise. ``own[r]`` is left out of row r.
    ``best`` (n_documents,) zeros, ``listed`` (n_documents + 1,); the rest as in :func:`search_rows`.
    """
    bits, best_bits = sums.view(np.uint32), best.view(np.uint32)
    n, n_documents = len(sums), len(best)
    counts = np.zeros(len(rows) - 1, dtype=np.int64)
    out, total = np.empty(1024, dtype=np.uint64), 0
    for row in range(len(rows) - 1):
        asked = terms[rows[row] : rows[row + 1]]
        pairs = _pairs(offsets, asked)
        start = total
        if pairs * _DENSE >= n:
            if _is_repetitive(offsets, asked, pairs, n):
                slack = _add_once(offsets, passages, weights, asked, sums)
                _best_of_documents(bits, doc_of, own[row], best_bits)
                size = _collect(best_bits, depth, keys)
                least = _score(_last(keys, size)) if size == depth else np.float32(0)
                _sum_again(offsets, passages, weights, asked, sums, least * np.float32(1 - slack), found)
            else:
                _add(offsets, passages, weights, asked, sums)
            _best_of_documents(bits, doc_of, own[row], best_bits)
            size = _collect(best_bits, depth, keys)
            limit = max(_bits(_last(keys, size)), np.uint32(1)) if size == depth else np.uint32(1)
            several = 0
            for document in range(n_documents):
                several += best_bits[document] >= limit
            out = _with_room(out, total, several)
            for document in range(n_documents):
                if best_bits[document] >= limit:
                    out[total] = (np.uint64(document) << np.uint64(32)) | np.uint64(best_bits[document])
                    total += 1
            _clear(sums, 0, len(sums))
            _clear(best, 0, len(best))
        else:
            touched = _add_listed(offsets, passages, weights, asked, sums, found)
            documents = 0
            for i in range(touched):
                passage = found[i]
                document = doc_of[passage]
                if document != own[row]:
                    listed[documents] = document
                    documents += best_bits[document] == 0
                    best_bits[document] = max(best_bits[document], bits[passage])
                bits[passage] = 0
            size, limit = 0, np.uint32(1)
            for i in range(documents):
                document = listed[i]
                if best_bits[document] >= limit:
                    keys[0, size] = _key(best_bits[document], document)
                    size += 1
                    if size == keys.shape[1]:
                        size, limit = _cut(keys, size, depth)
            size, limit = _cut(keys, size, depth)
            out = _with_room(out, total, documents)
            for i in range(documents):
                document = listed[i]
                if best_bits[document] >= limit:
                    out[total] = (np.uint64(document) << np.uint64(32)) | np.uint64(best_bits[document])
                    total += 1
                best_bits[document] = 0
            _sort(out[start:total])
        counts[row] = total - start
    return counts, out[:total]


@njit(nogil=True, cache=True)
def score_within(
    offsets: Any, passages: Any, weights: Any, terms: Any, rows: Any, first: int, end: int, out: Any
) -> None:  # pragma: no cover - compiled
    """Add the scores of the passages ``first:end`` to ``out`` (m, end - first)."""
    for row in range(len(rows) - 1):
        for term in terms[rows[row] : rows[row + 1]]:
            own = passages[offsets[term] : offsets[term + 1]]
            for place in range(_place(own, first), len(own)):
                if own[place] >= end:
                    break
                out[row, own[place] - first] += weights[offsets[term] + place]


@njit(nogil=True, cache=True)
def unpack(keys: Any, numbers: Any, scores: Any) -> None:  # pragma: no cover - compiled
    """Keys (m, k) to numbers and scores; padding to -1 and -inf."""
    bits = scores.view(np.uint32)
    for row in range(keys.shape[0]):
        for place in range(keys.shape[1]):
            key = keys[row, place]
            if key == PADDING:
                numbers[row, place], scores[row, place] = NO_PASSAGE, -np.inf
            else:
                numbers[row, place], bits[row, place] = np.int64(key & np.uint64(INVERTED)), _bits(key)


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
        own, own_weights = passages[offsets[term] : offsets[term + 1]], weights[offsets[term] : offsets[term + 1]]
        for i in range(len(own)):
            sums[own[i]] += own_weights[i]


@njit(nogil=True, cache=True)
def _add_listed(
    offsets: Any, passages: Any, weights: Any, terms: Any, sums: Any, found: Any
) -> int:  # pragma: no cover - compiled
    """The same; how many passages have a sum, which are then in ``found``."""
    n = 0
    for term in terms:
        own, own_weights = passages[offsets[term] : offsets[term + 1]], weights[offsets[term] : offsets[term + 1]]
        for i in range(len(own)):
            passage, weight = own[i], own_weights[i]
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
        own, own_weights = passages[offsets[term] : offsets[term + 1]], weights[offsets[term] : offsets[term + 1]]
        for pair in range(len(own)):
            sums[own[pair]] += factor * own_weights[pair]
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
        own, own_weights = passages[offsets[term] : offsets[term + 1]], weights[offsets[term] : offsets[term + 1]]
        for pair in range(len(own)):
            place = places[own[pair]]
            few[size], few_weights[size] = place, own_weights[pair]  # stay where the passage is among them
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
def _best_of_documents(bits: Any, doc_of: Any, own: int, best: Any) -> None:  # pragma: no cover - compiled
    """The highest sum among each document's passages; 0 for the one left out."""
    _clear(best, 0, len(best))
    for passage in range(len(bits)):  # a loop over documents would be mispredicted at the end of each
        document, value = doc_of[passage], bits[passage]
        highest = best[document]
        best[document] = value if value > highest else highest
    if own >= 0:
        best[own] = 0


# selection ------------------------------------------------------------------------------------------------


@njit(nogil=True, cache=True)
def _key(bits: Any, number: Any) -> Any:  # pragma: no cover - compiled
    return (np.uint64(INVERTED - np.int64(bits)) << np.uint64(32)) | np.uint64(number)


@njit(nogil=True, cache=True)
def _bits(key: Any) -> Any:  # pragma: no cover - compiled
    """Of the score."""
    return np.uint32(INVERTED - np.int64(key >> np.uint64(32)))


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
    groups = len(bits) // GROUP
    tops = np.empty(groups, dtype=np.uint32)
    for group in range(groups):
        tops[group] = bits[group]
    for row in range(1, GROUP):
        own = bits[row * groups : (row + 1) * groups]
        for group in range(groups):
            tops[group] = max(tops[group], own[group])
    size, limit = 0, np.uint32(1)
    if k < groups:
        limit = max(limit, _kth_highest(tops, k))
    for group in range(groups):
        if tops[group] >= limit:
            for number in range(group, GROUP * groups, groups):
                if bits[number] >= limit:
                    keys[0, size] = _key(bits[number], number)
                    size += 1
            if size > keys.shape[1] - GROUP:
                size, limit = _cut(keys, size, k)
    for number in range(GROUP * groups, len(bits)):
        if bits[number] >= limit:
            keys[0, size] = _key(bits[number], number)
            size += 1
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
