"""Tests of cached properties in several threads."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from haybale.cached import cached_property


class Slow:
    """An object whose value is computed while that of another object is."""

    both = threading.Barrier(2)

    @cached_property
    def value(self) -> object:
        self.both.wait(timeout=60)
        return object()


def test_threads_compute_the_values_of_different_objects_at_once() -> None:
    with ThreadPoolExecutor(2) as threads:
        first, second = threads.map(lambda each: each.value, [Slow(), Slow()])
    assert first is not second


def test_threads_that_compute_a_value_at_once_get_the_same_one() -> None:
    slow = Slow()
    with ThreadPoolExecutor(2) as threads:
        first, second = threads.map(lambda each: each.value, [slow, slow])
    assert first is second is slow.value
