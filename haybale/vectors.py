"""Check, convert and normalise vectors: finite float32 or float16 rows of one width.

Dense vectors are NumPy or CuPy arrays; sparse vectors are CSR matrices of SciPy or CuPy and are never densified.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from haybale.device import Device, device_of, is_sparse, to_device, to_numpy
from haybale.device_vectors import squared_row_lengths
from haybale.errors import InputError, VectorError
from haybale.parallel import in_threads

Floats = NDArray[np.float32]


class Matrix(Protocol):
    """(n, d) vectors: a dense float32 or float16 array of NumPy or CuPy, or a float32 CSR matrix of SciPy or CuPy.

    The protocol lists what both kinds have in common; :func:`haybale.device.is_sparse` distinguishes them.
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


STORED = ("float32", "float16")  # the supported dtypes
_ROWS_PER_TASK = 256  # rows that a thread copies in one task
_VALUES_PER_TILE = 2**22  # values converted or squared at once: 16 MiB of float32


def array_namespace(array: Any) -> ModuleType:
    """Return cupy for CuPy arrays, and numpy for all others."""
    if type(array).__module__.partition(".")[0] == "cupy":
        import cupy

        return cupy  # type: ignore[no-any-return]
    return np


def stored_type(dtype: Any) -> np.dtype[Any]:
    """Return ``dtype`` as a NumPy dtype; raise :class:`InputError` unless it is float32 or float16."""
    try:
        numpy_dtype: np.dtype[Any] | None = np.dtype(dtype)
    except TypeError:
        numpy_dtype = None
    if numpy_dtype is None or numpy_dtype.name not in STORED:
        raise InputError(f"dtype must be {' or '.join(STORED)}, found {dtype!r}")
    return numpy_dtype


def reals(values: Any, what: str, dtype: Any = np.float64) -> Any:
    """Convert an array, lists or a sparse matrix to ``dtype``, in C order or CSR, on the device where they are.

    Raise :class:`InputError` for complex numbers, of which NumPy would drop the imaginary part, and for dates, which
    it would convert to counts of days.

    >>> reals([1, 2j], "scores")
    Traceback (most recent call last):
    haybale.errors.InputError: scores: expected real numbers, found other values (complex128)
    """
    device = device_of(values)
    reason: Any
    try:
        array = to_device(values, device)
        if array.dtype.kind not in "cmM":
            convert = sparse.csr_matrix if sparse.issparse(array) else device.xp.ascontiguousarray
            return convert(array, dtype=dtype)
        reason = array.dtype
    except (TypeError, ValueError) as error:
        reason = error
    raise InputError(f"{what}: expected real numbers, found other values ({reason})")


def check_vectors(vectors: Any, what: str, dim: int | None = None, dtype: Any = np.float32) -> Any:
    """Return a NumPy or CuPy array, torch tensor or lists as a C-ordered (n, d) array of ``dtype`` on the same device.

    No copy is made if dtype and order fit. Raise :class:`VectorError` for another shape or width, and for values that
    are not finite in ``dtype``.

    >>> check_vectors([[1.0, float("nan")]], "queries")
    Traceback (most recent call last):
    haybale.errors.VectorError: queries: row 0 has NaN or infinity; give only finite values
    """
    dtype = stored_type(dtype)
    device = device_of(vectors)
    with device.current(), np.errstate(over="ignore"):
        array = reals(vectors, what, dtype)
        if array.ndim != 2:
            raise VectorError(f"{what}: expected a two-dimensional array (rows, width), found shape {array.shape}")
        _check_width(array, what, dim)
        # A row's sum of squares is finite if and only if its elements are (below 1e19, which holds for embeddings).
        finite = np.isfinite(to_numpy(squared_lengths(array)))
        if not finite.all():
            limit = " up to 65504, the largest of float16" if dtype == np.float16 else ""
            row = int(np.argmin(finite))
            raise VectorError(f"{what}: row {row} has NaN or infinity; give only finite values{limit}")
    return array


def squared_lengths(vectors: Any) -> Any:
    """Return the sums of squares of the rows (n, d) as (n,) float32, computed in float32 without an n × d temporary."""
    if isinstance(vectors, np.ndarray) and vectors.dtype == np.float32:
        return np.einsum("nd,nd->n", vectors, vectors)
    if not device_of(vectors).is_cpu and vectors.dtype.name in STORED:
        return squared_row_lengths(vectors)
    xp = array_namespace(vectors)
    squares = xp.empty(len(vectors), dtype=np.float32)
    for start, end in row_tiles(vectors):
        rows = vectors[start:end].astype(np.float32)
        rows *= rows
        squares[start:end] = rows.sum(axis=1)
    return squares


def gather_rows(vectors: NDArray[Any], rows: NDArray[Any], threads: int | None = None) -> NDArray[Any]:
    """Return ``vectors[rows]`` of a dense NumPy matrix, copied by ``threads`` threads, by default one per core."""
    out: NDArray[Any]
    if len(rows) <= _ROWS_PER_TASK:
        out = vectors[rows]
        return out
    out = np.empty((len(rows), vectors.shape[1]), dtype=vectors.dtype)

    def copy(start: int) -> None:
        out[start : start + _ROWS_PER_TASK] = vectors[rows[start : start + _ROWS_PER_TASK]]

    in_threads(copy, range(0, len(rows), _ROWS_PER_TASK), threads)
    return out


def row_tiles(vectors: Any) -> list[tuple[int, int]]:
    """Return the (start, end) rows of consecutive tiles of about 4 M values, at least one row each."""
    step = max(1, _VALUES_PER_TILE // max(1, int(vectors.shape[1])))
    return [(start, min(start + step, len(vectors))) for start in range(0, len(vectors), step)]


def moved(vectors: Any, device: Device, dtype: Any = np.float32) -> Any:
    """Return ``vectors`` (n, d) on the device as ``dtype``, converted tile by tile; no copy if nothing changes."""
    dtype, here = stored_type(dtype), device_of(vectors)
    if len(vectors.shape) != 2 or (here == device and vectors.dtype == dtype):
        return to_device(vectors, device)
    with device.current(), np.errstate(over="ignore"):
        out = device.xp.empty(tuple(vectors.shape), dtype=dtype)
        for start, end in row_tiles(vectors):
            out[start:end] = to_device(vectors[start:end], device).astype(dtype)
    return out


def check_sparse(vectors: Any, what: str, dim: int | None = None) -> sparse.csr_matrix:
    """Return any sparse matrix as SciPy's float32 CSR in canonical form: column numbers rise, no zeros are stored.

    Raise :class:`VectorError` for another width, NaN or infinity.
    """
    matrix = reals(to_numpy(vectors), what, np.float32)
    if not matrix.has_canonical_format or not matrix.data.all():
        matrix = matrix.copy()  # it may share memory with the caller's matrix
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
    _check_width(matrix, what, dim)
    finite = np.isfinite(matrix.data)
    if not finite.all():
        row = int(np.searchsorted(matrix.indptr, np.argmin(finite), side="right")) - 1
        raise VectorError(f"{what}: row {row} has NaN or infinity; give only finite values")
    return matrix


def check_matrix(vectors: Any, what: str, dim: int | None = None) -> Matrix:
    """Call :func:`check_sparse` for a sparse matrix, and :func:`check_vectors` for anything else."""
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
    """Scale rows to unit length; zero rows, of texts without a known term, stay zero."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.where(lengths > 0, lengths, 1), dtype=np.float32)


def normalized_sparse(vectors: sparse.csr_matrix) -> sparse.csr_matrix:
    """Scale the rows of a CSR matrix to unit length. Each row is summed in float64 and depends on no other row."""
    wide = vectors.astype(np.float64)
    lengths = np.sqrt(wide.power(2) @ np.ones(wide.shape[1]))
    wide.data /= np.repeat(np.where(lengths > 0, lengths, 1), np.diff(wide.indptr))
    return wide.astype(np.float32)


def _check_width(matrix: Matrix, what: str, dim: int | None) -> None:
    if dim is not None and matrix.shape[1] != dim:
        raise VectorError(f"{what}: expected vectors of width {dim}, found {matrix.shape[1]}")
