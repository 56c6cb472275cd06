"""A double of ``cupyx.scipy.sparse`` that computes with SciPy and has the interface of CuPy 14.2.

Matrices are of floats and consist of arrays of the CuPy double. Products with dense matrices are in Fortran order.
Rows are taken by slices and device arrays. Functions of SciPy and NumPy reject these matrices. Sources:
cupyx/scipy/sparse/_base, _compressed, _csr, _csc, _data, _index, _construct, and cupyx/cusparse.

What cuSPARSE makes of matrices without rows or columns is not documented, so the double refuses to pass them to it.
Calls that CuPy answers itself, without cuSPARSE, accept them.
"""

from __future__ import annotations

import types
from typing import Any

import numpy as np
from scipy import sparse

from support.cupy_double import _inside, _outside, ndarray


def _plain(value: Any) -> Any:
    return value._matrix if isinstance(value, _Compressed) else _inside(value)


class _Compressed:
    """A compressed sparse matrix of three device arrays."""

    __array_priority__ = 101
    __array_ufunc__ = None
    __hash__ = None  # type: ignore[assignment]
    _scipy: Any
    format: str
    ndim = 2

    def __init__(self, arg1: Any, shape: Any = None, dtype: Any = None) -> None:
        if isinstance(arg1, _Compressed):
            matrix = arg1._matrix.asformat(self.format)
        elif sparse.issparse(arg1):
            matrix = arg1.asformat(self.format).copy()
        elif isinstance(arg1, ndarray):
            matrix = self._scipy(_inside(arg1))
        elif isinstance(arg1, tuple) and len(arg1) == 2 and all(isinstance(size, int) for size in arg1):
            matrix = self._scipy(arg1, dtype=dtype or np.float64)
        elif isinstance(arg1, tuple) and len(arg1) == 3:
            if not all(isinstance(part, ndarray) and part.ndim == 1 for part in arg1):
                raise ValueError("data, indices, and indptr should be 1-D")
            matrix = self._scipy(tuple(_inside(part) for part in arg1), shape=shape)
        else:
            raise ValueError("Unsupported initializer format")
        if matrix.dtype.char not in "?fd":
            raise ValueError("Only bool, float32, float64, complex64 and complex128 are supported")
        self.data, self.indices, self.indptr = (ndarray(part) for part in (matrix.data, matrix.indices, matrix.indptr))
        self.shape = matrix.shape

    @property
    def _matrix(self) -> Any:
        parts = tuple(_inside(part) for part in (self.data, self.indices, self.indptr))
        return self._scipy(parts, shape=self.shape)

    dtype = property(lambda self: self.data.dtype)
    nnz = property(lambda self: self.data.size)
    size = nnz
    T = property(lambda self: self.transpose())

    @property
    def device(self) -> Any:
        raise NotImplementedError  # _base.py: only the arrays of a matrix know their device

    def __len__(self) -> int:
        raise TypeError("sparse matrix length is ambiguous; use getnnz() or shape[0]")

    def get(self, stream: Any = None) -> Any:
        """Return a SciPy matrix, copied to the host."""
        parts = tuple(part.get() for part in (self.data, self.indices, self.indptr))
        return self._scipy(parts, shape=self.shape)

    def transpose(self, axes: None = None, copy: bool = False) -> _Compressed:
        return _wrapped(self._matrix.T)

    def tocsr(self, copy: bool = False) -> csr_matrix:
        return csr_matrix(self)

    def astype(self, t: Any) -> Any:
        return _wrapped(self._matrix.astype(t))

    def power(self, n: Any, dtype: Any = None) -> Any:
        if not np.isscalar(n) or n == 0:
            raise NotImplementedError("input is not scalar, or zero")
        return self._with_data(self.data**n if dtype is None else self.data.astype(dtype) ** n)

    def copy(self) -> Any:
        return self._with_data(self.data.copy())

    def _with_data(self, data: ndarray) -> Any:
        return type(self)((data, self.indices.copy(), self.indptr.copy()), shape=self.shape)

    def toarray(self, order: str | None = None, out: None = None) -> ndarray:
        return ndarray(self._matrix.toarray(order=order or "C"))

    def sum(self, axis: int | None = None, dtype: Any = None, out: None = None) -> ndarray:
        found = self._matrix.sum(axis=axis)
        kind = self.dtype if dtype is None else dtype  # CuPy sums in the matrix's own type, by a product with ones
        return ndarray(np.asarray(found).astype(self.dtype).astype(kind))

    def multiply(self, other: Any) -> Any:
        if not np.isscalar(other) and not isinstance(other, csr_matrix):
            raise TypeError("expected scalar or csr matrix")
        if not np.isscalar(other):  # _csr.py, multiply_by_csr
            _ = [max(both) // length for both in zip(self.shape, other.shape, strict=True) for length in both]
        return _wrapped(sparse.csr_matrix(self._matrix.multiply(_plain(other))))

    def __matmul__(self, other: Any) -> Any:
        if np.isscalar(other):
            raise ValueError("Scalar operands are not allowed, use '*' instead")
        return self * other

    def __rmatmul__(self, other: Any) -> Any:
        return (self.T * other.T).T

    def __mul__(self, other: Any) -> Any:
        if np.isscalar(other):
            return _wrapped(self._matrix * other)
        if isinstance(other, _Compressed):
            _check_extents(self, other)
            return _wrapped(sparse.csr_matrix(self._matrix @ other._matrix))
        if isinstance(other, ndarray):
            if self.nnz:  # cusparse.py, spmv and spmm: without stored values, CuPy returns zeros itself
                _check_extents(self, other)
            found = np.asarray(self._matrix @ _inside(other))
            return ndarray(np.asfortranarray(found))
        return NotImplemented

    def __sub__(self, other: Any) -> Any:
        if not isinstance(other, _Compressed):
            raise NotImplementedError("the double subtracts sparse matrices only")
        _check_extents(self, other)
        return _wrapped(sparse.csr_matrix(self._matrix - other._matrix))

    __rmul__ = __mul__
    dot = __matmul__

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, tuple):
            raise NotImplementedError("the double takes rows only")
        if not isinstance(key, slice | int | ndarray):
            raise IndexError(f"rows are taken by slices and arrays of the device, found {type(key)}")
        return _wrapped(self._matrix[_plain(key)])


class csr_matrix(_Compressed):
    """``cupyx.scipy.sparse.csr_matrix``."""

    format, _scipy = "csr", sparse.csr_matrix


class csc_matrix(_Compressed):
    """``cupyx.scipy.sparse.csc_matrix``."""

    format, _scipy = "csc", sparse.csc_matrix


for _kind in (csr_matrix, csc_matrix):
    _kind.__module__ = f"cupyx.scipy.sparse._{_kind.format}"


def _check_extents(*operands: Any) -> None:
    """Raise for operands without rows or columns, which would be passed to cuSPARSE."""
    if any(0 in operand.shape for operand in operands):
        shapes = " and ".join(str(operand.shape) for operand in operands)
        raise ValueError(f"cuSPARSE is given operands of shapes {shapes}, and does not say what it returns for these")


def _wrapped(matrix: Any) -> Any:
    parts = (_outside(np.asarray(part)) for part in (matrix.data, matrix.indices, matrix.indptr))
    kind = csr_matrix if matrix.format == "csr" else csc_matrix
    return kind(tuple(parts), shape=matrix.shape)


def _joined(name: str) -> Any:
    def join(blocks: Any, format: str) -> Any:
        if not all(isinstance(block, _Compressed) for block in blocks):
            raise TypeError("blocks must be sparse matrices of the device")
        return _wrapped(getattr(sparse, name)([block._matrix for block in blocks], format="csr"))

    return join


def modules() -> dict[str, types.ModuleType]:
    """Return the modules that replace those of CuPy in ``sys.modules``."""
    found = {name: types.ModuleType(name) for name in ("cupyx", "cupyx.scipy", "cupyx.scipy.sparse")}
    found["cupyx"].scipy = found["cupyx.scipy"]  # type: ignore[attr-defined]
    own: Any = found["cupyx.scipy.sparse"]
    found["cupyx.scipy"].sparse = own  # type: ignore[attr-defined]
    own.csr_matrix, own.csc_matrix = csr_matrix, csc_matrix
    own.hstack, own.vstack = _joined("hstack"), _joined("vstack")
    return found
