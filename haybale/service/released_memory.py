"""Give memory that Python has freed back to the system, where the C library can do so."""

from __future__ import annotations

import ctypes
import gc
import threading

import pyarrow as pa

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
