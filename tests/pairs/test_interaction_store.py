"""Stores of interactions: damage, other settings, shards. Embedding stores test interruptions and locks."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.damaged_folders import damaged_copies
from support.engines import tree
from support.rerank_cases import N_CHUNKS, HashPairs, case, write

from haybale import InteractionStore, Reading, interact
from haybale.embeddings import resumable_store
from haybale.errors import InputError, OutputExistsError, StoreError


@pytest.mark.parametrize("shards", [1, 3])
def test_a_store_returns_the_interactions_that_were_written(tmp_path: Path, shards: int) -> None:
    engine, run = case()
    for i in range(shards, 0, -1):
        done = write(tmp_path / "store", 0, tmp_path / "log", shard=(i, shards) if shards > 1 else None)
        assert done.pairs > 0
    expected = Reading(engine, engine.collection.queries, run, HashPairs(), k=50).all()
    opened = InteractionStore(tmp_path / "store")
    assert len(opened) == len(expected) == N_CHUNKS
    found = opened.read()
    assert found.blocks.equals(expected.blocks)
    assert found.values.dtype == np.float16
    np.testing.assert_array_equal(found.values, expected.values.astype(np.float16))
    np.testing.assert_array_equal(found.paragraphs, expected.paragraphs)
    np.testing.assert_array_equal(found.passages, expected.passages)
    np.testing.assert_array_equal(found.padding, expected.padding)
    assert found.settings == expected.settings
    some = np.array([40, 3, 4, 70])
    part = opened.read(some)
    assert part.blocks.equals(found.take(some).blocks)
    np.testing.assert_array_equal(part.values, found.take(some).values)


def test_a_damaged_chunk_is_detected_and_computed_again(tmp_path: Path) -> None:
    out, log = tmp_path / "store", tmp_path / "log"
    write(out, 0, log)
    whole = tree(out)
    path = out / "chunks" / "7"
    path.write_bytes(path.read_bytes()[:-1] + b"\1")
    (out / "chunks" / "9").unlink()
    (out / "chunks" / "11").write_bytes((out / "chunks" / "12").read_bytes())  # a valid file of another chunk
    with pytest.raises(StoreError, match="chunk 7 of 75"):
        InteractionStore(out).read()
    log.unlink()
    done = write(out, 0, log)
    assert len(log.read_text().splitlines()) == 3
    assert done.kept > done.pairs > 0
    assert tree(out) == whole
    assert write(out, 0, log).pairs == 0


def test_every_damage_is_one_clear_error_and_writing_again_mends_all_but_the_settings(tmp_path: Path) -> None:
    out, copy, log = tmp_path / "store", tmp_path / "copy", tmp_path / "log"
    write(out, 0, log, pairs_per_chunk=300)
    whole, seen = tree(out), set()
    for what in damaged_copies(out, copy, lambda name: not name.startswith("manifest.json")):
        with pytest.raises(StoreError, match=re.escape(str(copy))):
            InteractionStore(copy).read()
        write(copy, 0, log, pairs_per_chunk=300)
        assert tree(copy) == whole, what
        seen.add(what.partition(":")[0])
    assert seen == {*whole, "chunks", "digests"} - {"manifest.json"}
    damaged = damaged_copies(out, copy, lambda name: name == "manifest.json")
    for _ in damaged:  # also every odd value of an entry
        with pytest.raises((InputError, StoreError), match=re.escape(str(copy))):
            InteractionStore(copy).read()
        with pytest.raises((InputError, StoreError, OutputExistsError), match=re.escape(str(copy))):
            write(copy, 0, log, pairs_per_chunk=300)
    (out / "manifest.json").rename(out / "building.json")  # as if it had been interrupted
    for _ in damaged_copies(out, copy, lambda name: name == "building.json"):
        with pytest.raises((InputError, StoreError, OutputExistsError), match=re.escape(str(copy))):
            write(copy, 0, log, pairs_per_chunk=300)
    write(out, 0, log, pairs_per_chunk=300)
    assert tree(out) == whole


def test_what_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine, run = case()
    queries, out = engine.collection.queries, tmp_path / "store"
    with pytest.raises(InputError, match="interactions"):
        InteractionStore(tmp_path)
    write(out, 0, tmp_path / "log")
    for changed, pairs, how, message in (
        (run, HashPairs(salt="x"), {}, r"salt '', .*'x'"),
        (run, HashPairs(), {"n": 3}, r"n 54, .*3"),
        (run.top(3), HashPairs(), {}, "blocks"),
    ):
        with pytest.raises(StoreError, match=message):
            interact(engine, queries, changed, pairs, out, pairs_per_chunk=1, **how)
    monkeypatch.setattr(resumable_store, "library_versions", lambda: {"torch": "0.1"})
    with pytest.raises(StoreError, match="versions"):
        write(out, 0, tmp_path / "log")
    monkeypatch.undo()
    with pytest.raises(InputError, match="shard 76 of 76"):
        write(tmp_path / "other", 0, tmp_path / "log", shard=(76, 76))
    for wrong in ({"dtype": "int8"}, {"pairs_per_chunk": 0}, {"shard": "1/2"}):
        with pytest.raises(InputError, match=f"'{next(iter(wrong))}' parameter of interact"):
            write(tmp_path / "new", 0, tmp_path / "log", **wrong)

    class Wide(HashPairs):
        def one(self, first: str, second: str) -> Any:
            return super().one(first, second) + np.float32(70_000)

    with pytest.raises(InputError, match="float16"):
        interact(engine, queries, run, Wide(), tmp_path / "wide")
    interact(engine, queries, run, Wide(), tmp_path / "wide32", dtype="float32")
    assert InteractionStore(tmp_path / "wide32").read().values.max() > 65_504
