"""Work that is killed goes on when it is run again, and gives the same bytes; ranking in blocks changes no score."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
from support.commands import word_folder
from support.encoders import HashEncoder
from support.engines import assert_same, tree
from support.processes import forked

from haybale import Engine, Learned, load, resumable
from haybale.engine.workers import opened_engine
from haybale.ensemble import expansion
from haybale.ensemble.pair_scores import PairScores
from haybale.errors import StoreError
from haybale.kept_results import RANKER, KeptResults
from haybale.rankers import QueryBatch, parse
from haybale.search import encoded_queries, query_batch

pytestmark = pytest.mark.filterwarnings("ignore:.* training queries for")
SVR = ("--ranker", "svr", "--set", "n_bags=3")


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a block have three queries, so that small collections have many."""
    for module in (encoded_queries, query_batch):
        monkeypatch.setattr(module, "BLOCK", 3)
    monkeypatch.setattr("haybale.engine.workers._MAX_QUERIES_PER_BLOCK", 3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of an engine."""
    top = tmp_path_factory.mktemp("resumable")
    Engine.build(word_folder(top / "data"), top / "engine").prepare()
    return top / "engine"


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the keys of the results that are written."""
    keys: list[str] = []
    put = KeptResults.put

    def counted(self: KeptResults, key: str, arrays: Any) -> None:
        keys.append(key)
        put(self, key, arrays)

    monkeypatch.setattr(KeptResults, "put", counted)
    return keys


def killing_at(nth: int, within: str) -> Callable[[], None]:
    """Return a function that lets the process kill itself when it renames the nth file into a folder."""

    def prepare() -> None:
        seen: list[str] = []

        def kill(event: str, arguments: tuple[Any, ...]) -> None:
            if event == "os.rename" and within in str(arguments[1]) and RANKER not in str(arguments[1]):
                seen.append(event)
                if len(seen) == nth:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(kill)

    return prepare


@pytest.mark.parametrize("nth", [1, 5, 10])  # searches, and after eight blocks of them a bag
def test_a_killed_training_goes_on(folder: Path, tmp_path: Path, here: Any, written: list[str], nth: int) -> None:
    command = ["train", str(folder), *SVR, "--out"]
    assert here(*command, str(tmp_path / "whole"))[0] == 0
    everything = len(written)
    assert forked([*command, str(tmp_path / "killed")], killing_at(nth, "killed.training")).status == -signal.SIGKILL
    assert not (tmp_path / "killed").exists()
    written.clear()
    assert here(*command, str(tmp_path / "killed"))[0] == 0
    assert len(written) == everything - (nth - 1)
    assert tree(tmp_path / "killed") == tree(tmp_path / "whole")
    assert not (tmp_path / "killed.training").exists()


@pytest.mark.parametrize(
    ("command", "work"),
    [
        (["rank", "dev", "--ranker", "rrf(bm25,knn)", "--out", "o.trec"], "o.trec.ranking"),
        (["compare", "--rankers", "bm25,svr", "--out", "o"], "o.comparing"),
    ],
)
def test_killed_commands_go_on(
    folder: Path, tmp_path: Path, here: Any, monkeypatch: pytest.MonkeyPatch, command: list[str], work: str
) -> None:
    name, *others = command
    monkeypatch.chdir(tmp_path)
    assert forked([name, str(folder), *others], killing_at(2, work)).status == -signal.SIGKILL
    assert any(Path(work).iterdir())
    assert here(name, str(folder), *others)[0] == 0
    assert not Path(work).exists()
    again = [*others[:-1], f"again-{others[-1]}"]
    assert here(name, str(folder), *again)[0] == 0
    runs = [Path("o.trec"), Path("again-o.trec")] if name == "rank" else [Path("o/runs"), Path("again-o/runs")]
    mine, expected = (tree(each) if each.is_dir() else each.read_bytes() for each in runs)
    assert mine == expected


def test_other_data_and_settings_use_no_kept_result(folder: Path, tmp_path: Path, written: list[str]) -> None:
    """What an error leaves is used for the same work only, and a damaged result is made again."""
    engine, kept = Engine.open(folder), tmp_path / "kept"

    def interrupted(text: str) -> int:
        written.clear()
        with contextlib.suppress(KeyError), resumable(kept):
            parse(text).fit(engine).rank("train")
            raise KeyError
        return len(written)

    n = interrupted("bm25")
    assert n == 8
    assert interrupted("bm25") == 0
    assert interrupted("bm25(k1=0.5)") == n
    damaged = next(kept.iterdir())
    damaged.write_bytes(damaged.read_bytes()[:20])
    assert interrupted("bm25") + interrupted("bm25(k1=0.5)") == 1
    (kept / "notes.txt").write_text("of somebody else")
    engine.add({"new": "common1 common2"})
    try:
        assert interrupted("bm25") == n
    finally:
        engine.remove(["new"])
    with resumable(kept):
        pass
    assert [path.name for path in kept.iterdir()] == ["notes.txt"]


def test_other_processes_rank_as_this_one(folder: Path, tmp_path: Path) -> None:
    """Rankers with and without training, saved or not, and changed after they were saved."""
    engine = Engine.open(folder)
    learned = Learned(parse("bm25"), parse("knn"), parse("svr(n_bags=3)"), unseen_share=0.2).fit(engine)
    svr = parse("svr(n_bags=3)").fit(engine)
    svr.save(tmp_path / "svr")
    changed = load(tmp_path / "svr", engine).set_params(n_candidates=20)
    rankers = (learned, parse("rrf(bm25,parm-vrrf)").fit(engine), svr, changed)
    expected = [each.rank("train") for each in rankers]
    with joblib.parallel_config(backend="loky", n_jobs=2):
        for each, run in zip(rankers, expected, strict=True):
            assert_same(each.rank("train"), run)
    assert {path.name for path in folder.parent.iterdir()} == {"data", "engine"}  # no temporary ranker is left


@pytest.mark.parametrize("name", ["learned(bm25,knn,svr-memory(n_bags=3))", "svr-memory(n_bags=3)", "knn-queries"])
def test_scores_of_training_queries_out_of_bag_are_tasks(
    name: str, folder: Path, tmp_path: Path, written: list[str]
) -> None:
    """Training and ranking training queries give the same bytes in blocks, here and in other processes."""
    engine = Engine.open(folder)
    ranker = parse(name).fit(engine)
    ranker.save(tmp_path / "whole")
    expected = ranker.out_of_fold()
    with joblib.parallel_config(backend="loky", n_jobs=2):
        there = parse(name).fit(engine)
        assert_same(there.out_of_fold(), expected)
    there.save(tmp_path / "there")
    with resumable(tmp_path / "kept"):
        again = parse(name).fit(engine)
        n_fitting = len(written)
        assert_same(again.out_of_fold(), expected)
    again.save(tmp_path / "again")
    assert tree(tmp_path / "there") == tree(tmp_path / "again") == tree(tmp_path / "whole")
    assert (n_fitting > 0) == (name != "knn-queries")
    assert {path.name for path in folder.parent.iterdir()} == {"data", "engine"}
    assert not (tmp_path / "kept").exists()


def test_the_memory_of_groups_of_support_rows_is_summed_by_tasks(
    folder: Path, tmp_path: Path, written: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few tasks for the searches of all queries, and one for each group; runs are equal to the bit."""
    monkeypatch.setattr(expansion, "_SUPPORT_PASSAGES_PER_TILE", 3)
    engine = Engine.open(folder)
    ranker = parse("learned(bm25,svr(n_bags=3))").fit(engine)
    svr = ranker.rankers_[1]
    n_groups = svr.ensemble_.pair_scores.n_groups
    assert n_groups == 8
    for rank in (ranker.rank, svr.out_of_fold):
        expected = rank("train")
        written.clear()
        with resumable(tmp_path / "kept"):
            assert rank("train") == expected
        searches = 4 if rank == ranker.rank else 0
        assert len(written) >= searches + n_groups
    with monkeypatch.context() as patch, contextlib.suppress(KeyError), resumable(tmp_path / "kept"):
        calls: list[int] = []
        memory = PairScores.memory

        def interrupted(self: PairScores, *arguments: Any) -> Any:
            calls.append(arguments[3])
            if len(calls) == 3:
                raise KeyError
            return memory(self, *arguments)

        patch.setattr(PairScores, "memory", interrupted)
        ranker.rank("train")
    written.clear()
    with resumable(tmp_path / "kept"):
        run = ranker.rank("train")
    assert run == ranker.rank("train")
    assert len(written) == n_groups - 2


def test_vectors_of_queries_are_made_in_blocks(tmp_path: Path, written: list[str]) -> None:
    engine = Engine.build(word_folder(tmp_path / "data"), tmp_path / "engine", encoder=HashEncoder())
    queries = engine.collection.queries
    expected = QueryBatch(engine, queries).vectors
    for _ in range(2):
        with contextlib.suppress(KeyError), resumable(tmp_path / "kept"):
            np.testing.assert_allclose(QueryBatch(engine, queries).vectors, expected, rtol=1e-6)
            raise KeyError
    assert len(written) == -(-len(queries) // 3)
    with joblib.parallel_config(backend="loky", n_jobs=2):
        np.testing.assert_allclose(QueryBatch(engine, queries).vectors, expected, rtol=1e-6)


def test_a_worker_refuses_another_engine(folder: Path, tmp_path: Path) -> None:
    engine = Engine.open(folder)
    address = engine.address
    assert address is not None
    with pytest.raises(StoreError, match="other documents"):
        opened_engine((address[0], "0" * 64))
    with pytest.raises(StoreError, match="shared storage"):
        opened_engine((str(tmp_path / "nowhere"), address[1]))
    view = engine.within(["d01"])
    assert view.address is None
    assert view.documents_digest not in (None, engine.documents_digest)
    assert Engine({"a": "one text", "b": "another text"}, language="english", encoder="lsa(1)").documents_digest is None
