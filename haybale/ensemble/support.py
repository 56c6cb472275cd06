"""The fitted ensemble: support rows of all bags over shared vectors, and the kernel expansions that predict.

A bag scores a query q against any passage p by Σ_u Kp(p, u) W(q, u) + intercept, where u runs over the support
passages and W(q, u) sums coef · Kq(q, ·) over the support rows of u. So many queries and passages are scored by matrix
products: for every tile of support passages, W is made once for all queries, Kp once for every distinct passage that
any query asks about, and a pair's score is the inner product of its two rows. Of all passages there are, it is the
product of all rows with all, of which the highest are kept. A mean over bags is linear in the coefficients, also with
other weights for every query, so it costs what one bag costs.

The vectors may be on a device, and predictions are made there; all else is NumPy. Sums over products are float64.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy import sparse

from haybale.device import Device, to_device, to_numpy
from haybale.ensemble.kernel import Points, kernel_tile
from haybale.ensemble.rows import Ints
from haybale.errors import InputError
from haybale.parallel import cpus, in_threads, iter_chunks
from haybale.progress import track
from haybale.retrieval.hits import NO_PASSAGE, select
from haybale.vectors import Floats

_SMALL = 2**16  # numbers of queries or passages, whose products with a row take microseconds in float64
_PASSAGES = 1024  # distinct candidate passages, or of a search, a tile, at most; 16 times as many on a device
_SUPPORT = 2048  # support passages a tile: 8 MiB of kernel values
_FEW = 64  # candidates: threads would take longer to start than to work
_PAIRS = 2**15  # pairs whose rows are gathered at once on a device
_PRECISE = 2**23  # float64 kernel values held at once, of each kind
_MEMORY = 2**28  # numbers held at once for the queries of a chunk: 1 GiB


@dataclass(frozen=True)
class Pairs:
    """(n,) pairs to score: rows of the queries and of the passages, which are where those of the support are."""

    queries: Points
    passages: Points
    query: Ints
    passage: Ints
    features: Floats | None = None  # (n, f) scaled pair features


@dataclass(frozen=True)
class Group:
    """Support rows whose sum is wanted, sorted by passage: a bag, or all bags added up."""

    query: Ints  # (n_rows,)
    passage: Ints  # (n_rows,)
    coef: NDArray[np.float64]  # (n_rows,)
    bag: Ints | None = None  # (n_rows,); None: bags were added up

    @classmethod
    def of(cls, support: Support, rows: Ints) -> Group:
        rows = rows[np.argsort(support.passage[rows], kind="stable")]
        return cls(support.query[rows], support.passage[rows], support.coef[rows], support.bag[rows])

    @cached_property
    def tiles(self) -> list[tuple[slice, Ints, Ints, Floats]]:
        """Of each tile of support passages the group's rows, the columns they use, which one each uses, and coef."""
        tiles = []
        for start in range(0, int(self.passage.max(initial=0)) + 1, _SUPPORT):
            rows = slice(*np.searchsorted(self.passage, [start, start + _SUPPORT]))
            columns, column = np.unique(self.passage[rows] - start, return_inverse=True)
            tiles.append((rows, columns, column, self.coef[rows].astype(np.float32)))
        return tiles


@dataclass(frozen=True)
class Support:
    """Support rows of all bags, bag after bag, over the distinct queries and passages among them."""

    queries: Points  # (n_queries, ·)
    passages: Points  # (n_passages, ·)
    query: Ints  # (n_rows,)
    passage: Ints  # (n_rows,)
    coef: NDArray[np.float64]  # (n_rows,)
    label: NDArray[np.float32]  # (n_rows,) what the row was taught
    offsets: Ints  # (n_bags + 1,) bag b is rows offsets[b]:offsets[b + 1]
    intercept: NDArray[np.float64]  # (n_bags,)
    feature_weights: NDArray[np.float64] | None = None  # (n_bags, f) Σ coef · features of a bag's rows

    def checked(self) -> Support:
        """Itself, if all parts fit each other; for what was read from a file."""
        n = len(self.coef)
        fits = all(len(column) == n for column in (self.query, self.passage, self.label))
        fits &= self.feature_weights is None or self.feature_weights.shape[:-1] == self.intercept.shape
        fits &= len(self.offsets) == len(self.intercept) + 1 >= 2 and self.offsets[0] == 0 and self.offsets[-1] == n
        fits &= bool((np.diff(self.offsets) >= 0).all())
        for numbers, points in ((self.query, self.queries), (self.passage, self.passages)):
            fits &= not n or bool(numbers.min() >= 0 and numbers.max() < len(points))
        if not fits:
            raise InputError("the tensors of the support do not fit each other")
        finite = (self.coef, self.intercept, self.label, self.queries.dense, self.passages.dense, self.feature_weights)
        if not all(np.isfinite(values).all() for values in finite if values is not None):
            raise InputError("NaN or infinity among the tensors")
        return self

    @property
    def device(self) -> Device:
        """Where the vectors are."""
        return self.queries.device

    def to(self, device: Device) -> Support:
        """The support with its vectors on a device; itself, where they are there."""
        if device == self.device:
            return self
        return replace(self, queries=self.queries.to(device), passages=self.passages.to(device))

    @cached_property
    def is_small(self) -> bool:
        """Whether the products of a prediction are summed in float64: a pair's then depends on no other pair."""
        parts = [self.queries.dense, self.passages.dense]
        return all(part is None or part.size <= _SMALL for part in parts)

    @property
    def n_bags(self) -> int:
        return len(self.intercept)

    @cached_property
    def bag(self) -> Ints:
        """(n_rows,) the bag of each row."""
        return np.repeat(np.arange(self.n_bags), np.diff(self.offsets))

    @cached_property
    def tiles(self) -> list[Points]:
        """The passages in tiles, kept with what is derived from them, since many others meet them."""
        return [self.passages.take(slice(i, i + _SUPPORT)) for i in range(0, len(self.passages), _SUPPORT)]

    @cached_property
    def _bags(self) -> list[Group]:
        return [Group.of(self, np.arange(a, b)) for a, b in pairwise(self.offsets)]

    @cached_property
    def _everything(self) -> Group:
        return Group.of(self, np.arange(len(self.coef)))

    @cached_property
    def _mean(self) -> Group:
        """All bags as one: the coefficients of rows that several bags share, added up."""
        entries = (self.coef / self.n_bags, (self.passage, self.query))
        summed = sparse.coo_matrix(entries, shape=(len(self.passages), len(self.queries))).tocsr()
        passage = np.repeat(np.arange(len(self.passages)), np.diff(summed.indptr))
        return Group(summed.indices.astype(np.int64), passage, summed.data)

    def mean(self, pairs: Pairs, bag_weights: NDArray[np.float64] | None = None, *, intercept: bool = True) -> Any:
        """(n,) float64 mean prediction of the bags; ``bag_weights`` (n_queries, n_bags) weighs them for each query.

        An array of the vectors' library, as are those of :meth:`bags`. Without ``intercept``, Σ coef K alone.
        """
        with self.device.current():
            if self.queries.is_precise:
                sums = _precise_sums(self, pairs)
            elif bag_weights is None:
                sums = expand(self, pairs, [self._mean])[:, 0] + self._of_features(pairs, 1 / self.n_bags)
            else:
                sums = expand(self, pairs, [self._everything], bag_weights.astype(np.float32))[:, 0]
                sums += self._of_features(pairs, bag_weights[pairs.query])
            if not intercept:
                return sums
            return sums + to_device(self._intercepts(len(pairs.queries), bag_weights)[pairs.query], self.device)

    def _intercepts(self, m: int, bag_weights: NDArray[np.float64] | None) -> NDArray[np.float64]:
        """(m,) what :meth:`mean` adds for each query."""
        return np.broadcast_to(self.intercept.mean() if bag_weights is None else bag_weights @ self.intercept, m)

    def bags(self, pairs: Pairs) -> Any:
        """(n, n_bags) float64 the prediction of every bag."""
        with self.device.current():
            return self._sums(pairs) + to_device(self.intercept, self.device)

    def _sums(self, pairs: Pairs) -> Any:
        """(n, n_bags) float64 Σ coef K of every bag."""
        return expand(self, pairs, self._bags) + self._of_features(pairs)

    def highest(
        self,
        queries: Points,
        n: int,
        passages: Callable[[slice], Points],
        k: int,
        bag_weights: NDArray[np.float64] | None = None,
        *,
        intercept: bool = True,
    ) -> Any:
        """(m, k) the numbers of the passages, of ``n``, that :meth:`mean` without features is highest for; descending.

        float32's last bits may decide. ``passages(tile)`` are those of a slice of numbers; what is held at once does
        not grow with ``n``. The rest as in :meth:`mean`.
        """
        where, xp = self.device, self.device.xp
        group = self._mean if bag_weights is None else self._everything
        shift = self._intercepts(len(queries), bag_weights) if intercept else np.zeros(len(queries))
        shift = to_device(shift.astype(np.float32), where)[:, None]
        threads, step = (cpus(), _PASSAGES) if where.is_cpu else (1, 16 * _PASSAGES)

        def search(rows: slice) -> Any:
            weights = None if bag_weights is None else bag_weights[rows].astype(np.float32)
            kq, parts = _kernel_of(self, queries.take(rows))
            weighed = [_weighed(group, tile, kq, weights, parts, where) for tile in range(len(self.tiles))]

            def best_of(start: int) -> tuple[Any, Any]:
                here = passages(slice(start, min(start + step, n)))
                sums = xp.zeros((len(kq), len(here)), dtype=np.float32)
                for there, (columns, w) in zip(self.tiles, weighed, strict=True):
                    if len(columns):
                        sums += w @ _used(kernel_tile(here, there), columns, xp).T
                numbers, scores = select(sums + shift[rows], k)
                return numbers + start, scores

            best = xp.full((len(kq), 0), NO_PASSAGE), xp.empty((len(kq), 0), dtype=np.float32)
            for start in track(range(0, n, step * threads), "searching"):
                found = in_threads(best_of, range(start, min(start + step * threads, n), step), threads)
                numbers, scores = (xp.concatenate(column, axis=1) for column in zip(best, *found, strict=True))
                best = select(scores, k, numbers)
            return best[0]

        size = _MEMORY // (len(self.queries) + len(self.passages) + 8 * step * threads)
        with where.current():
            none = xp.full((0, min(k, n)), NO_PASSAGE)
            return xp.concatenate([none, *iter_chunks(len(queries), size, search, what="queries")])

    def error(self, pairs: Pairs, exact: Support | None = None, same: Pairs | None = None) -> float:
        """How far the mean predictions of pairs, without features, are from what they are in float64; at most.

        ``exact``, ``same``: the support, of one bag, and the pairs in float64, where these here have lost some of it.
        """
        if exact is None or same is None:
            parts: dict[str, Any] = {"queries": self.queries.precise(), "passages": self.passages.precise()}
            exact = replace(self, **parts, coef=self.coef / self.n_bags)
            same = replace(pairs, queries=pairs.queries.precise(), passages=pairs.passages.precise())
        return float(np.nan_to_num(to_numpy(abs(self.mean(pairs) - exact.mean(same))), nan=np.inf).max())

    def _of_features(self, pairs: Pairs, bag_weights: Any = None) -> Any:
        """(n, n_bags) what the features of pairs add to each bag's prediction, or (n,) these weighed and added up."""
        if self.feature_weights is None or pairs.features is None:
            return 0.0
        added = pairs.features @ self.feature_weights.T
        return to_device(added if bag_weights is None else (added * bag_weights).sum(axis=1), self.device)

    def shares(self, pair: Pairs) -> NDArray[np.float64]:
        """(n_rows,) coef · K of every support row, for one pair; a bag's and its intercept are its prediction."""
        kq = kernel_tile(pair.queries.take(pair.query), self.queries, self.is_small)[0]
        kp = kernel_tile(pair.passages.take(pair.passage), self.passages, self.is_small)[0]
        kernel = to_numpy(kq).astype(np.float64)[self.query] * to_numpy(kp).astype(np.float64)[self.passage]
        return np.asarray(self.coef * kernel)


def expand(support: Support, pairs: Pairs, groups: list[Group], bag_weights: Floats | None = None) -> Any:
    """(n_pairs, n_groups) float64 Σ coef K over each group's rows, without intercepts; where the vectors are.

    Chunks of queries, as many as memory allows, against tiles of support passages. ``bag_weights`` (n_queries, n_bags)
    multiplies the coefficients of each bag, for each query.
    """
    where, xp = support.device, support.device.xp
    out = xp.zeros((len(groups), len(pairs.query)))
    if not len(support.coef) or not len(pairs.query):
        return out.T
    order = np.argsort(pairs.query, kind="stable")
    queries, starts = np.unique(pairs.query[order], return_index=True)
    ends = np.append(starts[1:], len(order))

    def score(part: slice) -> tuple[Ints, Any]:
        chosen = order[starts[part.start] : ends[part.stop - 1]]
        return _chunk(support, pairs, groups, bag_weights, queries[part], chosen)

    size = max(1, _MEMORY // (len(support.queries) + _SUPPORT * len(groups)))
    for chosen, sums in iter_chunks(len(queries), size, score, what="queries"):
        out[:, to_device(chosen, where)] = sums
    return out.T


def _chunk(
    support: Support, pairs: Pairs, groups: list[Group], weights: Floats | None, queries: Ints, chosen: Ints
) -> tuple[Ints, Any]:
    """The numbers of some queries' pairs, ``chosen``, sorted by passage; and their sums (n_groups, n)."""
    where, xp, exact = support.device, support.device.xp, support.is_small
    chosen = chosen[np.argsort(pairs.passage[chosen], kind="stable")]
    query = np.searchsorted(queries, pairs.query[chosen])
    distinct, passage = np.unique(pairs.passage[chosen], return_inverse=True)
    candidates = pairs.passages.take(distinct)
    weights = None if weights is None else weights[queries]
    kq, parts = _kernel_of(support, pairs.queries.take(queries))
    # Tiles of candidates, each with its pairs side by side: as many for each core, of one size.
    cores = cpus() if where.is_cpu else 1
    most = _PASSAGES * cores if where.is_cpu else 16 * _PASSAGES
    n_tiles = cores * int(np.ceil(len(distinct) / most)) if len(distinct) > _FEW else 1
    edges = np.linspace(0, len(distinct), n_tiles + 1).astype(np.int64)
    ends = np.searchsorted(passage, edges)
    sums = xp.zeros((len(groups), len(chosen)))
    for tile, there in enumerate(track(support.tiles, "scoring")):
        weighed = [_weighed(group, tile, kq, weights, parts, where) for group in groups]

        def add(number: int, there: Points = there, weighed: list[Any] = weighed) -> None:
            here = slice(ends[number], ends[number + 1])
            kp = kernel_tile(candidates.take(slice(edges[number], edges[number + 1])), there, exact)
            asked_for, asking = (to_device(of[here], where) for of in (passage - edges[number], query))
            for (columns, w), total in zip(weighed, sums, strict=True):
                if len(columns):  # each pair is in one tile only
                    total[here] += _pair_sums(_used(kp, columns, xp), w, asked_for, asking, where)

        in_threads(add, range(n_tiles), cores)
    return chosen, sums


def _kernel_of(support: Support, queries: Points) -> tuple[Any, list[slice]]:
    """Kq (m, n_queries) of queries with those of the support; and their rows in parts, for threads."""
    where = support.device
    kq = where.xp.empty((len(queries), len(support.queries)), dtype=np.float32)
    split = np.array_split(np.arange(len(queries)), 4 * cpus() if where.is_cpu else 1)
    parts = [slice(part[0], part[-1] + 1) for part in split if len(part)]

    def fill(part: slice) -> None:
        kq[part] = kernel_tile(queries.take(part), support.queries, support.is_small)

    in_threads(fill, parts, None if where.is_cpu else 1)  # a device has its own
    return kq, parts


def _used(kp: Any, columns: Any, xp: Any) -> Any:
    """Some columns of kernel values; themselves if they are all."""
    return kp if len(columns) == kp.shape[1] else xp.take(kp, columns, axis=1)


def _weighed(
    group: Group, tile: int, kq: Any, weights: Floats | None, parts: list[slice], where: Device
) -> tuple[Any, Any]:
    """The columns of a tile of support passages that the group uses, and W (n_queries, n_used)."""
    if tile >= len(group.tiles):
        return (), None
    rows, columns, column, coef = group.tiles[tile]
    query, bag = group.query[rows], None if weights is None or group.bag is None else group.bag[rows]
    if not where.is_cpu:
        sums = where.xp.zeros((len(columns), len(kq)), dtype=np.float32)
        shares: list[tuple[Any, Any]] = [(slice(None), 1)]
        if weights is not None and bag is not None:
            shares = [(bag == number, to_device(weights[:, number], where)) for number in np.unique(bag)]
        for some, share in shares:
            entries = coef[some], (column[some], query[some])
            a = to_device(sparse.csr_matrix(entries, shape=(len(columns), kq.shape[1]), dtype=np.float32), where)
            sums += (a @ kq.T) * share
        return to_device(columns, where), where.xp.ascontiguousarray(sums.T)
    w = np.zeros((len(kq), len(columns)), dtype=np.float32)

    def weigh(part: slice) -> None:
        _weigh(kq[part], query, column, coef, bag, None if weights is None else weights[part], w[part])

    in_threads(weigh, parts)
    return columns, w


def _pair_sums(kp: Any, w: Any, passage: Any, query: Any, where: Device) -> Any:
    """(n,) float64 <kp[passage[n]], w[query[n]]>."""
    out = where.xp.zeros(len(passage))
    if where.is_cpu:
        _dots(kp, w, passage, query, out)
        return out
    for start in range(0, len(passage), _PAIRS):
        part = slice(start, start + _PAIRS)
        out[part] = (kp[passage[part]] * w[query[part]]).sum(axis=1, dtype=np.float64)
    return out


def _precise_sums(support: Support, pairs: Pairs) -> Any:
    """(n_pairs,) Σ coef K of one bag, in float64 throughout."""
    where, xp = support.device, support.device.xp
    out = xp.zeros(len(pairs.query))
    if not len(support.coef):
        return out
    shape = len(support.passages), len(support.queries)
    coef = to_device(sparse.csr_matrix((support.coef, (support.passage, support.query)), shape=shape), where)
    order, step = np.argsort(pairs.query, kind="stable"), max(1, _PRECISE // max(shape))
    for start in range(0, len(order), step):
        rows = order[start : start + step]
        (asked, query), (found, passage) = (
            np.unique(numbers[rows], return_inverse=True) for numbers in (pairs.query, pairs.passage)
        )
        weighed = (coef @ kernel_tile(pairs.queries.take(asked), support.queries).T).T  # (n_asked, n_passages)
        kp = kernel_tile(pairs.passages.take(found), support.passages)
        query, passage = to_device(query, where), to_device(passage, where)
        out[to_device(rows, where)] = (weighed[query] * kp[passage]).sum(axis=1)
    return out


# On the CPU, loops: nothing is gathered that is not kept.


@njit(nogil=True, fastmath=True, cache=True)
def _weigh(
    kq: Any, query: Any, column: Any, coef: Any, bag: Any, weights: Any, out: Any
) -> None:  # pragma: no cover - compiled
    """out[i, u] += Σ coef_r Kq(i, r) over the rows r of column u; times the weight that query i gives to r's bag."""
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
def _dots(kp: Any, w: Any, passage: Any, query: Any, out: Any) -> None:  # pragma: no cover - compiled
    """out[n] += <kp[passage[n]], w[query[n]]>."""
    for n in range(len(out)):
        a, b = kp[passage[n]], w[query[n]]
        total = np.float32(0)
        for u in range(len(a)):
            total += a[u] * b[u]
        out[n] += total
