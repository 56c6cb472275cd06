"""Our own CUDA kernels are numba's, in modules called ``cuda_kernels``, imported where they are launched.

They take CuPy arrays as they are. On a machine without a GPU the same kernels run in numba's simulator
(``NUMBA_ENABLE_CUDASIM=1``), which is how the tests run them, on NumPy arrays and slowly.
"""

from __future__ import annotations

from typing import Any


def launch(kernel: Any, blocks: int | tuple[int, ...], threads: int, *arguments: Any) -> None:
    """Run a kernel on the current device, on the default stream, which CuPy and torch share.

    Call it as ``cuda.launch``: tests put another in its place.
    """
    kernel[blocks, threads](*arguments)
