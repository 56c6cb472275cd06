"""Matrix products on the tensor cores of a CUDA device, with bounds on their errors.

TF32 has the exponents of float32 and 10 explicit bits of mantissa. The products of two inputs are exact in float32, and
are summed in float32. Tensor cores may truncate, both their inputs and their sums: Fasi, Higham, Mikaitis and Pranesh,
"Numerical behavior of NVIDIA tensor cores", PeerJ Computer Science 7:e330 (2021). The bounds allow for that.

:func:`tf32_product` rounds its inputs to TF32. :func:`float32_product` has nearly the accuracy of float32, from three
products in TF32 (Ootomo and Yokota, "Recovering single precision accuracy from Tensor Cores while surpassing the FP32
theoretical peak performance", International Journal of High Performance Computing Applications 36(4), 2022).

cuBLAS is called with a compute type for each product, so no setting of the process or thread changes. It has no
requirements on alignment; rows of a multiple of 4 values are fastest. A device without TF32 multiplies in float32.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from haybale.device import device_of
from haybale.device_kernels import KernelFile, count_blocks

_KERNELS = KernelFile(Path(__file__).with_name("device_products.cu"))
_VALUES_PER_BLOCK = 2**24  # values of each matrix that are split at once: two copies of 64 MiB
_THREADS = 256  # threads of a block
_MAX_BLOCKS = 4096  # thread blocks of the splitting kernel
_ZERO, _ONE = np.zeros(1, dtype=np.float32), np.ones(1, dtype=np.float32)  # cuBLAS reads factors from host memory


def tf32_product(left: Any, right: Any, out: Any = None) -> Any:
    """Return the inner products of the rows of two matrices, from one product in TF32.

    Parameters
    ----------
    left, right : (m, d) and (n, d) CuPy arrays of float32
        The values of a row are adjacent; the matrices may be columns or rows of larger ones. Finite values below 2^127,
        of which no inner product exceeds 2^127.
    out : (m, n) CuPy array of float32, optional
        Where to write the result; the values of a row are adjacent.

    Returns
    -------
    (m, n) array
        Each value differs from the inner product of the rows l and r by at most ``tf32_error(d)`` · |l| · |r| plus
        ``underflow_error(d, |l|, |r|)``.
    """
    out = _result(left, right, out)
    with device_of(out).current():
        _multiply(left, right, out, _ZERO)
    return out


def float32_product(left: Any, right: Any, out: Any = None) -> Any:
    """Return the inner products of the rows of two matrices nearly in float32, from three products in TF32.

    A value x is split into its TF32 value h and the TF32 value l of x - h. The result is lh' + hl' + hh'.

    Parameters
    ----------
    left, right, out
        As in :func:`tf32_product`. Blocks of rows are copied, in at most 256 MiB.

    Returns
    -------
    (m, n) array
        As in :func:`tf32_product`, with an error of at most ``float32_error(d)`` · |l| · |r| plus
        ``3 * underflow_error(d, |l|, |r|)``.
    """
    out = _result(left, right, out)
    step = max(1, _VALUES_PER_BLOCK // max(1, int(left.shape[1])))
    with device_of(out).current():
        for first_left in range(0, len(left), step):
            left_rows = slice(first_left, first_left + step)
            left_high, left_low = _split(left[left_rows])
            for first_right in range(0, len(right), step):
                right_rows = slice(first_right, first_right + step)
                right_high, right_low = _split(right[right_rows])
                block = out[left_rows, right_rows]
                _multiply(left_low, right_high, block, _ZERO)
                _multiply(left_high, right_low, block, _ONE)
                _multiply(left_high, right_high, block, _ONE)
    return out


def tf32_error(width: int) -> float:
    """Bound the error of :func:`tf32_product`, relative to the product of the lengths of two rows.

    Truncation to 10 explicit bits changes an input by less than 2^-10 of it, so a product of two inputs by less than
    2^-9 (1 - 2^-10 of it remains twice). A tensor core adds at least two products to a sum at once: it aligns them to
    the largest and truncates each of them, and the result, to 24 bits. That loses at most 4 · 2^-23 of the sum of
    absolute values for 2 products, and less for more at once: at most 2 · 2^-23 for each product.
    """
    return 2.0**-9 + _sum_error(width)


def float32_error(width: int) -> float:
    """Bound the error of :func:`float32_product`, relative to the product of the lengths of two rows.

    A value x has 24 bits, so |x - h| is at most 2^-11 |x| and has at most 13 bits, of which l keeps 11: |x - h - l| is
    at most 2^-23 |x|. The product ll' that is left out is at most 2^-22 |xx'|, the rest of both values changes it by at
    most 2^-22 |xx'|. The sum of the products hh' loses as much as in :func:`tf32_error`; the other two are
    2^-11 as large, as are the errors of their sums; adding them rounds twice.
    """
    return 2.0**-20 + 2.0**-22 + (1 + 2.0**-8) * _sum_error(width)


def underflow_error(width: int, left_length: float, right_length: float) -> float:
    """Bound what underflow adds to the error of an inner product in TF32.

    Inputs, products and partial sums below 2^-126 may become zero. An input changes the result by up to 2^-126 times
    the other input, and the absolute values of a row sum to at most its length times the square root of its width.
    """
    return 2.0**-126 * (2 * width + math.sqrt(width) * (left_length + right_length))


def _sum_error(width: int) -> float:
    """Bound the error of a sum of ``width`` products; the margin is for powers of small terms and partial sums."""
    return (1.001 * width + 8) * 2.0**-22


def _result(left: Any, right: Any, out: Any) -> Any:
    """Check the shapes and types of a product; return ``out`` or an array for the result."""
    shape = len(left), len(right)
    if out is None:
        with device_of(left).current():
            out = device_of(left).xp.empty(shape, dtype=np.float32)
    arrays = (left, right, out)
    if any(array.dtype != np.float32 for array in arrays):
        raise TypeError(f"expected float32, found {[str(array.dtype) for array in arrays]}")
    in_rows = all(array.strides[1] == 4 for array in arrays if array.size and array.shape[1] > 1)
    if not in_rows or left.shape[1] != right.shape[1] or out.shape != shape:
        raise ValueError(f"expected (m, d), (n, d) and (m, n) in C order, found {[array.shape for array in arrays]}")
    return out


def _multiply(left: Any, right: Any, out: Any, beta: Any) -> None:
    """Write left · rightᵀ + beta · out to ``out`` in TF32. In the order of cuBLAS, that is outᵀ = right · leftᵀ."""
    m, n, width = len(left), len(right), int(left.shape[1])
    if not (m and n):
        return
    if not width:
        out[...] = np.float32(0)
        return
    cuda = device_of(out).xp.cuda
    cublas, real = cuda.cublas, cuda.runtime.CUDA_R_32F
    cublas.gemmEx(
        *(cuda.device.get_cublas_handle(), cublas.CUBLAS_OP_T, cublas.CUBLAS_OP_N, n, m, width, _ONE.ctypes.data),
        *(right.data.ptr, real, _leading_dimension(right), left.data.ptr, real, _leading_dimension(left)),
        *(beta.ctypes.data, out.data.ptr, real, _leading_dimension(out)),
        *(cublas.CUBLAS_COMPUTE_32F_FAST_TF32, cublas.CUBLAS_GEMM_DEFAULT),
    )


def _leading_dimension(matrix: Any) -> int:
    """Return the number of values from one row to the next."""
    width = int(matrix.shape[1])
    return max(width, matrix.strides[0] // 4) if len(matrix) > 1 else width


def _split(matrix: Any) -> tuple[Any, Any]:
    """Return the high and low parts of a matrix, with columns of zeros up to a multiple of 4."""
    device = device_of(matrix)
    rows, width = (int(size) for size in matrix.shape)
    padded_width = -(-width // 4) * 4
    high, low = (device.xp.empty((rows, padded_width), dtype=np.float32) for _ in range(2))
    if high.size:
        blocks = count_blocks(high.size, _THREADS, _MAX_BLOCKS)
        sizes = np.int32(rows), np.int32(width), np.int32(padded_width)
        values = device.xp.ascontiguousarray(matrix)
        _KERNELS.launch(device, "split_for_tf32", blocks, _THREADS, values, *sizes, high, low)
    return high, low
