"""Tasks in threads, in processes and on a cluster give the same results bit for bit, even if a worker is killed."""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import joblib
import numpy as np
import pytest
import yaml
from support import dask_tasks
from support.commands import word_folder
from support.encoders import HashEncoder
from support.engines import tree_of_build
from support.layouts import folder_of
from support.worlds import world

from haybale import cluster
from haybale.cluster import on_cluster, spread
from haybale.collections import open_collection
from haybale.embeddings import EmbeddingStore, embed
from haybale.engine import Engine
from haybale.ensemble import SVREnsemble
from haybale.errors import ClusterError
from haybale.rankers import SVR
from haybale.search import query_batch

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")

TESTS = str(Path(__file__).parent)
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")


def process_of(program: str, *options: str) -> subprocess.Popen[bytes]:
    """Start a program of Dask that can import the modules of the tests."""
    command = [sys.executable, "-m", f"distributed.cli.{program}", *options, "--dashboard-address", ":0"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([TESTS, *sys.path])}
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)


def start_worker(address: str) -> subprocess.Popen[bytes]:
    return process_of("dask_worker", address, *composed("worker"), "--no-nanny", "--death-timeout", "20")


@pytest.fixture(scope="module")
def local() -> Iterator[Any]:
    """Start a cluster of two workers, which nannies restart.

    On a busy machine, a restart may take longer than 15 seconds, after which Dask's cluster closes the nanny by
    default. If the new worker has just got a task then, it may keep this task until the scheduler gives the worker up.
    """
    settings = {
        "distributed.scheduler.allowed-failures": 1,
        "distributed.scheduler.worker-ttl": "1 minute",
        "distributed.deploy.lost-worker-timeout": "5 minutes",
        "distributed.worker.multiprocessing-method": "forkserver",  # restarts do not import everything again
    }
    with (
        dask.config.set(settings),
        distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=":0", silence_logs=60) as local,
    ):
        yield local


@pytest.fixture
def address(local: Any) -> str:
    """Return the address of a scheduler with two workers, also after a test that killed a worker."""
    for attempt in range(4):
        local.scale(2)  # a busy machine may have restarted a killed worker too slowly
        try:
            local.wait_for_workers(2, timeout=20)
            break
        except TimeoutError:
            if attempt == 3:
                raise
    return str(local.scheduler_address)


@pytest.fixture
def client(address: str) -> Iterator[Any]:
    with on_cluster(address) as client:
        yield client


@contextlib.contextmanager
def killing(folder: Path, then: Callable[[], None] | None = None) -> Iterator[list[int]]:
    """Kill a worker that has begun a task, or call ``then`` instead; after that, let the tasks continue."""
    killed: list[int] = []

    def kill() -> None:
        deadline = time.monotonic() + 120
        while not (begun := [int(path.name) for path in folder.iterdir()]):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        if then is None:
            os.kill(begun[0], signal.SIGKILL)
        else:
            then()
        killed.append(begun[0])
        (folder / "go").touch()

    folder.mkdir(exist_ok=True)
    thread = threading.Thread(target=kill)
    thread.start()
    yield killed
    thread.join()
    assert killed


def trained(solver: Any = "working-set", **settings: Any) -> SVREnsemble:
    index, queries, relevant = world(3, n_documents=100, n_queries=60, d=8)
    return SVREnsemble(6, k=20, solver=solver, memory_budget=1e9, **settings).fit(index, queries, relevant)


def assert_same_ensemble(found: SVREnsemble, expected: SVREnsemble) -> None:
    for name in ("coef", "intercept", "offsets", "query", "passage"):
        np.testing.assert_array_equal(getattr(found.support_, name), getattr(expected.support_, name))
    assert found.n_iter_ == expected.n_iter_


# Without and with shared Gram matrices.
@pytest.mark.thorough
@pytest.mark.parametrize("overlap", [0.1, 4.0])
def test_training_gives_the_same_bags_if_a_worker_is_killed(client: Any, tmp_path: Path, overlap: float) -> None:
    with killing(tmp_path / "flags"):
        found = [trained(dask_tasks.WaitingSolver(str(tmp_path / "flags")), overlap=overlap)]
    for backend in ("threading", "loky"):
        with joblib.parallel_config(backend=backend, n_jobs=2):
            found.append(trained(overlap=overlap))
    with joblib.parallel_config(backend="sequential"):
        expected = trained(overlap=overlap)
    for each in found:
        assert_same_ensemble(each, expected)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dask") / "many"
    folder.mkdir()
    (folder / "collection.tsv").write_text("".join(f"d{i // 3}\tpassage number {i}\n" for i in range(60)))
    return folder


def test_a_store_is_a_dask_array(client: Any, folder: Path, tmp_path: Path) -> None:
    embed(folder, HashEncoder(), tmp_path / "store", rows_per_chunk=6)
    store = EmbeddingStore(tmp_path / "store")
    mean = client.compute(store.dask().mean(axis=0)).result()
    np.testing.assert_allclose(mean, store.vectors().mean(axis=0), rtol=1e-5)


def test_segments_have_the_same_bytes_if_a_worker_is_killed_while_it_encodes(
    client: Any, local: Any, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    collection, flags = open_collection(folder), tmp_path / "flags"
    monkeypatch.setattr(local.scheduler, "allowed_failures", 10)  # on a busy machine, the new worker may die as well
    with killing(flags):
        Engine.build(collection, tmp_path / "killed", segments=2, encoder=dask_tasks.WaitingEncoder(str(flags)))
    flags.joinpath("go").touch()
    with joblib.parallel_config(backend="threading", n_jobs=1):
        Engine.build(collection, tmp_path / "whole", segments=2, encoder=dask_tasks.WaitingEncoder(str(flags)))
    assert tree_of_build(tmp_path / "killed") == tree_of_build(tmp_path / "whole")


@pytest.mark.thorough
def test_large_arguments_of_a_killed_worker_are_sent_again(client: Any, local: Any, tmp_path: Path) -> None:
    """The arguments exceed the size at which Dask warns. Errors of a task are passed on unchanged."""
    vectors, flags = [np.full(2_000_000, float(i)) for i in range(8)], tmp_path / "flags"
    with killing(flags), pytest.MonkeyPatch.context() as patch:
        # Further tasks that were sent to the killed worker count as failed, too, where processes are slow.
        patch.setattr(local.scheduler, "allowed_failures", 10)
        found = list(spread(dask_tasks.squared, [(i, vectors[i], str(flags)) for i in range(8)]))
    assert found == [2e6 * i + i * i for i in range(8)]
    with pytest.raises(KeyError, match="task"):
        list(spread(dask_tasks.wrong, [(1,), (2,)]))
    assert list(spread(pow, ((2, i) for i in range(9)), total=9)) == [2**i for i in range(9)]


def test_a_slow_task_does_not_keep_other_workers_waiting(client: Any, tmp_path: Path) -> None:
    tasks = [(number, str(tmp_path)) for number in range(20)]
    assert list(spread(dask_tasks.first_after_ten, tasks)) == list(range(20))


def test_the_smallest_worker_sets_the_memory_of_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """By default, some versions of Dask return only five workers."""
    limits = [8e9] * 6 + [2e9]

    def scheduler_info(n_workers: int = 5) -> dict[str, Any]:
        shown = limits if n_workers == -1 else limits[:n_workers]
        return {"workers": {str(i): {"memory_limit": limit, "nthreads": 2} for i, limit in enumerate(shown)}}

    client = SimpleNamespace(scheduler=SimpleNamespace(address="tcp://a:1"), scheduler_info=scheduler_info)
    monkeypatch.setattr(cluster, "dask_client", lambda: client)
    assert cluster.memory_per_task(None) == 2e9 / 2 / 2


def test_paused_workers_are_an_error(client: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Dask would wait for ever for workers that need most of their memory without working."""
    assert not cluster.all_paused(client)
    monkeypatch.setattr(cluster, "PATIENCE", 0.1)
    info = client.scheduler_info

    def paused(n_workers: int = 5) -> dict[str, Any]:
        found = info(n_workers=n_workers)
        workers = {
            name: each | {"status": "paused", "metrics": {"executing": 0}} for name, each in found["workers"].items()
        }
        return found | {"workers": workers}

    monkeypatch.setattr(client, "scheduler_info", paused)
    with pytest.raises(ClusterError, match=r"paused.*--memory-limit"):
        list(spread(dask_tasks.squared, [(1, np.ones(2), str(tmp_path))]))
    (tmp_path / "go").touch()


def test_a_process_that_dies(tmp_path: Path) -> None:
    with (
        joblib.parallel_config(backend="loky", n_jobs=2),
        pytest.raises(ClusterError, match=r"dying: .*TerminatedWorkerError"),
    ):
        list(spread(os._exit, [(9,)], description="dying"))


@pytest.mark.filterwarnings("ignore:.* training queries for")
def test_commands(address: str, folder: Path, tmp_path: Path, here: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Models, rankings and stores are the same byte for byte as on one machine."""
    monkeypatch.setattr(query_batch, "BLOCK", 5)
    data, engine = word_folder(tmp_path / "data"), str(tmp_path / "engine")
    assert here("index", str(data), "--out", engine)[0] == 0
    for out, more in (("m1", ()), ("m2", ("--dask", address))):
        how = ("--ranker", "svr", "--set", "n_bags=3", "--out", str(tmp_path / out))
        status, _, stderr = here("train", engine, *how, *more)
        assert status == 0, stderr
        status, _, stderr = here(
            "rank", engine, "train", "--model", str(tmp_path / out), "--out", f"{tmp_path / out}.trec", *more
        )
        assert status == 0, stderr
    assert (tmp_path / "m1" / "ranker.json").read_text() == (tmp_path / "m2" / "ranker.json").read_text()
    assert (tmp_path / "m1.trec").read_text() == (tmp_path / "m2.trec").read_text()
    for out, more in (("s1", ()), ("s2", ("--dask", address))):  # an engine in segments ranks by the same model
        status, _, stderr = here("index", str(data), "--out", str(tmp_path / out), "--segments", "3", *more)
        assert status == 0, stderr
        ranked = ("--model", str(tmp_path / "m1"), "--out", f"{tmp_path / out}.trec")
        status, _, stderr = here("rank", str(tmp_path / out), "train", *ranked, *more)
        assert status == 0, stderr
        assert (tmp_path / f"{out}.trec").read_text() == (tmp_path / "m1.trec").read_text()
    assert tree_of_build(tmp_path / "s1") == tree_of_build(tmp_path / "s2")


def test_the_tutorial_runs(address: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Run the Python of docs/tutorials/laptop-to-cluster.md on this cluster, with another folder."""
    page = (Path(TESTS).parent / "docs" / "tutorials" / "laptop-to-cluster.md").read_text(encoding="utf-8")
    resuming, start, names, example = re.findall(r"```python\n(.*?)```", page, re.S)
    for code in (resuming, start, names):
        compile(code, "laptop-to-cluster.md", "exec")
    words = np.random.default_rng(0).integers(200, size=(600, 12))
    texts = [" ".join(f"word{word}" for word in row) for row in words]
    folder = folder_of(
        tmp_path / "laws",
        {
            "collection.tsv": "".join(f"d{i // 3}\t{text}\n" for i, text in enumerate(texts)),
            "queries/queries.train.tsv": "".join(f"q{i}\t{texts[6 * i][:30]}\n" for i in range(100)),
            "qrels/qrels.train.tsv": "".join(f"q{i}\td{2 * i}\n" for i in range(100)),
        },
    )
    names_of_page: dict[str, Any] = {"address": address, "folder": str(folder), "shared": str(tmp_path)}
    exec(compile(example, "laptop-to-cluster.md", "exec"), names_of_page)
    assert capsys.readouterr().out == "100 queries, 600 passages, longest vector 1.000\n"
    whole = Engine(str(folder), encoder="lsa(n_components=64)")
    with joblib.parallel_config(backend="threading", n_jobs=1):
        assert names_of_page["run"] == SVR(n_bags=4).fit(whole).rank("train")


@pytest.mark.parametrize("address", ["127.0.0.1:9", "nonsense://a:1", "tls://127.0.0.1:9"])
def test_an_address_without_a_scheduler_is_an_error(address: str) -> None:
    with pytest.raises(ClusterError, match=address), on_cluster(address, timeout=1):
        pass


@pytest.mark.parametrize(
    ("who", "package", "theirs"), [("worker tcp://", "numpy", "0.0"), ("the scheduler", "python", "3.0.1")]
)
def test_other_versions_of_packages_are_an_error(
    address: str, monkeypatch: pytest.MonkeyPatch, who: str, package: str, theirs: str
) -> None:
    get_versions = distributed.Client.get_versions

    def versions(client: Any, **packages: Any) -> Any:
        found = get_versions(client, **packages)
        one = found["scheduler"] if who == "the scheduler" else next(iter(found["workers"].values()))
        one["packages"] = one["packages"] | {package: theirs}
        return found

    monkeypatch.setattr(distributed.Client, "get_versions", versions)
    message = rf"{address}: {who}.* {package} \d.* {re.escape(theirs)}$"
    with pytest.raises(ClusterError, match=message), on_cluster(address):
        pass


def square_on(address: str, flags: Path, then: Callable[[], None]) -> None:
    with on_cluster(address, timeout=60), killing(flags, then):
        list(spread(dask_tasks.squared, [(i, np.ones(9), str(flags)) for i in range(4)], description="squaring"))


def composed(service: str) -> list[str]:
    """Return the options of a service in docs/tutorials/compose.yaml, without those that are other here."""
    page = Path(TESTS).parent / "docs" / "tutorials" / "compose.yaml"
    entrypoint = yaml.safe_load(page.read_text(encoding="utf-8"))["services"][service]["entrypoint"]
    assert entrypoint[:2] == ["dask", service]
    options = " ".join(entrypoint[2:])
    return re.sub(r"--host \S+|--port \d+|tcp://scheduler:8786|--no-dashboard", "", options).split()


@pytest.mark.thorough
def test_failures_of_workers_and_of_the_scheduler_are_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "scheduler.json"
    where = ["--port", "0", "--host", "127.0.0.1", "--scheduler-file", str(file)]
    scheduler = process_of("dask_scheduler", *where, *composed("scheduler"))
    while not file.exists() or not (match := re.search(r"tcp://[\d.:]+", file.read_text())):
        assert scheduler.poll() is None
        time.sleep(0.02)
    address, processes = match[0], [scheduler]
    (tmp_path / "only_here.py").write_text("def function(x):\n    return x\n")
    monkeypatch.syspath_prepend(tmp_path)
    function = importlib.import_module("only_here").function
    try:
        with (
            pytest.raises(ClusterError, match=f"dask worker {address}"),
            on_cluster(address, timeout=3),  # the scheduler answers, but no worker comes
        ):
            pass
        processes.append(start_worker(address))
        monkeypatch.setattr(cluster, "PATIENCE", 1.0)
        with pytest.raises(ClusterError, match=f"{address}: .*squaring"):
            square_on(address, tmp_path / "before", processes[1].kill)
        processes.append(start_worker(address))
        message = rf"{address}: .*ModuleNotFoundError: .*'only_here'"
        with pytest.raises(ClusterError, match=message), on_cluster(address, timeout=60):
            list(spread(function, [(1,)]))
        with pytest.raises(ClusterError, match=f"{address}: .*squaring"):
            square_on(address, tmp_path / "flags", scheduler.kill)
    finally:
        for process in processes:
            process.kill()
            process.wait()


def test_a_task_that_kills_its_workers(client: Any) -> None:
    with pytest.raises(ClusterError, match=r"dying.*KilledWorker"):
        list(spread(os._exit, [(9,)], description="dying"))
