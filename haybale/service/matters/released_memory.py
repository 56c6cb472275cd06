"""Give memory that Python has freed back to the system."""

from __future__ import annotations

import ctypes
import gc

import pyarrow as pa


def release_memory() -> None:
    """Collect objects in cycles, and give freed memory back to the system, as far as its libraries can do so.

    The C library keeps freed memory for later; that of GNU gives it back by ``malloc_trim``, which others lack.
    """
    gc.collect()
    pa.default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
