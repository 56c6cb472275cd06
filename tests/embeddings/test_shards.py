"""A store that is written in shards by tasks holds the same as a store of one writer."""

from __future__ import annotations

import gc
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import joblib
import numpy as np
import pytest
from support.encoders import HashEncoder

from haybale.embeddings import Embedded, EmbeddingStore, LSAEncoder, embed, embed_shards, shards
from haybale.embeddings.store_files import StoreFiles, writer_lock
from haybale.errors import FileFormatError, InputError, OutputExistsError, StoreError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "many"
    folder.mkdir()
    lines = [
        f"d{i // 3}\tpassage {i} of {'dogs' if i % 3 else 'law'} and of {'tax' if i % 2 else 'salt'}" for i in range(60)
    ]
    (folder / "collection.tsv").write_text("\n".join([*lines, "d20\t   "]) + "\n")
    return folder


def assert_equal_stores(one: Path, other: Path) -> None:
    a, b = EmbeddingStore(one), EmbeddingStore(other)
    np.testing.assert_array_equal(a.vectors(), b.vectors())
    assert a.passage_ids.equals(b.passage_ids)
    assert a.doc_ids.equals(b.doc_ids)
    assert a.texts().equals(b.texts())


EMPTY = "1 passages of only whitespace were left out"
pytestmark = pytest.mark.filterwarnings(f"ignore:.*{EMPTY}")


@pytest.mark.parametrize("backend", ["threading", "loky"])
def test_shards_equal_the_store_of_one_writer(folder: Path, tmp_path: Path, backend: str) -> None:
    embed(folder, HashEncoder(), tmp_path / "whole", rows_per_chunk=7)
    with joblib.parallel_config(backend=backend, n_jobs=2), pytest.warns(UserWarning, match=EMPTY) as caught:
        done = embed_shards(folder, HashEncoder(), tmp_path / "shards", 3, rows_per_chunk=7)
    assert backend == "threading" or len(caught) == 1  # all three shards give the same warning
    assert (done.passages, done.kept) == (60, 0)
    assert_equal_stores(tmp_path / "shards", tmp_path / "whole")
    again = embed_shards(folder, HashEncoder(), tmp_path / "shards", rows_per_chunk=7)  # uses the three shards
    assert (again.passages, again.kept) == (0, 60)


def test_an_encoder_is_fitted_once_and_kept(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    embed(folder, LSAEncoder(4), tmp_path / "whole", rows_per_chunk=7)
    fits: list[int] = []
    real = LSAEncoder.fit
    monkeypatch.setattr(LSAEncoder, "fit", lambda self, texts: fits.append(1) or real(self, texts))
    embed_shards(folder, LSAEncoder(4), tmp_path / "shards", 2, rows_per_chunk=7, n_jobs=2)
    assert_equal_stores(tmp_path / "shards", tmp_path / "whole")
    query = ["the law on salt"]
    stores = [EmbeddingStore(tmp_path / name) for name in ("shards", "whole")]
    np.testing.assert_array_equal(*(store.encoder().encode(query) for store in stores))
    chunk = next((tmp_path / "shards" / "shard-2-of-2" / "vectors.zarr").glob("c.*"))
    chunk.unlink()
    assert embed_shards(folder, LSAEncoder(4), tmp_path / "shards", rows_per_chunk=7).passages == 7
    assert len(fits) == 1
    with pytest.raises(StoreError, match=r"n_components 4, .* 5"):
        embed_shards(folder, LSAEncoder(5), tmp_path / "shards", rows_per_chunk=7)
    with (folder / "collection.tsv").open("a") as file:
        file.write("d90\tone more\n")
    with pytest.raises(StoreError, match=r"60 passages .* found 61"):
        embed_shards(folder, LSAEncoder(4), tmp_path / "shards", rows_per_chunk=7)
    assert not (tmp_path / "shards" / ".fitting").exists()


def test_a_worker_makes_its_encoder_once(folder: Path, tmp_path: Path) -> None:
    made: list[str] = []

    def make(salt: str) -> HashEncoder:
        made.append(salt)
        return HashEncoder(salt)

    embed_shards(folder, partial(make, "x"), tmp_path / "shards", 4, rows_per_chunk=7, n_jobs=1)
    assert made == ["x"]
    embed_shards(folder, partial(make, "y"), tmp_path / "others", 2, rows_per_chunk=7, n_jobs=1)
    assert made == ["x", "y"]


def test_a_task_waits_for_another_writer(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that lost its connection or its driver still finishes its shard."""
    files = StoreFiles(tmp_path / "shards" / "shard-1-of-2")
    begun, refused = threading.Event(), threading.Event()

    def write() -> None:
        with writer_lock(files):
            begun.set()
            refused.wait()
            time.sleep(0.3)  # while the second call waits

    def call() -> Embedded:
        options = {"layout": None, "dtype": "float32", "rows_per_chunk": 7, "chunking": None}
        return shards.embed_shard(folder, HashEncoder(), "call", str(tmp_path / "shards"), (1, 2), options, True)[0]

    with ThreadPoolExecutor() as pool:
        other = pool.submit(write)
        begun.wait()
        monkeypatch.setattr(shards, "PATIENCE", 0.1)
        with pytest.raises(StoreError, match=r"shard-1-of-2: process \d+"):
            call()
        monkeypatch.setattr(shards, "PATIENCE", 60.0)
        refused.set()
        assert call().passages == 32
        other.result()


def test_an_unreadable_source_leaves_no_file_open(tmp_path: Path) -> None:
    """The garbage collector would warn about an open file, and warnings are errors here."""
    (tmp_path / "collection.tsv").write_text("d0\ttext\nno tab\n")
    with pytest.raises(FileFormatError, match=r"collection\.tsv, line 2"):
        embed_shards(tmp_path, HashEncoder(), tmp_path / "out", 2)
    gc.collect()


def test_errors(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="'n_shards' parameter of embed_shards"):
        embed_shards(folder, HashEncoder(), tmp_path / "shards", 0)

    embed_shards(folder, HashEncoder(), tmp_path / "shards", 2, rows_per_chunk=7)
    with pytest.raises(StoreError, match=r"2 shards.* n_shards=3"):
        embed_shards(folder, HashEncoder(), tmp_path / "shards", 3, rows_per_chunk=7)
    embed(folder, HashEncoder(), tmp_path / "whole")
    with pytest.raises(OutputExistsError, match="whole"):
        embed_shards(folder, HashEncoder(), tmp_path / "whole", 2)
    with pytest.raises(InputError, match="TfidfEncoder"):
        embed_shards(folder, "tfidf", tmp_path / "sparse", 2)
    assert not (tmp_path / "sparse").exists()
