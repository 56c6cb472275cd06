"""Kernel expansions over support rows as matrix products: many queries × many passages × all bags.

For every tile of support passages: W (n_queries, tile) is made once for all queries, Kp once for every distinct
passage that any query asks about; a pair's score is the inner product of its two rows. On a device
:mod:`haybale.ensemble.device_expansion` does the same in its own way.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from haybale.ensemble.device_expansion import expand_on_device
from haybale.ensemble.gram import exp_negative, kernel_tile
from haybale.ensemble.half import Half
from haybale.ensemble.rows import Ints
from haybale.machine import cpus, in_threads
from haybale.progress import track
from haybale.vectors import Floats

if TYPE_CHECKING:
    from haybale.ensemble.support import Pairs, Support

_PASSAGES = 1024  # distinct candidate passages a tile, at most
_SUPPORT = 2048  # support passages a tile: 8 MiB of kernel values
_FEW = 64  # candidates: threads would take longer to start than to work
_MEMORY = 2**28  # numbers held at once for the queries of a chunk: 1 GiB


@dataclass(frozen=True)
class Group:
    """Support rows whose sum is wanted, sorted by passage: a bag, or all bags added up."""

    query: Ints  # (n_rows,)
    passage: Ints  # (n_rows,)
    coef: NDArray[np.float64]  # (n_rows,)
    row: Ints | None = None  # (n_rows,) place in the support; None: rows were added up, and have none

    @classmethod
    def of(cls, support: Support, rows: Ints) -> Group:
        rows = rows[np.argsort(support.passage[rows], kind="stable")]
        return cls(support.query[rows], support.passage[rows], support.coef[rows], rows)

    def tile(self, start: int, end: int) -> tuple[slice, Ints, Ints, Floats]:
        """Of the support passages from ``start`` to ``end``: the group's rows, the passages that these use, which of
        them each row uses, and the coefficients; kept, since every query asks for the same."""
        if (start, end) not in self._tiles:
            rows = slice(*np.searchsorted(self.passage, [start, end]))
            columns, column = np.unique(self.passage[rows], return_inverse=True)
            self._tiles[start, end] = rows, columns, column, self.coef[rows].astype(np.float32)
        return self._tiles[start, end]

    @cached_property
    def _tiles(self) -> dict[tuple[int, int], tuple[slice, Ints, Ints, Floats]]:
        return {}

    def scaled(self, factor: float) -> Group:
        return Group(self.query, self.passage, self.coef * factor, self.row)


@njit(nogil=True, fastmath=True, cache=True)
def _weigh(kq: Any, query: Any, column: Any, coef: Any, out: Any) -> None:  # pragma: no cover - compiled
    """out[i, u] += Σ coef_r Kq(i, r) over the rows r of column u."""
    for i in range(len(kq)):
        kernel, sums = kq[i], out[i]
        for r in range(len(coef)):
            sums[column[r]] += coef[r] * kernel[query[r]]


@njit(nogil=True, fastmath=True, cache=True)
def _weigh_bags(
    kq: Any, query: Any, column: Any, coef: Any, bag: Any, weights: Any, out: Any
) -> None:  # pragma: no cover
    """The same with coefficients times the weight that query i gives to the row's bag."""
    for i in range(len(kq)):
        kernel, sums, weight = kq[i], out[i], weights[i]
        for r in range(len(coef)):
            sums[column[r]] += coef[r] * weight[bag[r]] * kernel[query[r]]


@njit(nogil=True, fastmath=True, cache=True)
def _dots(kp: Any, w: Any, passage: Any, query: Any, out: Any) -> None:  # pragma: no cover - compiled
    """out[n] += <kp[passage[n]], w[query[n]]>."""
    for n in range(len(out)):
        a, b = kp[passage[n]], w[query[n]]
        total = np.float32(0)
        for u in range(len(a)):
            total += a[u] * b[u]
        out[n] += total


@njit(nogil=True, fastmath=True, cache=True)
def _evidence(here: Any, support: Any, coef: Any, out: Any) -> None:  # pragma: no cover - compiled
    """out[n] += Σ_r coef_r exp(-|here_n - support_r|²): (n, f), (f, n_rows)."""
    far = np.empty(512, dtype=np.float32)
    for n in range(len(here)):
        total = 0.0
        for b in range(0, support.shape[1], 512):
            size = min(512, support.shape[1] - b)
            far[:] = np.float32(0)
            for f in range(support.shape[0]):
                value, column = here[n, f], support[f, b : b + size]
                for r in range(size):
                    d = column[r] - value
                    far[r] -= d * d
            block, part = coef[b : b + size], np.float32(0)
            for r in range(size):
                part += block[r] * exp_negative(far[r])
            total += float(part)
        out[n] += total


def expand(support: Support, pairs: Pairs, groups: list[Group], bag_weights: Floats | None = None) -> Any:
    """(n_pairs, n_groups) float64 Σ coef K over each group's rows, without intercepts; where the halves are.

    ``bag_weights`` (n_queries, n_bags) multiplies the coefficients of each bag, for each query.
    """
    if not support.device.is_cpu:
        return expand_on_device(support, pairs, groups, bag_weights)
    out = np.zeros((len(groups), len(pairs.query)))
    if support.interactions is not None:
        _by_rows(support, pairs, groups, out)
    else:
        _by_tiles(support, pairs, groups, bag_weights, out)
    if support.evidence is not None and pairs.evidence is not None:
        for group, sums in zip(groups, out, strict=True):
            _add_evidence(support, group, pairs.evidence, sums)
    return out.T


def _by_tiles(
    support: Support, pairs: Pairs, groups: list[Group], bag_weights: Floats | None, out: NDArray[np.float64]
) -> None:
    """Chunks of queries, as many as memory allows, against tiles of support passages."""
    size = max(1, _MEMORY // (len(support.queries) + _SUPPORT * len(groups)))
    order = np.argsort(pairs.query, kind="stable")
    queries, starts = np.unique(pairs.query[order], return_index=True)
    ends = np.append(starts[1:], len(order))
    tiles = range(0, len(support.passages), _SUPPORT)
    chunks = range(0, len(queries), size)
    done = track(range(len(chunks) * len(tiles)), "scoring")
    for first in chunks:
        part = slice(first, min(first + size, len(queries)))
        chosen = order[starts[part.start] : ends[part.stop - 1]]
        chunk = _Chunk(support, pairs, queries[part], chosen, bag_weights)
        for start in tiles:
            chunk.add(groups, start, out)
            next(done)
    next(done, None)  # the bar goes


def _add_evidence(support: Support, group: Group, evidence: Floats, sums: NDArray[np.float64]) -> None:
    """Add what pair features (n_pairs, f) contribute."""
    assert support.evidence is not None
    assert support.evidence_root is not None
    rows = np.ascontiguousarray(support.evidence[group.row].T)
    coef = (np.sqrt(support.eta) * support.evidence_root[group.row] * group.coef).astype(np.float32)
    parts = [slice(start, start + 256) for start in range(0, len(sums), 256)]
    in_threads(lambda part: _evidence(evidence[part], rows, coef, sums[part]), parts)


class _Chunk:
    """Some queries and their pairs, sorted by passage."""

    def __init__(self, support: Support, pairs: Pairs, queries: Ints, chosen: Ints, weights: Floats | None) -> None:
        self.support = support
        by_passage = chosen[np.argsort(pairs.passage[chosen], kind="stable")]
        self.pairs = by_passage
        self.query = np.searchsorted(queries, pairs.query[by_passage])
        passages, self.passage = np.unique(pairs.passage[by_passage], return_inverse=True)
        self.passages = pairs.passages.take(passages)
        self.weights = None if weights is None else weights[queries]
        half = pairs.queries.take(queries)
        self.kq = np.empty((len(queries), len(support.queries)), dtype=np.float32)
        self.parts = [
            slice(part[0], part[-1] + 1) for part in np.array_split(np.arange(len(queries)), 4 * cpus()) if len(part)
        ]
        in_threads(
            lambda part: kernel_tile(half.take(part), support.queries, self.kq[part], support.is_small), self.parts
        )

    def add(self, groups: list[Group], start: int, out: NDArray[np.float64]) -> None:
        """Add what the support passages from ``start`` on contribute."""
        end = min(start + _SUPPORT, len(self.support.passages))
        weighed = [self._weighed(group, start, end) for group in groups]
        support = self.support.passages.tile(start, end)
        # As many tiles for each core, of one size.
        n_tiles = cpus() * int(np.ceil(len(self.passages) / (_PASSAGES * cpus())))
        if len(self.passages) <= _FEW:
            n_tiles = 1
        edges = np.linspace(0, len(self.passages), n_tiles + 1).astype(np.int64)
        ends = np.searchsorted(self.passage, edges)

        def score(number: int) -> None:
            first = edges[number]
            candidates = self.passages.take(slice(first, edges[number + 1]))
            kp = kernel_tile(candidates, support, exact=self.support.is_small)
            here = slice(ends[number], ends[number + 1])
            passage, query = self.passage[here] - first, self.query[here]
            for (columns, w), sums in zip(weighed, out, strict=True):
                if not len(columns):
                    continue
                added = np.zeros(len(query))
                _dots(kp if len(columns) == end - start else np.take(kp, columns, axis=1), w, passage, query, added)
                sums[self.pairs[here]] += added  # each pair is in one tile only

        in_threads(score, range(n_tiles))

    def _weighed(self, group: Group, start: int, end: int) -> tuple[Ints, Floats]:
        """The support passages of the tile that the group uses, and W (n_queries, n_used)."""
        rows, columns, column, coef = group.tile(start, end)
        w = np.zeros((len(self.kq), len(columns)), dtype=np.float32)

        def weigh(part: slice) -> None:
            if self.weights is None:
                _weigh(self.kq[part], group.query[rows], column, coef, w[part])
            else:
                bag = self.support.bag[group.row[rows]]  # type: ignore[index]
                _weigh_bags(self.kq[part], group.query[rows], column, coef, bag, self.weights[part], w[part])

        in_threads(weigh, self.parts)
        return columns - start, w


def _by_rows(support: Support, pairs: Pairs, groups: list[Group], out: NDArray[np.float64]) -> None:
    """With interactions nothing factorises: the kernel of every pair with every support row."""
    exact = support.is_small
    coef = np.zeros((len(support.coef), len(groups)), dtype=np.float64 if exact else np.float32)
    for number, group in enumerate(groups):
        coef[group.row, number] = group.coef
    step = max(1, _MEMORY // 8 // max(1, *support.interactions.shape))  # type: ignore[union-attr]
    for start in track(range(0, len(pairs.query), step), "scoring"):
        part = slice(start, start + step)
        kernel = kernel_tile(Half(pairs.interactions[part]), Half(support.interactions), exact=exact)  # type: ignore[index]
        for half, used, of_support, rows in (
            (pairs.queries, pairs.query[part], support.queries, support.query),
            (pairs.passages, pairs.passage[part], support.passages, support.passage),
        ):
            distinct, where = np.unique(used, return_inverse=True)
            kernel *= kernel_tile(half.take(distinct), of_support, exact=exact)[where][:, rows]
        out[:, part] += (kernel @ coef).T
