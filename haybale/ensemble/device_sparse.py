"""Sparse vectors on a CUDA device, by the kernels of ``sparse_products.cu``; :mod:`sparse_products` is for the CPU.

CuPy's operations on sparse matrices compile many kernels when they are first called, and some of them fail for a
matrix without rows. Here CuPy's CSR matrices only hold the three arrays. Their column numbers rise within a row.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from haybale.device import Device, device_of, to_device, to_numpy
from haybale.device_kernels import KernelFile, count_blocks
from haybale.errors import DeviceError

_KERNELS = KernelFile(Path(__file__).with_name("sparse_products.cu"))
_THREADS_PER_BLOCK = 256
_MAX_BLOCKS_PER_LAUNCH = 4096  # for kernels that take any number of blocks
_MAX_VALUES_PER_MATRIX = 2**31 - 1  # the kernels number values by int32


class DeviceTermColumns(NamedTuple):
    """Sparse vectors (m, d) on a device, by term."""

    starts: Any  # (d + 1,) int32: where the list of each term begins
    vectors: Any  # (n,) int32: the vectors of all lists
    weights: Any  # (n,)
    n_vectors: int  # m

    @classmethod
    def of(cls, matrix: Any) -> DeviceTermColumns:
        """Return the rows of a CSR matrix (m, d) by term."""
        device, (m, width) = device_of(matrix), matrix.shape
        offsets, terms, values = _arrays(matrix)
        with device.current():
            counts = device.xp.zeros(width, dtype=np.int32)
            if values.size:
                blocks = _blocks(values.size)
                _KERNELS.launch(device, "count_terms", blocks, _THREADS_PER_BLOCK, terms, np.int64(values.size), counts)
            starts = np.concatenate(([0], np.cumsum(to_numpy(counts)))).astype(np.int32)
            vectors, weights = device.xp.empty(values.size, dtype=np.int32), device.xp.empty_like(values)
            if values.size:
                next_postings = to_device(starts[:-1], device)
                name = f"list_terms_{values.dtype}"
                _KERNELS.launch(
                    device, name, m, _THREADS_PER_BLOCK, offsets, terms, values, next_postings, vectors, weights
                )
            return cls(to_device(starts, device), vectors, weights, int(m))


def add_products(matrix: Any, columns: DeviceTermColumns, out: Any) -> None:
    """Add the inner products of the rows (n, d) and the vectors (m, d), by term, to ``out`` (n, m), in C order.

    Each value is summed by rising term in the type of the vectors, as on the CPU.
    """
    if matrix.shape[0] and columns.n_vectors:
        offsets, terms, values = _arrays(matrix)
        name, of_columns = f"add_products_{values.dtype}", (*columns[:3], np.int64(columns.n_vectors))
        _KERNELS.launch(
            device_of(matrix), name, int(matrix.shape[0]), _THREADS_PER_BLOCK, offsets, terms, values, *of_columns, out
        )


def take_rows(matrix: Any, rows: Any) -> Any:
    """Return some rows of a CSR matrix, given by their numbers or as a slice, as a CSR matrix."""
    device, (n, width) = device_of(matrix), matrix.shape
    offsets, terms, values = _arrays(matrix)
    chosen = np.arange(n)[rows] if isinstance(rows, slice) else np.asarray(to_numpy(rows))
    lengths = np.diff(to_numpy(offsets))[chosen]
    taken = np.concatenate(([0], np.cumsum(lengths)))
    with device.current():
        new_terms, new_values = (device.xp.empty(int(taken[-1]), dtype=part.dtype) for part in (terms, values))
        new_offsets = to_device(taken.astype(np.int32), device)
        if taken[-1]:
            numbers = to_device(chosen.astype(np.int32), device)
            arrays = numbers, offsets, terms, values, new_offsets, new_terms, new_values
            _KERNELS.launch(device, f"take_rows_{values.dtype}", len(chosen), _THREADS_PER_BLOCK, *arrays)
        return csr_matrix(device, new_values, new_terms, new_offsets, (len(chosen), int(width)))


def squared_row_lengths(matrix: Any) -> Any:
    """Return the sums of squares of the rows (n,) of a CSR matrix, in its type."""
    device, n = device_of(matrix), int(matrix.shape[0])
    offsets, _, values = _arrays(matrix)
    with device.current():
        out = device.xp.empty(n, dtype=values.dtype)
        if n:
            _KERNELS.launch(
                device, f"square_rows_{values.dtype}", _blocks(n), _THREADS_PER_BLOCK, offsets, values, np.int32(n), out
            )
        return out


def write_squared_differences(a: Any, b: Any, rows_a: Any, rows_b: Any, out: Any) -> None:
    """Write ‖a[rows_a[i]] - b[rows_b[i]]‖² of float64 CSR matrices to ``out[rows_a[i], rows_b[i]]``."""
    device = device_of(a)
    if len(rows_a):
        rows = (part.astype(np.int32, copy=False) for part in (rows_a, rows_b))
        arrays = *rows, np.int64(len(rows_a)), *_arrays(a), *_arrays(b), np.int64(out.shape[1]), out
        _KERNELS.launch(device, "square_differences", _blocks(len(rows_a)), _THREADS_PER_BLOCK, *arrays)


def csr_matrix(device: Device, values: Any, terms: Any, offsets: Any, shape: tuple[int, int]) -> Any:
    """Return CuPy's CSR matrix of three arrays; its constructor would check them, which waits for the device."""
    matrix = device.sparse.csr_matrix(shape, dtype=values.dtype)
    matrix.data, matrix.indices, matrix.indptr = values, terms, offsets
    return matrix


def _arrays(matrix: Any) -> tuple[Any, Any, Any]:
    """Return where the rows begin, the columns and the values of a CSR matrix."""
    if matrix.data.size > _MAX_VALUES_PER_MATRIX:
        raise DeviceError(
            f"a sparse matrix on a device must have at most {_MAX_VALUES_PER_MATRIX:,} values, found "
            f"{matrix.data.size:,}; use device='cpu'"
        )
    offsets, terms = (part.astype(np.int32, copy=False) for part in (matrix.indptr, matrix.indices))
    return offsets, terms, matrix.data


def _blocks(n: int) -> int:
    """Return the number of blocks for n values."""
    return count_blocks(n, _THREADS_PER_BLOCK, _MAX_BLOCKS_PER_LAUNCH)
