"""An engine on S3, here a server of moto, ranks and trains as in its folder, also on workers with caches of their own.

These tests need moto[server] and s3fs, which ``make test`` does not install.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.engines import assert_same_runs, tree
from support.topics import topic_collection

import haybale
from haybale import Engine
from haybale.errors import FileFormatError, StoreError
from haybale.search import query_batch

moto = pytest.importorskip("moto.server")
s3fs = pytest.importorskip("s3fs")

ADDRESS = "s3://bucket/engines/one"
TRAINED = "svr(n_bags=3)"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    server = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An engine in two segments."""
    folder = tmp_path_factory.mktemp("built") / "engine"
    Engine.build(topic_collection(), folder, segments=2)
    return folder


@pytest.fixture(autouse=True)
def files(endpoint: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The storage, as the environment configures it, with the engine in a bucket."""
    settings = {"AWS_ENDPOINT_URL": endpoint, "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
    for name, value in {**settings, "HAYBALE_CACHE": str(tmp_path / "cache")}.items():
        monkeypatch.setenv(name, value)
    s3fs.S3FileSystem.clear_instance_cache()
    files = s3fs.S3FileSystem()
    files.mkdirs("bucket", exist_ok=True)
    files.put(str(folder), "bucket/engines/one", recursive=True)
    return files


def test_rankings_and_models_are_those_of_the_folder(folder: Path, tmp_path: Path) -> None:
    found, built = Engine.open(ADDRESS), Engine.open(folder)
    assert_same_runs(found, built, ("bm25", "knn", "parm-vrrf"))
    for name, engine in {"found": found, "built": built}.items():
        haybale.parse(TRAINED).fit(engine).save(tmp_path / name)
    assert tree(tmp_path / "found") == tree(tmp_path / "built")


def test_what_is_wrong_is_said(files: Any, endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for address in ("s3://no-bucket/engine", "s3://bucket/engines/none"):
        with pytest.raises(FileFormatError, match="expected an engine"):
            Engine.open(address)
    part = "bucket/engines/one/0/parts/1/bm25-passage/tensors.safetensors"
    files.mv(part, "bucket/aside")
    engine = Engine.open(ADDRESS)
    with pytest.raises(StoreError, match=f"s3://{part}: .*found none"):
        engine.bm25().search(["text"], 3)
    files.mv("bucket/aside", part)
    assert len(engine.bm25().search(["text"], 3).passages) == 1
    check_credentials(endpoint, after="0")
    with pytest.raises(StoreError, match="check the address, the credentials"):
        Engine.open(ADDRESS)
    check_credentials(endpoint, after="inf")


def check_credentials(endpoint: str, after: str) -> None:
    """Let the server check credentials after a number of requests; it knows none."""
    url, kind = f"{endpoint}/moto-api/reset-auth", {"Content-Type": "text/plain"}
    urllib.request.urlopen(urllib.request.Request(url, after.encode(), kind, method="POST")).read()


@pytest.fixture
def scheduler(tmp_path: Path) -> Iterator[str]:
    """The address of a scheduler with two workers, each with a cache of its own."""
    pytest.importorskip("distributed")
    with contextlib.ExitStack() as stack:

        def start(program: str, *options: str, **environment: str) -> None:
            command = [sys.executable, "-m", f"distributed.cli.{program}", *options, "--no-dashboard"]
            environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment}
            process = subprocess.Popen(
                command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment, cwd=tmp_path
            )
            stack.callback(process.wait)
            stack.callback(process.kill)

        where = tmp_path / "scheduler.json"
        start("dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--scheduler-file", str(where))
        for name in ("a", "b"):
            options = ("--no-nanny", "--nthreads", "1", "--local-directory", str(tmp_path), "--death-timeout", "60")
            start("dask_worker", "--scheduler-file", str(where), *options, HAYBALE_CACHE=str(tmp_path / name))
        from distributed import Client

        with Client(scheduler_file=str(where), timeout=60, set_as_default=False) as client:
            client.wait_for_workers(2, timeout=60)
            yield client.scheduler.address


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_workers_copy_what_they_need(
    scheduler: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built, query = Engine.open(folder), {"q": topic_collection().queries.texts([0])[0]}
    haybale.parse(TRAINED).fit(built).save(tmp_path / "built")
    with haybale.on_cluster(scheduler):
        engine = Engine.open(ADDRESS)
        assert haybale.parse("bm25").fit(engine).rank(query)["q"] == haybale.parse("bm25").fit(built).rank(query)["q"]
        assert copies(tmp_path) == {"tensors.safetensors"}  # of BM25, and neither vectors nor the collection
        monkeypatch.setattr(query_batch, "BLOCK", 20)
        haybale.parse(TRAINED).fit(engine).save(tmp_path / "there")
    assert tree(tmp_path / "there") == tree(tmp_path / "built")
    assert {"texts.parquet", "ranker.json"} < copies(tmp_path)


def copies(folder: Path) -> set[str]:
    """Return the names of the files that workers have copied, except those of every index."""
    found = {path.name for name in ("a", "b") for path in (folder / name).rglob("*") if path.is_file()}
    return found - {"manifest.json", "vocabulary.parquet", "passages.parquet", "documents.parquet"}
