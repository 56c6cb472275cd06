"""What the machine has: cores, memory, and work cut into pieces that fit them.

Pieces do not depend on ``n_jobs``, and each is computed by one thread alone, so results are the same bit for bit.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any, TypeVar

from threadpoolctl import OpenBLASController, ThreadpoolController

from haybale.errors import DeviceError

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


def _take_over() -> None:
    """Let this thread set how many OpenBLAS has: newer threadpoolctls ignore all but the first that ever did so."""
    getattr(OpenBLASController, "clear_controlling_thread", lambda force: None)(force=True)


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """BLAS on one thread until the last of overlapping calls, in whatever threads, has left."""
    with _lock:
        if not _limited:
            _take_over()
            _limited.append(_controller().limit(limits=1, user_api="blas"))
        _limited.append(None)
    try:
        yield
    finally:
        with _lock:
            _limited.pop()
            if len(_limited) == 1:
                _take_over()
                _limited.pop().restore_original_limits()
                _take_over()


def in_threads(function: Callable[[Any], T], items: Iterable[Any], threads: int | None = None) -> list[T]:
    """``[function(item) for item in items]`` on some threads (None: one a core), in the order of the items.

    >>> in_threads(lambda x: x * x, [1, 2, 3], threads=2)
    [1, 4, 9]
    """
    items = list(items)
    threads = min(threads or cpus(), len(items))
    with one_blas_thread():
        if threads < 2:
            return [function(item) for item in items]
        with ThreadPoolExecutor(threads) as pool:
            return list(pool.map(function, items))


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory, of the machine or of a device, was all that was missing."""
    # NumPy's, CuPy's and RMM's are MemoryErrors; torch's, faiss's, cuVS's and cuBLAS's RuntimeErrors with such words.
    words = ("out of memory", "out_of_memory", "bad_alloc", "alloc_failed", "cudaerrormemoryallocation")
    said = str(error).lower()
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and any(word in said for word in words))


def free_cached() -> None:
    """Give back what CuPy's and torch's pools hold and nobody uses."""
    cupy, torch = sys.modules.get("cupy"), sys.modules.get("torch")
    if cupy is not None:
        with suppress(RuntimeError):  # CuPy that was imported where there is no device
            cupy.get_default_memory_pool().free_all_blocks()
    if torch is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()


def iter_chunks(n: int, size: float, work: Callable[[slice], T], *, least: int = 1, what: str = "rows") -> Iterator[T]:
    """``work(tile)`` for consecutive tiles of 0..n, ``size`` long; yielded in order, an empty range yields nothing.

    A tile that runs out of memory is done again at half its size, and so are those after it; ``work`` must therefore
    change nothing before it has what it needs. Out of memory at ``least``, :class:`DeviceError`.

    >>> list(iter_chunks(5, 2, lambda tile: (tile.start, tile.stop)))
    [(0, 2), (2, 4), (4, 5)]
    """
    step, start = max(least, min(n, int(size))), 0
    while start < n:
        tile = slice(start, min(start + step, n))
        try:
            yield work(tile)
            start = tile.stop
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            if step <= least:
                raise DeviceError(f"out of memory at a tile of {tile.stop - tile.start} {what}: {error}") from error
            step = max(least, step // 2)
        if start < tile.stop:
            free_cached()  # after the error, whose traceback held the arrays, is gone


def batch_size_for_memory(budget: float, each: float, *, least: int = 1, most: float = float("inf")) -> int:
    """How many items of ``each`` bytes a budget of bytes holds.

    >>> batch_size_for_memory(100, 30), batch_size_for_memory(10, 30), batch_size_for_memory(1000, 30, most=8)
    (3, 1, 8)
    """
    return int(max(least, min(most, budget / max(each, 1))))
