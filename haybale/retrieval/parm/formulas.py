"""The aggregations: what a hit weighs, and how the hits of a query on a document become one score.

Everything is computed over a :class:`Block`, the hits of some whole query documents, without sorting them. A sum of
floating-point numbers depends on their order; so each term is first rounded to a grid of its query, so coarse that
every partial sum is exact and so fine that a term moves by less than its bound · 2^-50. A score then does not depend
on the order of the paragraphs, on tiling, threads or device; documents with the same evidence tie; and the shares of
an explanation add up to the score with nothing left over.

⟨Σ_i q_i, Σ w p⟩ = Σ w ⟨q̂, p⟩: the linear vector aggregations give no document a vector. VMin and VMax (Li et al.,
PARADE, 2020) do not split into hits: each dimension of a document is given by one passage.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from haybale.device import is_sparse
from haybale.retrieval.hits import NO_PASSAGE, Hits, Ints
from haybale.retrieval.parm.kernels import Array, document_extremes, multiply
from haybale.vectors import Matrix, array_namespace


class Vectors(NamedTuple):
    """What the vector aggregations read: (n_passages, d), and the paragraphs' own (n_paragraphs, d); CSR if sparse.

    float32, or float16 for passages.
    """

    passages: Matrix
    paragraphs: Matrix


@dataclass(frozen=True)
class Task:
    """An aggregation of some hits, checked, with all it reads on their device; ``offsets`` are in main memory."""

    aggregation: Aggregation
    hits: Hits  # (n_paragraphs, N)
    offsets: Ints  # (n_queries + 1,)
    doc_of: Array  # (n_passages,)
    n_documents: int
    vectors: Any  # Vectors, where the aggregation reads them
    n_hits: int
    rrf_k: float
    occurrences: str

    def rows(self, first: int, last: int) -> tuple[slice, Ints, Array]:
        """The paragraphs of some queries: which rows, (q + 1,) where queries begin, (r,) whose each is; from 0."""
        rows = slice(int(self.offsets[first]), int(self.offsets[last]))
        offsets = self.offsets[first : last + 1] - rows.start
        query = np.repeat(np.arange(last - first), np.diff(offsets))
        return rows, offsets, array_namespace(self.doc_of).asarray(query)


class Products(NamedTuple):
    """⟨q̂, p⟩ of some queries with all passages that any of them retrieved."""

    table: Array  # (q', m + 1), the last column for padding
    column: Array | None  # (n_passages + 1,) of each passage in the table; None: at its number
    first: int  # query of the first row


@dataclass(frozen=True)
class Block:
    """r paragraphs of q query documents with up to N hits each; every hit has a cell, of its query and its document.

    What does not count is in one cell too many, which is thrown away.
    """

    task: Task
    first: int  # query document of all
    offsets: Ints  # (q + 1,) in main memory
    passages: Array  # (r, N), -1 where there is no hit
    scores: Array  # (r, N)
    paragraphs: Matrix | None  # (r, d)
    query: Array  # (r,) from 0, rising
    used: Array | None  # (r, N) whether the hit counts; None: all do
    cell: Array  # (r, N) query · (documents of the block) + document; n_cells where unused
    documents: Array | None  # (documents of the block,) their numbers; None: all there are
    width: int  # documents of the block
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
        """``values`` (r, N), and ``otherwise`` where a hit does not count."""
        return values if self.used is None else self.xp.where(self.used, values, otherwise)

    def filled(self) -> tuple[Array, Array, Array]:
        """``(cells, query, document number)`` of the cells with a hit, rising."""
        mark = self.xp.zeros(self.n_cells + 1, dtype=bool)
        mark[self.cell] = True
        cells = self.xp.flatnonzero(mark[:-1])
        query, column = self.xp.divmod(cells, self.width)
        return cells, query + self.first, column if self.documents is None else self.documents[column]


def block_of(task: Task, first: int, last: int, products: Products | None) -> Block:
    """Number the hits of the query documents ``first`` to ``last``."""
    rows, offsets, query = task.rows(first, last)
    passages, doc_of, xp = task.hits.passages[rows], task.doc_of, array_namespace(task.doc_of)
    document = doc_of[passages]  # -1 reads the last; it is not used
    used, only_best = None, task.occurrences == "best"
    # Lists are padded at their ends, so the last column tells whether any is short.
    if task.aggregation.only_first or only_best or bool((passages[:, -1:] < 0).any()):
        used = passages != NO_PASSAGE
    if task.aggregation.only_first:
        used &= (passages == 0) | (doc_of[xp.maximum(passages, 1) - 1] != document)
    numbers, width = None, task.n_documents
    if (last - first) * width > passages.size:  # else a table of all documents is small beside the hits
        seen = xp.zeros(width, dtype=bool)
        seen[document if used is None else document[used]] = True
        numbers = xp.flatnonzero(seen)
        width = int(numbers.size)
        document = (xp.cumsum(seen) - 1)[document]
    if only_best:
        used &= _best(document, used, width)
    cell = query[:, None] * width + document
    if used is not None:
        cell = xp.where(used, cell, (last - first) * width)
    paragraphs = None if task.vectors is None else task.vectors.paragraphs[rows]
    hits = passages, task.hits.scores[rows], paragraphs
    return Block(task, first, offsets, *hits, query, used, cell, numbers, width, products)


def _best(document: Array, used: Array, width: int) -> Array:
    """(r, N) whether a hit is the first of its document in its row."""
    xp = array_namespace(document)
    r, n = document.shape
    column = xp.broadcast_to(xp.arange(n, dtype=xp.int32), (r, n))  # CuPy has no minimum.at for int64
    place = xp.where(used, xp.arange(r)[:, None] * width + document, r * width)
    first = xp.full(r * width + 1, n, dtype=xp.int32)
    xp.minimum.at(first, place.ravel(), column.ravel())
    return first[place] == column


def on_grid(terms: Array, segment: Array, n: int, count: Array) -> Array:
    """``terms`` (r, N) rounded so that sums over up to ``count[s]`` of them are exact, s = ``segment`` (r,) of the row.

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


def _terms(block: Block, terms: Array) -> Array:
    """``terms`` (r, N) or (1, N) on the grid of each query; 0 where unused."""
    xp, n, (r, width) = block.xp, block.n_queries, block.cell.shape
    of_row = xp.full(r, width) if block.used is None else block.used.sum(axis=1)
    count = xp.bincount(block.query, weights=of_row, minlength=n)  # hits of each query that count
    if len(terms) == 1 and block.used is None:  # then rounding once for each query does
        return on_grid(xp.repeat(terms, n, axis=0), xp.arange(n), n, count)[block.query]
    return on_grid(block.masked(terms), block.query, n, count)


def _sums(block: Block, terms: Array) -> Array:
    """(n_cells,) the sum of each cell's terms, (r, N) on the grid."""
    found = block.xp.bincount(block.cell.ravel(), weights=terms.ravel(), minlength=block.n_cells + 1)
    return found[: block.n_cells]


# What a hit weighs: (r, N) or (1, N) float64.


def _alike(block: Block) -> Array:
    return block.xp.ones((1, block.passages.shape[1]))


def _score(block: Block) -> Array:
    return block.masked(block.scores).astype(block.xp.float64)


def _reciprocal_rank(block: Block) -> Array:
    return 1 / (block.task.rrf_k + _rank(block))


def _falling_rank(block: Block) -> Array:
    return block.task.n_hits + 1 - _rank(block)


def _rank(block: Block) -> Array:
    return block.xp.arange(1, block.passages.shape[1] + 1, dtype=block.xp.float64)[None]


# What becomes of them in a document.


class Scored(NamedTuple):
    """(n_cells,) scores, anything where a cell is empty; (r, N) shares, None where a score has none by hit.

    Shares are still to be divided by what is in ``divisor`` (n_cells,), where there is one: few are ever looked at.
    """

    score: Array
    share: Array | None = None
    divisor: Array | None = None


def _total(block: Block, weight: Array) -> Scored:
    share = _terms(block, weight)
    return Scored(_sums(block, share), share)


def _largest(block: Block, weight: Array) -> Scored:
    best = block.xp.full(block.n_cells + 1, -block.xp.inf)
    block.xp.maximum.at(best, block.cell.ravel(), block.masked(weight, -block.xp.inf).ravel())
    return Scored(best[: block.n_cells])


def products_of(task: Task, first: int, last: int) -> Products:
    """Of some queries; a passage that several paragraphs of a query retrieved is multiplied once."""
    rows, offsets, query = task.rows(first, last)
    hits, passages, xp = task.hits.passages[rows], task.vectors.passages, array_namespace(task.doc_of)
    mark = xp.zeros(int(passages.shape[0]) + 1, dtype=bool)
    mark[hits] = True  # padding marks the place behind the last
    numbers, column = xp.flatnonzero(mark[:-1]), None
    if 2 * numbers.size > len(mark) and not is_sparse(passages):
        numbers = xp.arange(len(mark) - 1)  # spares a look-up for each hit
    else:
        column = xp.full(len(mark), numbers.size)
        column[numbers] = xp.arange(numbers.size)
    wanted = xp.zeros((last - first, int(numbers.size) + 1), dtype=bool)  # the last column is the padding's
    wanted[query[:, None], hits if column is None else column[hits]] = True
    # q̂ = Σ_i q_i, in whatever order to the same bits
    paragraphs = task.vectors.paragraphs[rows].astype(np.float64)
    of, count = query, xp.bincount(query, minlength=last - first)
    if sparse.issparse(paragraphs):
        of = np.repeat(query, np.diff(paragraphs.indptr))
        paragraphs.data = on_grid(paragraphs.data[:, None], of, last - first, count)[:, 0]
    else:
        paragraphs = on_grid(paragraphs, of, last - first, count)
    return Products(multiply(wanted, _of_queries(paragraphs, offsets, "sum", xp), passages, numbers), column, first)


def _products(block: Block, weight: Array) -> Scored:
    """⟨q̂, Σ w p⟩ = Σ w ⟨q̂, p⟩."""
    assert block.products is not None
    table, column, first = block.products
    place = block.passages if column is None else column[block.passages]
    return _total(block, weight * table[(block.query + block.first - first)[:, None], place])


def _mean_products(block: Block, weight: Array) -> Scored:
    """⟨q̂ / n_q, Σ p / n⟩: both sides divided by how many they are."""
    xp = block.xp
    score, share, _ = _products(block, weight)
    hits = xp.bincount(block.cell.ravel(), minlength=block.n_cells + 1)[: block.n_cells]
    paragraphs = xp.bincount(block.query, minlength=block.n_queries)
    by = xp.maximum(hits, 1) * xp.repeat(xp.maximum(paragraphs, 1), block.width)
    return Scored(score / by, share, by)


def _extreme(block: Block, weight: Array, ufunc: str) -> Scored:
    """⟨q̂, d̂⟩. A passage that several paragraphs retrieved counts once."""
    xp, task = block.xp, block.task
    wanted = xp.zeros((block.n_queries, len(task.doc_of) + 1), dtype=bool)  # the last column is the padding's
    wanted[block.query[:, None], block.masked(block.passages, -1)] = True
    assert block.paragraphs is not None
    q = _of_queries(block.paragraphs, block.offsets, ufunc[:3], xp)
    table = document_extremes(task.vectors.passages, wanted[:, :-1], task.doc_of, task.n_documents, q, ufunc)
    return Scored((table if block.documents is None else table[:, block.documents]).ravel())


def _of_queries(paragraphs: Matrix, offsets: Ints, how: str, xp: Any) -> Array:
    """(q, d) float64, dense: the ``"sum"``, ``"min"`` or ``"max"`` of each query's paragraphs; 0 without any."""
    out = xp.zeros((len(offsets) - 1, int(paragraphs.shape[1])))
    for number, (start, end) in enumerate(pairwise(offsets.tolist())):
        if start < end:
            found = getattr(paragraphs[start:end], how)(axis=0)
            out[number] = found.toarray()[0] if sparse.issparse(found) else found
    return out


class Aggregation(NamedTuple):
    """``weigh`` gives every hit a weight, ``score`` makes of a document's hits one score."""

    weigh: Callable[[Block], Array]
    score: Callable[[Block, Array], Scored]
    formula: str
    vectors: str | None = None  # None, "products" or the name of the extreme
    only_first: bool = False  # hits on first passages alone count


AGGREGATIONS: dict[str, Aggregation] = {
    "maxp": Aggregation(_score, _largest, "max over i, p of score_i(p)"),
    "firstp": Aggregation(_score, _largest, "max over i of score_i(first p)", only_first=True),
    "combsum": Aggregation(_score, _total, "Σ_i Σ_p score_i(p)"),
    "rrf": Aggregation(_reciprocal_rank, _total, "Σ_i Σ_p 1/(k + rank_i(p))"),
    "vsum": Aggregation(_alike, _products, "⟨Σ_i q_i, Σ_i Σ_p p⟩", "products"),
    "vavg": Aggregation(_alike, _mean_products, "⟨mean_i q_i, mean_{i,p} p⟩", "products"),
    "vmin": Aggregation(_alike, partial(_extreme, ufunc="minimum"), "⟨min_i q_i, min_{i,p} p⟩", "minimum"),
    "vmax": Aggregation(_alike, partial(_extreme, ufunc="maximum"), "⟨max_i q_i, max_{i,p} p⟩", "maximum"),
    "vscores": Aggregation(_score, _products, "⟨Σ_i q_i, Σ_i Σ_p score_i(p) p⟩", "products"),
    "vranks": Aggregation(_falling_rank, _products, "⟨Σ_i q_i, Σ_i Σ_p (N + 1 - rank_i(p)) p⟩", "products"),
    "vrrf": Aggregation(_reciprocal_rank, _products, "⟨Σ_i q_i, Σ_i Σ_p p/(k + rank_i(p))⟩", "products"),
}
