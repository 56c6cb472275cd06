"""⟨q, p⟩ of retrieved passages, and element-wise extremes of them: compiled loops on the CPU, arrays on a device.

A matrix product would multiply every query with every passage; of these pairs, a fifth or fewer are needed. On the CPU
passages are taken a few at a time, so that they stay in a core's cache while all queries meet them. A pair is computed
by the same instructions in the same order whatever is around it: equal passages have equal products, to the last bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy import sparse

from haybale.parallel import in_threads
from haybale.retrieval.hits import Ints
from haybale.vectors import Matrix, array_namespace

Array = Any  # of NumPy or CuPy: of the library that the hits are in
_CACHED = 2**18  # values of passage vectors a core works on at a time: 1 MiB
_TILE_ON_DEVICE = 2**26  # values of passages that are gathered at once
_MATH = {"reassoc", "contract"}  # sums in several lanes; NaN has been refused before


def multiply(wanted: Array, q: Array, passages: Matrix, numbers: Array) -> Array:
    """(q, m + 1) float32 products of ``q`` (q, d) with ``passages[numbers]`` (m, d), at least where ``wanted``.

    Summed in float64, then rounded; the last column is 0. Passages are float32 or float16, or CSR.
    """
    xp = array_namespace(q)
    out = xp.zeros(wanted.shape, dtype=xp.float32)
    if sparse.issparse(passages):
        out[:, :-1] = (passages[numbers].astype(np.float64) @ q.T).T
        return out

    def fill(start: int) -> None:
        some = numbers[start : start + step]
        if xp is not np:
            out[:, start : start + len(some)] = q @ passages[some].astype(xp.float64).T
        elif passages.dtype == np.float16:  # which numba has no arithmetic for
            _multiply(wanted, q, passages[some].astype(np.float32), np.arange(len(some)), start, out)
        else:
            _multiply(wanted, q, passages, some, start, out)

    step = max(1, (_CACHED if xp is np else _TILE_ON_DEVICE) // passages.shape[1])
    in_threads(fill, range(0, len(numbers), step), None if xp is np else 1)
    return out


@njit(nogil=True, fastmath=_MATH, cache=True)
def _multiply(wanted: Any, q: Any, passages: Any, places: Any, first: Any, out: Any) -> None:
    for i in range(len(q)):  # pragma: no cover - compiled
        row = q[i]
        for column in range(first, first + len(places)):
            if wanted[i, column]:
                vector = passages[places[column - first]]
                total = 0.0
                for k in range(len(row)):
                    total += row[k] * np.float64(vector[k])
                out[i, column] = total


def document_extremes(passages: Matrix, wanted: Array, doc_of: Array, n: int, q: Array, ufunc: str) -> Array:
    """(q, n) ⟨q, the ``"minimum"`` or ``"maximum"`` of a document's wanted passages⟩, for each of the n documents.

    ``wanted`` (q, n_passages); 0 where no passage is.
    """
    out = array_namespace(doc_of).zeros((len(q), n))
    if not isinstance(passages, np.ndarray):
        for query in range(len(q)):
            some = wanted[query].nonzero()[0]
            of_query = _sparse_extremes if sparse.issparse(passages) else _extremes_on_device
            out[query] = of_query(passages[some], doc_of[some], n, q[query], ufunc)
        return out
    starts = np.searchsorted(doc_of, np.arange(n + 1))

    def fill(first: int) -> None:  # queries share a document while a cache holds it
        last, before, vectors = min(first + step, n), 0, passages
        if passages.dtype == np.float16:  # which numba has no arithmetic for
            before = int(starts[first])
            vectors = passages[before : starts[last]].astype(np.float32)
        _extremes(wanted, q, vectors, before, starts, first, last, ufunc == "maximum", out)

    step = max(1, _CACHED // max(1, len(passages) * passages.shape[1] // max(1, n)))
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
            found = False
            for p in range(starts[document], starts[document + 1]):
                if wanted[i, p]:
                    vector = passages[p - before]
                    if not found:
                        best[:] = vector
                    elif largest:
                        for k in range(d):
                            best[k] = vector[k] if vector[k] > best[k] else best[k]
                    else:
                        for k in range(d):
                            best[k] = vector[k] if vector[k] < best[k] else best[k]
                    found = True
            if found:
                row = q[i]
                total = 0.0
                for k in range(d):
                    total += row[k] * np.float64(best[k])
                out[i, document] = total


def _extremes_on_device(rows: Array, document: Array, n: int, q: Array, ufunc: str) -> Array:
    xp = array_namespace(rows)
    documents, place = xp.unique(document, return_inverse=True)
    shape = len(documents), rows.shape[1]
    best, out = xp.full(shape, -xp.inf if ufunc == "maximum" else xp.inf, dtype=xp.float32), xp.zeros(n)
    getattr(xp, ufunc).at(best, place, rows.astype(xp.float32, copy=False))
    out[documents] = (q * best).sum(axis=1)
    return out


def _sparse_extremes(rows: Any, document: Ints, n: int, q: Array, ufunc: str) -> NDArray[np.float64]:
    """The extreme of the stored values, and of 0 where a row of the document has none."""
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
