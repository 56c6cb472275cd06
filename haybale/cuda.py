"""Our own CUDA kernels are numba's, in modules called ``cuda_kernels``, imported where they are launched.

They take CuPy arrays as they are. On a machine without a GPU the same kernels run in numba's simulator
(``NUMBA_ENABLE_CUDASIM=1``), which is how the tests run them, on NumPy arrays and slowly.
"""

from __future__ import annotations

import contextlib
import importlib
from functools import cache
from typing import Any


def launch(kernel: Any, blocks: int | tuple[int, ...], threads: int, *arguments: Any) -> None:
    """Run a kernel on the current device, on the default stream, which CuPy and torch share.

    Call it as ``cuda.launch``: tests put another in its place.
    """
    _expect_small_grids()
    kernel[blocks, threads](*arguments)


@cache
def _expect_small_grids() -> None:
    """numba warns of grids that leave most of a GPU idle; some of ours are small because the problem is."""
    for module in ("numba.core.config", "numba.cuda.core.config"):  # numba's own, and numba-cuda's
        with contextlib.suppress(ImportError):
            importlib.import_module(module).CUDA_LOW_OCCUPANCY_WARNINGS = 0  # type: ignore[attr-defined]
