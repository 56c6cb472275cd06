"""The product kernel: the RBF kernel on pairs (query, passage) is the product of a query kernel and a passage kernel.

    exp(-γ ‖[q;p] - [q';p']‖²) = exp(-γ ‖q - q'‖²) · exp(-γ ‖p - p'‖²) = Kq(q, q') · Kp(p, p')

The equation is exact for any scaling of the features and for a separate γ of each half. Vectors [q ; p] are therefore
never built: the kernel of pairs is gathered from two small Gram matrices, over the distinct queries and the distinct
passages. Several spaces are one more product, and therefore one RBF kernel over all of them, if the vectors of each
space are multiplied by √γ (:mod:`haybale.ensemble.spaces`). Pair features do not factorise; their linear kernel is
added.

On the CPU, a tile of 512 × 512 values is computed by a matrix product, and then by exponentials while the tile is in
the cache. The exponential is a polynomial that a compiler can vectorise: 0.25 ns per value on one core, against 0.45 ns
for ``numpy.exp`` in float32 (x86-64 with AVX-512). Its relative error is below 3e-7, like that of the product.

On a device, Gram matrices are computed by float32 products, and tiles for scoring by three products in TF32
(:mod:`haybale.device_products`), whose error is at most four times as large; :mod:`device_tiles` has the exponentials.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import numpy as np
from numba import njit

from haybale import device_vectors
from haybale.cached import cached_property
from haybale.device import Device, device_of, is_sparse, to_device
from haybale.device_products import float32_product
from haybale.ensemble import device_sparse
from haybale.ensemble.device_tiles import (
    add_squared_differences,
    exp_of_negative,
    exp_tile,
    gather_products,
    write_gram,
)
from haybale.ensemble.rows import Ints
from haybale.ensemble.sparse_products import TermColumns, add_products
from haybale.errors import DeviceError
from haybale.parallel import in_threads, is_out_of_memory
from haybale.vectors import Floats, gather_rows, squared_lengths

TILE = 512  # rows and columns of a tile of a Gram matrix: 1 MiB, which fits a second-level cache
DEVICE_TILE = 4096  # rows and columns of a tile on a device
# For squared lengths above _LONG, the error of float64 products is 1e-8 or more. It does not matter for squared
# distances above _ZERO, where the kernel is 0.
_LONG, _ZERO = 3e5, 1e3
_DIFFERENCES = 2**22  # values in a block of differences
_F = np.float32


@dataclass(frozen=True)
class Points:
    """Queries or passages in all their spaces, scaled to γ = 1: the kernel of two points is exp(-‖a - b‖²).

    ``dense`` (n, d) holds the concatenated dense spaces and ``sparse`` (n, v) the concatenated sparse spaces as CSR.
    One of them may be None. Arrays are from NumPy and SciPy, or from CuPy. They are float32, or float64 if float32
    would not represent the kernel precisely. Everything computed from float64 points is float64.
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
        """The type of the vectors and of their kernel, float32 or float64."""
        return np.dtype(str(self._any.dtype))

    @property
    def nbytes(self) -> int:
        """Bytes of the vectors; of sparse ones, those of values and columns."""
        dense = 0 if self.dense is None else int(self.dense.nbytes)
        return dense if self.sparse is None else dense + 2 * int(self.sparse.data.nbytes)

    @property
    def is_precise(self) -> bool:
        """Whether the points are float64."""
        return self.dtype == np.float64

    def precise(self) -> Points:
        """Return the points in float64."""
        return self._map(lambda part: part.astype(np.float64))

    def to(self, device: Device) -> Points:
        """Return the points on a device, without a copy if they are already on it."""
        return self if device == self.device else self._map(lambda part: to_device(part, device))

    def _map(self, function: Callable[[Any], Any]) -> Points:
        with self.device.current():
            return Points(*(None if part is None else function(part) for part in (self.dense, self.sparse)))

    @cached_property
    def norms(self) -> Any:
        """(n,) squared lengths, in float32."""
        with self.device.current():
            dense = None if self.dense is None else squared_lengths(self.dense)
            if self.sparse is None:
                return dense
            total = _squared_lengths(self.sparse).astype(np.float32, copy=False)
            return total if dense is None else dense + total

    def take(self, rows: Any, threads: int | None = 1) -> Points:
        """Return the rows with the given numbers (an array of either library) or in a slice.

        On the CPU, ``threads`` copy dense vectors; None is one per core.
        """
        numbers: Any = rows if isinstance(rows, slice) else to_device(rows, self.device)
        if not self.device.is_cpu:
            taken = self._map(lambda part: _taken_on_device(part, rows))
        elif threads == 1 or isinstance(rows, slice):
            taken = self._map(lambda part: part[numbers])
        else:
            taken = self._map(lambda part: part[numbers] if is_sparse(part) else gather_rows(part, numbers, threads))
        if "norms" in vars(self):  # computed already
            with self.device.current():
                vars(taken)["norms"] = self.norms[numbers]
        return taken

    @cached_property
    def _columns(self) -> Any:
        """The sparse part by term."""
        assert self.sparse is not None
        return (TermColumns if self.device.is_cpu else device_sparse.DeviceTermColumns).of(self.sparse)

    def products(self, other: Points, exact: bool = False) -> Any:
        """Return the inner products (n, m) with other points on the same device.

        BLAS changes the order of summation at the edges of its blocks, so the last bit of a product may depend on the
        other rows of the call. With ``exact``, the CPU sums in float64, which avoids this and takes twice as long, and
        a device multiplies in float32 instead of three times in TF32. Raises :class:`DeviceError` for points on
        different devices.
        """
        if self.device != other.device:
            raise DeviceError(f"both sets of points must be on one device, found {self.device} and {other.device}")
        with self.device.current():
            out = self.xp.empty((len(self), len(other)), dtype=np.float32)
            if self.dense is None or other.dense is None or not self.dense.shape[1]:
                out[:] = 0
            elif exact and self.device.is_cpu:
                out[:] = self.dense.astype(np.float64) @ other.dense.astype(np.float64).T
            elif exact or self.device.is_cpu:
                self.xp.matmul(self.dense, other.dense.T, out=out)
            else:
                float32_product(self.dense, other.dense, out)
            if self.sparse is not None and other.sparse is not None:
                add: Any = add_products if self.device.is_cpu else device_sparse.add_products
                add(self.sparse, other._columns, out)
        return out


def _taken_on_device(part: Any, rows: Any) -> Any:
    """Return some rows of a dense or sparse matrix on a device."""
    if is_sparse(part):
        return device_sparse.take_rows(part, rows)
    return part[rows] if isinstance(rows, slice) else device_vectors.take_rows(part, rows)


@dataclass(frozen=True)
class Pairs:
    """Pairs (n,): pair i is ``queries[query[i]]`` with ``passages[passage[i]]``.

    Vectors may be on a device. Numbers and pair features are NumPy arrays.
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
    """Return the kernel (n_rows, n) of some pairs with all pairs, Kq · Kp + φ φᵀ, on their device.

    φ are the pair features. ``grams`` are the Gram matrices of the queries and of the passages, if they are known.
    """
    where = pairs.device
    with where.current():
        query_rows, passage_rows = pairs.query[rows], pairs.passage[rows]
        if grams is None:
            used_q, query_rows = np.unique(query_rows, return_inverse=True)
            used_p, passage_rows = np.unique(passage_rows, return_inverse=True)
            kq = kernel_tile(pairs.queries.take(used_q), pairs.queries, exact=not where.is_cpu)
            kp = kernel_tile(pairs.passages.take(used_p), pairs.passages, exact=not where.is_cpu)
        else:
            kq, kp = grams
        if where.is_cpu:
            near_q = np.take(kq[query_rows], pairs.query, axis=1)
            values = np.take(kp[passage_rows], pairs.passage, axis=1)
            np.multiply(near_q, values, out=values)
        else:
            values = gather_products(kq, kp, query_rows, passage_rows, pairs.query, pairs.passage)
        if pairs.features is not None:
            features = to_device(pairs.features, where)
            values += features[to_device(rows, where)] @ features.T
    return values


@njit(inline="always")
def exp_negative(x: Any) -> Any:  # pragma: no cover - compiled
    """Return exp(x) for x <= 0 in float32, and exp(-87) for x < -87 (Cephes expf: 2^n times a polynomial)."""
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
            # The minimum is needed because rounding can make a distance negative.
            tile[i, j] = exp_negative(min(_F(0), _F(2) * tile[i, j] - a - norms_b[j]))


def _squared_distances(a: Points, b: Points) -> Any:
    """Return the squared distances (n, m) of float64 points, exactly 0 for equal points.

    Distances are computed from products, whose error is about 2^-53 of the squared lengths. Where this error would
    matter, and of dense points on a device, they are computed from differences.
    """
    xp = a.xp
    total = xp.zeros((len(a), len(b)))
    for x, y in ((a.dense, b.dense), (a.sparse, b.sparse)):
        if x is None or y is None or not x.shape[1]:
            continue
        if not (is_sparse(x) or a.device.is_cpu):
            add_squared_differences(x, y, total)
            continue
        by_kernel = is_sparse(x) and not a.device.is_cpu
        if by_kernel:
            x, y = x.astype(np.float64), y.astype(np.float64)
            products = xp.zeros(total.shape)
            device_sparse.add_products(x, device_sparse.DeviceTermColumns.of(y), products)
        else:
            products = x @ y.T
        lengths = _squared_lengths(x)[:, None] + _squared_lengths(y)
        far = lengths - 2 * (products.toarray() if is_sparse(products) else products)
        xp.maximum(far, 0, out=far)
        near = (far < 2.0**-30 * lengths) | ((far < _ZERO) & (lengths > _LONG))
        left, right = xp.nonzero(near)
        if by_kernel:
            device_sparse.write_squared_differences(x, y, left, right, far)
        else:
            step = TILE if is_sparse(x) else max(1, _DIFFERENCES // x.shape[1])
            for start in range(0, len(left), step):
                i, j = left[start : start + step], right[start : start + step]
                far[i, j] = _squared_lengths(x[i] - y[j])
        total += far
    return total


def _squared_lengths(rows: Any) -> Any:
    """Return the sums of squares (n,) of dense or sparse rows."""
    if not is_sparse(rows):
        return (rows * rows).sum(axis=1)
    if device_of(rows).is_cpu:
        return np.asarray(rows.power(2).sum(axis=1)).ravel()
    return device_sparse.squared_row_lengths(rows)


def kernel_tile(a: Points, b: Points, exact: bool = False) -> Any:
    """Return the kernel (n, m) of points on one device, computed from one matrix product.

    With ``exact``, a value does not depend on the other rows of the call; see :meth:`Points.products`.

    >>> a, b = (Points(np.full((1, 2), value, dtype=np.float32)) for value in (0, 0.5))
    >>> kernel_tile(a, b)
    array([[0.60653067]], dtype=float32)
    """
    if a.is_precise:
        with a.device.current():
            distances = _squared_distances(a, b)
            return np.exp(-distances) if a.device.is_cpu else exp_of_negative(distances)
    tile = a.products(b, exact)
    (_exp_tile if a.device.is_cpu else exp_tile)(tile, a.norms, b.norms)
    return tile


def gram(points: Points, threads: int | None = None, out: Any = None) -> Any:
    """Return the Gram matrix (n, n) of points, on their device, written into ``out`` if given.

    Half of the values are computed and the other half is copied. The diagonal is exactly 1. ``threads`` is the number
    of CPU threads, by default one per core. Raises :class:`DeviceError` if the matrix does not fit on the device.
    """
    n, xp, is_cpu = len(points), points.xp, points.device.is_cpu
    step = TILE if is_cpu else DEVICE_TILE
    parts = [points.take(slice(start, start + step)) for start in range(0, n, step)]
    with points.device.current(), out_of_memory(points.device, (n, n), "Gram matrix"):
        out = xp.empty((n, n), dtype=points.dtype) if out is None else out
        if is_cpu:  # writing to every page of memory first is faster than page faults while tiles are written
            out.reshape(-1)[::1024] = 0

        def fill(place: tuple[int, int]) -> None:
            i, j = place
            if not (is_cpu or points.is_precise):
                tile = parts[i].products(parts[j], exact=True)
                write_gram(tile, parts[i].norms, parts[j].norms, i * step, j * step, out)
                return
            tile = kernel_tile(parts[i], parts[j])
            if i == j and not is_cpu:  # on the CPU, the product of a matrix with its transpose is exactly symmetric
                tile = xp.minimum(tile, tile.T)
            rows, columns = slice(i * step, i * step + len(tile)), slice(j * step, j * step + tile.shape[1])
            out[rows, columns] = tile
            if i != j:  # transposed in small blocks, so that reads and writes stay in the cache
                mirror, width = out[columns, rows], 128 if is_cpu else step
                for start in range(0, len(tile), width):
                    mirror[:, start : start + width] = tile[start : start + width].T

        in_threads(fill, [(i, j) for i in range(len(parts)) for j in range(i + 1)], threads if is_cpu else 1)
        if is_cpu or points.is_precise:
            xp.fill_diagonal(out, 1)
    return out


@contextmanager
def out_of_memory(device: Device, shape: tuple[int, int], what: str) -> Iterator[None]:
    """Raise :class:`DeviceError` if the device runs out of memory in the block."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if device.is_cpu or not is_out_of_memory(error):
            raise
        size = 4 * shape[0] * shape[1] / 1e9
        raise DeviceError(
            f"out of memory on {device}: a {what} of {shape[0]:,} × {shape[1]:,} needs {size:.2g} GB; "
            "lower memory_budget, set rows_per_bag or use more bags"
        ) from error
