"""Segments are merged as they grow in number; nothing else changes by it."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hostile.merges import grown, killed
from hypothesis import given, settings
from hypothesis import strategies as st
from support.engines import CountingEncoder

from haybale import BM25, Engine
from haybale.engine import merging_segments
from haybale.engine.merging_segments import MAX_OF_ONE_SIZE, MAX_SEGMENTS, n_to_merge
from haybale.errors import FileFormatError, StoreError
from haybale.manifest import read_tensors, write_tensors

HOW: dict[str, Any] = {"language": "english", "encoder": "tfidf(min_df=1)"}


def segments_of(folder: Path) -> list[int]:
    found = json.loads((folder / "engine.json").read_text())["segments"]
    return list(range(found)) if isinstance(found, int) else found


@settings(max_examples=200)
@given(sizes=st.lists(st.integers(0, 5000), max_size=300))
def test_there_are_never_many_segments(sizes: list[int]) -> None:
    kept: list[int] = []
    for size in sizes:
        kept.append(size)
        n = n_to_merge(kept)
        assert n == 0 or 2 <= n <= len(kept)
        if n:
            kept[-n:] = [sum(kept[-n:])]
        assert len(kept) < MAX_SEGMENTS
    assert sum(kept) == sum(sizes)


def test_a_document_is_written_again_a_few_times() -> None:
    kept, n_written = list[int](), 0
    for _ in range(2000):
        kept.append(1)
        if n := n_to_merge(kept):
            n_written += sum(kept[-n:])
            kept[-n:] = [sum(kept[-n:])]
    assert n_written <= 3 * 2000


@settings(deadline=None, max_examples=8)
@given(seed=st.integers(0, 10**6))
@pytest.mark.filterwarnings("ignore")
def test_random_changes_of_engines_with_merged_segments(seed: int, tmp_path_factory: Any) -> None:
    grown(tmp_path_factory.mktemp("merged") / "engine", seed)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.filterwarnings("ignore")
def test_a_process_that_is_killed_while_it_adds(seed: int, tmp_path: Path) -> None:
    killed(tmp_path / "engine", seed)


def test_old_folders_stay_until_the_next_merge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging_segments, "MAX_OF_ONE_SIZE", 3)
    folder = tmp_path / "engine"
    engine = Engine.build({"a": "land"}, folder, **HOW)
    engine.add({"n0": "zebra one"})
    other, third = Engine.open(folder), Engine.open(folder)
    for number in range(1, 3):
        engine.add({f"n{number}": "a zebra"})
    assert segments_of(folder) == [0, 4]
    assert (folder / "1").is_dir()
    assert dict(BM25().fit(other).rank(["zebra"])["0"]).keys() == {"n0"}  # it read the merged segment
    for number in range(3, 60):
        engine.add({f"n{number}": "a zebra"})
    assert not (folder / "1").is_dir()
    names = {int(path.name) for path in folder.iterdir() if path.name.isdecimal()}
    assert len(names) < 20
    with pytest.raises(StoreError, match="refresh"):
        _ = third.whole.passages.texts
    for each in (other, third):
        assert each.refresh()
        assert not each.refresh()
        assert len(BM25().fit(each).rank(["zebra"])["0"]) == 60
    third.add({"last": "a zebra"})
    assert engine.refresh()
    assert len(BM25().fit(engine).rank(["zebra"])["0"]) == 61


def test_nothing_is_encoded_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging_segments, "MAX_OF_ONE_SIZE", 2)
    encoder = CountingEncoder()
    engine = Engine.build({"a": "land", "b": "sea"}, tmp_path / "engine", encoder=encoder, language="english").prepare()
    for number in range(8):
        engine.add({f"n{number}": f"text {number}"})
        engine.write_indexes()
    engine.replace({"n7": "text 8"})
    assert len(segments_of(tmp_path / "engine")) < 6
    reopened = Engine.open(tmp_path / "engine", encoder=encoder).prepare()
    assert sorted(encoder.texts) == sorted(["land", "sea", *(f"text {number}" for number in range(9))])
    assert len(reopened.passages) == 10


def test_a_merge_that_fails_leaves_the_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging_segments, "MAX_OF_ONE_SIZE", 2)

    def full(*given: Any) -> None:
        raise OSError(28, "No space left on device")

    engine = Engine.build({"a": "land"}, tmp_path / "engine", **HOW)
    with monkeypatch.context() as patch:
        patch.setattr("haybale.engine.changes.write_vectors", full)
        for number in range(3):
            engine.add({f"n{number}": "a zebra"})
    assert segments_of(tmp_path / "engine") == [0, 1, 2, 3]
    engine.add({"n3": "a zebra"})
    assert segments_of(tmp_path / "engine") == [0, 5]
    for each in (engine, Engine.open(tmp_path / "engine")):
        assert len(BM25().fit(each).rank(["zebra"])["0"]) == 4


ADD = """
import resource, sys
from haybale import BM25, Engine
folder, n, limit = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
engine = Engine.build({"a": "land", "b": "sea"}, folder, encoder="tfidf(min_df=1)", language="english").prepare()
resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
for number in range(n):
    engine.add({f"n{number}": f"a zebra {number}"})
    engine.write_indexes()
opened = Engine.open(folder).prepare()
print(len(BM25().fit(opened).rank(["zebra"], depth=2000)["0"]))
"""


@pytest.mark.parametrize("n", [60, pytest.param(1050, marks=pytest.mark.thorough)])
def test_many_additions_need_few_open_files(n: int, tmp_path: Path) -> None:
    limit = len(os.listdir("/proc/self/fd")) + 60 if Path("/proc/self/fd").is_dir() else 128
    command = [sys.executable, "-c", ADD, str(tmp_path / "engine"), str(n), str(max(limit, 100))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == f"{n}\n", done.stderr[-2000:]
    assert len(segments_of(tmp_path / "engine")) <= 2 * MAX_OF_ONE_SIZE + 2


def test_too_many_open_files_are_no_damage(tmp_path: Path) -> None:
    folder = tmp_path / "engine"
    Engine.build({"a": "land", "b": "sea"}, folder, **HOW).prepare()
    engine = Engine.open(folder)
    write_tensors(tmp_path / "x.safetensors", {})
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    held = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(256, hard), hard))
        with suppress(OSError):
            while True:
                held.append(open(os.devnull, "rb"))  # noqa: SIM115
        for use in (
            engine.prepare,
            lambda: Engine.open(folder),
            lambda: engine.collection.passages.texts,
            lambda: read_tensors(tmp_path / "x.safetensors"),
        ):
            with pytest.raises(StoreError, match="ulimit"):
                use()
    finally:
        for file in held:
            file.close()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert len(BM25().fit(engine).rank(["land"])["0"]) == 1


@pytest.mark.parametrize("numbers", [[], [1], [0, 2, 1], [0, 0], [0, "1"], [0, -1], 0])
def test_wrong_numbers_are_named(numbers: Any, tmp_path: Path) -> None:
    from haybale.manifest import with_checksum

    folder = tmp_path / "engine"
    Engine.build({"a": "land"}, folder, **HOW).add({"b": "sea"})
    path = folder / "engine.json"
    path.write_text(json.dumps(with_checksum(json.loads(path.read_text()) | {"segments": numbers})))
    with pytest.raises(FileFormatError, match=r"engine\.json"):
        Engine.open(folder)
