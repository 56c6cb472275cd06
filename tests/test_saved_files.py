"""What commit 97da212 wrote opens, ranks the same, and can be extended; files of other versions are refused."""

from __future__ import annotations

import json
import re
import sqlite3
import tarfile
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from data.make_saved_files import ADDED, ENGINES, FILES, REMOVED, Numbers, ensemble_hits, ranked

import haybale
from haybale import EmbeddingStore, Engine, PassageIndex, Review
from haybale.collections.saved import load_collection
from haybale.embeddings.encoder import load_fitted
from haybale.engine.update import update
from haybale.errors import FileFormatError, InputError, MissingExtraError, StoreError
from haybale.manifest import with_checksum
from haybale.review import JudgementStore, judgement_file_of

TEXTS_NOW = {"bm25": "bm25(k3=none)"}  # what the texts of rankers stood for at that commit, where it differs


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with tarfile.open(Path(__file__).parent / "data" / "saved-files.tar.xz") as file:
        file.extractall(tmp_path, filter="data")
    return tmp_path


def expected(folder: Path, part: str) -> Any:
    return json.loads((folder / "expected.json").read_text())[part]


def assert_same_ranking(run: dict[str, Any], recorded: dict[str, Any]) -> None:
    """Compare rankings; another processor sums products in another order, which changes the last bits of float32."""
    assert run.keys() == recorded.keys()
    for query, hits in recorded.items():
        documents, scores = zip(*hits, strict=True)
        assert tuple(document for document, _ in run[query]) == documents
        assert [score for _, score in run[query]] == pytest.approx(scores, abs=1e-6)


@pytest.mark.parametrize("name", [*ENGINES, "changed"])
def test_engines_and_their_rankers_rank_the_same(folder: Path, name: str) -> None:
    recorded = expected(folder, "engines")[name]
    engine = Engine.open(folder / name)
    assert engine.identity == recorded["identity"]
    for text, run in recorded["untrained"].items():
        assert_same_ranking(ranked(haybale.parse(TEXTS_NOW.get(text, text)).fit(engine)), run)
    for model, run in recorded["models"].items():
        try:
            ranker = haybale.load(folder / model, engine)
        except MissingExtraError as error:  # models of networks need PyTorch
            pytest.skip(str(error))
        assert_same_ranking(ranked(ranker), run)
    if recorded["after"]:
        engine.add(ADDED)
        engine.remove(REMOVED)
        for again in (engine, Engine.open(folder / name)):
            for text, run in recorded["after"].items():
                assert_same_ranking(ranked(haybale.parse(TEXTS_NOW.get(text, text)).fit(again)), run)


def test_an_engine_of_files_is_updated_and_keeps_its_judgements(folder: Path) -> None:
    recorded = expected(folder, "files")
    engine = Engine.open(folder / "engine-of-files")
    assert engine.identity == recorded["identity"]
    assert engine.collection.doc_ids.to_pylist() == recorded["ids"]
    (folder / "files" / "plain.txt").write_text("Another text about foxes.")
    (folder / "files" / "animals.csv").write_text(FILES["animals.csv"])  # only its time has changed
    done = update(engine, folder / "files")
    assert (done.n_added, done.n_replaced, done.n_removed) == (0, 1, 0)
    grades = engine.collection.qrels_frame("train")
    assert grades[["doc_id", "relevance"]].to_numpy().tolist() == [[recorded["ids"][0], 1], [recorded["ids"][1], 0]]
    assert judgement_file_of(engine) == folder / "engine-of-files-judgements.sqlite"
    with Review(engine, topic="animals", judgements=judgement_file_of(engine)) as review:
        rows = review.judgements()[["doc_id", "grade", "judge"]].astype(str).to_numpy().tolist()
        assert rows == recorded["judged"]
        assert review.progress([]).n_drawn == 1
        review.judge(recorded["ids"][2], 1, "Ada")


def test_parts_open_alone(folder: Path) -> None:
    recorded = expected(folder, "parts")
    assert load_collection(folder / "collection").passages.texts.to_pylist() == recorded["texts"]
    for name, first in recorded["first"].items():
        vectors = load_fitted(folder / f"encoder-{name}").encode(recorded["texts"])
        index = PassageIndex.open(folder / f"index-{name}")
        for matrix in (vectors, index.vectors):
            row = matrix[:1].toarray() if name == "tf-idf" else matrix[:1]
            np.testing.assert_allclose(row, first, atol=1e-6)
    assert len(haybale.BM25Index.open(folder / "index-bm25").search(["topic1word2"], 3).passages[0]) == 3
    svr = haybale.ProductKernelSVR.load(folder / "svr")
    np.testing.assert_allclose(svr.predict(np.array(recorded["pairs"], dtype=np.float32)), recorded["svr"], atol=1e-6)


def test_stores_open_and_resume(folder: Path) -> None:
    recorded = expected(folder, "parts")
    documents, store = load_collection(folder / "collection"), EmbeddingStore(folder / "store")
    np.testing.assert_array_equal(store.vectors(), np.array(recorded["store"], dtype=np.float32))
    np.testing.assert_array_equal(EmbeddingStore(folder / "store-in-shards").vectors(), recorded["shards"])
    assert store.encoder().dim == 4
    next((folder / "store-in-shards" / "shard-1-of-2" / "vectors.zarr").glob("c.*")).unlink()
    settings = json.loads((folder / "store-in-shards" / "shard-1-of-2" / "manifest.json").read_text())
    with pytest.MonkeyPatch.context() as patch:  # other versions of libraries are refused
        patch.setattr("haybale.embeddings.resumable_store.library_versions", lambda: settings["versions"])
        haybale.embed(documents, Numbers(), folder / "store-in-shards", rows_per_chunk=8, shard=(1, 2))
    np.testing.assert_array_equal(EmbeddingStore(folder / "store-in-shards").vectors(), recorded["shards"])
    index = PassageIndex.from_store(store)
    ensemble = haybale.SVREnsemble.load(folder / "ensemble", index)
    queries = np.array(recorded["store"], dtype=np.float32)[:10]
    assert [[document for document, _ in hits] for hits in ensemble_hits(ensemble, queries)] == recorded["ensemble"]


def rewrite(path: Path, **changes: Any) -> None:
    """Change entries of a manifest, or remove those that are None, so that its checksum agrees."""
    manifest = {name: value for name, value in (json.loads(path.read_text()) | changes).items() if value is not None}
    path.write_text(json.dumps(with_checksum({name: manifest[name] for name in manifest if name != "sha256"})))


@pytest.mark.parametrize("changes", [{"version": 2}, {"version": 4}, {"identity": None}])
def test_engines_of_another_version_are_refused(folder: Path, changes: dict[str, Any]) -> None:
    rewrite(folder / "tfidf" / "engine.json", **changes)
    with pytest.raises(FileFormatError, match=r"tfidf/engine\.json: .*expected"):
        Engine.open(folder / "tfidf")


def test_records_with_positions_as_ids_are_refused(folder: Path) -> None:
    path = folder / "engine-of-files" / "files.json"
    record = json.loads(path.read_text())
    for earlier in (record | {"ids": 1}, {name: record[name] for name in record if name != "source"}):
        path.write_text(json.dumps(earlier))
        with pytest.raises(InputError, match=r"engine-of-files.*haybale attach"):
            update(Engine.open(folder / "engine-of-files"), folder / "files")


def test_models_of_another_version_are_refused(folder: Path) -> None:
    rewrite(folder / "svr" / "manifest.json", version=1)
    with pytest.raises(FileFormatError, match="expected version"):
        haybale.ProductKernelSVR.load(folder / "svr")
    manifest = json.loads((folder / "ensemble" / "manifest.json").read_text())
    rewrite(folder / "ensemble" / "manifest.json", parameters=manifest["parameters"] | {"max_iter": 9})
    with pytest.raises(FileFormatError, match="max_iter"):
        haybale.SVREnsemble.load(folder / "ensemble", PassageIndex.from_store(EmbeddingStore(folder / "store")))


@pytest.mark.parametrize("version", [1, 2, 5])
def test_judgements_of_another_version_are_refused(folder: Path, version: int) -> None:
    path = folder / "engine-of-files-judgements.sqlite"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {version}")
    for read_only in (False, True):
        with pytest.raises(StoreError, match=re.escape(f"{path}: expected version 4 of the store, found {version}")):
            JudgementStore(path, read_only=read_only)
