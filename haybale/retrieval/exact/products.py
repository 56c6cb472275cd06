"""Matrix products on a device, in a precision that is asked for by name.

``cupy.matmul`` gives float16 for float16, and TF32, a product of 11 bits, for float32 where the variable
``CUPY_TF32`` is set (it is off by default). Both are avoided: cuBLAS is called through CuPy's own binding, inputs as
they are, sums and results in float32, TF32 not asked for whatever that variable says.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from haybale.vectors import array_namespace

# Of cuBLAS's header, the same in every version of CUDA.
_CUDA_R_32F, _CUDA_R_16F, _OP_N, _OP_T, _COMPUTE_32F, _GEMM_DEFAULT = 0, 2, 0, 1, 68, -1


def products(queries: Any, passages: Any, out: Any, *, add: bool = False) -> None:
    """``out[:] = queries @ passages.T``, or ``+=`` with ``add``, in float32.

    ``queries`` (m, d) and ``passages`` (n, d) of one type, float32 or float16; ``out`` (m, n) float32; all C-ordered.
    """
    xp = array_namespace(out)
    # CuPy loads the library where it is asked for it by this name; the module alone finds it only if it is loaded.
    cublas = None if xp is np else getattr(xp.cuda, "cublas", None)
    if cublas is None:  # on NumPy, and where the tests have no CuPy: the same, by way of float32 copies
        found = queries.astype(np.float32) @ passages.astype(np.float32).T
        out[:] = out + found if add else found
        return
    m, (n, width) = len(queries), passages.shape
    kind = _CUDA_R_16F if passages.dtype == np.float16 else _CUDA_R_32F
    one, old = np.array(1, dtype=np.float32), np.array(1 if add else 0, dtype=np.float32)
    # cuBLAS counts by columns: our C-ordered (m, n) is its (n, m), the product of passages, transposed, and queries.
    cublas.gemmEx(
        xp.cuda.device.get_cublas_handle(),
        _OP_T, _OP_N, n, m, width,
        one.ctypes.data, passages.data.ptr, kind, width, queries.data.ptr, kind, width,
        old.ctypes.data, out.data.ptr, _CUDA_R_32F, n,
        _COMPUTE_32F, _GEMM_DEFAULT,
    )  # fmt: skip
