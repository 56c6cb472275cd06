"""Give memory that Python has freed back to the system, where the C library can do so."""

from __future__ import annotations

import ctypes
import gc
import threading

import pyarrow as pa

_MMAP_THRESHOLD = -3  # of mallopt, in malloc.h of GNU's C library
_LARGE_BYTES = 2**20  # of an array that gets pages of its own
_RELEASING = threading.Lock()  # while one thread collects, gc.collect() does nothing in another


def trim_memory() -> None:
    """Give freed memory back to the system; the C library keeps it for later, unless it has ``malloc_trim``."""
    pa.default_memory_pool().release_unused()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def release_memory() -> None:
    """Free objects that only refer to each other, and give freed memory back to the system."""
    with _RELEASING:
        gc.collect()
        trim_memory()


def map_large_arrays() -> None:
    """Let each large array have pages of its own, which go back to the system with it, and leave no gaps.

    The C library of GNU would raise the size from which arrays are mapped to 32 MB, after large ones have been freed.
    """
    if hasattr(ctypes.CDLL(None), "malloc_trim"):
        ctypes.CDLL(None).mallopt(_MMAP_THRESHOLD, _LARGE_BYTES)
