"""Where an ensemble's arrays are: matrices of vectors brought to its device, what belongs to rows kept on the CPU.

Only vectors are large: halves are on the device, and so are their kernels and products. Numbers of rows, labels,
coefficients and pair features stay in NumPy wherever the halves are. Sparse spaces have no device but the CPU.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from scipy import sparse

from haybale.device import CPU, Device, device_of, find_device, placed, to_device, to_numpy
from haybale.errors import DeviceError
from haybale.vectors import Matrix


def home_of(device: str | None, matrices: Iterable[Any]) -> Device:
    """The device of that name; None: where the first of the matrices that is on a device lies, else the CPU.

    >>> home_of(None, [np.ones((2, 2))])
    Device(kind='cpu', number=0)
    """
    if device is not None:
        return find_device(device)
    return next((found for found in map(device_of, matrices) if not found.is_cpu), CPU)


def refuse_sparse(where: Device, what: str) -> None:
    """The error for a sparse matrix that would have to be on a device."""
    if not where.is_cpu:
        raise DeviceError(
            f"{what}: a sparse matrix stays on the CPU, and cannot be used beside vectors on {where}; "
            f"give device='cpu', or dense spaces only"
        )


def check_homes(passages: Sequence[Matrix], where: Device) -> None:
    """Refuse spaces that an ensemble on ``where`` cannot use: sparse ones off the CPU, further ones on another device.

    The first, the index's, may be anywhere: the rows that are used are moved.
    """
    for number, matrix in enumerate(passages):
        if sparse.issparse(matrix):
            refuse_sparse(where, f"space {number}")
        elif number and device_of(matrix) not in (CPU, where):
            raise DeviceError(
                f"space {number} is on {device_of(matrix)}, the ensemble on {where}; put both on one device"
            )


def matrix_on(matrix: Any, where: Device, what: str) -> Matrix:
    """A matrix on the device: from the CPU it is copied there, from another device or sparse it is refused."""
    if sparse.issparse(matrix):
        refuse_sparse(where, what)
        return matrix
    return placed(matrix, where, what)


def rows_of(matrix: Matrix, rows: Any, where: Device) -> Matrix:
    """Some rows of a matrix, gathered where it is and moved to the device; float16 becomes float32 for them alone.

    Errors: :class:`DeviceError` where they do not fit.
    """
    if sparse.issparse(matrix):
        refuse_sparse(where, "a space")
        return matrix[rows]
    here = device_of(matrix)
    try:
        with here.current():
            chosen = matrix[to_device(rows, here)]
            chosen = chosen if chosen.dtype == np.float32 else chosen.astype(np.float32)
        return to_device(chosen, where)
    except MemoryError as error:
        size = 4 * len(rows) * int(matrix.shape[1]) / 1e9
        raise DeviceError(f"out of memory: {len(rows):,} vectors of {size:.2g} GB do not fit on {where}") from error


def on_host(matrix: Any) -> Matrix:
    """A matrix in NumPy, or sparse as it is."""
    return matrix if sparse.issparse(matrix) else to_numpy(matrix)


def taken_back(array: Any, where: Device, what: str) -> Any:
    """What somebody else is to check on the CPU: a copy from the device ``where``; from another it is refused."""
    return array if device_of(array).is_cpu else to_numpy(placed(array, where, what))
