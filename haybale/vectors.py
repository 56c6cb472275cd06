"""Checks of vectors, float32 or float16, of one width and finite, and their array namespace.

Vectors are dense, a NumPy or CuPy array, or sparse, a CSR matrix of SciPy or CuPy. Sparse vectors are never densified.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from haybale.device import Device, device_of, is_sparse, to_device, to_numpy
from haybale.errors import InputError, VectorError

Floats = NDArray[np.float32]


class Matrix(Protocol):
    """(n, d) vectors: a dense float32 or float16 array of NumPy or CuPy, or a float32 CSR matrix of SciPy or CuPy.

    What both kinds have; :func:`haybale.device.is_sparse` tells them apart.
    """

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> Any: ...
    @property
    def T(self) -> Any: ...
    def __getitem__(self, rows: Any, /) -> Any: ...
    def __matmul__(self, other: Any, /) -> Any: ...
    def astype(self, dtype: Any, /) -> Any: ...


STORED = ("float32", "float16")  # types in which vectors are kept
_TILE = 2**22  # values converted or squared at once: 16 MiB of float32


def array_namespace(array: Any) -> ModuleType:
    """``xp``: cupy for arrays in GPU memory, numpy for all others."""
    if type(array).__module__.partition(".")[0] == "cupy":
        import cupy

        return cupy  # type: ignore[no-any-return]
    return np


def stored_type(dtype: Any) -> np.dtype[Any]:
    """Return the NumPy type of a name, float32 or float16."""
    try:
        found: np.dtype[Any] | None = np.dtype(dtype)
    except TypeError:
        found = None
    if found is None or found.name not in STORED:
        raise InputError(f"vectors are stored as {' or '.join(STORED)}, found {dtype!r}")
    return found


def reals(values: Any, what: str, dtype: Any = np.float64) -> Any:
    """Numbers, in an array, which stays where it is, in lists or a sparse matrix, as ``dtype``, in C order or CSR.

    NumPy would drop imaginary parts and count the days of dates: these are refused.

    >>> reals([1, 2j], "scores")
    Traceback (most recent call last):
    haybale.errors.InputError: scores: expected real numbers (found complex128)
    """
    device = device_of(values)
    try:
        given = to_device(values, device)
        if given.dtype.kind in "cmM":
            raise TypeError(f"found {given.dtype}")
        convert = sparse.csr_matrix if sparse.issparse(given) else device.xp.ascontiguousarray
        return convert(given, dtype=dtype)
    except (TypeError, ValueError) as error:
        raise InputError(f"{what}: expected real numbers ({error})") from None


def check_vectors(vectors: Any, what: str, dim: int | None = None, dtype: Any = np.float32) -> Any:
    """An array of NumPy or CuPy, a torch tensor or lists as a C-ordered (n, d) array of ``dtype``, where they are.

    The same memory where type and order fit. Errors: :class:`VectorError` for another shape or width, and for values
    that are not finite in that type.

    >>> check_vectors([[1.0, float("nan")]], "queries")
    Traceback (most recent call last):
    haybale.errors.VectorError: queries: row 0 has NaN or infinity
    """
    dtype = stored_type(dtype)
    device = device_of(vectors)
    with device.current(), np.errstate(over="ignore"):
        xp = device.xp
        array = reals(vectors, what, dtype)
        if array.ndim != 2:
            raise VectorError(f"{what}: expected a two-dimensional array (rows, width), found shape {array.shape}")
        _check_width(array, what, dim)
        # The sum of squares is finite unless an element is not (or is beyond 1e19, which no embedding is).
        finite = xp.isfinite(squared_lengths(array))
        if not bool(finite.all()):
            beyond = ", or a value beyond 65504, the largest of float16" if dtype == np.float16 else ""
            raise VectorError(f"{what}: row {int(xp.argmin(finite))} has NaN or infinity{beyond}")
    return array


def squared_lengths(vectors: Any) -> Any:
    """(n,) float32 sums of squares of the rows (n, d), in float32 whatever their type; no array of n × d arises."""
    if isinstance(vectors, np.ndarray) and vectors.dtype == np.float32:
        return np.einsum("nd,nd->n", vectors, vectors)
    xp = array_namespace(vectors)
    squares = xp.empty(len(vectors), dtype=np.float32)
    for start, end in row_tiles(vectors):
        rows = vectors[start:end].astype(np.float32)
        rows *= rows
        squares[start:end] = rows.sum(axis=1)
    return squares


def row_tiles(vectors: Any) -> list[tuple[int, int]]:
    """First row and the one after the last of tiles of 4 M values, at least one row each."""
    step = max(1, _TILE // max(1, int(vectors.shape[1])))
    return [(start, min(start + step, len(vectors))) for start in range(0, len(vectors), step)]


def moved(vectors: Any, device: Device, dtype: Any = np.float32) -> Any:
    """``vectors`` (n, d) on a device as ``dtype``, converted tile by tile; the same memory where they are that."""
    dtype, here = stored_type(dtype), device_of(vectors)
    if len(vectors.shape) != 2 or (here == device and vectors.dtype == dtype):
        return to_device(vectors, device)
    with device.current(), np.errstate(over="ignore"):
        out = device.xp.empty(tuple(vectors.shape), dtype=dtype)
        for start, end in row_tiles(vectors):
            out[start:end] = to_device(vectors[start:end], device).astype(dtype)
    return out


def check_sparse(vectors: Any, what: str, dim: int | None = None) -> sparse.csr_matrix:
    """``vectors``, any sparse matrix, as SciPy's float32 CSR in canonical form: terms rise in a row, no stored zero."""
    matrix = reals(to_numpy(vectors), what, np.float32)
    if not matrix.has_canonical_format or not matrix.data.all():
        matrix = matrix.copy()  # it may share arrays with the caller's
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
    _check_width(matrix, what, dim)
    finite = np.isfinite(matrix.data)
    if not finite.all():
        row = int(np.searchsorted(matrix.indptr, np.argmin(finite), side="right")) - 1
        raise VectorError(f"{what}: row {row} has NaN or infinity")
    return matrix


def check_matrix(vectors: Any, what: str, dim: int | None = None) -> Matrix:
    """:func:`check_vectors` or, for a sparse matrix, :func:`check_sparse`."""
    checked: Matrix = (check_sparse if is_sparse(vectors) else check_vectors)(vectors, what, dim)
    return checked


def check_like(vectors: Any, what: str, passages: Matrix) -> Matrix:
    """Check vectors that are compared with ``passages``: of the same width, and sparse if the passages are.

    >>> check_like(np.eye(2), "queries", sparse.identity(2, format="csr"))
    Traceback (most recent call last):
    haybale.errors.VectorError: queries: expected a sparse matrix, as the passages are, found a dense one
    """
    kinds = ["sparse" if is_sparse(matrix) else "dense" for matrix in (passages, vectors)]
    if kinds[0] != kinds[1]:
        raise VectorError(f"{what}: expected a {kinds[0]} matrix, as the passages are, found a {kinds[1]} one")
    return check_matrix(vectors, what, int(passages.shape[1]))


def normalized(vectors: Floats) -> Floats:
    """Scale rows to unit length; a zero row (a text without a known term) stays zero."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.where(lengths > 0, lengths, 1), dtype=np.float32)


def normalized_sparse(vectors: sparse.csr_matrix) -> sparse.csr_matrix:
    """Scale the rows of a CSR matrix; lengths are summed in float64 row by row, so no row depends on the others."""
    wide = vectors.astype(np.float64)
    lengths = np.sqrt(wide.power(2) @ np.ones(wide.shape[1]))
    wide.data /= np.repeat(np.where(lengths > 0, lengths, 1), np.diff(wide.indptr))
    return wide.astype(np.float32)


def _check_width(matrix: Matrix, what: str, dim: int | None) -> None:
    if dim is not None and matrix.shape[1] != dim:
        raise VectorError(f"{what}: expected vectors of width {dim}, found {matrix.shape[1]}")
