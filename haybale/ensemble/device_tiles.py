"""Tiles of kernel values, and sums over support rows, on a CUDA device, by the kernels of ``kernel_tiles.cu``.

A stage of the ensemble compiles this file once, instead of a kernel for each of its array operations.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from haybale.device import Device, device_of, to_device
from haybale.device_kernels import KernelFile, blocks_per_row, count_blocks

_KERNELS = KernelFile(Path(__file__).with_name("kernel_tiles.cu"))
_THREADS_PER_BLOCK = 256
_TRANSPOSED_SIDE = 32  # rows and columns that a block of ``write_gram`` transposes
_SHARED_BYTES = 4 * _TRANSPOSED_SIDE * (_TRANSPOSED_SIDE + 1)
_THREADS_PER_PAIR = 128  # a block sums the products of one pair
_ROWS_PER_WARP = 4  # of the first matrix, whose differences from a row of the second a warp sums
_MAX_BLOCKS = 4096


def exp_tile(tile: Any, norms_a: Any, norms_b: Any) -> None:
    """Turn inner products (n, m) into kernel values exp(2 a·b - |a|² - |b|²), in place."""
    n, m = tile.shape
    if n and m:
        parts = blocks_per_row(n, m, _THREADS_PER_BLOCK)
        arrays = tile, norms_a, norms_b, np.int64(m), np.int32(parts)
        _KERNELS.launch(device_of(tile), "exp_tile", n * parts, _THREADS_PER_BLOCK, *arrays)


def add_squared_differences(a: Any, b: Any, out: Any) -> None:
    """Add ‖a_i - b_j‖² of dense float64 rows to ``out`` (n, m), from differences: 0 for equal rows."""
    (n, m), warps = out.shape, _THREADS_PER_BLOCK // 32
    if n and m:
        blocks = -(-n // _ROWS_PER_WARP) * -(-m // warps)
        sizes = np.int32(n), np.int64(m), np.int32(a.shape[1])
        _KERNELS.launch(device_of(out), "add_squared_differences", blocks, _THREADS_PER_BLOCK, a, b, *sizes, out)


def exp_of_negative(values: Any) -> Any:
    """Replace values (n, m) by exp(-value), in place, and return them."""
    if values.size:
        blocks = count_blocks(values.size, _THREADS_PER_BLOCK, most=_MAX_BLOCKS)
        _KERNELS.launch(device_of(values), "exp_of_negative", blocks, _THREADS_PER_BLOCK, values, np.int64(values.size))
    return values


def write_gram(tile: Any, norms_a: Any, norms_b: Any, first_row: int, first_column: int, out: Any) -> None:
    """Write the kernel values of inner products (n, m) to the symmetric matrix ``out``, on both sides of its diagonal.

    The tile lies on or below the diagonal, at ``first_row`` and ``first_column``.
    """
    n, m = tile.shape
    blocks = -(-n // _TRANSPOSED_SIDE) * -(-m // _TRANSPOSED_SIDE)
    sizes = np.int32(n), np.int32(m), np.int64(first_row), np.int64(first_column), np.int64(len(out))
    arrays = tile, norms_a, norms_b, *sizes, out
    _KERNELS.launch(device_of(out), "write_gram", blocks, _THREADS_PER_BLOCK, *arrays, shared_bytes=_SHARED_BYTES)


def gather_products(kq: Any, kp: Any, query_rows: Any, passage_rows: Any, query: Any, passage: Any) -> Any:
    """Return Kq[query_rows[i], query[j]] · Kp[passage_rows[i], passage[j]], (rows, n); numbers are NumPy arrays."""
    device, n_rows, n = device_of(kq), len(query_rows), len(query)
    with device.current():
        out = device.xp.empty((n_rows, n), dtype=kq.dtype)
        if n_rows and n:
            numbers = _numbers(device, query_rows, passage_rows, query, passage)
            parts = blocks_per_row(n_rows, n, _THREADS_PER_BLOCK)
            sizes = np.int64(kq.shape[1]), np.int64(kp.shape[1]), np.int64(n), np.int32(parts)
            _KERNELS.launch(
                device, f"gather_products_{kq.dtype}", n_rows * parts, _THREADS_PER_BLOCK, kq, kp, *numbers, *sizes, out
            )
    return out


def sum_weights(
    kq: Any, query: Any, column: Any, coef: Any, bag: Any, bag_weights: Any, targets: Any, out: Any
) -> None:
    """Compute W(i, targets[c]) = Σ coef_r · bag_weights[i, bag_r] · Kq(i, query_r) over the rows r with column_r = c.

    ``kq`` (m, n_support) and ``out`` (m, ·) are on a device. All other arrays are NumPy arrays: ``column`` rises, and
    ``bag`` and ``bag_weights`` are None for the weight 1.
    """
    device, m = device_of(kq), len(kq)
    if not (m and len(targets)):
        return
    starts = np.searchsorted(column, np.arange(len(targets) + 1))
    weights = bag_weights if bag is not None and bag_weights is not None else None
    bags = (query, coef, 0) if weights is None else (bag, weights, weights.shape[1])  # without bags, neither is read
    query, bag, starts, targets = _numbers(device, query, bags[0], starts, targets)
    coef, of_bags = (to_device(np.ascontiguousarray(part, dtype=np.float64), device) for part in (coef, bags[1]))
    sizes = np.int32(len(targets)), np.int64(out.shape[1])
    arrays = kq, np.int64(kq.shape[1]), query, coef, bag, of_bags, np.int32(bags[2]), starts, targets, *sizes, out
    _KERNELS.launch(device, f"sum_weights_{kq.dtype}", m, _THREADS_PER_BLOCK, *arrays)


def add_pair_sums(kp: Any, columns: Any, w: Any, passage: Any, query: Any, out: Any) -> None:
    """Add ⟨kp[passage[i], columns], w[query[i]]⟩, summed in float64, to ``out`` (n,).

    ``kp``, ``w`` (·, n_columns) and ``out`` are on a device; the numbers are NumPy arrays.
    """
    device = device_of(kp)
    if len(passage) and len(columns):
        columns, passage, query = _numbers(device, columns, passage, query)
        arrays = kp, np.int64(kp.shape[1]), columns, np.int32(len(columns)), w, passage, query, out
        name = f"add_pair_sums_{kp.dtype}"
        _KERNELS.launch(device, name, len(passage), _THREADS_PER_PAIR, *arrays, shared_bytes=8 * _THREADS_PER_PAIR)


def _numbers(device: Device, *arrays: Any) -> tuple[Any, ...]:
    """Return row numbers as int32 on the device."""
    return tuple(to_device(np.ascontiguousarray(array, dtype=np.int32), device) for array in arrays)
