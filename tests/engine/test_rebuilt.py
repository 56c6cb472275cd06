"""An engine whose folder changes below it answers as the engine that was opened, or says that it changed."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hostile.rebuilt import built_anew
from hypothesis import given, settings
from hypothesis import strategies as st
from support.topics import topic_collection

import haybale
from haybale import BM25, Engine
from haybale.engine.workers import opened_engine
from haybale.errors import FileFormatError, HaybaleError, InputError, StoreError

DOCUMENTS = {"a": "land law", "b": "tax law", "c": "cats and dogs", "d": "a zebra in the zoo"}
REVERSED = dict(reversed(DOCUMENTS.items()))
USES: dict[str, Callable[[Engine], Any]] = {
    "bm25": lambda engine: BM25().fit(engine).rank(["zebra"])["0"][0][0],
    "knn": lambda engine: haybale.parse("knn").fit(engine).rank(["zebra"])["0"][0][0],
    "knn-doc": lambda engine: haybale.parse("knn-doc").fit(engine).rank(["zebra"])["0"][0][0],
    "texts": lambda engine: engine.collection.passages.texts.to_pylist(),
    "encoder": lambda engine: engine.encoder,
    "refresh": lambda engine: engine.refresh(),
    "add": lambda engine: engine.add({"n": "new"}),
    "metadata": lambda engine: engine.set_metadata({"a": {"year": 1}}),
    "prepare": lambda engine: engine.prepare(),
}


def _built(documents: dict[str, str], folder: Path, **how: Any) -> Engine:
    return Engine.build(documents, folder, **{"encoder": "tfidf(min_df=1)", **how})


@pytest.mark.parametrize("segments", [1, 2])
@pytest.mark.parametrize("is_prepared", [True, False])
@pytest.mark.parametrize("use", USES)
def test_an_engine_built_anew_below_an_open_one(use: str, is_prepared: bool, segments: int, tmp_path: Path) -> None:
    folder = tmp_path / "engine"
    engine = _built(DOCUMENTS, folder, segments=segments)
    shutil.rmtree(folder)
    other = _built(REVERSED, folder, segments=segments)
    if is_prepared:
        other.prepare()
    with pytest.raises(StoreError, match="open it again"):
        USES[use](engine)
    if use not in ("refresh", "encoder", "texts", "add", "metadata", "prepare"):
        assert USES[use](Engine.open(folder)) == "d"
    assert other.whole.doc_ids.to_pylist() == [*"dcba"]


@pytest.mark.parametrize("use", USES)
def test_a_folder_that_is_gone(use: str, tmp_path: Path) -> None:
    folder = tmp_path / "engine"
    engine = _built(DOCUMENTS, folder)
    folder.rename(tmp_path / "moved")
    with pytest.raises(FileFormatError if use == "refresh" else StoreError):
        USES[use](engine)
    assert not folder.exists()
    (tmp_path / "moved").rename(folder)
    USES[use](engine)  # it is the same engine again


def test_what_was_opened_before_goes_on(tmp_path: Path) -> None:
    engine = _built(DOCUMENTS, tmp_path / "engine").prepare()
    texts, rankings = engine.collection.passages.texts.to_pylist(), [USES[name](engine) for name in ("bm25", "knn")]
    shutil.rmtree(tmp_path / "engine")
    _built(REVERSED, tmp_path / "engine").prepare()
    assert [USES[name](engine) for name in ("bm25", "knn")] == rankings == ["d", "d"]
    assert engine.collection.passages.texts.to_pylist() == texts


def test_another_language_is_another_engine(tmp_path: Path) -> None:
    engine = _built(DOCUMENTS, tmp_path / "engine", language="english")
    shutil.rmtree(tmp_path / "engine")
    _built(DOCUMENTS, tmp_path / "engine", language="none").prepare()
    for use in ("refresh", "bm25"):
        with pytest.raises(StoreError):
            USES[use](engine)


def test_a_larger_copy_of_the_same_engine(tmp_path: Path) -> None:
    engine = _built(DOCUMENTS, tmp_path / "engine")
    shutil.copytree(tmp_path / "engine", tmp_path / "copy")
    Engine.open(tmp_path / "copy").add({"e": "a zebra zebra"})
    shutil.rmtree(tmp_path / "engine")
    (tmp_path / "copy").rename(tmp_path / "engine")
    assert USES["bm25"](engine) == "d"
    assert engine.refresh()
    assert USES["bm25"](engine) == "e"


def test_no_index_is_written_into_another_engine(tmp_path: Path) -> None:
    engine = Engine.build(topic_collection(), tmp_path / "engine", encoder="lsa(n_components=4)")
    shutil.rmtree(tmp_path / "engine")
    _built(DOCUMENTS, tmp_path / "engine", encoder="lsa(n_components=2)")
    before = sorted(path.name for path in (tmp_path / "engine" / "0").iterdir())
    with pytest.raises(StoreError):
        engine.write_indexes()
    assert sorted(path.name for path in (tmp_path / "engine" / "0").iterdir()) == before


def test_processes_and_saved_rankers(tmp_path: Path) -> None:
    folder = tmp_path / "engine"
    engine = Engine.build(topic_collection(), folder)
    ranker = haybale.parse("knn-queries").fit(engine)
    ranker.save(tmp_path / "model")
    address = engine.address
    assert address is not None
    shutil.rmtree(folder)
    collection = topic_collection()
    Engine.build(collection.take(range(1, collection.n_documents)), folder)
    with pytest.raises(StoreError):
        opened_engine(address)
    with pytest.raises(InputError):
        haybale.load(tmp_path / "model", Engine.open(folder))


@settings(deadline=None, max_examples=15)
@given(seed=st.integers(0, 10**6))
@pytest.mark.filterwarnings("ignore")
def test_random_histories(seed: int, tmp_path_factory: Any) -> None:
    built_anew(tmp_path_factory.mktemp("history"), seed)


def test_a_swap_between_check_and_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = _built(DOCUMENTS, tmp_path / "engine")
    Engine.open(tmp_path / "engine").prepare()
    _built(REVERSED, tmp_path / "other").prepare()
    open_index = haybale.BM25Index.open

    def swapped(folder: Path) -> Any:
        shutil.rmtree(tmp_path / "engine")
        (tmp_path / "other").rename(tmp_path / "engine")
        return open_index(folder)

    monkeypatch.setattr("haybale.engine.segment.BM25Index.open", swapped)
    with pytest.raises(HaybaleError):
        USES["bm25"](engine)
