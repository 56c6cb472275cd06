"""Convert Python and NumPy values to Arrow columns and back.

Unlike ``pyarrow.array`` and ``to_numpy``, these functions do not import pandas, which takes longer than most queries.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray


def text_array(texts: Sequence[str]) -> pa.Array:
    """Return texts as a column of large strings.

    >>> text_array(["§ 1", ""]).to_pylist()
    ['§ 1', '']
    """
    encoded = [text.encode() for text in texts]
    offsets = np.fromiter(accumulate(map(len, encoded), initial=0), np.int64, len(encoded) + 1)
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded))]
    return pa.Array.from_buffers(pa.large_string(), len(encoded), buffers)


def number_array(numbers: Any) -> pa.Array:
    """Return integers (n,) as a column of int64.

    >>> number_array(np.array([3, 1])).to_pylist()
    [3, 1]
    """
    values = np.ascontiguousarray(numbers, dtype=np.int64)
    return pa.Array.from_buffers(pa.int64(), len(values), [None, pa.py_buffer(values)])


def numbers_of(column: pa.Array | pa.ChunkedArray) -> NDArray[Any]:
    """Return a column of numbers without nulls as an array (n,).

    >>> numbers_of(pa.chunked_array([number_array([3]), number_array([1])]))
    array([3, 1])
    """
    chunks = column.chunks if isinstance(column, pa.ChunkedArray) else [column]
    if len(chunks) == 1:
        return np.from_dlpack(chunks[0])
    return np.concatenate([*map(np.from_dlpack, chunks)]) if chunks else np.empty(0, dtype=np.int64)


def free_unused() -> None:
    """Return the memory of freed columns to the system; Arrow keeps it for new columns otherwise."""
    pa.default_memory_pool().release_unused()


def true_rows(mask: pa.Array | pa.ChunkedArray) -> NDArray[np.int64]:
    """Return the rows (n,) of a column of booleans without nulls that are true.

    Before release 26, ``indices_nonzero`` of Arrow crashes for a column without rows.

    >>> true_rows(pa.chunked_array([[True, False], [True]]))
    array([0, 2])
    >>> true_rows(pa.chunked_array([], pa.bool_()))
    array([], dtype=int64)
    """
    return numbers_of(pc.indices_nonzero(mask)).astype(np.int64) if len(mask) else np.empty(0, dtype=np.int64)
