"""Concurrent use of one engine or folder: threads, forks and writers."""

from __future__ import annotations

import multiprocessing
import resource
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from hostile.target import Target
from support.engines import assert_same

import haybale
from haybale import Engine
from haybale.errors import HaybaleError


def test_concurrent_threads_and_forks_get_the_same_results(target: Target) -> None:
    ranker = haybale.parse("rrf(bm25,knn,knn-doc,parm-vrrf)").fit(target.dense)
    expected = ranker.rank("dev", depth=20)

    def same() -> None:
        for _ in range(3):
            assert_same(ranker.rank("dev", depth=20), expected)

    def forked() -> None:
        signal.alarm(60)  # kills a search that hangs
        same()

    children = [multiprocessing.get_context("fork").Process(target=forked) for _ in range(4)]
    for child in children:
        child.start()
    with ThreadPoolExecutor(8) as threads:
        for done in [threads.submit(same) for _ in range(8)]:
            done.result()
    for child in children:
        child.join()
    assert [child.exitcode for child in children] == [0] * 4


@pytest.mark.thorough
def test_the_memory_of_a_thousand_searches_does_not_grow(target: Target) -> None:
    ranker = haybale.parse("rrf(bm25,knn)").fit(target.dense)
    known = target.collection.queries.texts([0])[0]

    def memory() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

    def search(times: int) -> None:
        for number in range(times):
            ranker.rank({f"q{number}": f"{known} {number}"}, depth=10)

    search(200)
    before = memory()
    search(1000)
    assert memory() - before < 4e6


WRITERS: dict[str, Callable[[Target, Path], Any]] = {
    "engine": lambda target, folder: Engine.build(target.collection, folder).prepare(),
    "store": lambda target, folder: haybale.embed(target.collection, target.encoder, folder, rows_per_chunk=8),
    "model": lambda target, folder: target.rankers["bm25-doc"].save(folder),
    "index": lambda target, folder: haybale.PassageIndex(target.vectors).save(folder),
}


@pytest.mark.parametrize("what", WRITERS)
def test_of_two_writers_at_least_one_succeeds(what: str, target: Target) -> None:
    folder, barrier = target.new(), threading.Barrier(2)

    def write(_: int) -> str:
        barrier.wait()
        try:
            WRITERS[what](target, folder)
        except HaybaleError:
            return "rejected"
        return "written"

    with ThreadPoolExecutor(2) as threads:
        assert "written" in threads.map(write, range(2))
    assert len(target.results("bm25" if what == "model" else what, folder))


@pytest.fixture(autouse=True)
def _no_alarm() -> Iterator[None]:
    yield
    signal.alarm(0)
