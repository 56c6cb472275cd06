"""Our own CUDA kernels are numba's, in modules called ``cuda_kernels``, imported where they are launched.

They take CuPy arrays as they are. On a machine without a GPU the same kernels run in numba's simulator
(``NUMBA_ENABLE_CUDASIM=1``), which is how the tests run them, on NumPy arrays and slowly.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from functools import cache
from typing import Any


def launch(kernel: Any, blocks: int | tuple[int, ...], threads: int, *arguments: Any) -> None:
    """Run a kernel on the current device and on CuPy's current stream, which by default is torch's too.

    Call it as ``cuda.launch``: tests put another in its place.
    """
    _expect_small_grids()
    kernel[blocks, threads, _stream()](*(_as_they_are(argument) for argument in arguments))


def _stream() -> Any:
    cupy = sys.modules.get("cupy")
    pointer = 0 if cupy is None else cupy.cuda.get_current_stream().ptr
    if not pointer:
        return 0
    from numba import cuda

    return cuda.external_stream(pointer)


def _as_they_are(argument: Any) -> Any:
    """An array of CuPy for numba, which would wait for its stream; but both launch on one, in order."""
    if not hasattr(argument, "__cuda_array_interface__"):
        return argument
    from numba import cuda

    return cuda.as_cuda_array(argument, sync=False)  # type: ignore[no-untyped-call]


@cache
def _expect_small_grids() -> None:
    """numba warns of grids that leave most of a GPU idle; some of ours are small because the problem is."""
    for module in ("numba.core.config", "numba.cuda.core.config"):  # numba's own, and numba-cuda's
        with contextlib.suppress(ImportError):
            importlib.import_module(module).CUDA_LOW_OCCUPANCY_WARNINGS = 0  # type: ignore[attr-defined]
