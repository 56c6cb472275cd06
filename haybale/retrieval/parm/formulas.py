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
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from haybale.device import is_sparse
from haybale.errors import InputError, UnknownNameError
from haybale.retrieval.hits import NO_PASSAGE, Hits
from haybale.retrieval.parm.kernels import Array, document_extremes, extremes, multiply
from haybale.vectors import Matrix, array_namespace

OCCURRENCES = ("all", "best")


@dataclass(frozen=True)
class Options:
    """What an aggregation may be told; see :func:`~haybale.retrieval.aggregate`."""

    n_hits: int
    rrf_k: float = 60
    occurrences: str = "all"

    def __post_init__(self) -> None:
        if self.n_hits < 1:
            raise InputError(f"n_hits must be at least 1, found {self.n_hits}")
        if not self.rrf_k > -1:  # also refuses NaN
            raise InputError(f"rrf_k must be greater than -1, so that 1 / (rrf_k + rank) exists, found {self.rrf_k}")
        if self.occurrences not in OCCURRENCES:
            raise UnknownNameError("occurrences", self.occurrences, OCCURRENCES)


@dataclass(frozen=True)
class Vectors:
    """What the vector aggregations read: (n_passages, d), and the paragraphs' own (n_paragraphs, d); CSR if sparse.

    float32, or float16 for passages.
    """

    passages: Matrix
    paragraphs: Matrix


class Products(NamedTuple):
    """⟨q̂, p⟩ of some queries with all passages that any of them retrieved."""

    table: Array  # (q', m + 1), the last column for padding
    column: Array | None  # (n_passages + 1,) of each passage in the table; None: at its number
    first: int  # row of the block's first query


@dataclass(frozen=True)
class Block:
    """r paragraphs of q query documents with up to N hits each; every hit has a cell, of its query and its document.

    What does not count (padding, paragraphs of weight 0) is in one cell too many, which is thrown away.
    """

    passages: Array  # (r, N), -1 where there is no hit
    scores: Array  # (r, N)
    query: Array  # (r,) from 0, rising
    weight: Array  # (r,) float64, of the paragraph
    used: Array | None  # (r, N) whether the hit counts; None: all do
    cell: Array  # (r, N) query · (documents of the block) + document; n_cells where unused
    n_queries: int
    documents: Array | None  # (documents of the block,) their numbers; None: all there are
    width: int  # documents of the block
    doc_of: Array  # (n_passages,) of all passages
    options: Options
    vectors: Vectors | None  # with the paragraphs of the block alone
    products: Products | None = None

    @property
    def xp(self) -> Any:
        return array_namespace(self.passages)

    @property
    def n_cells(self) -> int:
        return self.n_queries * self.width

    def masked(self, values: Array, otherwise: float = 0) -> Array:
        """``values`` (r, N), and ``otherwise`` where a hit does not count."""
        return values if self.used is None else self.xp.where(self.used, values, otherwise)

    def filled(self) -> tuple[Array, Array, Array]:
        """``(cells, query, document number)`` of the cells with a hit, rising."""
        xp = self.xp
        mark = xp.zeros(self.n_cells + 1, dtype=bool)
        mark[self.cell] = True
        cells = xp.flatnonzero(mark[:-1])
        query, column = xp.divmod(cells, self.width)
        return cells, query, column if self.documents is None else self.documents[column]


def block_of(
    hits: Hits,
    query: Array,
    n_queries: int,
    weight: Array,
    doc_of: Array,
    n_documents: int,
    options: Options,
    vectors: Vectors | None,
    only_first: bool,
    products: Products | None = None,
) -> Block:
    """Number the hits of some query documents; ``only_first``: those on the first passage of a document only."""
    passages, xp = hits.passages, array_namespace(hits.passages)
    document = doc_of[passages]  # -1 reads the last; it is not used
    used = None
    # Lists are padded at their ends, so the last column tells whether any is short.
    if only_first or options.occurrences == "best" or bool((weight <= 0).any() | (passages[:, -1:] < 0).any()):
        used = (passages != NO_PASSAGE) & (weight > 0)[:, None]
    if only_first:
        used &= (passages == 0) | (doc_of[xp.maximum(passages, 1) - 1] != document)
    numbers, width = None, n_documents
    if n_queries * n_documents > passages.size:  # else a table of all documents is small beside the hits
        seen = xp.zeros(n_documents, dtype=bool)
        seen[document if used is None else document[used]] = True
        numbers = xp.flatnonzero(seen)
        width = int(numbers.size)
        document = (xp.cumsum(seen) - 1)[document]
    if options.occurrences == "best":
        used &= _best(document, used, width)
    cell = query[:, None] * width + document
    if used is not None:
        cell = xp.where(used, cell, n_queries * width)
    numbered = used, cell, n_queries, numbers, width, doc_of
    return Block(passages, hits.scores, query, weight, *numbered, options, vectors, products)


def _best(document: Array, used: Array, width: int) -> Array:
    """(r, N) whether a hit is the first of its document in its row."""
    xp = array_namespace(document)
    r, n = document.shape
    column = xp.broadcast_to(xp.arange(n, dtype=xp.int32), (r, n))  # CuPy has no minimum.at for int64
    place = xp.where(used, xp.arange(r)[:, None] * width + document, r * width)
    first = xp.full(r * width + 1, n, dtype=xp.int32)
    xp.minimum.at(first, place.ravel(), column.ravel())
    return first[place] == column


# sums that are exact --------------------------------------------------------------------------------------


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
    """``terms`` (r, N) or (1, N) times the paragraphs' weights, on the grid of each query; 0 where unused."""
    xp, n, (r, width) = block.xp, block.n_queries, block.cell.shape
    of_row = xp.full(r, width) if block.used is None else block.used.sum(axis=1)
    count = xp.bincount(block.query, weights=of_row, minlength=n)  # hits of each query that count
    if not bool((block.weight == 1).all()):
        terms = terms * block.weight[:, None]
    elif len(terms) == 1 and block.used is None:  # then rounding once for each query does
        return on_grid(xp.repeat(terms, n, axis=0), xp.arange(n), n, count)[block.query]
    return on_grid(block.masked(terms), block.query, n, count)


def _sums(block: Block, terms: Array) -> Array:
    """(n_cells,) the sum of each cell's terms, (r, N) on the grid."""
    found = block.xp.bincount(block.cell.ravel(), weights=terms.ravel(), minlength=block.n_cells + 1)
    return found[: block.n_cells]


# what a hit weighs: (r, N) or (1, N) float64, not yet times its paragraph's weight --------------------------


def _alike(block: Block) -> Array:
    return block.xp.ones((1, block.passages.shape[1]))


def _score(block: Block) -> Array:
    return block.masked(block.scores).astype(block.xp.float64)


def _reciprocal_rank(block: Block) -> Array:
    """Cormack et al. 2009."""
    return 1 / (block.options.rrf_k + _rank(block))


def _falling_rank(block: Block) -> Array:
    return block.options.n_hits + 1 - _rank(block)


def _rank(block: Block) -> Array:
    return block.xp.arange(1, block.passages.shape[1] + 1, dtype=block.xp.float64)[None]


# what becomes of them in a document -------------------------------------------------------------------------


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
    """The first hit that has it carries all."""
    best = block.xp.full(block.n_cells + 1, -block.xp.inf)
    block.xp.maximum.at(best, block.cell.ravel(), block.masked(weight, -block.xp.inf).ravel())
    return Scored(best[: block.n_cells])


def products_of(hits: Array, query: Array, weight: Array, n_queries: int, vectors: Vectors) -> Products:
    """Of the hits (r, N) of some queries; a passage that several paragraphs of a query retrieved is multiplied once."""
    xp, passages = array_namespace(hits), vectors.passages
    mark = xp.zeros(int(passages.shape[0]) + 1, dtype=bool)
    mark[hits] = True  # padding marks the place behind the last
    numbers, column = xp.flatnonzero(mark[:-1]), None
    if 2 * numbers.size > len(mark) and not is_sparse(passages):
        numbers = xp.arange(len(mark) - 1)  # spares a look-up for each hit
    else:
        column = xp.full(len(mark), numbers.size)
        column[numbers] = xp.arange(numbers.size)
    wanted = xp.zeros((n_queries, int(numbers.size) + 1), dtype=bool)  # the last column is the padding's
    wanted[query[:, None], hits if column is None else column[hits]] = True
    summed = _summed(vectors.paragraphs, query, weight, n_queries)
    return Products(multiply(wanted, summed, passages, numbers), column, 0)


def _products(block: Block, weight: Array) -> Scored:
    """⟨q̂, Σ w p⟩ = Σ w ⟨q̂, p⟩."""
    assert block.products is not None
    table, column, first = block.products
    place = block.passages if column is None else column[block.passages]
    return _total(block, weight * table[(block.query + first)[:, None], place])


def _mean_products(block: Block, weight: Array) -> Scored:
    """⟨q̂ / Σ_i w_i, Σ w p / Σ w⟩: both sides divided by their weights."""
    xp = block.xp
    score, share, _ = _products(block, weight)
    of_query = xp.bincount(
        block.query,
        weights=_by_rows(block.weight[:, None], block.query, block.n_queries)[:, 0],
        minlength=block.n_queries,
    )
    weights = _sums(block, _terms(block, weight))
    by = xp.where(weights > 0, weights, 1) * xp.repeat(xp.where(of_query > 0, of_query, 1), block.width)
    return Scored(score / by, share, by)


def _extreme(block: Block, weight: Array, ufunc: str) -> Scored:
    """⟨q̂, d̂⟩. A passage that several paragraphs retrieved counts once."""
    assert block.vectors is not None
    xp, doc_of, n = block.xp, block.doc_of, len(block.doc_of)
    wanted = xp.zeros((block.n_queries, n + 1), dtype=bool)  # the last column is the padding's
    wanted[block.query[:, None], block.masked(block.passages, n)] = True
    wanted[:, n:] = False
    if isinstance(block.vectors.passages, np.ndarray):
        starts = np.searchsorted(doc_of, np.arange(int(doc_of[-1]) + 2))
        table = document_extremes(block.vectors.passages, wanted, starts, _extremes(block, ufunc), ufunc)
        return Scored(np.ravel(table if block.documents is None else table[:, block.documents]))
    query, passage = xp.divmod(xp.flatnonzero(wanted), n + 1)
    document = doc_of[passage]
    is_new = (xp.diff(query, prepend=-1) != 0) | (xp.diff(document, prepend=-1) != 0)
    column, query = document[is_new], query[is_new]
    if block.documents is not None:
        column = xp.searchsorted(block.documents, column)
    score, lists = xp.zeros(block.n_cells), xp.cumsum(is_new) - 1
    score[query * block.width + column] = extremes(
        block.vectors.passages, passage, lists, _extremes(block, ufunc), query, ufunc
    )
    return Scored(score)


# the vector of a query document ---------------------------------------------------------------------------------


def _summed(paragraphs: Matrix, query: Array, weight: Array, n: int) -> Array:
    """(q, d) float64, dense: q̂ = Σ_i w_i q_i, in whatever order to the same bits."""
    xp = array_namespace(weight)
    if sparse.issparse(paragraphs):  # few queries are held at once, so their sums may be dense
        stored = np.diff(paragraphs.indptr)
        values, row = paragraphs.data.astype(np.float64) * np.repeat(weight, stored), np.repeat(query, stored)
        terms = on_grid(values[:, None], row, n, np.bincount(query, minlength=n))[:, 0]
        out = np.zeros((n, paragraphs.shape[1]))
        np.add.at(out, (row, paragraphs.indices), terms)
        return out
    return _by_query("add", _by_rows(paragraphs.astype(xp.float64) * weight[:, None], query, n), query, n)


def _extremes(block: Block, ufunc: str) -> Array:
    """(q, d) float64: the element-wise ``"minimum"`` or ``"maximum"`` of each query's paragraphs of weight > 0."""
    assert block.vectors is not None
    counting = block.weight > 0
    query, paragraphs = block.query[counting], block.vectors.paragraphs[counting]
    if not sparse.issparse(paragraphs):
        return _by_query(ufunc, paragraphs.astype(block.xp.float64), query, block.n_queries)
    out = np.zeros((block.n_queries, paragraphs.shape[1]))
    for number in np.unique(query):
        rows = paragraphs[query == number]  # the extreme counts the zeros that are not stored
        out[number] = getattr(rows, ufunc[:3])(axis=0).toarray()[0]
    return out


def _by_rows(terms: Array, query: Array, n: int) -> Array:
    """``terms`` (r, any) on a grid on which sums over a query's rows are exact."""
    return on_grid(terms, query, n, array_namespace(terms).bincount(query, minlength=n))


def _by_query(ufunc: str, rows: Array, query: Array, n: int) -> Array:
    """(n, d) the ufunc over each query's rows, whose queries (r,) rise; 0 without any."""
    xp = array_namespace(rows)
    out = xp.zeros((n, rows.shape[1]))
    count = xp.bincount(query, minlength=n)
    if xp is np:
        filled = np.flatnonzero(count)
        if len(filled):
            out[filled] = getattr(np, ufunc).reduceat(rows, (np.cumsum(count) - count)[filled], axis=0)
        return out
    out[count > 0] = {"add": 0, "minimum": xp.inf, "maximum": -xp.inf}[ufunc]
    getattr(xp, ufunc).at(out, query, rows)
    return out


# by name --------------------------------------------------------------------------------------------------------


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
