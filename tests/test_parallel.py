"""Parallel work: order of results, threads of BLAS, and tiles that are halved until they fit in memory."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import types
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.cupy_runtime import CUDARuntimeError, OutOfMemoryError
from threadpoolctl import threadpool_info

from haybale.errors import DeviceError
from haybale.parallel import cpus, in_threads, iter_blocks, limit_threads, one_blas_thread


def blas_threads() -> set[int]:
    """Return the sizes of the BLAS thread pools of the process; pools of OpenMP belong to single threads."""
    found = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
    return {pool["num_threads"] for pool in found if pool.get("threading_layer") != "openmp"}


@pytest.mark.parametrize("threads", [1, 2, 5, None])
def test_results_keep_their_order(threads: int | None) -> None:
    assert in_threads(lambda x: (time.sleep(0.002 * (5 - x)), x)[1], range(5), threads) == list(range(5))
    with pytest.raises(ZeroDivisionError):
        in_threads(lambda x: 1 // x, [1, 0, 2], threads)
    with pytest.raises(ValueError, match="'b'"):  # the first error in the order of the items
        in_threads(lambda x: time.sleep(0.01 * (x == "b")) or int(x), ["1", "b", "c", "2"], threads)


def threads_of(n: int) -> set[int]:
    """Return the threads that work on ``n`` items at the same time."""
    barrier = threading.Barrier(n)
    return set(in_threads(lambda _: (barrier.wait(20), threading.get_ident())[1], range(n), n))


def test_threads_are_kept_for_the_next_work() -> None:
    """Work within work has threads of its own; surplus threads end; none keeps its last work alive."""

    class Held:
        """What the work refers to."""

    assert len(threads_of(2)) == 2
    assert threads_of(2) == threads_of(2)
    held = Held()
    is_held = weakref.ref(held)
    assert in_threads(lambda _, held=held: len(threads_of(3)), range(3), 3) == [3, 3, 3]
    del held
    assert is_held() is None
    before = threading.active_count()
    for _ in range(5):
        in_threads(lambda _: threads_of(3), range(3), 3)
    end = time.monotonic() + 20
    while threading.active_count() > before and time.monotonic() < end:
        time.sleep(0.01)
    assert threading.active_count() <= before


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_process_starts_threads_of_its_own() -> None:
    """The threads of its parent do not exist in it."""
    in_threads(lambda x: x, range(3), 3)
    if not (child := os.fork()):
        os._exit(in_threads(lambda x: (time.sleep(0.01), x)[1], range(3), 3) != [0, 1, 2])
    end = time.monotonic() + 20
    while (ended := os.waitpid(child, os.WNOHANG))[0] == 0 and time.monotonic() < end:
        time.sleep(0.01)
    if not ended[0]:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert ended == (child, 0)


def test_a_process_can_use_fewer_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """``haybale serve`` starts processes of one thread each."""
    monkeypatch.setattr("haybale.parallel._most_threads", [])
    limit_threads(1)
    assert cpus() == 1
    assert set(in_threads(lambda _: threading.get_ident(), range(5))) == {threading.get_ident()}


def test_overlapping_limits_of_two_threads_are_both_removed() -> None:
    """With threadpoolctl alone, BLAS would keep one thread forever."""
    before = blas_threads()
    first_in, second_in = threading.Event(), threading.Event()

    def first() -> None:
        with one_blas_thread():
            first_in.set()
            second_in.wait(10)

    def second() -> None:
        first_in.wait(10)
        with one_blas_thread():
            second_in.set()
            worker.join(10)  # the first thread has left its block

    worker, other = threading.Thread(target=first), threading.Thread(target=second)
    worker.start()
    other.start()
    other.join(10)
    assert blas_threads() == before


def test_any_thread_can_limit_blas() -> None:
    """With threadpoolctl alone, only the first thread that limited BLAS can limit it again."""
    free = blas_threads()

    def inside(_: int) -> set[int]:
        with one_blas_thread():
            return blas_threads()

    assert inside(0) == {1}
    with ThreadPoolExecutor(1) as other:
        assert other.submit(inside, 0).result() == {1}
    assert inside(0) == {1}
    assert blas_threads() == free


class LimitedWork:
    """Work that raises an error for tiles of more than ``room`` rows."""

    def __init__(self, room: int, error: BaseException) -> None:
        self.room, self.sizes, self.error = room, [], error

    def __call__(self, tile: slice) -> list[int]:
        self.sizes.append(tile.stop - tile.start)
        if self.sizes[-1] > self.room:
            raise self.error
        return list(range(tile.start, tile.stop))


@pytest.mark.parametrize(
    "error",
    [
        OutOfMemoryError("x"),
        MemoryError("std::bad_alloc"),
        RuntimeError("CUDA out of memory. Tried"),
        RuntimeError("CUBLAS_STATUS_ALLOC_FAILED"),
    ],
)
def test_tiles_halve_until_they_fit(error: BaseException) -> None:
    work = LimitedWork(3, error)
    assert [row for tile in iter_blocks(10, 8, work) for row in tile] == list(range(10))
    assert work.sizes == [8, 4, 2, 2, 2, 2, 2]


def test_tiles_on_the_cpu_with_a_cupy_without_a_driver(monkeypatch: pytest.MonkeyPatch) -> None:

    def no_driver() -> None:
        raise CUDARuntimeError("cudaErrorInsufficientDriver")

    pool = types.SimpleNamespace(free_all_blocks=no_driver)
    monkeypatch.setitem(sys.modules, "cupy", types.SimpleNamespace(get_default_memory_pool=lambda: pool))
    assert len(list(iter_blocks(4, 4, LimitedWork(2, MemoryError())))) == 2


def test_a_smallest_tile_that_does_not_fit_is_an_error() -> None:
    with pytest.raises(DeviceError, match="2 queries"):
        list(iter_blocks(10, 8, LimitedWork(1, MemoryError()), least=2, what="queries"))
    with pytest.raises(RuntimeError, match="illegal address"):
        list(iter_blocks(10, 8, LimitedWork(1, RuntimeError("illegal address"))))
