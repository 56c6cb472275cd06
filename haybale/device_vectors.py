"""Sums, scaling and rows of dense vectors on a CUDA device, by the kernels of ``vectors.cu``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haybale.device import Device, device_of, to_device, to_numpy
from haybale.device_kernels import KernelFile, count_blocks

_KERNELS = KernelFile(Path(__file__).with_name("vectors.cu"))
_THREADS = 128  # threads of a block
_MAX_BLOCKS = 2**16  # thread blocks of the scaling kernel, which works with any number of them
_MAX_ROW_PARTS = 64  # parts of the rows, whose columns are summed at the same time


def squared_row_lengths(vectors: Any) -> Any:
    """Return the sums of squares (n,) float32 of rows (n, d) of float32 or float16."""
    device, (n, d) = device_of(vectors), vectors.shape
    with device.current():
        vectors = device.xp.ascontiguousarray(vectors)
        out = device.xp.zeros(n, dtype=np.float32)
        if n and d:
            bits = vectors.view(np.uint16) if vectors.dtype == np.float16 else vectors
            arrays = bits, np.int64(d), out
            _KERNELS.launch(device, f"square_rows_{vectors.dtype}", n, _THREADS, *arrays, shared_bytes=4 * _THREADS)
        return out


def weighted_sums(
    device: Device, vectors: Any, share: NDArray[np.float64], centre: NDArray[np.float64], power: int
) -> Any:
    """Return Σ share_i · (x_i - centre)^power of float32 or float64 rows (n, d), (d,) in NumPy; the power is 1 or 2."""
    n, d = vectors.shape
    parts, blocks = min(_MAX_ROW_PARTS, max(1, n)), max(1, -(-d // _THREADS))
    with device.current():
        out = device.xp.zeros((parts, d))
        if n and d:
            arrays = device.xp.ascontiguousarray(vectors), to_device(share, device), to_device(centre, device)
            sizes = np.int32(power), np.int64(n), np.int64(d), np.int32(parts), np.int32(blocks)
            _KERNELS.launch(device, f"sum_columns_{vectors.dtype}", parts * blocks, _THREADS, *arrays, *sizes, out)
        return to_numpy(out).sum(axis=0)


def scaled_vectors(vectors: Any, shift: NDArray[Any], factor: NDArray[Any]) -> Any:
    """Return (x - shift) · factor of rows (n, d), in the type of the shift, float32 or float64."""
    device, (n, d) = device_of(vectors), vectors.shape
    with device.current():
        out = device.xp.empty((n, d), dtype=shift.dtype)
        if out.size:
            factors = np.ascontiguousarray(np.atleast_1d(factor), dtype=shift.dtype)
            rows = device.xp.ascontiguousarray(vectors, dtype=shift.dtype)
            arrays = rows, to_device(shift, device), to_device(factors, device)
            sizes = np.int32(len(factors)), np.int64(d), np.int64(out.size)
            blocks = count_blocks(out.size, _THREADS, _MAX_BLOCKS)
            _KERNELS.launch(device, f"scale_{shift.dtype}", blocks, _THREADS, *arrays, *sizes, out)
        return out


def take_rows(vectors: Any, rows: Any) -> Any:
    """Return the rows with the given numbers, which are not negative, of vectors (n, d) of float32 or float64."""
    device, d = device_of(vectors), int(vectors.shape[1])
    with device.current():
        numbers = device.xp.asarray(rows, dtype=np.int64)
        out = device.xp.empty((len(numbers), d), dtype=vectors.dtype)
        if out.size:
            arrays = device.xp.ascontiguousarray(vectors), numbers, np.int64(d), out
            _KERNELS.launch(device, f"take_rows_{vectors.dtype}", len(numbers), _THREADS, *arrays)
        return out
