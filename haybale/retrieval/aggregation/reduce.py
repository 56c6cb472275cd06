"""Segment sums and maxima over the hits of each (query, document), without sorting them.

A sum of floating-point numbers depends on their order. Here each term is first rounded to a grid of its query, so
coarse that every partial sum is exact and so fine that a term moves by less than its bound · 2^-50. So a score does
not depend on the order of the paragraphs, on tiling, threads or device; documents with the same evidence tie; and
the shares of an explanation add up to the score with nothing left over.
"""

from __future__ import annotations

from haybale.retrieval.aggregation.block import Array, Block
from haybale.vectors import array_namespace


def on_grid(terms: Array, segment: Array, n: int, count: Array) -> Array:
    """``terms`` (r, N) rounded so that sums over up to ``count[s]`` of them are exact, s = ``segment`` (r,) of the row.

    >>> import numpy as np
    >>> a = on_grid(np.array([[0.1, 0.2, 0.3]]), np.array([0]), 1, np.array([3]))[0]
    >>> a[0] + a[1] + a[2] == a[2] + a[1] + a[0], 0.1 + 0.2 + 0.3 == 0.3 + 0.2 + 0.1
    (np.True_, False)
    """
    xp = array_namespace(terms)
    largest = xp.zeros(n)
    if terms.shape[1]:
        xp.maximum.at(largest, segment, xp.maximum(terms.max(axis=1), -terms.min(axis=1)))
    # 3 · 2^e with 2^e above the sum of all magnitudes: adding it leaves multiples of 2^(e - 51) only.
    _, exponent = xp.frexp(largest * xp.maximum(count, 1))
    shift = xp.ldexp(xp.full(n, 3.0), exponent)[segment][:, None]
    rounded = terms + shift
    rounded -= shift
    return rounded


def terms_on_grid(block: Block, terms: Array) -> Array:
    """``terms`` (r, N) or (1, N) times the paragraphs' weights, on the grid of each query; 0 where unused."""
    xp = block.xp
    count, weight = block.n_hits_of_query, block.weight
    if not bool((weight == 1).all()):
        terms = terms * weight[:, None]
    elif len(terms) == 1 and block.used is None:  # then rounding once for each query does
        every = xp.arange(block.n_queries)
        rounded = on_grid(xp.repeat(terms, block.n_queries, axis=0), every, block.n_queries, count)
        return rounded[block.query]
    return on_grid(block.masked(terms), block.query, block.n_queries, count)


def sums(block: Block, terms: Array) -> Array:
    """(n_cells,) the sum of each cell's terms, (r, N) on the grid."""
    found = block.xp.bincount(block.cell.ravel(), weights=terms.ravel(), minlength=block.n_cells + 1)
    return found[: block.n_cells]


def maxima(block: Block, terms: Array) -> Array:
    """(n_cells,) the largest of each cell's terms, (r, N); -inf for an empty one."""
    xp = block.xp
    best = xp.full(block.n_cells + 1, -xp.inf)
    xp.maximum.at(best, block.cell.ravel(), terms.ravel())
    return best[: block.n_cells]
