"""``cupy.RawModule`` of the double: kernels are compiled by g++ and run on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np

from support import cupy_double
from support.compiled_kernels import note_file
from support.cuda_on_cpu import MOST_SHARED_UNASKED, KernelsOnCPU, kernels_of_source

MOST_THREADS = 1  # threads of a block; kernels are correct for any number, and one thread is fastest on a CPU
ORDER = 0  # of threads and blocks (cuda_on_cpu)


class CUDADriverError(RuntimeError):
    """``cupy.cuda.driver.CUDADriverError``."""


class RawModule:
    """Kernels of CUDA C++ source, which are compiled when the first of them is taken."""

    def __init__(self, *, code: str, options: tuple[str, ...] = (), backend: str = "nvrtc") -> None:
        if not isinstance(options, tuple) or not all(isinstance(option, str) for option in options):
            raise TypeError("options must be a tuple of strings")
        if "#include" in code:
            raise RuntimeError("NVRTC finds no headers of the C++ library; a kernel includes none")
        self._code = code

    def get_function(self, name: str) -> RawKernel:
        kernels = kernels_of_source(self._code)
        if name not in kernels.parameters:
            raise CUDADriverError("CUDA_ERROR_NOT_FOUND: named symbol not found")
        return RawKernel(kernels, name, self._code)


class RawKernel:
    """One kernel. Its arguments are contiguous arrays of the current device, and NumPy scalars."""

    def __init__(self, kernels: KernelsOnCPU, name: str, code: str) -> None:
        self._kernels, self.name, self._code = kernels, name, code
        self.max_dynamic_shared_size_bytes = MOST_SHARED_UNASKED

    def __call__(self, grid: Any, block: Any, args: tuple[Any, ...], *, shared_mem: int = 0) -> None:
        note_file(self._code)
        threads = int(np.prod(block))
        if not threads or threads > 1024 or int(np.prod(grid)) < 1:
            raise CUDADriverError("CUDA_ERROR_INVALID_VALUE: invalid argument")
        if shared_mem > self.max_dynamic_shared_size_bytes:
            raise CUDADriverError("CUDA_ERROR_INVALID_VALUE: invalid argument")
        if threads > 1 and threads % 32:
            raise ValueError("a block of whole warps is expected")
        arguments = [cupy_double._inside(argument) for argument in args]
        few = [min(threads, MOST_THREADS)] if len(block) == 1 else block
        self._kernels.launch(self.name, grid, few, arguments, shared_mem, ORDER)
