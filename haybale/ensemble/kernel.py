"""The product kernel: on pairs (query, passage) an RBF kernel is the product of a query and a passage kernel.

    exp(-γ ‖[q;p] - [q';p']‖²) = exp(-γ ‖q - q'‖²) · exp(-γ ‖p - p'‖²) = Kq(q, q') · Kp(p, p')

This holds exactly, for any scaling of the features, and with a separate γ for each half. So no vector [q ; p] is ever
built: the kernel of any pairs is gathered from two small Gram matrices, over the distinct queries and the distinct
passages. Several spaces side by side are one more product, hence one RBF kernel over all of them, each multiplied by
the root of its own γ (:mod:`haybale.ensemble.spaces`). Pair features do not factorise; they have a linear kernel that
is added.

On the CPU a tile of 512 × 512 values is a matrix product followed by exponentials while the tile is in the cache. exp
is a polynomial there, which a compiler can vectorise: 0.25 ns a value on one core against 0.45 ns for ``numpy.exp`` in
float32 (x86-64 with AVX-512). Its relative error is below 3e-7, like that of the product. On a device the same is
done with array operations.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from types import ModuleType
from typing import Any

import numpy as np
from numba import njit

from haybale.device import Device, device_of, is_sparse, to_device
from haybale.ensemble.rows import Ints
from haybale.errors import DeviceError
from haybale.parallel import in_threads, is_out_of_memory
from haybale.retrieval.sparse_search import add_products
from haybale.vectors import Floats, squared_lengths

TILE = 512  # rows and columns of a tile of a Gram matrix: 1 MiB, which a second-level cache holds
_DEVICE_TILE = 4096
# Float64 products of squared lengths above _LONG are off by 1e-8 or more. Distances above _ZERO do not matter then,
# because the kernel is 0.
_LONG, _ZERO = 3e5, 1e3
_DIFFERENCES = 2**22  # values of differences held at once
_F = np.float32


@dataclass(frozen=True)
class Points:
    """Queries or passages in all their spaces, scaled to γ = 1: the kernel of two of them is exp(-‖a - b‖²).

    ``dense`` (n, d) holds the dense spaces side by side, ``sparse`` (n, v) the sparse ones as CSR; either may be
    missing. Arrays are NumPy and SciPy, or CuPy. They are float32, or float64 where float32 would not represent the
    kernel precisely; all that is computed from float64 points is float64.
    """

    dense: Any | None
    sparse: Any | None = None

    @property
    def _any(self) -> Any:
        return self.sparse if self.dense is None else self.dense

    def __len__(self) -> int:
        return int(self._any.shape[0])

    @cached_property
    def device(self) -> Device:
        """The device that holds the arrays."""
        return device_of(self._any)

    @property
    def xp(self) -> ModuleType:
        """The array library of the device: numpy or cupy."""
        return self.device.xp

    @property
    def dtype(self) -> np.dtype[Any]:
        """float32 or float64, of the vectors and of their kernel."""
        return np.dtype(str(self._any.dtype))

    @property
    def is_precise(self) -> bool:
        """Whether the points are float64."""
        return self.dtype == np.float64

    def precise(self) -> Points:
        """Return the points in float64."""
        with self.device.current():
            return Points(*(None if part is None else part.astype(np.float64) for part in (self.dense, self.sparse)))

    def to(self, device: Device) -> Points:
        """Return the points on a device; the same object if they are there already."""
        if device == self.device:
            return self
        return Points(*(None if part is None else to_device(part, device) for part in (self.dense, self.sparse)))

    @cached_property
    def norms(self) -> Any:
        """(n,) squared lengths, in float32."""
        with self.device.current():
            total = self.xp.zeros(len(self), dtype=np.float32)
            if self.dense is not None:
                total += squared_lengths(self.dense)
            if self.sparse is not None:
                squares = self.sparse.multiply(self.sparse).sum(axis=1)
                total += self.xp.asarray(squares, dtype=np.float32).ravel()
        return total

    def take(self, rows: Any) -> Points:
        """Return some rows, given by numbers (of either library) or a slice; a slice of the dense part is a view."""
        if not isinstance(rows, slice):
            rows = to_device(rows, self.device)
        with self.device.current():
            return Points(*(None if part is None else part[rows] for part in (self.dense, self.sparse)))

    @cached_property
    def _columns(self) -> Any:
        """The sparse part by term: (n, v) CSC in SciPy, (v, n) CSR in CuPy, whose CSR products are faster."""
        assert self.sparse is not None
        return self.sparse.tocsc() if self.device.is_cpu else self.sparse.T.tocsr()

    def products(self, other: Points, exact: bool = False) -> Any:
        """Return (n, m) inner products with other points on the same device.

        The products of a row may differ in the last bit depending on the rows computed with it, because BLAS sums in
        another order at the edges of its blocks. With ``exact`` they do not: sums on the CPU are float64 then, which
        costs twice as much.
        """
        if self.device != other.device:
            raise DeviceError(f"points on {self.device} meet points on {other.device}; move one with Points.to")
        with self.device.current():
            out = self.xp.empty((len(self), len(other)), dtype=np.float32)
            if self.dense is None or other.dense is None or not self.dense.shape[1]:
                out[:] = 0
            elif exact and self.device.is_cpu:
                out[:] = self.dense.astype(np.float64) @ other.dense.astype(np.float64).T
            else:
                self.xp.matmul(self.dense, other.dense.T, out=out)
            if self.sparse is not None and other.sparse is not None:
                if self.device.is_cpu:
                    add_products(self.sparse, other._columns, out)
                else:
                    out += (self.sparse @ other._columns).toarray()
        return out


@dataclass(frozen=True)
class Pairs:
    """Rows (n,) that are pairs: row i is ``queries[query[i]]`` with ``passages[passage[i]]``.

    Vectors may be on a device. Numbers and pair features, one short row a pair, are NumPy.
    """

    queries: Points  # (n_queries, ·)
    passages: Points  # (n_passages, ·)
    query: Ints  # (n,)
    passage: Ints  # (n,)
    features: Floats | None = field(default=None, kw_only=True)  # (n, f) scaled pair features

    @property
    def device(self) -> Device:
        """The device that holds the vectors."""
        return self.queries.device


def pair_kernel(pairs: Pairs, rows: Ints, grams: tuple[Any, Any] | None = None) -> Any:
    """Return (n_rows, n) Kq · Kp + φ φᵀ of some rows with all rows, φ being the features, on the pairs' device.

    ``grams`` are the Gram matrices of the queries and of the passages, where they have been computed.
    """
    where = pairs.device
    with where.current():
        xp, values = where.xp, None
        for number, (points, column) in enumerate(((pairs.queries, pairs.query), (pairs.passages, pairs.passage))):
            if grams is not None:
                near = grams[number][to_device(column[rows], where)]
            else:
                used, place = np.unique(column[rows], return_inverse=True)
                near = kernel_tile(points.take(used), points)[to_device(place, where)]
            near = xp.take(near, to_device(column, where), axis=1)
            values = near if values is None else xp.multiply(values, near, out=near)
        if pairs.features is not None:
            features = to_device(pairs.features, where)
            values += features[to_device(rows, where)] @ features.T
    return values


@njit(inline="always")
def exp_negative(x: Any) -> Any:  # pragma: no cover - compiled
    """Return exp(x) for x <= 0 in float32: 2^n times a polynomial of the remainder (Cephes expf); exp(-87) below."""
    x = max(_F(-87.0), x)
    n = np.floor(x * _F(1.44269504) + _F(0.5))
    r = x - n * _F(0.693359375) - n * _F(-2.12194440e-4)
    p = _F(1.9875691500e-4)
    p = p * r + _F(1.3981999507e-3)
    p = p * r + _F(8.3334519073e-3)
    p = p * r + _F(4.1665795894e-2)
    p = p * r + _F(1.6666665459e-1)
    p = p * r + _F(5.0000001201e-1)
    p = p * r * r + r + _F(1)
    power = (np.int32(n) + np.int32(127)) << np.int32(23)
    return p * np.int32(power).view(np.float32)


@njit(nogil=True, fastmath=True, cache=True)
def _exp_tile(tile: Any, norms_a: Any, norms_b: Any) -> None:  # pragma: no cover - compiled
    """Turn products into kernel values, in place: exp(2 a·b - |a|² - |b|²)."""
    for i in range(tile.shape[0]):
        a = norms_a[i]
        for j in range(tile.shape[1]):
            # Rounding can leave a tiny negative distance.
            tile[i, j] = exp_negative(min(_F(0), _F(2) * tile[i, j] - a - norms_b[j]))


def _squared_distances(a: Points, b: Points) -> Any:
    """Return (n, m) squared distances of float64 points, exactly 0 for equal ones.

    Distances come from products, whose error is about 2^-53 of the squared lengths, and from differences where that
    error would matter.
    """
    xp = a.xp
    parts: list[tuple[Any, Any, Any]] = [
        (a.dense, b.dense, lambda d: (d * d).sum(axis=1)),
        (a.sparse, b.sparse, lambda d: xp.asarray(d.multiply(d).sum(axis=1)).ravel()),
    ]
    total = xp.zeros((len(a), len(b)))
    for here, there, squares in parts:
        if here is None or there is None or not here.shape[1]:
            continue
        products = here @ there.T
        lengths = squares(here)[:, None] + squares(there)
        far = lengths - 2 * (products.toarray() if is_sparse(products) else products)
        xp.maximum(far, 0, out=far)
        near = (far < 2.0**-30 * lengths) | ((far < _ZERO) & (lengths > _LONG))
        left, right = xp.nonzero(near)
        step = TILE if is_sparse(here) else max(1, _DIFFERENCES // here.shape[1])
        for start in range(0, len(left), step):
            i, j = left[start : start + step], right[start : start + step]
            far[i, j] = squares(here[i] - there[j])
        total += far
    return total


def kernel_tile(a: Points, b: Points, exact: bool = False) -> Any:
    """Return (n, m) kernel values of points, from one matrix product, on their device.

    With ``exact``, the values of a row do not depend on the rows computed with it; see :meth:`Points.products`.

    >>> a, b = (Points(np.full((1, 2), value, dtype=np.float32)) for value in (0, 0.5))
    >>> kernel_tile(a, b)
    array([[0.60653067]], dtype=float32)
    """
    if a.is_precise:
        with a.device.current():
            return a.xp.exp(-_squared_distances(a, b))
    tile = a.products(b, exact)
    if a.device.is_cpu:
        _exp_tile(tile, a.norms, b.norms)
        return tile
    with a.device.current():
        tile *= 2
        tile -= a.norms[:, None]
        tile -= b.norms[None, :]
        a.xp.minimum(tile, 0, out=tile)  # rounding can leave a tiny negative distance
        return a.xp.exp(tile, out=tile)


def gram(points: Points, threads: int | None = None, out: Any = None) -> Any:
    """Return the (n, n) Gram matrix of points, on their device, written into ``out`` if given.

    Half of the products are computed and the rest is mirrored. The diagonal is exactly 1. ``threads`` is the number of
    CPU threads. Raises :class:`DeviceError` if the device has no room for the matrix.
    """
    n, xp, is_cpu = len(points), points.xp, points.device.is_cpu
    step = TILE if is_cpu else _DEVICE_TILE
    parts = [points.take(slice(start, start + step)) for start in range(0, n, step)]
    with points.device.current(), out_of_memory(points.device, (n, n), "Gram matrix"):
        out = xp.empty((n, n), dtype=points.dtype) if out is None else out
        if is_cpu:  # touching all pages in one sweep is faster than leaving it to the first tile that needs each
            out.reshape(-1)[::1024] = 0

        def fill(place: tuple[int, int]) -> None:
            i, j = place
            tile = kernel_tile(parts[i], parts[j])
            if i == j and not is_cpu:  # on the CPU, the product of a matrix with itself is symmetric to the bit
                tile = xp.minimum(tile, tile.T)
            rows, columns = slice(i * step, i * step + len(tile)), slice(j * step, j * step + tile.shape[1])
            out[rows, columns] = tile
            if i != j:  # mirrored in small blocks, which keeps both reads and writes in the cache
                mirror, width = out[columns, rows], 128 if is_cpu else step
                for start in range(0, len(tile), width):
                    mirror[:, start : start + width] = tile[start : start + width].T

        in_threads(fill, [(i, j) for i in range(len(parts)) for j in range(i + 1)], threads if is_cpu else 1)
        xp.fill_diagonal(out, 1)
    return out


@contextmanager
def out_of_memory(device: Device, shape: tuple[int, int], what: str) -> Iterator[None]:
    """Raise a :class:`DeviceError` that names a remedy if the device runs out of memory."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if device.is_cpu or not is_out_of_memory(error):
            raise
        size = 4 * shape[0] * shape[1] / 1e9
        raise DeviceError(
            f"out of memory on {device}: a {what} of {shape[0]:,} × {shape[1]:,} is {size:.2g} GB; "
            f"lower memory_budget, set rows_per_bag or take more bags"
        ) from error
