"""Load CUDA kernels. A ``.cu`` file lies beside the module that calls its kernels.

Functions that kernels of several files call are in ``device_functions.cuh``.

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
_SHARED_FUNCTIONS = Path(__file__).with_name("device_functions.cuh")
_BLOCKS_PER_LAUNCH = 1024  # enough to occupy a device
_DEFAULT_SHARED_BYTES = 48 * 1024  # shared memory of a block that CUDA allows without a setting of the kernel


class KernelFile:
    """The kernels of a ``.cu`` file, compiled with the definitions of some macros."""

    def __init__(self, path: Path, **definitions: str | int) -> None:
        self.path, self.definitions = path, definitions
        self._kernels: dict[tuple[ModuleType, str], Any] = {}  # CuPy's kernels, by array library and name

    @property
    def source(self) -> str:
        """The source that is compiled: the definitions, the functions that files share, and the file."""
        shared, kernels = (path.read_text(encoding="utf-8") for path in (_SHARED_FUNCTIONS, self.path))
        definitions = "".join(f"#define {name} {value}\n" for name, value in self.definitions.items())
        return f"{definitions}{shared}\n#line 1\n{kernels}"

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
            kernel = self._kernel(device.xp, name)
            if shared_bytes > _DEFAULT_SHARED_BYTES:
                kernel.max_dynamic_shared_size_bytes = shared_bytes
            kernel((blocks,), (threads,), arguments, shared_mem=shared_bytes)

    def _kernel(self, xp: ModuleType, name: str) -> Any:
        """Return CuPy's kernel; CuPy compiles or loads the file once for each device."""
        if (xp, name) not in self._kernels:
            module = xp.RawModule(code=self.source, options=_COMPILER_OPTIONS)
            self._kernels[xp, name] = module.get_function(name)
        return self._kernels[xp, name]


def count_blocks(n: int, n_per_block: int, most: int) -> int:
    """Return the number of blocks for n items: with up to ``most`` blocks, a block takes ``n_per_block`` of them.

    >>> count_blocks(1000, 256, most=2**16), count_blocks(0, 256, most=2**16), count_blocks(2**20, 1, most=64)
    (4, 1, 64)
    """
    return max(1, min(most, -(-n // n_per_block)))


def blocks_per_row(n_rows: int, n_columns: int, threads: int) -> int:
    """Return the number of blocks for each of some rows of values: few long rows are divided among several blocks.

    >>> blocks_per_row(5000, 10_000, threads=256), blocks_per_row(100, 10_000, threads=256)
    (1, 11)
    """
    return count_blocks(n_columns, threads, most=-(-_BLOCKS_PER_LAUNCH // n_rows))
