"""The aggregations (:data:`AGGREGATIONS`, at the end), and how the CPU computes them.

The CPU computes the weight of each hit and the score of each document for a :class:`Block`, the hits of several query
documents, by array operations without sorting. A device does the same by kernels (:mod:`.device_scores`).

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
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from haybale.retrieval.hits import NO_PASSAGE, Hits, Ints
from haybale.retrieval.parm.kernels import Doubles, document_extremes, multiply
from haybale.vectors import Floats, Matrix

Array = Any  # a NumPy or CuPy array, like the hits
Mask = NDArray[np.bool_]

# With more passages or documents for each hit, sorted hits are searched, because a table of all of them takes longer.
_MAX_TABLE_ENTRIES_PER_HIT = 16


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

    def rows(self, first: int, last: int) -> tuple[slice, Ints, Ints]:
        """Return the rows of the queries ``first:last``, their offsets (q + 1,), and the query of each row (r,)."""
        rows = slice(int(self.offsets[first]), int(self.offsets[last]))
        offsets = self.offsets[first : last + 1] - rows.start
        return rows, offsets, np.repeat(np.arange(last - first), np.diff(offsets))


class Products(NamedTuple):
    """⟨q̂, p⟩ for some queries and all passages that any of them retrieved."""

    table: Floats  # (q', m + 1); the last column is for padding
    columns: Callable[[Ints], Ints]  # returns the columns of passages
    first: int  # the number of the first query


@dataclass(frozen=True)
class Block:
    """The hits of r paragraphs of q query documents. Each hit belongs to the cell of its query and document.

    Hits that do not count belong to an additional last cell, which is dropped.
    """

    task: Task
    first: int  # the number of the first query document
    offsets: Ints  # (q + 1,)
    passages: Ints  # (r, N), -1 where there is no hit
    scores: Floats  # (r, N)
    paragraphs: Matrix | None  # (r, d)
    query: Ints  # (r,) from 0, rising
    used: Mask | None  # (r, N) whether the hit counts; None if all do
    cell: Ints  # (r, N) query · width + document; n_cells if the hit does not count
    documents: Ints | None  # (width,) document numbers; None for all documents
    width: int  # number of documents
    products: Products | None

    @property
    def n_queries(self) -> int:
        return len(self.offsets) - 1

    @property
    def n_cells(self) -> int:
        return self.n_queries * self.width

    def masked(self, values: NDArray[Any], otherwise: float = 0) -> NDArray[Any]:
        """Replace ``values`` (r, N) by ``otherwise`` where a hit does not count."""
        return values if self.used is None else np.where(self.used, values, otherwise)

    def nonempty_cells(self) -> Ints:
        """Return the numbers of the cells with a hit, rising."""
        mark = np.zeros(self.n_cells + 1, dtype=bool)
        mark[self.cell] = True
        return np.flatnonzero(mark[:-1])


def make_block(task: Task, first: int, last: int, products: Products | None) -> Block:
    """Assign the hits of the query documents ``first:last`` to cells."""
    rows, offsets, query = task.rows(first, last)
    passages, doc_of = task.hits.passages[rows], task.doc_of
    document = doc_of[passages]  # padding (-1) reads the last document, and is masked below
    used: Any = None  # a mask, or None
    only_best = task.occurrences == "best"
    # Rows are padded at their ends, so the last column shows whether any row is.
    if task.aggregation.only_first or only_best or bool((passages[:, -1:] < 0).any()):
        used = passages != NO_PASSAGE
    if task.aggregation.only_first:
        used &= (passages == 0) | (doc_of[np.maximum(passages, 1) - 1] != document)
    numbers, width = None, task.n_documents
    if (last - first) * width > passages.size:  # otherwise, a table of all documents is small
        retrieved = document if used is None else document[used]
        if _MAX_TABLE_ENTRIES_PER_HIT * retrieved.size < width:
            numbers = _distinct(retrieved)
            document = np.searchsorted(numbers, document)
        else:
            seen = np.zeros(width, dtype=bool)
            seen[retrieved] = True
            numbers = np.flatnonzero(seen)
            document = (np.cumsum(seen) - 1)[document]
        width = int(numbers.size)
    if only_best:
        used &= _first_hits(document, used, width)
    cell = query[:, None] * width + document
    if used is not None:
        cell = np.where(used, cell, (last - first) * width)
    paragraphs = None if task.vectors is None else task.vectors.paragraphs[rows]
    hits = passages, task.hits.scores[rows], paragraphs
    return Block(task, first, offsets, *hits, query, used, cell, numbers, width, products)


def _distinct(numbers: Ints) -> Ints:
    """Return the distinct numbers of an array, rising; ``numpy.unique`` takes three times as long for a thousand."""
    ordered = np.sort(numbers.ravel())
    distinct: Ints = ordered[np.concatenate([np.ones(min(1, len(ordered)), dtype=bool), ordered[1:] != ordered[:-1]])]
    return distinct


def _first_hits(document: Ints, used: Mask, width: int) -> Mask:
    """Return the mask (r, N) of hits that are the first of their document in their row."""
    r, n = document.shape
    column = np.broadcast_to(np.arange(n, dtype=np.int32), (r, n))
    pair = np.where(used, np.arange(r)[:, None] * width + document, r * width)  # of row and document
    first = np.full(r * width + 1, n, dtype=np.int32)
    np.minimum.at(first, pair.ravel(), column.ravel())
    is_first: Mask = first[pair] == column
    return is_first


def round_for_sums(terms: Doubles, segment: Ints, n: int, count: NDArray[Any]) -> Doubles:
    """Round ``terms`` (r, N) so that sums of up to ``count[s]`` terms of a segment s are exact.

    ``segment`` (r,) assigns each row to one of n segments.

    >>> a = round_for_sums(np.array([[0.1, 0.2, 0.3]]), np.array([0]), 1, np.array([3]))[0]
    >>> a[0] + a[1] + a[2] == a[2] + a[1] + a[0], 0.1 + 0.2 + 0.3 == 0.3 + 0.2 + 0.1
    (np.True_, False)
    """
    largest = np.zeros(n)
    if terms.size:
        np.maximum.at(largest, segment, np.maximum(terms.max(axis=1), -terms.min(axis=1)))
    # Let 2^e exceed the sum of all magnitudes. Adding 3 · 2^e rounds a term to a multiple of 2^(e - 51).
    _, exponent = np.frexp(largest * np.maximum(count, 1))
    shift = np.ldexp(np.full(n, 3.0), exponent)[segment]
    rounded: Doubles = terms + shift[:, None]
    rounded -= shift[:, None]
    return rounded


def _terms(block: Block, terms: Doubles) -> Doubles:
    """Round ``terms`` (r, N) or (1, N) for exact sums in each query; terms of hits that do not count become 0."""
    n, (r, width) = block.n_queries, block.cell.shape
    of_row = np.full(r, width) if block.used is None else block.used.sum(axis=1)
    count = np.bincount(block.query, weights=of_row, minlength=n)  # hits that count, for each query
    if len(terms) == 1 and block.used is None:  # all rows are equal: round once for each query
        return round_for_sums(np.repeat(terms, n, axis=0), np.arange(n), n, count)[block.query]
    return round_for_sums(block.masked(terms), block.query, n, count)


def _sums(block: Block, terms: Doubles) -> Doubles:
    """Return the sum of the rounded terms (r, N) of each cell, (n_cells,)."""
    sums: Any = np.bincount(block.cell.ravel(), weights=terms.ravel(), minlength=block.n_cells + 1)
    return np.asarray(sums[: block.n_cells])


# Weights of hits by their ranks, from 1: (N,).


def _equal(task: Task, ranks: Doubles) -> Doubles:
    return np.ones(len(ranks))


def _reciprocal_rank(task: Task, ranks: Doubles) -> Doubles:
    return 1 / (task.rrf_k + ranks)


def _falling_rank(task: Task, ranks: Doubles) -> Doubles:
    return float(task.n_hits + 1) - ranks


# Scores of cells, from the weights of their hits: (r, N), or (1, N) if all rows are equal.


class Scored(NamedTuple):
    """Scores of cells and shares of hits."""

    block: Block
    score: Doubles  # (n_cells,) undefined for empty cells
    share: Doubles | None = None  # (r, N), None if the score is not a sum over hits
    divisor: Doubles | None = None  # (n_cells,) which shares are still to be divided by, as only few are read

    def columns(self) -> tuple[Ints, Ints, Doubles]:
        """Return ``(query, document, score)`` of the cells with a hit, by rising query and document."""
        block, cells = self.block, self.block.nonempty_cells()
        query, column = np.divmod(cells, block.width)
        return query + block.first, column if block.documents is None else block.documents[column], self.score[cells]

    def hits_of(self, position: int) -> tuple[Ints, Ints, Doubles | None]:
        """Return ``(row, column, share)`` of the hits of one of :meth:`columns`, the share if the score is a sum."""
        cell = self.block.nonempty_cells()[position]
        rows, columns = np.nonzero(self.block.cell == cell)
        if self.share is None:
            return rows, columns, None
        return rows, columns, self.share[rows, columns] / (1 if self.divisor is None else float(self.divisor[cell]))


def score_block(block: Block) -> Scored:
    """Score the documents of a block."""
    aggregation, ranks = block.task.aggregation, np.arange(1, block.passages.shape[1] + 1, dtype=np.float64)
    if aggregation.rank_weights is None:
        weight = block.masked(block.scores).astype(np.float64)
    else:
        weight = aggregation.rank_weights(block.task, ranks)[None]
    return _COMBINE[aggregation.combine](block, weight)


def _total(block: Block, weight: Doubles) -> Scored:
    """Return Σ w."""
    share = _terms(block, weight)
    return Scored(block, _sums(block, share), share)


def _largest(block: Block, weight: Doubles) -> Scored:
    """Return max w."""
    best = np.full(block.n_cells + 1, -np.inf)
    np.maximum.at(best, block.cell.ravel(), block.masked(weight, -np.inf).ravel())
    return Scored(block, best[: block.n_cells])


def make_products(task: Task, first: int, last: int) -> Products:
    """Compute ⟨q̂, p⟩ for the queries ``first:last``, once for each passage that a query retrieved."""
    rows, offsets, query = task.rows(first, last)
    hits, passages = task.hits.passages[rows], task.vectors.passages
    numbers, columns = _columns(hits, int(passages.shape[0]), sparse.issparse(passages))
    wanted = np.zeros((last - first, int(numbers.size) + 1), dtype=bool)  # the last column is for padding
    wanted[query[:, None], columns(hits)] = True
    # q̂ = Σ_i q_i, rounded so that it does not depend on the order of paragraphs
    paragraphs = task.vectors.paragraphs[rows].astype(np.float64)
    count = np.diff(offsets)
    if sparse.issparse(paragraphs):
        of_value = np.repeat(query, np.diff(paragraphs.indptr))
        paragraphs.data = round_for_sums(paragraphs.data[:, None], of_value, last - first, count)[:, 0]
        ones = np.ones(len(query)), np.arange(len(query)), offsets
        q = sparse.csr_matrix(ones, shape=(last - first, len(query))) @ paragraphs
    else:
        q = _reduce_paragraphs(round_for_sums(paragraphs, query, last - first, count), offsets, "sum")
    return Products(multiply(wanted, q, passages, numbers), columns, first)


def _columns(hits: Ints, n: int, sparse_passages: bool) -> tuple[Ints, Callable[[Ints], Ints]]:
    """Return the passages ``numbers`` (m,) that hits on n passages need, and a function from passages to their columns.

    The column of padding (-1) is the last, m.
    """
    if _MAX_TABLE_ENTRIES_PER_HIT * hits.size < n:  # few hits are searched faster than tables of all passages are made
        numbers = _distinct(hits[hits >= 0])
        return numbers, lambda passages: np.where(passages < 0, numbers.size, np.searchsorted(numbers, passages))
    mark = np.zeros(n + 1, dtype=bool)
    mark[hits] = True  # padding marks the last element
    numbers = np.flatnonzero(mark[:-1])
    if 2 * numbers.size > len(mark) and not sparse_passages:
        return np.arange(n), lambda passages: passages  # all passages, which saves a look-up for each hit
    column = np.full(len(mark), numbers.size)
    column[numbers] = np.arange(numbers.size)
    return numbers, lambda passages: column[passages]


def _products(block: Block, weight: Doubles) -> Scored:
    """Return ⟨q̂, Σ w p⟩ = Σ w ⟨q̂, p⟩."""
    assert block.products is not None
    table, columns, first = block.products
    return _total(block, weight * table[(block.query + block.first - first)[:, None], columns(block.passages)])


def _mean_products(block: Block, weight: Doubles) -> Scored:
    """Return ⟨q̂ / n_q, Σ w p / n⟩ for n_q paragraphs and n hits."""
    _, score, share, _ = _products(block, weight)
    hits = np.bincount(block.cell.ravel(), minlength=block.n_cells + 1)[: block.n_cells]
    paragraphs = np.bincount(block.query, minlength=block.n_queries)
    divisor = np.maximum(hits, 1) * np.repeat(np.maximum(paragraphs, 1), block.width)
    return Scored(block, score / divisor, share, divisor)


def _extreme(block: Block, weight: Doubles) -> Scored:
    """Return ⟨q̂, d̂⟩, where q̂ and d̂ are element-wise extremes of the paragraphs and of the retrieved passages."""
    task, extreme = block.task, block.task.aggregation.combine
    wanted = np.zeros((block.n_queries, len(task.doc_of) + 1), dtype=bool)  # the last column is for padding
    wanted[block.query[:, None], block.masked(block.passages, -1)] = True
    assert block.paragraphs is not None
    q = _reduce_paragraphs(block.paragraphs, block.offsets, extreme[:3])
    table = document_extremes(task.vectors.passages, wanted[:, :-1], task.doc_of, task.n_documents, q, extreme)
    return Scored(block, (table if block.documents is None else table[:, block.documents]).ravel())


def _reduce_paragraphs(paragraphs: Any, offsets: Ints, how: str) -> Doubles:
    """Return the ``"sum"``, ``"min"`` or ``"max"`` of each query's paragraphs, (q, d) float64; 0 without paragraphs."""
    out = np.zeros((len(offsets) - 1, int(paragraphs.shape[1])))
    for number, (start, end) in enumerate(pairwise(offsets.tolist())):
        if start < end:
            reduced = getattr(paragraphs[start:end], how)(axis=0)
            out[number] = reduced.toarray()[0] if sparse.issparse(reduced) else reduced
    return out


_COMBINE: dict[str, Callable[[Block, Doubles], Scored]] = {
    "largest": _largest,
    "sum": _total,
    "products": _products,
    "mean products": _mean_products,
    "minimum": _extreme,
    "maximum": _extreme,
}


class Aggregation(NamedTuple):
    """An aggregation: how the hits of a query on a document become the document's score."""

    combine: str  # one of _COMBINE
    formula: str
    rank_weights: Callable[[Task, Doubles], Doubles] | None = None  # of hits; None if a hit's weight is its score
    only_first: bool = False  # only hits on the first passage of a document count

    @property
    def vectors(self) -> str | None:
        """What is computed from vectors: ``"products"``, ``"minimum"`` or ``"maximum"``; None if none are needed."""
        return {"largest": None, "sum": None, "mean products": "products"}.get(self.combine, self.combine)


AGGREGATIONS: dict[str, Aggregation] = {
    "maxp": Aggregation("largest", "max over i, p of score_i(p)"),
    "firstp": Aggregation("largest", "max over i of score_i(first p)", only_first=True),
    "combsum": Aggregation("sum", "Σ_i Σ_p score_i(p)"),
    "rrf": Aggregation("sum", "Σ_i Σ_p 1/(k + rank_i(p))", _reciprocal_rank),
    "vsum": Aggregation("products", "⟨Σ_i q_i, Σ_i Σ_p p⟩", _equal),
    "vavg": Aggregation("mean products", "⟨mean_i q_i, mean_{i,p} p⟩", _equal),
    "vmin": Aggregation("minimum", "⟨min_i q_i, min_{i,p} p⟩", _equal),
    "vmax": Aggregation("maximum", "⟨max_i q_i, max_{i,p} p⟩", _equal),
    "vscores": Aggregation("products", "⟨Σ_i q_i, Σ_i Σ_p score_i(p) p⟩"),
    "vranks": Aggregation("products", "⟨Σ_i q_i, Σ_i Σ_p (N + 1 - rank_i(p)) p⟩", _falling_rank),
    "vrrf": Aggregation("products", "⟨Σ_i q_i, Σ_i Σ_p p/(k + rank_i(p))⟩", _reciprocal_rank),
}
