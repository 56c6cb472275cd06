"""The product kernel: on pairs (query, passage) an RBF is the product of one of queries and one of passages.

    exp(-γ ‖[q;p] - [q';p']‖²) = exp(-γ ‖q - q'‖²) · exp(-γ ‖p - p'‖²) = Kq(q, q') · Kp(p, p')

exactly, with any scaling of the features, and with a γ for each of the two. So no [q ; p] is ever built: the kernel of
any pairs is gathered from two small Gram matrices, over the distinct queries and over the distinct passages. Several
spaces side by side are one more product, and so one RBF over all of them, each multiplied by the root of its own γ
(:mod:`haybale.ensemble.spaces`). Pair features, which do not factorise, have a kernel of their own, which is added.

On the CPU a tile of 512 × 512 is a matrix product and exponentials while it is in the cache. exp is a polynomial
there, because a compiler vectorises it: 0.25 ns a value on one core against 0.45 ns for ``numpy.exp`` in float32
(x86-64 with AVX-512); its error is below 3e-7 relative, which is that of the product. On a device it is array
operations.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from types import ModuleType
from typing import Any

import numpy as np
from numba import njit

from haybale.device import CPU, Device, device_of, is_sparse, to_device
from haybale.ensemble.rows import Ints
from haybale.errors import DeviceError
from haybale.parallel import in_threads, is_out_of_memory
from haybale.retrieval.sparse_search import add_products
from haybale.vectors import squared_lengths

TILE = 512  # rows and columns of a tile of a Gram matrix: 1 MiB, which a second-level cache holds
_DEVICE_TILE = 4096
_LONG = 3e5  # squared lengths from which products in float64 are off by 1e-8 or more,
_NOTHING = 1e3  # and squared distances from which the kernel is 0 and it does not matter
_DIFFERENCES = 2**22  # values of differences held at once
_F = np.float32


@dataclass(frozen=True)
class Points:
    """Queries or passages in all their spaces, scaled to γ = 1: the kernel of two of them is exp(-‖a - b‖²).

    Dense spaces (n, d), sparse ones (n, v) as CSR, or both; of NumPy and SciPy or of CuPy. float32, or float64 where
    float32 would not hold the kernel; then it and all made of it is float64.
    """

    dense: Any | None
    sparse: Any | None = None

    def __len__(self) -> int:
        part: Any = self.sparse if self.dense is None else self.dense
        return int(part.shape[0])

    @cached_property
    def device(self) -> Device:
        """Where the arrays are."""
        return device_of(self.sparse if self.dense is None else self.dense)

    @property
    def xp(self) -> ModuleType:
        """The array library of its products and kernels."""
        return self.device.xp

    @property
    def dtype(self) -> np.dtype[Any]:
        """float32 or float64, of the vectors and of their kernel."""
        part: Any = self.sparse if self.dense is None else self.dense
        return np.dtype(str(part.dtype))

    @property
    def is_precise(self) -> bool:
        return self.dtype == np.float64

    def precise(self) -> Points:
        """The points in float64."""
        with self.device.current():
            return Points(*(None if part is None else part.astype(np.float64) for part in (self.dense, self.sparse)))

    def to(self, device: Device) -> Points:
        """The points on a device; themselves, where they are there."""
        if device == self.device:
            return self
        return Points(*(None if part is None else to_device(part, device) for part in (self.dense, self.sparse)))

    def to_numpy(self) -> Points:
        """The points on the CPU."""
        return self.to(CPU)

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
        """Some rows, by numbers (of either library) or a slice; a slice of the dense part is a view."""
        if not isinstance(rows, slice):
            rows = to_device(rows, self.device)
        with self.device.current():
            return Points(*(None if part is None else part[rows] for part in (self.dense, self.sparse)))

    @cached_property
    def _columns(self) -> Any:
        """The sparse spaces by term: (n, v) CSC of SciPy, or (v, n) CSR of CuPy, whose products of CSR are faster."""
        assert self.sparse is not None
        return self.sparse.tocsc() if self.device.is_cpu else self.sparse.T.tocsr()

    def products(self, other: Points, exact: bool = False) -> Any:
        """(n, m) inner products with other points on the same device.

        A row's products may differ in the last bit with the rows beside it: BLAS has kernels that sum in another order
        at the edges of their blocks. Not so if ``exact``, which on the CPU sums in float64, and costs twice as much.
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


def pair_kernel(pairs: Any, rows: Ints, grams: tuple[Any, Any] | None = None) -> Any:
    """(n_rows, n) Kq · Kp + φ φᵀ of ``rows`` of the pairs with all pairs, φ their features, where the points are.

    ``pairs``: a :class:`~haybale.ensemble.problem.Problem`, or what has its columns. ``grams``: of its queries and its
    passages, if somebody has them.
    """
    where = pairs.queries.device
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
    """exp(x) for x <= 0 in float32: 2^n times a polynomial on the remainder (Cephes expf); exp(-87) below."""
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
    """Products to kernel values, in place: exp(2 a·b - |a|² - |b|²)."""
    for i in range(tile.shape[0]):
        a = norms_a[i]
        for j in range(tile.shape[1]):
            # Rounding can leave a tiny negative distance.
            tile[i, j] = exp_negative(min(_F(0), _F(2) * tile[i, j] - a - norms_b[j]))


def _squared_distances(a: Points, b: Points) -> Any:
    """(n, m) squared distances of float64 points, 0 for equal ones.

    By products, which are off by some 2^-53 of the squared lengths; by differences where that would be seen.
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
        near = (far < 2.0**-30 * lengths) | ((far < _NOTHING) & (lengths > _LONG))
        left, right = xp.nonzero(near)
        step = TILE if is_sparse(here) else max(1, _DIFFERENCES // here.shape[1])
        for start in range(0, len(left), step):
            i, j = left[start : start + step], right[start : start + step]
            far[i, j] = squares(here[i] - there[j])
        total += far
    return total


def kernel_tile(a: Points, b: Points, exact: bool = False) -> Any:
    """(n, m) kernel values of points, by one matrix product, where they are.

    If ``exact``, as in :meth:`Points.products`, those of a row do not depend on the rows beside it.

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
    """(n, n) the Gram matrix of points; half of the products, the rest is mirrored. The diagonal is exactly 1.

    Where the points are, in ``out`` if it is given; ``threads`` are the CPU's.
    Errors: :class:`DeviceError` where a device has no room for it.
    """
    n, xp, is_cpu = len(points), points.xp, points.device.is_cpu
    step = TILE if is_cpu else _DEVICE_TILE
    parts = [points.take(slice(start, start + step)) for start in range(0, n, step)]
    with points.device.current(), out_of_memory(points.device, (n, n), "Gram matrix"):
        out = xp.empty((n, n), dtype=points.dtype) if out is None else out
        if is_cpu:  # a page is found faster in one sweep than by the tile that first falls into it
            out.reshape(-1)[::1024] = 0

        def fill(place: tuple[int, int]) -> None:
            i, j = place
            tile = kernel_tile(parts[i], parts[j])
            if i == j and not is_cpu:  # the CPU's product of a matrix with itself is symmetric to the bit
                tile = xp.minimum(tile, tile.T)
            rows, columns = slice(i * step, i * step + len(tile)), slice(j * step, j * step + tile.shape[1])
            out[rows, columns] = tile
            if i != j:  # mirrored in small blocks, so that neither side is read far against its grain
                mirror, width = out[columns, rows], 128 if is_cpu else step
                for start in range(0, len(tile), width):
                    mirror[:, start : start + width] = tile[start : start + width].T

        in_threads(fill, [(i, j) for i in range(len(parts)) for j in range(i + 1)], threads if is_cpu else 1)
        xp.fill_diagonal(out, 1)
    return out


@contextmanager
def out_of_memory(device: Device, shape: tuple[int, int], what: str) -> Iterator[None]:
    """What does not fit is a :class:`DeviceError` that says what can be done about it."""
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
