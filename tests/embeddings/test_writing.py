"""Writing a store when the writer is killed, another process writes, or the disk is full; fitted encoders."""

from __future__ import annotations

import errno
import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support import rerank_cases
from support.encoders import HashEncoder
from support.engines import tree
from support.nursery import Nursery
from support.rerank_cases import write

from haybale import InteractionStore
from haybale.collections import Collection
from haybale.embeddings import EmbeddingStore, LSAEncoder, TfidfEncoder, embed
from haybale.embeddings.store import VectorChunks
from haybale.errors import InputError, StoreError

N_CHUNKS, ROWS = 250, 4

# For each line read, which holds the seconds for a chunk, and the seconds after which an alarm kills the writer (0: no
# alarm), forks a writer; prints its process id, then its exit status.
NURSERY = """
import os, signal, sys
from support.encoders import HashEncoder
from support.nursery import Nursery
from support.rerank_cases import write
from haybale.embeddings import embed

kind, source, store, log = sys.argv[1:]

class Counting(HashEncoder):
    def encode(self, texts):
        with open(log, "a") as file:
            file.write(texts[0] + "\\n")
        return super().encode(texts)

for line in sys.stdin:
    seconds, alarm = map(float, line.split())
    pid = os.fork()
    if not pid:
        signal.setitimer(signal.ITIMER_REAL, alarm)
        if kind == "embeddings":
            embed(source, Counting(seconds=seconds), store, rows_per_chunk=4)
        else:
            write(store, seconds, log)
        os._exit(0)
    print(pid, flush=True)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "many"
    folder.mkdir()
    lines = [f"d{i}\tpassage {i} of {N_CHUNKS * ROWS}" for i in range(N_CHUNKS * ROWS - 1)]
    (folder / "collection.tsv").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture
def nursery(request: pytest.FixtureRequest, folder: Path, tmp_path: Path) -> Iterator[Nursery]:
    found = Nursery(NURSERY, getattr(request, "param", "embeddings"), folder, tmp_path / "store", tmp_path / "log")
    yield found
    found.close()


@pytest.mark.parametrize(
    ("nursery", "kills"),
    [("embeddings", 8), ("interactions", 6), pytest.param("embeddings", 25, marks=pytest.mark.thorough)],
    indirect=["nursery"],
)
def test_killed_repeatedly(request: Any, folder: Path, tmp_path: Path, nursery: Nursery, kills: int) -> None:
    """A store whose writers are killed at random moments ends equal to that of an undisturbed run."""
    whole, store, log, opens = tmp_path / "whole", tmp_path / "store", tmp_path / "log", EmbeddingStore
    if "interactions" in request.node.name:
        write(whole, 0, tmp_path / "undisturbed")
        n_chunks, opens = rerank_cases.N_CHUNKS, InteractionStore
        n_distinct = len(set((tmp_path / "undisturbed").read_text().splitlines()))
    else:
        embed(folder, HashEncoder(), whole, rows_per_chunk=ROWS)
        n_chunks = n_distinct = N_CHUNKS
    rng, killed, longest = random.Random(0), 0, 0.15
    while True:
        nursery.tell(*((0.02, rng.uniform(1e-6, longest)) if killed < kills else (0, 0)))
        nursery.answer()
        status = int(nursery.answer())
        if status == 0:
            break
        assert status == -signal.SIGALRM
        killed += 1
        longest += 0.01  # checking the existing chunks takes longer each time
        with pytest.raises((StoreError, ValueError)):
            opens(store)  # it is not finished
    assert killed >= 0.8 * kills
    assert tree(store) == tree(whole)
    computed = log.read_text().splitlines()
    assert len(set(computed)) == n_distinct
    assert n_chunks <= len(computed) <= n_chunks + killed  # a kill costs one chunk at most


def test_a_second_writer_is_refused(folder: Path, tmp_path: Path, nursery: Nursery) -> None:
    store = tmp_path / "store"
    nursery.tell(0.05, 0)
    pid = int(nursery.answer())
    while not list(store.glob("digests/0")):
        time.sleep(0.01)
    with pytest.raises(StoreError, match=f"process {pid} on "):
        embed(folder, HashEncoder(), store, rows_per_chunk=ROWS)
    os.kill(pid, signal.SIGKILL)
    assert int(nursery.answer()) == -signal.SIGKILL
    assert embed(folder, HashEncoder(), store, rows_per_chunk=ROWS).kept > 0  # the lock was released
    assert not (store / ".lock").exists()


def test_a_folder_in_place_of_the_lock(folder: Path, tmp_path: Path) -> None:
    lock = tmp_path / "store" / ".lock"
    lock.mkdir(parents=True)
    with pytest.raises(StoreError, match="lock"):
        embed(folder, HashEncoder(), tmp_path / "store", rows_per_chunk=ROWS)
    lock.rmdir()
    assert embed(folder, HashEncoder(), tmp_path / "store", rows_per_chunk=ROWS).kept == 0


def test_a_full_disk(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full at chunk 40, or already when the lock is taken."""
    write, store = VectorChunks.write, tmp_path / "s"

    def fails(self: Any, number: int, rows: Any) -> None:
        if number == 40:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(self, number, rows)

    monkeypatch.setattr(VectorChunks, "write", fails)
    with pytest.raises(StoreError, match="No space left on device"):
        embed(folder, HashEncoder(), store, rows_per_chunk=ROWS)
    assert not list(store.rglob("*.partial"))
    assert not (store / "manifest.json").exists()
    monkeypatch.undo()
    done = embed(folder, HashEncoder(), store, rows_per_chunk=ROWS)
    assert (done.kept, done.passages) == (40 * ROWS, N_CHUNKS * ROWS - 1 - 40 * ROWS)
    monkeypatch.setattr("haybale.embeddings.store_files._flock", lambda *_: fails(None, 40, None))
    with pytest.raises(StoreError, match="No space left on device"):
        embed(folder, HashEncoder(), tmp_path / "other")


def test_lsa_is_fitted_once_and_kept(toy: Collection, tmp_path: Path) -> None:
    assert embed(toy, LSAEncoder(4, min_df=1), tmp_path / "s", rows_per_chunk=4).passages == 15
    store = EmbeddingStore(tmp_path / "s")
    texts = toy.passages.texts.to_pylist()
    fitted = LSAEncoder(4, min_df=1).fit(texts)
    np.testing.assert_allclose(store.vectors(), fitted.encode(texts), atol=1e-6)
    np.testing.assert_array_equal(store.encoder().encode(["barking dogs"]), fitted.encode(["barking dogs"]))
    before = tree(tmp_path / "s")
    (tmp_path / "s" / "vectors.zarr" / "c.2.0").unlink()
    embed(toy, LSAEncoder(4, min_df=1), tmp_path / "s", rows_per_chunk=4)  # loads the fitted encoder
    embed(toy, fitted, tmp_path / "s", rows_per_chunk=4)
    assert tree(tmp_path / "s") == before
    with pytest.raises(StoreError, match=r"n_components 4, .* 3"):
        embed(toy, LSAEncoder(3, min_df=1), tmp_path / "s", rows_per_chunk=4)
    with pytest.raises(StoreError, match="encoder fitted"):
        embed(toy, LSAEncoder(4, min_df=1).fit(texts[:9]), tmp_path / "s", rows_per_chunk=4)


def test_saving_the_encoder_was_interrupted(toy: Collection, tmp_path: Path) -> None:
    store = tmp_path / "s"
    (store / ".encoder.123").mkdir(parents=True)
    (store / "encoder").mkdir()
    (store / "passages.parquet").write_bytes(b"half")
    embed(toy, LSAEncoder(4, min_df=1), store)
    names = sorted(path.name for path in store.iterdir())
    assert names == ["digests", "encoder", "manifest.json", "passages.parquet", "vectors.zarr"]


def test_a_remote_store_keeps_its_encoder(toy: Collection) -> None:
    address = "memory://fitted/store"
    embed(toy, LSAEncoder(4, min_df=1), address)
    store = EmbeddingStore(address)
    np.testing.assert_array_equal(store.encoder().encode(toy.passages.texts.to_pylist()), store.vectors())
    assert embed(toy, LSAEncoder(4, min_df=1), address).kept == 15


def test_bad_encoders_are_refused(toy: Collection, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="TfidfEncoder"):
        embed(toy, TfidfEncoder(min_df=1), tmp_path / "s")
    with pytest.raises(InputError, match=r"shards .* LSAEncoder"):
        embed(toy, LSAEncoder(4, min_df=1), tmp_path / "s", rows_per_chunk=2, shard=(1, 2))
