"""Work in tiles that fit the memory there is: a tile that does not is halved, and the work goes on."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import TypeVar

from haybale.errors import DeviceError

T = TypeVar("T")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory, of the machine or of a device, was all that was missing.

    >>> is_out_of_memory(MemoryError()), is_out_of_memory(ValueError("shape"))
    (True, False)
    """
    if isinstance(error, MemoryError):  # NumPy's is one, CuPy's and RMM's too
        return True
    # torch's torch.OutOfMemoryError; faiss and cuVS raise RuntimeError with CUDA's or the allocator's words, CuPy one
    # with cuBLAS's, whose workspace is beside CuPy's pool.
    words = ("out of memory", "out_of_memory", "bad_alloc", "alloc_failed", "cudaerrormemoryallocation")
    return isinstance(error, RuntimeError) and any(word in str(error).lower() for word in words)


def free_cached() -> None:
    """Give back what CuPy's and torch's pools hold and nobody uses."""
    cupy, torch = sys.modules.get("cupy"), sys.modules.get("torch")
    if cupy is not None:
        with contextlib.suppress(RuntimeError):  # CuPy that was imported where there is no device
            cupy.get_default_memory_pool().free_all_blocks()
    if torch is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()


def in_tiles(n: int, size: float, work: Callable[[slice], T], *, least: int = 1, what: str = "rows") -> Iterator[T]:
    """``work(tile)`` for consecutive tiles of 0..n, ``size`` long; yielded in order, an empty range yields nothing.

    A tile that runs out of memory is done again at half its size, and so are those after it; ``work`` must therefore
    change nothing before it has what it needs. Out of memory at ``least``, :class:`DeviceError`.

    >>> list(in_tiles(5, 2, lambda tile: (tile.start, tile.stop)))
    [(0, 2), (2, 4), (4, 5)]
    """
    step = max(least, min(n, int(size)))
    start = 0
    while start < n:
        tile = slice(start, min(start + step, n))
        try:
            done = work(tile)
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            if step <= least:
                raise DeviceError(f"out of memory at a tile of {tile.stop - tile.start} {what}: {error}") from error
        else:
            yield done
            start = tile.stop
            continue
        step = max(least, step // 2)
        free_cached()  # after the error, whose traceback held the arrays, is gone


def fitting(budget: float, each: float, *, least: int = 1, most: float = float("inf")) -> int:
    """How many items of ``each`` bytes a budget of bytes holds.

    >>> fitting(100, 30), fitting(10, 30), fitting(1000, 30, most=8)
    (3, 1, 8)
    """
    return int(max(least, min(most, budget / max(each, 1))))
