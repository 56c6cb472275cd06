"""``cupy.cuda.cublas`` of the double: products in TF32 that are as wrong as their bound allows.

A tensor core may round its inputs or truncate them, may flush small ones to zero, and truncates its sums.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

CUBLAS_OP_N, CUBLAS_OP_T = 0, 1
CUBLAS_GEMM_DEFAULT = -1
CUBLAS_COMPUTE_32F_FAST_TF32 = 77
CUDA_R_32F = 0


def gemmEx(
    *sizes_and_addresses: int,  # CuPy's function takes positional arguments, which are integers
) -> None:
    """Compute C = alpha · op(A) · op(B) + beta · C in the column order of cuBLAS, for the operations T and N."""
    if len(sizes_and_addresses) != 19 or not all(isinstance(value, int) for value in sizes_and_addresses):
        raise TypeError("gemmEx() takes exactly 19 integers")
    _, op_a, op_b, m, n, k, alpha, a, type_a, lda, b, type_b, ldb, beta, c, type_c, ldc, compute, algorithm = (
        sizes_and_addresses
    )
    if (op_a, op_b, algorithm, compute) != (CUBLAS_OP_T, CUBLAS_OP_N, CUBLAS_GEMM_DEFAULT, 77):
        raise NotImplementedError("the double multiplies op T by op N in TF32")
    if (type_a, type_b, type_c) != (CUDA_R_32F,) * 3 or min(m, n, k) < 1 or lda < k or ldb < k or ldc < m:
        raise RuntimeError("CUBLAS_STATUS_INVALID_VALUE")
    left, right, out = _matrix(a, m, k, lda), _matrix(b, n, k, ldb), _matrix(c, n, m, ldc)
    alpha_value, beta_value = (_matrix(address, 1, 1, 1)[0, 0] for address in (alpha, beta))
    product = alpha_value * coarse_product(right, left)
    out[:] = product if beta_value == 0 else product + beta_value * out  # beta = 0 does not read C


def coarse_product(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return left · rightᵀ with truncated or raised inputs, and sums that lose or gain what tensor cores may lose."""
    left, right = as_tf32(left), as_tf32(right)
    with np.errstate(under="ignore"):
        lost = np.abs(left) @ np.abs(right).T * np.float32(left.shape[1] * 2.0**-23)
        sign = np.resize(np.array([1, -1, 0], dtype=np.float32), len(right))
        return left @ right.T + sign * lost


def as_tf32(values: np.ndarray) -> np.ndarray:
    """Change values to 10 explicit bits of mantissa: towards zero in even rows, away from it in odd ones."""
    bits = np.ascontiguousarray(values).view(np.int32)
    raised = np.where(np.arange(len(values))[:, None] % 2 == 1, bits + 0x1FFF, bits)
    tf32 = (raised & ~0x1FFF).view(np.float32)
    return np.where(np.abs(values) < 2.0**-126, np.float32(0), tf32)


def _matrix(address: int, rows: int, columns: int, step: int) -> Any:
    """Return the rows of device memory at an address, which begin ``step`` values apart."""
    size = 4 * ((rows - 1) * step + columns)
    memory = (ctypes.c_char * size).from_address(address)
    return np.ndarray((rows, columns), dtype=np.float32, buffer=memory, strides=(4 * step, 4))
