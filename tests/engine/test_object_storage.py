"""An engine that is opened by its address ranks as in its folder, and copies only what is searched."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import fsspec
import joblib
import numpy as np
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from support.commands import haybale as command
from support.engines import assert_same_runs, tree, without_identity
from support.topics import NEW, topic_collection

import haybale
from haybale import Engine
from haybale.engine.workers import Workers
from haybale.errors import FileFormatError, InputError, StoreError
from haybale.rankers import QueryBatch
from haybale.ranking.runs import rank_block
from haybale.ranking.sendable_rankers import sendable_rankers

ADDRESS = "memory://bucket/engines/one"
TRAINED = ("svr(n_bags=3)", "learned(bm25-doc,knn)")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HAYBALE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def stored(folder: Path, segments: int = 1) -> Engine:
    """Build an engine, and put a copy of it on object storage in memory."""
    built = Engine.build(topic_collection(), folder, segments=segments).prepare()
    files = fsspec.filesystem("memory")
    if files.exists("/bucket"):
        files.rm("/bucket", recursive=True)
    files.put(str(folder), ADDRESS, recursive=True)
    return built


@pytest.mark.parametrize("segments", [1, 3])
@pytest.mark.filterwarnings("ignore:.* training queries for")
def test_rankings_are_those_of_the_folder(segments: int, tmp_path: Path, cache: Path) -> None:
    built = stored(tmp_path / "engine", segments)
    found = Engine.open(ADDRESS + "/")
    assert_same_runs(found, built, ("bm25", "bm25-doc", "knn", "parm-vrrf", *TRAINED))
    assert found.address == (ADDRESS, built.documents_digest)
    assert ADDRESS in repr(found)
    with pytest.raises(StoreError, match="cannot be changed"):
        found.add(NEW)
    model = tmp_path / "model"
    haybale.parse("svr(n_bags=3)").fit(found).save(model)
    query = {"q": topic_collection().queries.texts([0])[0]}
    assert haybale.load(model, Engine.open(ADDRESS)).rank(query)["q"] == haybale.load(model, built).rank(query)["q"]


def test_segments_are_copied_once_and_when_they_are_searched(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored(tmp_path / "engine", 3)
    read: list[str] = []
    get_file = MemoryFileSystem.get_file

    def recorded(files: Any, name: str, *more: Any, **how: Any) -> None:
        read.append(name)
        get_file(files, name, *more)

    monkeypatch.setattr(MemoryFileSystem, "get_file", recorded)
    engine = Engine.open(ADDRESS)
    opened = len(read)
    assert not [name for name in read if "/parts/" in name and not name.endswith("manifest.json")]
    engine.bm25().search(["topic1"], 3)
    searched = read[opened:]
    assert {name.split("/parts/")[1].split("/")[1] for name in searched} == {"bm25-passage"}
    Engine.open(ADDRESS).bm25().search(["topic1"], 3)
    assert len(read) == opened + len(searched)


def test_worker_processes_copy_what_they_search(cache: Path, new_workers: None, tmp_path: Path) -> None:
    built = Engine.build(topic_collection(), tmp_path / "engine", segments=2)
    engine = Engine.open(f"file://{tmp_path}/engine")
    with joblib.parallel_config(backend="loky", n_jobs=2):
        there = engine.bm25().search(["topic1", "topic2"], 5)
    assert there.passages.tolist() == built.bm25().search(["topic1", "topic2"], 5).passages.tolist()
    assert len(list(cache.glob("[!.]*"))) == 3  # the engine, and two indexes


def test_an_interrupted_copy_goes_on(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built, left = stored(tmp_path / "engine"), [4]
    get_file = MemoryFileSystem.get_file

    def fails_after_some(files: Any, name: str, *more: Any, **how: Any) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise ConnectionError("the connection is lost")
        get_file(files, name, *more)

    with monkeypatch.context() as patch:
        patch.setattr(MemoryFileSystem, "get_file", fails_after_some)
        with pytest.raises(StoreError, match=r"the connection is lost.*credentials"):
            Engine.open(ADDRESS)
    assert 0 < len([path for path in cache.rglob("*") if path.is_file()]) <= 4
    assert_same_runs(Engine.open(ADDRESS), built, ("bm25",))
    assert not list(cache.glob(".*"))


def test_replaced_and_damaged_engines_are_named(tmp_path: Path, cache: Path) -> None:
    stored(tmp_path / "engine", 2)
    files, engine = fsspec.filesystem("memory"), Engine.open(ADDRESS)
    part = "/bucket/engines/one/0/parts/0/bm25-passage/"
    manifest, name = files.cat_file(part + "manifest.json"), files.find(part)[-1]
    files.pipe_file(part + "manifest.json", manifest + b"\n")
    with pytest.raises(StoreError, match="has replaced it"):
        engine.bm25().search(["topic1"], 3)
    files.pipe_file(part + "manifest.json", manifest)
    content = files.cat_file(name)
    files.pipe_file(name, bytes([content[0] ^ 1]) + content[1:])
    with pytest.raises(StoreError, match=f"{Path(name).name}: .*another content"):
        engine.bm25().search(["topic1"], 3)
    files.pipe_file(name, content)
    assert len(engine.bm25().search(["topic1"], 3).passages) == 1
    files.rm("/bucket", recursive=True)
    with pytest.raises(FileFormatError, match="expected an engine"):
        Engine.open(ADDRESS)


@pytest.mark.parametrize(
    "name", ["0/collection/manifest.json", "0/collection/texts.parquet", "0/parts/1/passages/manifest.json", "encoder/"]
)
def test_an_engine_is_opened_when_it_is_complete(name: str, tmp_path: Path, cache: Path) -> None:
    built, files = stored(tmp_path / "engine", 2), fsspec.filesystem("memory")
    files.rm(f"/bucket/engines/one/{name}", recursive=True)
    with pytest.raises(StoreError, match=f"engines/one/{name}.*found none; copy all files"):
        Engine.open(ADDRESS)
    files.put(f"{tmp_path}/engine/{name}", f"/bucket/engines/one/{name}", recursive=True)
    assert_same_runs(Engine.open(ADDRESS), built, ("bm25", "knn"))


def test_an_engine_that_was_built_again_is_copied_again(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored(tmp_path / "engine", 2)
    Engine.open(ADDRESS)
    manifest = (tmp_path / "engine/engine.json").read_bytes()
    monkeypatch.setattr("haybale.manifest.__version__", "9.9")
    built = stored(tmp_path / "by another version", 2)
    assert without_identity((tmp_path / "by another version/engine.json").read_bytes()) == without_identity(manifest)
    assert_same_runs(Engine.open(ADDRESS), built, ("bm25", "knn"))


def test_a_name_that_leads_out_of_the_cache_is_refused(tmp_path: Path, cache: Path) -> None:
    stored(tmp_path / "engine")
    fsspec.filesystem("memory").pipe_file("/bucket/engines/one/0/../../outside", b"")
    with pytest.raises(StoreError, match=r"found '0/\.\./\.\./outside'"):
        Engine.open(ADDRESS)


def test_trained_rankers_are_sent_to_workers(tmp_path: Path, cache: Path) -> None:
    """A machine whose folders workers do not reach may have trained them."""
    built = Engine.build(topic_collection(), tmp_path / "engine")
    trained, queries = haybale.parse("svr(n_bags=3)").fit(built), built.collection.queries
    trained.save(tmp_path / "model")
    engine = Engine.open(f"file://{tmp_path}/engine")
    assert engine.address is not None
    loaded = haybale.load(tmp_path / "model", engine)
    with joblib.parallel_config(backend="loky", n_jobs=2), sendable_rankers([loaded], Workers(engine)) as (sent, _):
        saved = tree(tmp_path / "model")
        shutil.rmtree(tmp_path / "model")
    rankers = sent.make(engine.address, *sent.values())
    arrays = rank_block(rankers, 20, False, QueryBatch(rankers[0].engine_, queries))
    np.testing.assert_array_equal(arrays["0 scores"], trained.rank(queries).top(20).coded()[-1])
    (received,) = cache.glob("*/ranker.json")
    assert tree(received.parent) == saved


def test_wrong_addresses_and_commands(tmp_path: Path, cache: Path) -> None:
    stored(tmp_path / "engine")
    with pytest.raises(InputError, match="expected an address"):
        Engine.open("no-such-protocol://bucket/engine")
    with pytest.raises(InputError, match="expected a folder to build in"):
        Engine.build(topic_collection(), ADDRESS)
    query = topic_collection().queries.texts([0])[0]
    places = f"file://{tmp_path}/engine", str(tmp_path / "engine")
    found = [command("rank", place, query, "--ranker", "bm25") for place in places]
    assert found[0].stdout == found[1].stdout != ""
