"""Threads: order kept, errors raised, and BLAS given back its own as it was."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from haybale.machine import cpus, half_of_memory, in_threads, one_blas_thread


def blas_threads() -> set[int]:
    return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


@pytest.mark.parametrize("threads", [1, 2, 5, None])
def test_results_keep_their_order(threads: int | None) -> None:
    assert in_threads(lambda x: (time.sleep(0.002 * (5 - x)), x)[1], range(5), threads) == list(range(5))
    with pytest.raises(ZeroDivisionError):
        in_threads(lambda x: 1 // x, [1, 0, 2], threads)


def test_blas_gets_its_threads_back_whoever_leaves_last() -> None:
    """Two threads whose limits overlap: threadpoolctl alone would end with one thread for good."""
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
            worker.join(10)  # the first has left

    worker, other = threading.Thread(target=first), threading.Thread(target=second)
    worker.start()
    other.start()
    other.join(10)
    assert blas_threads() == before


def test_what_the_machine_has() -> None:
    assert cpus() >= 1
    assert half_of_memory() > 1e8
    assert np.isfinite(half_of_memory())
