"""What every room asks of vectors: float32, of one width, finite; and their array namespace.

Vectors are dense, a NumPy or CuPy array, or sparse, a SciPy CSR matrix, which is never densified.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from haybale.errors import VectorError

Floats = NDArray[np.float32]
Matrix = Any  # (n, d): a dense float32 array, or a SciPy CSR matrix of float32


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


def check_sparse(vectors: Any, what: str, width: int | None = None) -> sparse.csr_matrix:
    """``vectors``, any SciPy sparse matrix, as float32 CSR in canonical form: terms rise in a row, no zero is stored.

    >>> check_sparse(sparse.csr_matrix([[0.0, float("inf")]]), "queries")
    Traceback (most recent call last):
    haybale.errors.VectorError: queries: row 0 has NaN or infinity
    """
    matrix = sparse.csr_matrix(vectors, dtype=np.float32)
    if not matrix.has_canonical_format or not matrix.data.all():
        matrix = matrix.copy()  # it may share arrays with the caller's
        matrix.sum_duplicates()
        matrix.eliminate_zeros()
    if width is not None and matrix.shape[1] != width:
        raise VectorError(f"{what}: expected vectors of width {width}, found {matrix.shape[1]}")
    finite = np.isfinite(matrix.data)
    if not finite.all():
        row = int(np.searchsorted(matrix.indptr, np.argmin(finite), side="right")) - 1
        raise VectorError(f"{what}: row {row} has NaN or infinity")
    return matrix


def check_matrix(vectors: Any, what: str, width: int | None = None) -> Matrix:
    """:func:`check_vectors` or, for a sparse matrix, :func:`check_sparse`."""
    return (check_sparse if sparse.issparse(vectors) else check_vectors)(vectors, what, width)


def check_like(vectors: Any, what: str, passages: Matrix) -> Matrix:
    """The same for vectors that meet ``passages``: of their width, and sparse or dense as they are.

    >>> check_like(np.eye(2), "queries", sparse.identity(2, format="csr"))
    Traceback (most recent call last):
    haybale.errors.VectorError: queries: expected a sparse matrix, as the passages are, found a dense one
    """
    kinds = ["sparse" if sparse.issparse(matrix) else "dense" for matrix in (passages, vectors)]
    if kinds[0] != kinds[1]:
        raise VectorError(f"{what}: expected a {kinds[0]} matrix, as the passages are, found a {kinds[1]} one")
    return check_matrix(vectors, what, int(passages.shape[1]))


def normalized(vectors: Floats) -> Floats:
    """Rows scaled to unit length; a zero row (a text without a known term) stays zero.

    >>> normalized(np.array([[3.0, 4.0], [0.0, 0.0]], dtype=np.float32))
    array([[0.6, 0.8],
           [0. , 0. ]], dtype=float32)
    """
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.where(lengths > 0, lengths, 1), dtype=np.float32)


def normalized_sparse(vectors: sparse.csr_matrix) -> sparse.csr_matrix:
    """The same for CSR; lengths are summed in float64 along each row, so no row depends on the others.

    >>> normalized_sparse(sparse.csr_matrix(np.array([[3.0, 4.0], [0.0, 0.0]], dtype=np.float32))).toarray()
    array([[0.6, 0.8],
           [0. , 0. ]], dtype=float32)
    """
    squares = np.square(vectors.data, dtype=np.float64)
    table = sparse.csr_matrix((squares, vectors.indices, vectors.indptr), shape=vectors.shape)
    lengths = np.sqrt(table @ np.ones(vectors.shape[1]))
    scaled = vectors.data / np.repeat(np.where(lengths > 0, lengths, 1), np.diff(vectors.indptr))
    return sparse.csr_matrix((scaled.astype(np.float32), vectors.indices, vectors.indptr), shape=vectors.shape)
