"""The kernels that CuPy has compiled: it compiles a kernel when it is first called, and keeps it in a folder."""

from __future__ import annotations

import os
from pathlib import Path


def folder_of_kernels() -> Path:
    """Return the folder in which CuPy keeps compiled kernels; ``CUPY_CACHE_DIR`` names another one.

    >>> folder_of_kernels().name
    'kernel_cache'
    """
    return Path(os.environ.get("CUPY_CACHE_DIR") or os.path.expanduser("~/.cupy/kernel_cache"))


def count_kernels() -> int:
    """Return the number of compiled kernels that CuPy keeps."""
    try:
        with os.scandir(folder_of_kernels()) as entries:
            return sum(entry.name.endswith(".cubin") for entry in entries)
    except OSError:  # no kernel has been compiled
        return 0
