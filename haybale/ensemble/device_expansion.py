"""Kernel expansions on a device: the matrix products of :mod:`haybale.ensemble.expansion`, without its loops.

The coefficients of a group are a sparse matrix, support queries × support passages. For every tile of support
passages it is made dense block by block, W = Kq A (queries, tile) and Kp (candidates, tile) are matrix products, and a
pair's score is the inner product of its rows of both, gathered in blocks. Products are float32, sums over them float64.

Numbers of rows are sorted and made distinct on the CPU. Every tile is sized by the memory there is, and halved where
that was too much.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from haybale.device import to_device
from haybale.ensemble.gram import kernel_tile
from haybale.ensemble.half import Half
from haybale.ensemble.rows import Ints
from haybale.machine import fitting, in_tiles
from haybale.progress import track
from haybale.vectors import Floats

if TYPE_CHECKING:
    from haybale.ensemble.expansion import Group
    from haybale.ensemble.support import Pairs, Support

# At most, whatever memory there is: products of this size are large enough to be fast.
_SUPPORT = 4096  # support passages a tile
_COLUMNS = 512  # columns of A at once: the fewer, the fewer support queries have a coefficient there
_CANDIDATES = 2**15  # candidates a tile
_PAIRS = 2**15  # pairs a block


def expand_on_device(
    support: Support, pairs: Pairs, groups: Sequence[Group], bag_weights: NDArray[Any] | None = None
) -> Any:
    """(n_pairs, n_groups) float64 on the device of the halves; see :func:`haybale.ensemble.expansion.expand`."""
    with support.device.current():
        xp = support.device.xp
        if not len(support.coef) or not len(pairs.query):
            return xp.zeros((len(pairs.query), len(groups)))
        if support.interactions is not None:
            out = _by_rows(support, pairs, groups)
        else:
            out = _by_tiles(support, pairs, groups, bag_weights)
        if support.evidence is not None and pairs.evidence is not None:
            for group, sums in zip(groups, out, strict=True):
                sums += _evidence(support, group, pairs.evidence)
        return out.T


@dataclass(frozen=True)
class Coefficients:
    """A group's or a bag's coefficients, each (support passage, support query) once; sorted by passage. NumPy."""

    passage: Ints  # (n,)
    query: Ints  # (n,)
    coef: Floats  # (n,)
    bag: int | None = None  # whose weights they are to be multiplied by

    @classmethod
    def of(cls, group: Group, chosen: Ints | slice = slice(None), bag: int | None = None) -> Coefficients:
        """Rows of a group, those of the same pair added up, in float64 and always in the same order.

        >>> from haybale.ensemble.expansion import Group
        >>> group = Group(np.array([5, 2, 5]), np.array([0, 0, 0]), np.array([1.0, 2.0, 3.0]))
        >>> Coefficients.of(group).coef
        array([2., 4.], dtype=float32)
        """
        query, passage = group.query[chosen], group.passage[chosen]
        wide = int(query.max(initial=0)) + 1
        pair, where = np.unique(passage * wide + query, return_inverse=True)
        summed = np.bincount(where.ravel(), group.coef[chosen], minlength=len(pair)).astype(np.float32)
        return cls(pair // wide, pair % wide, summed, bag)

    def tile(self, start: int, stop: int) -> Coefficients:
        """Those of support passages start..stop, which are numbered from 0 there."""
        rows = slice(*np.searchsorted(self.passage, [start, stop]))
        return Coefficients(self.passage[rows] - start, self.query[rows], self.coef[rows], self.bag)


def _by_tiles(support: Support, pairs: Pairs, groups: Sequence[Group], weights: NDArray[Any] | None) -> Any:
    """(n_groups, n_pairs): tiles of queries, against tiles of support passages, against tiles of candidates."""
    xp, budget = support.device.xp, support.device.half_of_memory()
    parts = [_parts(support, group, weights) for group in groups]
    order = np.lexsort((pairs.passage, pairs.query))
    queries, starts = np.unique(pairs.query[order], return_index=True)
    ends = np.append(starts[1:], len(order))
    n_support = len(support.queries)
    wide = fitting(budget / 8, 8 * n_support, most=min(_SUPPORT, len(support.passages)))
    out = xp.empty((len(groups), len(order)))

    def score(part: slice) -> tuple[Ints, Any]:
        chosen = order[starts[part.start] : ends[part.stop - 1]]
        chunk = _Chunk(support, pairs, queries[part], chosen, weights)
        sums = xp.zeros((len(groups), len(chosen)))
        tiles = in_tiles(len(support.passages), wide, lambda tile: chunk.sums(parts, tile, budget), what="support")
        for added in tiles:
            sums += added
        return chunk.pairs, sums

    # Of a query: its kernel values and a part of them, W for every group and what is added to it, sums of its pairs.
    each = 8 * (n_support + wide * len(groups)) + 16 * (1 + len(groups)) * len(order) / len(queries)
    size = fitting(budget / 4, each)
    for chosen, sums in track(in_tiles(len(queries), size, score, what="queries"), "scoring"):
        out[:, to_device(chosen, support.device)] = sums
    return out


def _parts(support: Support, group: Group, weights: NDArray[Any] | None) -> list[Coefficients]:
    """The group's coefficients: as they are, or by bag, where each query weighs the bags for itself."""
    if weights is None:
        return [Coefficients.of(group)]
    bag = support.bag[group.row]
    return [Coefficients.of(group, np.flatnonzero(bag == number), int(number)) for number in np.unique(bag)]


class _Chunk:
    """Some queries and their pairs, sorted by passage, so that a tile of candidates has its pairs side by side."""

    def __init__(
        self, support: Support, pairs: Pairs, queries: Ints, chosen: Ints, weights: NDArray[Any] | None
    ) -> None:
        self.support, self.where, self.xp = support, support.device, support.device.xp
        self.pairs = chosen[np.argsort(pairs.passage[chosen], kind="stable")]
        self.candidates, self.passage = np.unique(pairs.passage[self.pairs], return_inverse=True)
        self.passages = pairs.passages
        # The same numbers where they are gathered by.
        self.query_there = to_device(np.searchsorted(queries, pairs.query[self.pairs]), self.where)
        self.passage_there = to_device(self.passage, self.where)
        self.weights = None if weights is None else np.asarray(weights[queries], dtype=np.float32)
        self.kq = kernel_tile(pairs.queries.take(queries), support.queries)

    def sums(self, parts: list[list[Coefficients]], tile: slice, budget: float) -> Any:
        """(n_groups, n_pairs) float64: what the support passages of the tile add."""
        xp = self.xp
        weighed = [self._weighed(group, tile) for group in parts]
        support, width = self.support.passages.take(tile), tile.stop - tile.start
        out = xp.zeros((len(parts), len(self.pairs)))

        def score(candidates: slice) -> None:
            first, last = np.searchsorted(self.passage, [candidates.start, candidates.stop])
            kp = kernel_tile(self.passages.take(self.candidates[candidates]), support)
            for (columns, w), sums in zip(weighed, out, strict=True):
                if w is None:
                    continue
                used = kp if columns is None else xp.take(kp, columns, axis=1)
                block = fitting(budget / 8, 8 * int(w.shape[1]), most=_PAIRS)

                def dots(rows: slice, used: Any = used, w: Any = w) -> Any:
                    here = slice(int(first) + rows.start, int(first) + rows.stop)
                    product = used[self.passage_there[here] - candidates.start]
                    product *= w[self.query_there[here]]
                    return product.sum(axis=1, dtype=np.float64)

                start = int(first)
                for values in in_tiles(int(last - first), block, dots, what="pairs"):
                    sums[start : start + len(values)] = values
                    start += len(values)

        size = fitting(budget / 8, 8 * width, most=_CANDIDATES)
        for _ in in_tiles(len(self.candidates), size, score, what="candidates"):
            pass
        return out

    def _weighed(self, parts: list[Coefficients], tile: slice) -> tuple[Any, Any]:
        """The columns of the tile that the group uses (None: all of them), and W (n_queries, n_used) or None."""
        tiles = [part.tile(tile.start, tile.stop) for part in parts]
        columns = np.unique(np.concatenate([part.passage for part in tiles]))
        if not len(columns):
            return None, None
        w = self.xp.zeros((len(self.kq), len(columns)), dtype=np.float32)
        for part in tiles:
            column = np.searchsorted(columns, part.passage)
            for start in range(0, len(columns), _COLUMNS):
                block = slice(start, min(start + _COLUMNS, len(columns)))
                rows = slice(*np.searchsorted(column, [block.start, block.stop]))
                if rows.stop > rows.start:
                    sums = w[:, block]
                    sums += self._product(part, rows, column[rows] - start, block.stop - start)
        if len(columns) == tile.stop - tile.start:
            return None, w
        return to_device(columns, self.where), w

    def _product(self, part: Coefficients, rows: slice, column: Ints, n_columns: int) -> Any:
        """(n_queries, n_columns) Kq A, over the support queries that these rows of A have."""
        xp = self.xp
        used, row = np.unique(part.query[rows], return_inverse=True)
        dense = xp.zeros((len(used), n_columns), dtype=np.float32)
        dense[to_device(row.ravel(), self.where), to_device(column, self.where)] = to_device(
            part.coef[rows], self.where
        )
        everything = len(used) == self.kq.shape[1]
        product = (self.kq if everything else xp.take(self.kq, to_device(used, self.where), axis=1)) @ dense
        if part.bag is not None and self.weights is not None:
            product *= to_device(self.weights[:, part.bag], self.where)[:, None]
        return product


def _evidence(support: Support, group: Group, evidence: Any) -> Any:
    """(n_pairs,) what the pair features (n_pairs, f) contribute."""
    assert support.evidence is not None
    assert support.evidence_root is not None
    where, xp = support.device, support.device.xp
    budget = where.half_of_memory()
    rows = Half(to_device(support.evidence[group.row], where))
    root = np.sqrt(support.eta) * support.evidence_root[group.row]
    coef = to_device((root * group.coef).astype(np.float32), where)
    here = Half(to_device(evidence, where))

    def score(part: slice) -> Any:
        some, sums = here.take(part), xp.zeros(part.stop - part.start)
        for start in range(0, len(rows), _SUPPORT):
            tile = slice(start, start + _SUPPORT)
            sums += kernel_tile(some, rows.take(tile)) @ coef[tile]
        return sums

    size = fitting(budget / 4, 8 * min(_SUPPORT, len(rows)), most=_PAIRS)
    return xp.concatenate(list(in_tiles(len(here), size, score, what="pairs")))


def _by_rows(support: Support, pairs: Pairs, groups: Sequence[Group]) -> Any:
    """(n_groups, n_pairs) with interactions, where nothing factorises: every pair with every support row."""
    where, xp = support.device, support.device.xp
    coef = np.zeros((len(support.coef), len(groups)), dtype=np.float32)
    for number, group in enumerate(groups):
        coef[group.row, number] = group.coef
    there = to_device(coef, where)
    ours, theirs = (Half(to_device(of.interactions, where)) for of in (support, pairs))
    rows = to_device(support.query, where), to_device(support.passage, where)

    def score(part: slice) -> Any:
        kernel = kernel_tile(theirs.take(part), ours)
        for half, used, of_support, row in (
            (pairs.queries, pairs.query[part], support.queries, rows[0]),
            (pairs.passages, pairs.passage[part], support.passages, rows[1]),
        ):
            distinct, places = np.unique(used, return_inverse=True)
            near = kernel_tile(half.take(distinct), of_support)
            kernel *= xp.take(near[to_device(places.ravel(), where)], row, axis=1)
        return kernel @ there

    n_support = len(support.coef) + len(support.queries) + len(support.passages)
    size = fitting(where.half_of_memory() / 4, 12 * n_support, most=_PAIRS)
    sums = list(track(in_tiles(len(pairs.query), size, score, what="pairs"), "scoring"))
    return xp.concatenate(sums).astype(np.float64).T
