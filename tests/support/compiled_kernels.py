"""Which kernels a GPU would compile for what runs on the double of CuPy.

CuPy compiles one kernel for each element-wise operation, reduction or gathering with other types, numbers of dimensions
or contiguity of its arrays. A ``.cu`` file is compiled once. Views, cuBLAS, sorts and scans need no compilation.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

# Views, allocations, copies of memory, and what CuPy's own libraries have compiled.
_FREE = {
    "empty",
    "empty_like",
    "zeros",
    "zeros_like",
    "asarray",
    "array",
    "broadcast_to",
    "reshape",
    "ravel",
    "transpose",
}
_FREE |= {"view", "matmul", "dot", "sort", "argsort", "partition", "argpartition", "cumsum", "get", "item", "tolist"}
_BINARY = {"add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor", "lshift", "rshift"}
_recorders: list[set[Any]] = []


@contextmanager
def compiled_kernels() -> Iterator[set[Any]]:
    """Collect the signatures of the kernels that the block would compile on a device without any."""
    signatures: set[Any] = set()
    _recorders.append(signatures)
    try:
        yield signatures
    finally:
        _recorders.remove(signatures)


def note(name: str, *values: Any) -> None:
    """Record an operation on NumPy arrays and scalars that stand for those of the device."""
    operation = name.strip("_")
    operation = operation[1:] if operation[:1] in "ir" and operation[1:] in _BINARY else operation
    if operation not in _FREE and _recorders:
        arrays = [value for value in values if isinstance(value, np.ndarray)]
        same = len({(array.dtype, array.shape) for array in arrays}) == 1 and arrays[0].flags.c_contiguous
        if operation in ("copy", "astype", "ascontiguousarray") and same and arrays[-1].flags.c_contiguous:
            return  # a copy of memory, or none
        alike = len({array.shape for array in arrays}) == 1 and all(array.flags.c_contiguous for array in arrays)
        kinds = tuple(
            (value.dtype.name, 1 if alike else value.ndim, value.flags.c_contiguous)
            if isinstance(value, np.ndarray)
            else type(value).__name__
            for value in values
        )
        for recorder in _recorders:
            recorder.add((operation, kinds))


def note_file(code: str) -> None:
    """Record that the kernels of a file are compiled."""
    for recorder in _recorders:
        recorder.add(("file", code))
