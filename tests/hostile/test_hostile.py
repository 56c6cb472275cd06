"""The short form of ``make hostile``; and many at once: threads, forks, writers, kills."""

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
from hostile.attacks import KINDS, World, attack
from support.engines import assert_same

import haybale
from haybale import Engine
from haybale.errors import HaybaleError

SHORT = {"readers": 220, "saved": 120, "manifests": 120, "full_disk": 14, "options": 160, "parameters": 250}
SEEDS = {"manifests": 3}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    before = os.getcwd()
    yield World(tmp_path_factory.mktemp("hostile"))
    os.chdir(before)


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_falls_short(kind: str, world: World) -> None:
    tried = attack(world, kind, SHORT.get(kind, 1000), seed=SEEDS.get(kind, 0))
    assert sum(tried.counts.values()) >= min(SHORT.get(kind, 100), 100) or kind == "full_disk"
    assert not tried.short


def test_threads_and_forks_at_once_find_the_same(world: World) -> None:
    """On one engine that has been searched already, with vectors (faiss) and without."""
    ranker = haybale.parse("rrf(bm25,knn,knn-doc,parm-vrrf)").fit(world.dense)
    expected = ranker.rank("dev", depth=20)

    def same() -> None:
        for _ in range(3):
            assert_same(ranker.rank("dev", depth=20), expected)

    def forked() -> None:
        signal.alarm(60)  # a search that hangs is killed
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


def test_a_thousand_searches_need_no_more_memory(world: World) -> None:
    ranker = haybale.parse("rrf(bm25,knn)").fit(world.dense)
    known = world.collection.queries.texts([0])[0]

    def memory() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

    def search(times: int) -> None:
        for number in range(times):
            ranker.rank({f"q{number}": f"{known} {number}"}, depth=10)

    search(200)
    before = memory()
    search(1000)
    assert memory() - before < 4e6


JOBS: dict[str, tuple[Callable[[World, Path], Any], Callable[[World, Path], Any]]] = {
    "train": (
        lambda world, folder: haybale.parse("learned(bm25,svr(n_bags=6,n_jobs=1))").fit(world.engine).save(folder),
        lambda world, folder: haybale.load(folder, world.engine).rank("dev", depth=5),
    ),
    "save": (
        lambda world, folder: world.rankers["svr(n_bags=4)"].save(folder),
        lambda world, folder: haybale.load(folder, world.engine).rank("dev", depth=5),
    ),
    "merge": (
        lambda world, folder: [
            haybale.embed(world.collection, world.encoder, folder, rows_per_chunk=8, shard=(i, 3)) for i in (1, 2, 3)
        ],
        lambda world, folder: haybale.EmbeddingStore(folder).vectors(),
    ),
}


@pytest.mark.parametrize("job", JOBS)
def test_what_was_killed_is_whole_absent_or_goes_on(job: str, world: World) -> None:
    work, ask = JOBS[job]
    start = time.perf_counter()
    whole = world.new()
    whole.parent.mkdir(exist_ok=True)
    work(world, whole)
    seconds, expected = time.perf_counter() - start, ask(world, whole)
    for number in range(10):
        folder = world.new()
        child = multiprocessing.get_context("fork").Process(target=work, args=(world, folder))
        child.start()
        time.sleep(seconds * number / 8)
        os.kill(child.pid or 0, signal.SIGKILL)
        child.join()
        if job == "merge" or not folder.exists():
            work(world, folder)
        found = ask(world, folder)
        assert found == expected if job != "merge" else (found == expected).all()


WRITERS: dict[str, Callable[[World, Path], Any]] = {
    "engine": lambda world, folder: Engine.build(world.collection, folder).prepare(),
    "store": lambda world, folder: haybale.embed(world.collection, world.encoder, folder, rows_per_chunk=8),
    "model": lambda world, folder: world.rankers["bm25-doc"].save(folder),
    "index": lambda world, folder: haybale.PassageIndex(world.vectors).save(folder),
}


@pytest.mark.parametrize("what", WRITERS)
def test_of_two_writers_one_is_refused_or_both_write_the_same(what: str, world: World) -> None:
    folder, barrier = world.new(), threading.Barrier(2)
    folder.parent.mkdir(exist_ok=True)

    def write(_: int) -> str:
        barrier.wait()
        try:
            WRITERS[what](world, folder)
        except HaybaleError:
            return "refused"
        return "written"

    with ThreadPoolExecutor(2) as threads:
        said = list(threads.map(write, range(2)))
    assert "written" in said
    asked = {"engine": "engine", "store": "store", "model": "bm25", "index": "index"}[what]
    assert len(world.ask(asked, folder))


@pytest.fixture(autouse=True)
def _no_alarm() -> Iterator[None]:
    yield
    signal.alarm(0)
