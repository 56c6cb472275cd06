"""What every room asks of vectors: a NumPy or CuPy array, float32, of one width, finite; and its array namespace."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haybale.errors import VectorError

Floats = NDArray[np.float32]


def array_namespace(array: Any) -> ModuleType:
    """``xp``: cupy for arrays in GPU memory, numpy for all others."""
    if type(array).__module__.partition(".")[0] == "cupy":
        import cupy

        return cupy  # type: ignore[no-any-return]
    return np


def check_vectors(vectors: Any, what: str, width: int | None = None) -> Any:
    """``vectors`` as a C-ordered float32 (n, d) array of its own library; refuses all that is none.

    >>> check_vectors([[1, 2]], "queries", width=3)
    Traceback (most recent call last):
    haybale.errors.VectorError: queries: expected vectors of width 3, found 2
    >>> check_vectors([[1.0, float("nan")]], "queries")
    Traceback (most recent call last):
    haybale.errors.VectorError: queries: row 0 has NaN or infinity
    """
    xp = array_namespace(vectors)
    array = xp.ascontiguousarray(xp.asarray(vectors, dtype=np.float32))
    if array.ndim != 2:
        raise VectorError(f"{what}: expected a two-dimensional array (rows, width), found shape {array.shape}")
    if width is not None and array.shape[1] != width:
        raise VectorError(f"{what}: expected vectors of width {width}, found {array.shape[1]}")
    # The sum of squares is finite unless an element is not (or is beyond 1e19, which no embedding is).
    finite = xp.isfinite(xp.einsum("nd,nd->n", array, array))
    if not bool(finite.all()):
        raise VectorError(f"{what}: row {int(xp.argmin(finite))} has NaN or infinity")
    return array


def normalized(vectors: Floats) -> Floats:
    """Rows scaled to unit length; a zero row (a text without a known term) stays zero.

    >>> normalized(np.array([[3.0, 4.0], [0.0, 0.0]], dtype=np.float32))
    array([[0.6, 0.8],
           [0. , 0. ]], dtype=float32)
    """
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.where(lengths > 0, lengths, 1), dtype=np.float32)
