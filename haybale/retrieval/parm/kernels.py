"""Compute ⟨q, p⟩ and element-wise extremes of retrieved passages on the CPU.

A matrix product would multiply every query with every passage, but at most a fifth of the pairs are needed. The loops
keep a few passages in a core's cache while all queries are multiplied with them. The operations for a pair and their
order do not depend on other pairs, so equal passages have bit-identical products.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from haybale.first_work import numpy_is_faster
from haybale.parallel import in_threads
from haybale.retrieval.hits import Ints
from haybale.retrieval.inverted import read_only
from haybale.vectors import Floats

Doubles = NDArray[np.float64]
_CACHED_VALUES = 2**18  # of passage vectors that a core processes at a time: 1 MiB
_SPARSE_QUERIES_PER_TASK = 32


def multiply(wanted: NDArray[np.bool_], q: Any, passages: Any, numbers: Ints) -> Floats:
    """Return the products of ``q`` (q, d) and ``passages[numbers]`` (m, d), (q, m + 1) float32 with a last column of 0.

    Only products where ``wanted`` is true are defined. They are summed in float64 and rounded. Passages are float32,
    float16 or CSR; if they are a CSR matrix of SciPy, so are the queries.
    """
    if sparse.issparse(passages):
        return _multiply_rows(wanted, q, passages, numbers)
    from haybale.retrieval.parm.product_loops import multiply_dense

    out = np.zeros(wanted.shape, dtype=np.float32)

    def fill(start: int) -> None:
        tile = numbers[start : start + step]
        if passages.dtype == np.float16:  # numba has no float16 arithmetic
            multiply_dense(wanted, q, passages[tile].astype(np.float32), np.arange(len(tile)), start, out)
        else:
            multiply_dense(wanted, q, passages, tile, start, out)

    step = max(1, _CACHED_VALUES // passages.shape[1])
    in_threads(fill, range(0, len(numbers), step))
    return out


def _multiply_rows(wanted: NDArray[np.bool_], q: Any, passages: Any, numbers: Ints) -> Floats:
    """Return the products of sparse queries and passages; one query at a time is densified."""
    out = np.zeros(wanted.shape, dtype=np.float32)
    n_rows = np.count_nonzero(wanted)
    if numpy_is_faster(n_rows * (passages.nnz // max(1, passages.shape[0]) + passages.shape[1] // max(1, n_rows))):
        for i in range(len(wanted)):
            columns = np.flatnonzero(wanted[i, :-1])
            rows = passages[numbers[columns]]
            products = rows.data.astype(np.float64) * q[[i]].toarray()[0][rows.indices]
            line = np.repeat(np.arange(len(columns)), np.diff(rows.indptr))
            out[i, columns] = np.bincount(line, products, len(columns))  # adds in the order of the entries
        return out
    from haybale.retrieval.parm.product_loops import multiply_sparse

    offsets, terms, weights = (read_only(part) for part in (passages.indptr, passages.indices, passages.data))

    def fill(start: int) -> None:
        query = np.zeros(passages.shape[1])
        for i in range(start, min(start + _SPARSE_QUERIES_PER_TASK, len(wanted))):
            part = slice(q.indptr[i], q.indptr[i + 1])
            query[q.indices[part]] = q.data[part]
            columns = np.flatnonzero(wanted[i, :-1])
            multiply_sparse(columns, query, offsets, terms, weights, numbers, out[i])
            query[q.indices[part]] = 0

    in_threads(fill, range(0, len(wanted), _SPARSE_QUERIES_PER_TASK))
    return out


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
    from haybale.retrieval.parm.product_loops import extremes

    starts = np.searchsorted(doc_of, np.arange(n + 1))

    def fill(first: int) -> None:  # process all queries while a document is in the cache
        last, before, vectors = min(first + step, n), 0, passages
        if passages.dtype == np.float16:  # numba has no float16 arithmetic
            before = int(starts[first])
            vectors = passages[before : starts[last]].astype(np.float32)
        extremes(wanted, q, vectors, before, starts, first, last, ufunc == "maximum", out)

    step = max(1, _CACHED_VALUES // max(1, len(passages) * passages.shape[1] // max(1, n)))
    in_threads(fill, range(0, n, step))
    return out


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
