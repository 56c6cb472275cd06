"""Concurrent use of one engine or folder: threads, forks, writers, and killed processes."""

from __future__ import annotations

import multiprocessing
import os
import resource
import signal
import threading
import time
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


JOBS: dict[str, tuple[Callable[[Target, Path], Any], Callable[[Target, Path], Any]]] = {
    "train": (
        lambda target, folder: haybale.parse("learned(bm25,svr(n_bags=6,n_jobs=1))").fit(target.engine).save(folder),
        lambda target, folder: haybale.load(folder, target.engine).rank("dev", depth=5),
    ),
    "save": (
        lambda target, folder: target.rankers["svr(n_bags=4)"].save(folder),
        lambda target, folder: haybale.load(folder, target.engine).rank("dev", depth=5),
    ),
    "merge": (
        lambda target, folder: [
            haybale.embed(target.collection, target.encoder, folder, rows_per_chunk=8, shard=(i, 3)) for i in (1, 2, 3)
        ],
        lambda target, folder: haybale.EmbeddingStore(folder).vectors(),
    ),
}


@pytest.mark.parametrize("job", JOBS)
def test_the_output_of_a_killed_job_is_complete_absent_or_resumable(job: str, target: Target) -> None:
    work, results = JOBS[job]
    start = time.perf_counter()
    complete = target.new()
    work(target, complete)
    seconds, expected = time.perf_counter() - start, results(target, complete)
    for number in range(10):
        folder = target.new()
        child = multiprocessing.get_context("fork").Process(target=work, args=(target, folder))
        child.start()
        time.sleep(seconds * number / 8)
        os.kill(child.pid or 0, signal.SIGKILL)
        child.join()
        if job == "merge" or not folder.exists():
            work(target, folder)
        found = results(target, folder)
        assert found == expected if job != "merge" else (found == expected).all()


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
