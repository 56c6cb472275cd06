"""Cores and memory of the machine, and work divided into blocks that fit them.

The blocks do not depend on the number of threads, and one thread computes each block, so results are the same bit for
bit for any number of threads.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Any, TypeVar

from threadpoolctl import OpenBLASController, ThreadpoolController

from haybale.device_memory import free_cached
from haybale.errors import DeviceError
from haybale.stopping_work import check_wanted

T = TypeVar("T")
_lock = threading.Lock()
_limited: list[Any] = []  # the limit of BLAS, then one entry for each open one_blas_thread block
_most_threads: list[int] = []  # the argument of limit_threads, if it was called
_of_task: ContextVar[int | None] = ContextVar("threads of a task", default=None)


def cpus() -> int:
    """Return the number of cores that this process, or the task that runs in it, may use."""
    n_cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min([n_cores, *_most_threads, _of_task.get() or n_cores])


@contextmanager
def at_most_threads(n: int) -> Iterator[None]:
    """Let this thread use at most ``n`` cores within the block: other tasks use the others."""
    token = _of_task.set(n)
    try:
        yield
    finally:
        _of_task.reset(token)


def limit_threads(n: int) -> None:
    """Let this process use at most ``n`` cores from now on. BLAS and OpenMP read ``OMP_NUM_THREADS`` instead."""
    _most_threads[:] = [n]


def half_of_memory() -> float:
    """Return half of the machine's memory in bytes; 4 GB if the system does not report it."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2
    except (AttributeError, ValueError, OSError):
        return 4e9


_controller = cache(ThreadpoolController)


def _take_over() -> None:
    """Allow this thread to limit OpenBLAS; newer versions of threadpoolctl otherwise allow only the first thread."""
    getattr(OpenBLASController, "clear_controlling_thread", lambda force: None)(force=True)


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS to one thread, until the last of several overlapping blocks in any threads ends."""
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


class _Helper:
    """A thread that waits for work. Starting a thread for every block of work takes several times as long."""

    def __init__(self) -> None:
        self._started, self._ended = threading.Lock(), threading.Lock()
        self._work: Callable[[], None] | None = None
        self._started.acquire()
        self._ended.acquire()
        threading.Thread(target=self._run, daemon=True).start()

    def start(self, work: Callable[[], None] | None) -> None:
        """Begin to call ``work``, which must not raise; None ends the thread."""
        self._work = work
        self._started.release()

    def wait(self) -> None:
        """Wait until the work is done."""
        self._ended.acquire()

    def _run(self) -> None:
        while True:
            self._started.acquire()
            work, self._work = self._work, None
            if work is None:
                return
            work()
            del work  # it refers to the arrays
            self._ended.release()


_idle: list[_Helper] = []  # shared by all threads; the methods of a list are atomic
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_idle.clear)  # a child process has none of the threads


def _take_helpers(n: int) -> list[_Helper]:
    """Return idle helpers, and new ones where there are too few."""
    helpers: list[_Helper] = []
    while len(helpers) < n:
        try:
            helpers.append(_idle.pop())
        except IndexError:
            helpers.append(_Helper())
    return helpers


def _keep_helpers(helpers: list[_Helper]) -> None:
    """Keep helpers that are done with their work, at most one per core."""
    for helper in helpers:
        if len(_idle) < cpus():
            _idle.append(helper)
        else:
            helper.start(None)


def in_threads(function: Callable[[Any], T], items: Iterable[Any], threads: int | None = None) -> list[T]:
    """Return ``[function(item) for item in items]``, computed by ``threads`` threads, by default one per core.

    >>> in_threads(lambda x: x * x, [1, 2, 3], threads=2)
    [1, 4, 9]
    """
    items = list(items)
    threads = min(threads or cpus(), len(items))
    with one_blas_thread():
        if threads < 2:
            return [function(item) for item in items]
        results: list[Any] = [None] * len(items)
        failed: dict[int, BaseException] = {}
        numbers = iter(range(len(items)))

        def work() -> None:
            for number in numbers:
                try:
                    results[number] = function(items[number])
                except BaseException as error:
                    failed[number] = error
                if failed:
                    return

        helpers = _take_helpers(threads - 1)  # this thread works, too
        for helper in helpers:
            helper.start(work)
        work()
        for helper in helpers:
            helper.wait()
        _keep_helpers(helpers)
        if failed:
            raise failed[min(failed)]
        return results


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error means that the machine or a device is out of memory."""
    # NumPy, CuPy and RMM raise MemoryError. torch, faiss, cuVS and cuBLAS raise RuntimeError with one of these phrases.
    words = ("out of memory", "out_of_memory", "bad_alloc", "alloc_failed", "cudaerrormemoryallocation")
    said = str(error).lower()
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and any(word in said for word in words))


def iter_blocks(n: int, size: float, work: Callable[[slice], T], *, least: int = 1, what: str = "rows") -> Iterator[T]:
    """Yield ``work(block)`` for consecutive slices of ``range(n)`` of length ``size``, in order.

    If a block runs out of memory, it is computed again with half the length, as are the following tiles. ``work`` must
    therefore allocate its memory before it changes anything. Raises :class:`DeviceError` if a block of ``least`` rows
    runs out of memory; ``what`` names the rows in the message.

    >>> list(iter_blocks(5, 2, lambda block: (block.start, block.stop)))
    [(0, 2), (2, 4), (4, 5)]
    """
    step, start = max(least, min(n, int(size))), 0
    while start < n:
        check_wanted()
        block = slice(start, min(start + step, n))
        try:
            yield work(block)
            start = block.stop
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
            if step <= least:
                raise DeviceError(
                    f"out of memory at a block of {block.stop - block.start} {what}, which cannot be divided further "
                    f"({error}); free memory or use another device"
                ) from error
            step = max(least, step // 2)
        if start < block.stop:
            free_cached()  # outside the except block, because the traceback of the error refers to the arrays


def batch_size_for_memory(budget: float, item_bytes: float, *, least: int = 1, most: float = float("inf")) -> int:
    """Return the number of items of ``item_bytes`` that fit a budget of bytes, between ``least`` and ``most``.

    >>> batch_size_for_memory(100, 30), batch_size_for_memory(10, 30), batch_size_for_memory(1000, 30, most=8)
    (3, 1, 8)
    """
    return int(max(least, min(most, budget / max(item_bytes, 1))))
