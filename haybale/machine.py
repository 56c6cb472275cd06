"""What the machine has, and work cut into pieces for its threads, each with BLAS on one thread.

The pieces do not depend on ``n_jobs``, and each is computed by one thread alone: so a result is the same bit for bit
whatever ``n_jobs`` is. (Some depend on how many cores there are.)
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from typing import Any, TypeVar

from threadpoolctl import ThreadpoolController

T = TypeVar("T")

_lock = threading.Lock()
_limited: list[Any] = []  # one entry for each open one_blas_thread; the first holds the limit


def cpus() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def half_of_memory() -> float:
    """Bytes; 4 GB where the system does not tell."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2
    except (AttributeError, ValueError, OSError):
        return 4e9


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """BLAS on one thread until the last of the overlapping calls has left, whichever thread made them.

    threadpoolctl's own limit belongs to the process and is restored by each leaver to what it found, which
    from several threads ends with BLAS limited for good; hence the count.
    """
    with _lock:
        if not _limited:
            _limited.append(_controller().limit(limits=1, user_api="blas"))
        _limited.append(None)
    try:
        yield
    finally:
        with _lock:
            _limited.pop()
            if len(_limited) == 1:
                _limited.pop().restore_original_limits()


def in_threads(function: Callable[[Any], T], items: Iterable[Any], threads: int | None = None) -> list[T]:
    """``[function(item) for item in items]`` on some threads (None: one a core), in the order of the items.

    >>> in_threads(lambda x: x * x, [1, 2, 3], threads=2)
    [1, 4, 9]
    """
    threads = threads or cpus()
    items = list(items)
    with one_blas_thread():
        if threads == 1 or len(items) < 2:
            return [function(item) for item in items]
        with ThreadPoolExecutor(min(threads, len(items))) as pool:
            return list(pool.map(function, items))
