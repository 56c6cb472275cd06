"""Duplicates of an engine: found, kept with it, and found again after changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from haybale import Engine
from haybale.collections.text_sketches import TextSketches
from haybale.engine import DuplicateGroup

TEXTS = {
    "embase": "Statins lower the risk of stroke in adults with diabetes, as a trial of 4,312 adults found.",
    "pubmed": "Statins lower the risk of stroke in adults with diabetes, as a trial of 4,312 adults found. (c) 2010.",
    "other": "Wheat was sown on forty plots with and without nitrogen, and its yield was weighed at harvest.",
}


def record(name: str, **more: Any) -> dict[str, Any]:
    title = "Wheat and nitrogen" if name == "other" else "Statins and stroke in adults with diabetes"
    return {"title": title, "text": TEXTS[name], "year": 2010, "file": f"{name}.ris", **more}


def built(folder: Path) -> Engine:
    return Engine.build({name: record(name) for name in TEXTS}, folder / "engine", language="english")


def ids(engine: Engine) -> list[tuple[str, ...]]:
    return [group.doc_ids for group in engine.duplicates().groups]


def test_counts_are_by_source(tmp_path: Path) -> None:
    duplicates = built(tmp_path).duplicates()
    assert duplicates.groups == [DuplicateGroup(("pubmed", "embase"), ("same title and year",))]
    assert (duplicates.n_documents, duplicates.n_duplicates, duplicates.n_distinct) == (3, 1, 2)
    assert duplicates.by_source().to_numpy().tolist() == [
        ["embase.ris", 1, 1],
        ["other.ris", 1, 0],
        ["pubmed.ris", 1, 0],
    ]
    assert duplicates.sources_of_others("embase") == {"pubmed": "pubmed.ris"}
    assert duplicates.others("other") == []


def test_groups_follow_changes(tmp_path: Path) -> None:
    engine = built(tmp_path)
    assert ids(engine) == [("pubmed", "embase")]
    engine.add({"wos": record("embase", file="wos.ris")})
    assert ids(engine) == [("pubmed", "embase", "wos")]
    before = engine.snapshot()
    engine.remove(["pubmed"])
    assert ids(engine) == [("embase", "wos")]
    engine.set_metadata({"wos": {"doi": "10.1000/b"}, "embase": {"doi": "10.1000/a"}})
    assert ids(engine) == []
    assert ids(Engine.open(tmp_path / "engine")) == []
    assert ids(before) == [("pubmed", "embase", "wos")]
    engine.replace({"embase": record("embase", doi="10.1000/B")})
    assert ids(engine) == ids(Engine.open(tmp_path / "engine")) == [("embase", "wos")]
    assert ids(engine.within(["other", "wos"])) == []


def test_found_groups_and_sketches_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    engine = built(tmp_path)
    expected = engine.duplicates()
    sketched: list[int] = []
    make = TextSketches.of.__func__  # type: ignore[attr-defined]

    def counted(cls: Any, collection: Any) -> TextSketches:
        sketched.append(collection.n_documents)
        return make(cls, collection)  # type: ignore[no-any-return]

    monkeypatch.setattr(TextSketches, "of", classmethod(counted))
    assert Engine.open(tmp_path / "engine").duplicates() == expected
    assert sketched == []
    engine.add({"wos": record("embase", file="wos.ris")})
    assert ids(engine) == [("pubmed", "embase", "wos")]
    assert sketched == [1]
    for name in ("duplicates.json", "0/sketches.npz"):
        (tmp_path / "engine" / name).write_bytes(b"damaged")
    assert ids(Engine.open(tmp_path / "engine")) == [("pubmed", "embase", "wos")]
    assert sketched == [1, 3]


def test_an_engine_in_memory_has_the_same_groups(tmp_path: Path) -> None:
    in_memory = Engine({name: record(name) for name in TEXTS}, language="english")
    assert in_memory.duplicates() == built(tmp_path).duplicates()


def test_a_folder_that_cannot_be_written_is_no_obstacle(tmp_path: Path) -> None:
    engine = built(tmp_path)
    with engine._live.storage.writing():
        other = Engine.open(tmp_path / "engine")
        assert ids(other) == [("pubmed", "embase")]  # another process holds the writer's lock
    assert not (tmp_path / "engine" / "duplicates.json").exists()
