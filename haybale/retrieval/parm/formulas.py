"""The aggregations (:data:`AGGREGATIONS`, at the end): the weight of each hit, and the score of each document.

Both are computed for a :class:`Block`, the hits of several query documents, by array operations without sorting.

A floating-point sum depends on the order of its terms. So each term is first rounded to a multiple of a power of two,
which is large enough to make every partial sum exact. This changes a term by less than 2^-50 of the largest sum. Scores
then do not depend on the order of paragraphs, tiles, threads or the device, and the shares of an explanation sum to the
score exactly.

Linear aggregations of vectors need no vector of a document: ⟨Σ_i q_i, Σ w p⟩ = Σ w ⟨q̂, p⟩ with q̂ = Σ_i q_i. VMin and
VMax (Li et al., PARADE, 2020) are not linear: each dimension of a document comes from one of its passages.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from haybale.device import is_sparse, to_numpy
from haybale.retrieval.hits import NO_PASSAGE, Hits, Ints
from haybale.retrieval.parm.kernels import Array, document_extremes, multiply
from haybale.retrieval.parm.rounding import largest_of_rows, rounded_rows
from haybale.vectors import Matrix, array_namespace

_SEARCHED = 16  # with more passages for each hit, the sorted hits are searched, because a table of all takes longer


class Vectors(NamedTuple):
    """The vectors of all passages (n_passages, d) and of the query paragraphs (n_paragraphs, d), dense or CSR.

    They are float32; passages may also be float16.
    """

    passages: Matrix
    paragraphs: Matrix


@dataclass(frozen=True)
class Task:
    """The checked arguments of an aggregation, on the device of the hits; ``offsets`` are in main memory."""

    aggregation: Aggregation
    hits: Hits  # (n_paragraphs, N)
    offsets: Ints  # (n_queries + 1,)
    doc_of: Array  # (n_passages,)
    n_documents: int
    vectors: Any  # Vectors, or None if the aggregation needs none
    n_hits: int
    rrf_k: float
    occurrences: str

    def rows(self, first: int, last: int) -> tuple[slice, Ints, Array]:
        """Return the rows of the queries ``first:last``, their offsets (q + 1,), and the query of each row (r,)."""
        rows = slice(int(self.offsets[first]), int(self.offsets[last]))
        offsets = self.offsets[first : last + 1] - rows.start
        query = np.repeat(np.arange(last - first), np.diff(offsets))
        return rows, offsets, array_namespace(self.doc_of).asarray(query)


class Products(NamedTuple):
    """⟨q̂, p⟩ for some queries and all passages that any of them retrieved."""

    table: Array  # (q', m + 1); the last column is for padding
    columns: Callable[[Array], Array]  # returns the columns of passages
    first: int  # the number of the first query


@dataclass(frozen=True)
class Block:
    """The hits of r paragraphs of q query documents. Each hit belongs to the cell of its query and document.

    Hits that do not count belong to an additional last cell, which is dropped.
    """

    task: Task
    first: int  # the number of the first query document
    offsets: Ints  # (q + 1,) in main memory
    passages: Array  # (r, N), -1 where there is no hit
    scores: Array  # (r, N)
    paragraphs: Matrix | None  # (r, d)
    query: Array  # (r,) from 0, rising
    used: Array | None  # (r, N) whether the hit counts; None if all do
    cell: Array  # (r, N) query · width + document; n_cells if the hit does not count
    documents: Array | None  # (width,) document numbers; None for all documents
    width: int  # number of documents
    products: Products | None

    @property
    def xp(self) -> Any:
        return array_namespace(self.passages)

    @property
    def n_queries(self) -> int:
        return len(self.offsets) - 1

    @property
    def n_cells(self) -> int:
        return self.n_queries * self.width

    def masked(self, values: Array, otherwise: float = 0) -> Array:
        """Replace ``values`` (r, N) by ``otherwise`` where a hit does not count."""
        return values if self.used is None else self.xp.where(self.used, values, otherwise)

    def nonempty_cells(self) -> tuple[Array, Array, Array]:
        """Return ``(cell, query, document)`` numbers of the cells with a hit, by rising cell."""
        mark = self.xp.zeros(self.n_cells + 1, dtype=bool)
        mark[self.cell] = True
        cells = self.xp.flatnonzero(mark[:-1])
        query, column = self.xp.divmod(cells, self.width)
        return cells, query + self.first, column if self.documents is None else self.documents[column]


def make_block(task: Task, first: int, last: int, products: Products | None) -> Block:
    """Assign the hits of the query documents ``first:last`` to cells."""
    rows, offsets, query = task.rows(first, last)
    passages, doc_of, xp = task.hits.passages[rows], task.doc_of, array_namespace(task.doc_of)
    document = doc_of[passages]  # padding (-1) reads the last document, and is masked below
    used, only_best = None, task.occurrences == "best"
    # Rows are padded at their ends, so the last column shows whether any row is.
    if task.aggregation.only_first or only_best or bool((passages[:, -1:] < 0).any()):
        used = passages != NO_PASSAGE
    if task.aggregation.only_first:
        used &= (passages == 0) | (doc_of[xp.maximum(passages, 1) - 1] != document)
    numbers, width = None, task.n_documents
    if (last - first) * width > passages.size:  # otherwise, a table of all documents is small
        found = document if used is None else document[used]
        if _SEARCHED * found.size < width:
            numbers = _distinct(found, xp)
            document = xp.searchsorted(numbers, document)
        else:
            seen = xp.zeros(width, dtype=bool)
            seen[found] = True
            numbers = xp.flatnonzero(seen)
            document = (xp.cumsum(seen) - 1)[document]
        width = int(numbers.size)
    if only_best:
        used &= _first_hits(document, used, width)
    cell = query[:, None] * width + document
    if used is not None:
        cell = xp.where(used, cell, (last - first) * width)
    paragraphs = None if task.vectors is None else task.vectors.paragraphs[rows]
    hits = passages, task.hits.scores[rows], paragraphs
    return Block(task, first, offsets, *hits, query, used, cell, numbers, width, products)


def _distinct(numbers: Array, xp: Any) -> Array:
    """Return the distinct numbers of an array, rising; ``numpy.unique`` takes three times as long for a thousand."""
    ordered = xp.sort(numbers.ravel())
    return ordered[xp.concatenate([xp.ones(min(1, len(ordered)), dtype=bool), ordered[1:] != ordered[:-1]])]


def _first_hits(document: Array, used: Array, width: int) -> Array:
    """Return the mask (r, N) of hits that are the first of their document in their row."""
    xp = array_namespace(document)
    r, n = document.shape
    column = xp.broadcast_to(xp.arange(n, dtype=xp.int32), (r, n))  # CuPy has no minimum.at for int64
    place = xp.where(used, xp.arange(r)[:, None] * width + document, r * width)
    first = xp.full(r * width + 1, n, dtype=xp.int32)
    xp.minimum.at(first, place.ravel(), column.ravel())
    return first[place] == column


def round_for_sums(terms: Array, segment: Array, n: int, count: Array) -> Array:
    """Round ``terms`` (r, N) so that sums of up to ``count[s]`` terms of a segment s are exact.

    ``segment`` (r,) assigns each row to one of n segments.

    >>> a = round_for_sums(np.array([[0.1, 0.2, 0.3]]), np.array([0]), 1, np.array([3]))[0]
    >>> a[0] + a[1] + a[2] == a[2] + a[1] + a[0], 0.1 + 0.2 + 0.3 == 0.3 + 0.2 + 0.1
    (np.True_, False)
    """
    on_device, largest = array_namespace(terms) is not np, np.zeros(n)
    segment, count = to_numpy(segment), to_numpy(count)
    if terms.size:
        of_rows = largest_of_rows(terms) if on_device else np.maximum(terms.max(axis=1), -terms.min(axis=1))
        np.maximum.at(largest, segment, of_rows)
    # Let 2^e exceed the sum of all magnitudes. Adding 3 · 2^e rounds a term to a multiple of 2^(e - 51).
    _, exponent = np.frexp(largest * np.maximum(count, 1))
    shift = np.ldexp(np.full(n, 3.0), exponent)[segment]
    if on_device:
        return rounded_rows(terms, shift)
    rounded = terms + shift[:, None]
    rounded -= shift[:, None]
    return rounded


def _terms(block: Block, terms: Array) -> Array:
    """Round ``terms`` (r, N) or (1, N) for exact sums in each query; terms of hits that do not count become 0."""
    xp, n, (r, width) = block.xp, block.n_queries, block.cell.shape
    query = np.repeat(np.arange(n), np.diff(block.offsets))  # of each row
    of_row = np.full(r, width) if block.used is None else to_numpy(block.used.sum(axis=1))
    count = np.bincount(query, weights=of_row, minlength=n)  # hits that count, for each query
    if len(terms) == 1 and block.used is None:  # all rows are equal: round once for each query
        of_queries = round_for_sums(np.repeat(to_numpy(terms), n, axis=0), np.arange(n), n, count)
        return xp.asarray(of_queries)[block.query]
    return round_for_sums(block.masked(terms), query, n, count)


def _sums(block: Block, terms: Array) -> Array:
    """Return the sum of the rounded terms (r, N) of each cell, (n_cells,)."""
    found = block.xp.bincount(block.cell.ravel(), weights=terms.ravel(), minlength=block.n_cells + 1)
    return found[: block.n_cells]


# Weights of hits: (r, N) float64, or (1, N) if all rows are equal.


def _one(block: Block) -> Array:
    return block.xp.asarray(np.ones((1, block.passages.shape[1])))


def _score(block: Block) -> Array:
    return block.masked(block.scores).astype(block.xp.float64)


def _reciprocal_rank(block: Block) -> Array:
    return block.xp.asarray(1 / (block.task.rrf_k + _ranks(block)))


def _falling_rank(block: Block) -> Array:
    return block.xp.asarray(block.task.n_hits + 1 - _ranks(block))


def _ranks(block: Block) -> NDArray[np.float64]:
    return np.arange(1, block.passages.shape[1] + 1, dtype=np.float64)[None]


# Scores of cells, from the weights of their hits.


class Scored(NamedTuple):
    """Scores of cells and shares of hits."""

    score: Array  # (n_cells,) undefined for empty cells
    share: Array | None = None  # (r, N), None if the score is not a sum over hits
    divisor: Array | None = None  # (n_cells,) which shares are still to be divided by, as only few are read


def _total(block: Block, weight: Array) -> Scored:
    """Return Σ w."""
    share = _terms(block, weight)
    return Scored(_sums(block, share), share)


def _largest(block: Block, weight: Array) -> Scored:
    """Return max w."""
    best = block.xp.full(block.n_cells + 1, -block.xp.inf)
    block.xp.maximum.at(best, block.cell.ravel(), block.masked(weight, -block.xp.inf).ravel())
    return Scored(best[: block.n_cells])


def make_products(task: Task, first: int, last: int) -> Products:
    """Compute ⟨q̂, p⟩ for the queries ``first:last``, once for each passage that a query retrieved."""
    rows, offsets, query = task.rows(first, last)
    hits, passages, xp = task.hits.passages[rows], task.vectors.passages, array_namespace(task.doc_of)
    numbers, columns = _columns(hits, int(passages.shape[0]), is_sparse(passages), xp)
    wanted = xp.zeros((last - first, int(numbers.size) + 1), dtype=bool)  # the last column is for padding
    wanted[query[:, None], columns(hits)] = True
    # q̂ = Σ_i q_i, rounded so that it does not depend on the order of paragraphs
    paragraphs = task.vectors.paragraphs[rows].astype(np.float64)
    of: Ints = np.repeat(np.arange(last - first), np.diff(offsets))  # the query of each paragraph
    count = np.diff(offsets)
    if sparse.issparse(paragraphs):
        of = np.repeat(of, np.diff(paragraphs.indptr))
        paragraphs.data = round_for_sums(paragraphs.data[:, None], of, last - first, count)[:, 0]
        ones = np.ones(len(query)), np.arange(len(query)), offsets
        q = sparse.csr_matrix(ones, shape=(last - first, len(query))) @ paragraphs
    else:
        q = _reduce_paragraphs(round_for_sums(paragraphs, of, last - first, count), offsets, "sum", xp)
    return Products(multiply(wanted, q, passages, numbers), columns, first)


def _columns(hits: Array, n: int, sparse_passages: bool, xp: Any) -> tuple[Array, Callable[[Array], Array]]:
    """Return the passages ``numbers`` (m,) that hits on n passages need, and a function from passages to their columns.

    The column of padding (-1) is the last, m.
    """
    if _SEARCHED * hits.size < n:  # few hits are searched faster than tables of all passages are made
        numbers = _distinct(hits[hits >= 0], xp)
        return numbers, lambda some: xp.where(some < 0, numbers.size, xp.searchsorted(numbers, some))
    mark = xp.zeros(n + 1, dtype=bool)
    mark[hits] = True  # padding marks the last place
    numbers = xp.flatnonzero(mark[:-1])
    if 2 * numbers.size > len(mark) and not sparse_passages:
        return xp.arange(n), lambda some: some  # all passages, which saves a look-up for each hit
    column = xp.full(len(mark), numbers.size)
    column[numbers] = xp.arange(numbers.size)
    return numbers, lambda some: column[some]


def _products(block: Block, weight: Array) -> Scored:
    """Return ⟨q̂, Σ w p⟩ = Σ w ⟨q̂, p⟩."""
    assert block.products is not None
    table, columns, first = block.products
    return _total(block, weight * table[(block.query + block.first - first)[:, None], columns(block.passages)])


def _mean_products(block: Block, weight: Array) -> Scored:
    """Return ⟨q̂ / n_q, Σ w p / n⟩ for n_q paragraphs and n hits."""
    xp = block.xp
    score, share, _ = _products(block, weight)
    hits = xp.bincount(block.cell.ravel(), minlength=block.n_cells + 1)[: block.n_cells]
    paragraphs = xp.bincount(block.query, minlength=block.n_queries)
    by = xp.maximum(hits, 1) * xp.repeat(xp.maximum(paragraphs, 1), block.width)
    return Scored(score / by, share, by)


def _extreme(block: Block, weight: Array, ufunc: str) -> Scored:
    """Return ⟨q̂, d̂⟩, where q̂ and d̂ are element-wise extremes of the paragraphs and of the retrieved passages."""
    xp, task = block.xp, block.task
    wanted = xp.zeros((block.n_queries, len(task.doc_of) + 1), dtype=bool)  # the last column is for padding
    wanted[block.query[:, None], block.masked(block.passages, -1)] = True
    assert block.paragraphs is not None
    q = _reduce_paragraphs(block.paragraphs, block.offsets, ufunc[:3], xp)
    table = document_extremes(task.vectors.passages, wanted[:, :-1], task.doc_of, task.n_documents, q, ufunc)
    return Scored((table if block.documents is None else table[:, block.documents]).ravel())


def _reduce_paragraphs(paragraphs: Matrix, offsets: Ints, how: str, xp: Any) -> Array:
    """Return the ``"sum"``, ``"min"`` or ``"max"`` of each query's paragraphs, (q, d) float64; 0 without paragraphs."""
    out = xp.zeros((len(offsets) - 1, int(paragraphs.shape[1])))
    for number, (start, end) in enumerate(pairwise(offsets.tolist())):
        if start < end:
            found = getattr(paragraphs[start:end], how)(axis=0)
            out[number] = found.toarray()[0] if sparse.issparse(found) else found
    return out


class Aggregation(NamedTuple):
    """An aggregation: ``weigh`` computes the weights of hits, ``score`` the scores of documents from these weights."""

    weigh: Callable[[Block], Array]
    score: Callable[[Block, Array], Scored]
    formula: str
    vectors: str | None = None  # "products", "minimum" or "maximum"; None if no vectors are needed
    only_first: bool = False  # only hits on the first passage of a document count


AGGREGATIONS: dict[str, Aggregation] = {
    "maxp": Aggregation(_score, _largest, "max over i, p of score_i(p)"),
    "firstp": Aggregation(_score, _largest, "max over i of score_i(first p)", only_first=True),
    "combsum": Aggregation(_score, _total, "Σ_i Σ_p score_i(p)"),
    "rrf": Aggregation(_reciprocal_rank, _total, "Σ_i Σ_p 1/(k + rank_i(p))"),
    "vsum": Aggregation(_one, _products, "⟨Σ_i q_i, Σ_i Σ_p p⟩", "products"),
    "vavg": Aggregation(_one, _mean_products, "⟨mean_i q_i, mean_{i,p} p⟩", "products"),
    "vmin": Aggregation(_one, partial(_extreme, ufunc="minimum"), "⟨min_i q_i, min_{i,p} p⟩", "minimum"),
    "vmax": Aggregation(_one, partial(_extreme, ufunc="maximum"), "⟨max_i q_i, max_{i,p} p⟩", "maximum"),
    "vscores": Aggregation(_score, _products, "⟨Σ_i q_i, Σ_i Σ_p score_i(p) p⟩", "products"),
    "vranks": Aggregation(_falling_rank, _products, "⟨Σ_i q_i, Σ_i Σ_p (N + 1 - rank_i(p)) p⟩", "products"),
    "vrrf": Aggregation(_reciprocal_rank, _products, "⟨Σ_i q_i, Σ_i Σ_p p/(k + rank_i(p))⟩", "products"),
}
