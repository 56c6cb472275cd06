"""Kernel expansions: Σ coef · K over support rows, computed for many pairs by matrix products.

With K = Kq · Kp, the sum for a query i and a passage j is

    Σ_r coef_r Kq(i, query_r) Kp(j, passage_r) = Σ_u Kp(j, u) W(i, u),
    W(i, u) = Σ_{r: passage_r = u} coef_r Kq(i, query_r)

where u runs over the distinct support passages. For every tile of support passages, W is computed once for all queries,
and Kp is computed once for every distinct passage of the pairs. The sum of a pair is then the inner product of a row of
Kp and a row of W, and the sums of all queries with all passages are a matrix product. Different weights of the bags for
every query only change W.

The tiles are divided into groups. Several processes can compute the sums of one group each, which needs only the
vectors of the pairs. Adding the sums of all groups in order gives the same bits as one process does.

Vectors may be on a device, where the kernels of :mod:`device_tiles` compute the sums. All other arrays, also the sums,
are NumPy arrays. The sums over tiles are added in float64, first within a group.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from haybale.cached import cached_property
from haybale.device import to_device, to_numpy
from haybale.ensemble.device_tiles import add_pair_sums, sum_weights
from haybale.ensemble.kernel import Pairs, Points, kernel_tile
from haybale.ensemble.rows import Ints, distinct_numbers
from haybale.parallel import batch_size_for_memory, cpus, in_threads, iter_blocks
from haybale.progress import track
from haybale.retrieval.hits import NO_PASSAGE, select
from haybale.vectors import Floats

_MAX_NUMBERS_IN_FLOAT64 = 2**16  # numbers in a matrix whose products are computed in float64: microseconds per row
_MAX_PASSAGES_PER_TILE = 1024  # on the CPU; 16 times as many on a device
_SUPPORT_PASSAGES_PER_TILE = 2048  # with the passages of a tile, 8 MiB of kernel values
_MAX_GROUPS_OF_TILES = 8  # each group computes Kq
_MAX_PASSAGES_OF_ONE_THREAD = 64  # starting threads would take longer than the work
_NUMBERS_PER_BLOCK = 2**29  # arrays of a block of queries: 2 GiB
_KERNEL_VALUES_PER_BLOCK = 2**27  # values of Kq in memory while W is computed: 512 MiB

BagWeights = NDArray[np.float64]  # (n_queries, n_bags): factors of the coefficients of each bag


@dataclass(frozen=True)
class KernelTerms:
    """The terms of a sum: support rows (n_rows,) of one bag or of all bags, sorted by passage."""

    query: Ints
    passage: Ints
    coef: NDArray[np.float64]
    bag: Ints | None = None  # None if the bags are already summed

    def in_order(self) -> KernelTerms:
        """Return the rows sorted by passage."""
        order = np.argsort(self.passage, kind="stable")
        bag = None if self.bag is None else self.bag[order]
        return KernelTerms(self.query[order], self.passage[order], self.coef[order], bag)

    @cached_property
    def tiles(self) -> list[_Tile]:
        """The rows of each tile of support passages."""
        tiles = []
        for start in range(0, int(self.passage.max(initial=0)) + 1, _SUPPORT_PASSAGES_PER_TILE):
            rows = slice(*np.searchsorted(self.passage, [start, start + _SUPPORT_PASSAGES_PER_TILE]))
            columns, column = np.unique(self.passage[rows] - start, return_inverse=True)
            bag = None if self.bag is None else self.bag[rows]
            tiles.append(_Tile(self.query[rows], column, self.coef[rows], bag, columns))
        return tiles


@dataclass(frozen=True)
class _Tile:
    """The support rows of one tile of support passages."""

    query: Ints  # (n_rows,)
    column: Ints  # (n_rows,) position of the passage in ``columns``
    coef: NDArray[np.float64]  # (n_rows,)
    bag: Ints | None  # (n_rows,)
    columns: Ints  # (n_used,) the distinct passages of the rows, counted from the start of the tile


@dataclass(frozen=True)
class Expansion:
    """The distinct support queries and support passages, with methods that compute sums over support rows."""

    queries: Points
    passages: Points

    @cached_property
    def is_small(self) -> bool:
        """Whether products are computed in float64, so that the sum of a pair does not depend on other pairs."""
        parts = [self.queries.dense, self.passages.dense]
        return all(part is None or part.size <= _MAX_NUMBERS_IN_FLOAT64 for part in parts)

    @cached_property
    def tiles(self) -> list[Points]:
        """The support passages in tiles; each tile caches its squared lengths."""
        size = _SUPPORT_PASSAGES_PER_TILE
        return [self.passages.take(slice(start, start + size)) for start in range(0, len(self.passages), size)]

    @cached_property
    def groups(self) -> list[range]:
        """The groups of tiles whose sums are added; they depend on the support only."""
        n_groups = min(_MAX_GROUPS_OF_TILES, len(self.tiles))
        edges = np.linspace(0, len(self.tiles), n_groups + 1).astype(np.int64).tolist()
        return [range(start, end) for start, end in pairwise(edges)]

    def sums(
        self, pairs: Pairs, terms: list[KernelTerms], bag_weights: BagWeights | None = None, group: int | None = None
    ) -> Any:
        """Return (n_pairs, n_terms) float64 Σ coef · K over the rows of each of the ``terms``.

        With ``group``, only the rows of that group of support passages are summed; the sums of all groups, added in
        order, are those over all rows. Queries are processed in blocks, as large as memory allows.
        """
        out = np.zeros((len(terms), len(pairs.query)))
        if not len(self.passages) or not len(pairs.query):
            return out.T
        groups = self.groups if group is None else [self.groups[group]]
        order = np.argsort(pairs.query, kind="stable")
        queries, starts = np.unique(pairs.query[order], return_index=True)
        ends = np.append(starts[1:], len(order))

        def sums_of_queries(part: slice) -> tuple[Ints, NDArray[np.float64]]:
            rows = order[starts[part.start] : ends[part.stop - 1]]
            rows = rows[np.argsort(pairs.passage[rows], kind="stable")]
            return rows, self._sums_of(pairs, rows, queries[part], terms, bag_weights, groups)

        size = max(1, _NUMBERS_PER_BLOCK // (max(map(len, groups)) * _SUPPORT_PASSAGES_PER_TILE * len(terms)))
        for rows, sums in iter_blocks(len(queries), size, sums_of_queries, what="queries"):
            out[:, rows] = sums
        return out.T

    def _sums_of(
        self,
        pairs: Pairs,
        rows: Ints,
        queries: Ints,
        terms: list[KernelTerms],
        bag_weights: BagWeights | None,
        groups: Sequence[range],
    ) -> NDArray[np.float64]:
        """Return the sums (n_terms, n_rows) of the pairs ``rows``, sorted by passage; ``queries`` are their queries."""
        where = self.queries.device
        query = np.searchsorted(queries, pairs.query[rows])
        distinct, passage = distinct_numbers(pairs.passage[rows], len(pairs.passages))
        candidates = pairs.passages if len(distinct) == len(pairs.passages) else pairs.passages.take(distinct, None)
        if not where.is_cpu and not candidates.is_precise:
            _ = candidates.norms  # once, and not for each tile
        weights = None if bag_weights is None else bag_weights[queries]
        weigh = _Weights(pairs.queries.take(queries), self.queries, weights, self.is_small)
        # The candidates are cut into tiles of equal size. The number of tiles is a multiple of the number of cores.
        cores = cpus() if where.is_cpu else 1
        most = _MAX_PASSAGES_PER_TILE * cores if where.is_cpu else 16 * _MAX_PASSAGES_PER_TILE
        n_tiles = cores * int(np.ceil(len(distinct) / most)) if len(distinct) > _MAX_PASSAGES_OF_ONE_THREAD else 1
        edges = np.linspace(0, len(distinct), n_tiles + 1).astype(np.int64)
        ends = np.searchsorted(passage, edges)
        total, of_group = np.zeros((len(terms), len(rows))), where.xp.zeros((len(terms), len(rows)))
        first_tiles = {group.start: group for group in groups}
        for number in track([tile for group in groups for tile in group], "scoring"):
            if number in first_tiles:
                group, total, of_group = first_tiles[number], total + to_numpy(of_group), where.xp.zeros(total.shape)
                weighed = [weigh(summands, group) for summands in terms]
            support, of_tile = self.tiles[number], [of_tiles[number - group.start] for of_tiles in weighed]

            def add(number: int, support: Points = support, of_tile: list[Any] = of_tile, sums: Any = of_group) -> None:
                part = slice(ends[number], ends[number + 1])
                kp = kernel_tile(candidates.take(slice(edges[number], edges[number + 1])), support, self.is_small)
                row, column = passage[part] - edges[number], query[part]
                for (columns, w), of_terms in zip(of_tile, sums, strict=True):
                    if len(columns) and where.is_cpu:
                        of_terms[part] += _pair_sums(_take_columns(kp, columns), w, row, column)
                    elif len(columns):
                        add_pair_sums(kp, columns, w, row, column, of_terms[part])

            in_threads(add, range(n_tiles), cores)
        return np.asarray(total + to_numpy(of_group))

    def highest(
        self,
        queries: Points,
        n: int,
        passages: Callable[[slice], Points],
        k: int,
        terms: KernelTerms,
        shift: Floats,
        bag_weights: BagWeights | None = None,
    ) -> Any:
        """Return the numbers (m, k) of the passages with the highest sums, descending, on the vectors' device.

        Memory does not grow with ``n``. Sums are float32, so rounding may decide between almost equal sums.

        Parameters
        ----------
        queries : Points (m, ·)
        n : int
            Number of passages.
        passages : callable
            Returns the passages of a slice of numbers.
        k : int
        terms : KernelTerms
        shift : (m,) float32
            Added to all sums of a query. Sums that differ by less than its rounding become ties.
        bag_weights : (m, n_bags), optional
        """
        where, xp = self.queries.device, self.queries.xp
        shift = to_device(shift, where)[:, None]
        threads, step = (cpus(), _MAX_PASSAGES_PER_TILE) if where.is_cpu else (1, 16 * _MAX_PASSAGES_PER_TILE)

        def search(rows: slice) -> Any:
            weights = None if bag_weights is None else bag_weights[rows]
            weigh = _Weights(queries.take(rows), self.queries, weights, self.is_small)
            widths = None if where.is_cpu else [len(tile) for tile in self.tiles]
            weighed = weigh(terms, range(len(self.tiles)), widths)

            def top_k(start: int) -> tuple[Any, Any]:
                tile = passages(slice(start, min(start + step, n)))
                sums = xp.zeros((len(shift[rows]), len(tile)), dtype=np.float32)
                for support, (columns, w) in zip(self.tiles, weighed, strict=True):
                    if len(columns):
                        sums += w @ _take_columns(kernel_tile(tile, support), columns).T
                numbers, scores = select(sums + shift[rows], k)
                return numbers + start, scores

            best = xp.full((len(shift[rows]), 0), NO_PASSAGE), xp.empty((len(shift[rows]), 0), dtype=np.float32)
            for start in track(range(0, n, step * threads), "searching"):
                of_tiles = in_threads(top_k, range(start, min(start + step * threads, n), step), threads)
                numbers, scores = (xp.concatenate(column, axis=1) for column in zip(best, *of_tiles, strict=True))
                best = select(scores, k, numbers)
            return best[0]

        size = _NUMBERS_PER_BLOCK // (len(self.queries) + len(self.passages) + 8 * step * threads)
        none = xp.full((0, min(k, n)), NO_PASSAGE)
        return xp.concatenate([none, *iter_blocks(len(queries), size, search, what="queries")])


class _Weights:
    """The matrix W of a block of queries, computed for some tiles of support passages at a time."""

    def __init__(self, queries: Points, support: Points, bag_weights: BagWeights | None, exact: bool) -> None:
        self.where, self.queries, self.support, self.exact = support.device, queries, support, exact
        self.bag_weights = None if bag_weights is None else bag_weights.astype(support.dtype)
        size = batch_size_for_memory(_KERNEL_VALUES_PER_BLOCK, len(support), most=len(queries))
        self.blocks = [slice(start, min(start + size, len(queries))) for start in range(0, len(queries), size)]
        self._kq: Any = None  # Kq, if it is a single block

    def __call__(
        self, terms: KernelTerms, tiles: Sequence[int], widths: Sequence[int] | None = None
    ) -> list[tuple[Any, Any]]:
        """Return, for each tile, the columns of its support passages that occur in the terms, and W of them.

        With ``widths``, the number of support passages of each tile, on a device, W has a column for all of them.
        """
        xp, m, none = self.where.xp, len(self.queries), np.zeros(0, dtype=np.int64)
        of_tiles = [terms.tiles[tile] if tile < len(terms.tiles) else None for tile in tiles]
        columns = [none if tile is None else tile.columns for tile in of_tiles]
        whole_tiles = widths is not None
        widths = [len(of_tile) for of_tile in columns] if widths is None else widths
        targets = columns if whole_tiles else [np.arange(n) for n in widths]
        matrices = [xp.zeros((m, n), dtype=self.support.dtype) for n in widths]
        for block in self.blocks:
            kq, weights = self._kernel(block), None if self.bag_weights is None else self.bag_weights[block]
            for tile, of_columns, w in zip(of_tiles, targets, matrices, strict=True):
                if tile is not None and self.where.is_cpu:
                    self._add(tile, kq, weights, w[block])
                elif tile is not None:
                    sum_weights(kq, tile.query, tile.column, tile.coef, tile.bag, weights, of_columns, w[block])
        return list(zip([np.arange(n) for n in widths] if whole_tiles else columns, matrices, strict=True))

    def _kernel(self, block: slice) -> Any:
        """Return Kq of some queries; it is kept if these are all queries."""
        if self._kq is not None:
            return self._kq
        queries = self.queries.take(block)
        kq = self.where.xp.empty((len(queries), len(self.support)), dtype=self.support.dtype)

        def fill(part: slice) -> None:
            kq[part] = kernel_tile(queries.take(part), self.support, self.exact)

        if self.where.is_cpu:
            in_threads(fill, _parts(len(kq)))
        else:
            fill(slice(0, len(kq)))
        if len(self.blocks) == 1:
            self._kq = kq
        return kq

    def _add(self, tile: _Tile, kq: Any, weights: Any, out: Any) -> None:
        """Add W of some queries to ``out``."""
        coef, bag = tile.coef.astype(kq.dtype), None if weights is None else tile.bag

        def add(part: slice) -> None:
            of_part = None if weights is None else weights[part]
            _add_weights(kq[part], tile.query, tile.column, coef, bag, of_part, out[part])

        in_threads(add, _parts(len(kq)))


def _parts(n: int) -> list[slice]:
    """Return slices of ``n`` queries for the threads of the CPU."""
    split = np.array_split(np.arange(n), 4 * cpus())
    return [slice(part[0], part[-1] + 1) for part in split if len(part)]


def _take_columns(kernel: Any, columns: Any) -> Any:
    """Return some columns of kernel values; return the array itself if all columns are chosen."""
    return kernel if len(columns) == kernel.shape[1] else kernel.take(columns, axis=1)


def _pair_sums(kp: Any, w: Any, passage: Ints, query: Ints) -> NDArray[np.float64]:
    """Return (n,) float64 <kp[passage[n]], w[query[n]]>."""
    out = np.zeros(len(passage))
    _dot_rows(kp, w, passage, query, out)
    return out


# On the CPU, loops replace array operations, because they need no temporary arrays of gathered rows.


@njit(nogil=True, fastmath=True, cache=True)
def _add_weights(
    kq: Any, query: Any, column: Any, coef: Any, bag: Any, weights: Any, out: Any
) -> None:  # pragma: no cover - compiled
    """Add coef_r · Kq(i, query_r), times weights[i, bag_r] if given, to out[i, column_r]."""
    for i in range(len(kq)):
        kernel, sums = kq[i], out[i]
        if weights is None:
            for r in range(len(coef)):
                sums[column[r]] += coef[r] * kernel[query[r]]
        else:
            weight = weights[i]
            for r in range(len(coef)):
                sums[column[r]] += coef[r] * weight[bag[r]] * kernel[query[r]]


@njit(nogil=True, fastmath=True, cache=True)
def _dot_rows(kp: Any, w: Any, passage: Any, query: Any, out: Any) -> None:  # pragma: no cover - compiled
    """Add <kp[passage[n]], w[query[n]]> to out[n]."""
    for n in range(len(out)):
        a, b = kp[passage[n]], w[query[n]]
        total = kp.dtype.type(0)
        for u in range(len(a)):
            total += a[u] * b[u]
        out[n] += total
