"""Load CUDA kernels. A ``.cu`` file lies beside the module that calls its kernels.

CuPy compiles a file for the device when one of its kernels is first called, and keeps what it compiled on disk, in
``~/.cupy/kernel_cache`` by default. A new process loads it from there.
"""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from haybale.device import Device

_COMPILER_OPTIONS = ("--std=c++17",)
_DEFAULT_SHARED_BYTES = 48 * 1024  # shared memory of a block that CUDA allows without a setting of the kernel


class KernelFile:
    """The kernels of a ``.cu`` file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._modules: dict[ModuleType, Any] = {}  # CuPy's module of the file, by array library

    def launch(
        self, device: Device, name: str, blocks: int, threads: int, *arguments: Any, shared_bytes: int = 0
    ) -> None:
        """Start a kernel on the current stream of a device.

        Parameters
        ----------
        device : Device
        name : str
            The name of an ``extern "C"`` function in the file.
        blocks, threads : int
            Number of blocks, and of threads of a block.
        *arguments : array or NumPy scalar
            Arrays of the device in C order, and scalars with exactly the types of the parameters.
        shared_bytes : int, default 0
            Dynamic shared memory of each block.
        """
        if not all(isinstance(argument, np.generic) or argument.flags.c_contiguous for argument in arguments):
            raise ValueError(
                f"{name}: expected NumPy scalars and arrays in C order, found others; call ascontiguousarray"
            )
        with device.current():
            kernel = self._module(device.xp).get_function(name)
            if shared_bytes > _DEFAULT_SHARED_BYTES:
                kernel.max_dynamic_shared_size_bytes = shared_bytes
            kernel((blocks,), (threads,), arguments, shared_mem=shared_bytes)

    def _module(self, xp: ModuleType) -> Any:
        """Return CuPy's module of the file; CuPy compiles or loads it once for each device."""
        if xp not in self._modules:
            self._modules[xp] = xp.RawModule(code=self.path.read_text(encoding="utf-8"), options=_COMPILER_OPTIONS)
        return self._modules[xp]
