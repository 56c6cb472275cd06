"""Compute ⟨q, p⟩ and element-wise extremes of retrieved passages on the CPU.

A matrix product would multiply every query with every passage, but at most a fifth of the pairs are needed. The loops
keep a few passages in a core's cache while all queries are multiplied with them. The operations for a pair and their
order do not depend on other pairs, so equal passages have bit-identical products.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy import sparse

from haybale.parallel import in_threads
from haybale.retrieval.hits import Ints
from haybale.retrieval.inverted import read_only
from haybale.vectors import Floats

Doubles = NDArray[np.float64]
_CACHED_VALUES = 2**18  # of passage vectors that a core processes at a time: 1 MiB
_SPARSE_QUERIES_PER_TASK = 32
_MATH = {"reassoc", "contract"}  # allows sums in several lanes; NaN was rejected before


def multiply(wanted: NDArray[np.bool_], q: Any, passages: Any, numbers: Ints) -> Floats:
    """Return the products of ``q`` (q, d) and ``passages[numbers]`` (m, d), (q, m + 1) float32 with a last column of 0.

    Only products where ``wanted`` is true are defined. They are summed in float64 and rounded. Passages are float32,
    float16 or CSR; if they are a CSR matrix of SciPy, so are the queries.
    """
    if sparse.issparse(passages):
        return _multiply_rows(wanted, q, passages, numbers)
    out = np.zeros(wanted.shape, dtype=np.float32)

    def fill(start: int) -> None:
        tile = numbers[start : start + step]
        if passages.dtype == np.float16:  # numba has no float16 arithmetic
            _multiply(wanted, q, passages[tile].astype(np.float32), np.arange(len(tile)), start, out)
        else:
            _multiply(wanted, q, passages, tile, start, out)

    step = max(1, _CACHED_VALUES // passages.shape[1])
    in_threads(fill, range(0, len(numbers), step))
    return out


@njit(nogil=True, fastmath=_MATH, cache=True)
def _multiply(wanted: Any, q: Any, passages: Any, numbers: Any, first: Any, out: Any) -> None:
    for i in range(len(q)):  # pragma: no cover - compiled
        row = q[i]
        for column in range(first, first + len(numbers)):
            if wanted[i, column]:
                vector = passages[numbers[column - first]]
                total = 0.0
                for k in range(len(row)):
                    total += row[k] * np.float64(vector[k])
                out[i, column] = total


def _multiply_rows(wanted: NDArray[np.bool_], q: Any, passages: Any, numbers: Ints) -> Floats:
    """Return the products of sparse queries and passages; one query at a time is densified."""
    out = np.zeros(wanted.shape, dtype=np.float32)
    offsets, terms, weights = (read_only(part) for part in (passages.indptr, passages.indices, passages.data))

    def fill(start: int) -> None:
        query = np.zeros(passages.shape[1])
        for i in range(start, min(start + _SPARSE_QUERIES_PER_TASK, len(wanted))):
            part = slice(q.indptr[i], q.indptr[i + 1])
            query[q.indices[part]] = q.data[part]
            columns = np.flatnonzero(wanted[i, :-1])
            _multiply_sparse(columns, query, offsets, terms, weights, numbers, out[i])
            query[q.indices[part]] = 0

    in_threads(fill, range(0, len(wanted), _SPARSE_QUERIES_PER_TASK))
    return out


@njit(nogil=True, cache=True)
def _multiply_sparse(
    columns: Any, query: Any, offsets: Any, terms: Any, weights: Any, numbers: Any, out: Any
) -> None:  # pragma: no cover - compiled
    for column in columns:
        passage = numbers[column]
        total = 0.0
        for entry in range(offsets[passage], offsets[passage + 1]):
            total += np.float64(weights[entry]) * query[terms[entry]]
        out[column] = total


def document_extremes(
    passages: Any, wanted: NDArray[np.bool_], doc_of: Ints, n: int, q: Doubles, ufunc: str
) -> Doubles:
    """Return (q, n) ⟨q, element-wise ``"minimum"`` or ``"maximum"`` of a document's wanted passages⟩.

    ``wanted`` is a mask (q, n_passages). The value is 0 for a document without a wanted passage.
    """
    out = np.zeros((len(q), n))
    if sparse.issparse(passages):
        for query in range(len(q)):
            rows = np.flatnonzero(wanted[query])
            out[query] = _sparse_extremes(passages[rows], doc_of[rows], n, q[query], ufunc)
        return out
    starts = np.searchsorted(doc_of, np.arange(n + 1))

    def fill(first: int) -> None:  # process all queries while a document is in the cache
        last, before, vectors = min(first + step, n), 0, passages
        if passages.dtype == np.float16:  # numba has no float16 arithmetic
            before = int(starts[first])
            vectors = passages[before : starts[last]].astype(np.float32)
        _extremes(wanted, q, vectors, before, starts, first, last, ufunc == "maximum", out)

    step = max(1, _CACHED_VALUES // max(1, len(passages) * passages.shape[1] // max(1, n)))
    in_threads(fill, range(0, n, step))
    return out


@njit(nogil=True, fastmath=_MATH, cache=True)
def _extremes(
    wanted: Any, q: Any, passages: Any, before: Any, starts: Any, first: Any, last: Any, largest: Any, out: Any
) -> None:  # pragma: no cover - compiled
    d = passages.shape[1]
    best = np.empty(d, dtype=np.float32)
    for document in range(first, last):
        for i in range(len(q)):
            has_passage = False
            for p in range(starts[document], starts[document + 1]):
                if wanted[i, p]:
                    vector = passages[p - before]
                    if not has_passage:
                        best[:] = vector
                    elif largest:
                        for k in range(d):
                            best[k] = vector[k] if vector[k] > best[k] else best[k]
                    else:
                        for k in range(d):
                            best[k] = vector[k] if vector[k] < best[k] else best[k]
                    has_passage = True
            if has_passage:
                row = q[i]
                total = 0.0
                for k in range(d):
                    total += row[k] * np.float64(best[k])
                out[i, document] = total


def _sparse_extremes(rows: Any, document: Ints, n: int, q: Doubles, ufunc: str) -> Doubles:
    """Compute the extremes of sparse rows. A term that some row of a document lacks has the value 0 there."""
    key = np.repeat(document, np.diff(rows.indptr)) * rows.shape[1] + rows.indices
    order = np.argsort(key, kind="stable")
    key, values = key[order], rows.data[order]
    first = np.flatnonzero(np.diff(key, prepend=-1))
    if not len(first):
        return np.zeros(n)
    best = getattr(np, ufunc).reduceat(values, first)
    line, term = np.divmod(key[first], rows.shape[1])
    absent = np.diff(first, append=len(key)) < np.bincount(document)[line]
    best = np.where(absent, getattr(np, ufunc)(best, 0), best)
    return np.asarray(np.bincount(line, weights=best * q[term], minlength=n), dtype=np.float64)
