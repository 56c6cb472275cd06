"""The identity of an engine: made once for each folder that is built, and kept through changes, moves and copies."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from haybale import Engine, parse

DOCUMENTS = {"a": "Dogs bark.", "b": "Cats purr.", "c": "Cows moo."}


def built(folder: Path, segments: int = 1) -> Engine:
    return Engine.build(DOCUMENTS, folder, language="english", encoder="tfidf(min_df=1)", segments=segments)


@pytest.mark.parametrize("segments", [1, 2])
def test_no_change_of_an_engine_changes_its_identity(tmp_path: Path, segments: int) -> None:
    engine = built(tmp_path / "engine", segments)
    identity = engine.identity
    assert identity != engine.id
    engine.add({"d": "Ducks quack."})
    engine.replace({"b": "Cats meow."})
    engine.remove(["a"])
    engine.set_metadata({"c": {"legs": 4}})
    assert built(tmp_path / "engine", segments).identity == identity  # opens what is there
    shutil.copytree(tmp_path / "engine", tmp_path / "copy")
    shutil.move(tmp_path / "engine", tmp_path / "moved")
    engines = [engine, engine.snapshot(), engine.within(["b"]), engine.independent()]
    engines += map(Engine.open, (tmp_path / "copy", tmp_path / "moved"))
    assert {each.identity for each in engines} == {identity}


def test_two_builds_differ_in_nothing_but_the_identity(tmp_path: Path) -> None:
    one, other = built(tmp_path / "one"), built(tmp_path / "other")
    assert one.identity != other.identity
    assert (one.id, one.documents_digest) == (other.id, other.documents_digest)
    rankers = [parse("rrf(bm25,knn)").fit(engine) for engine in (one, other)]
    assert rankers[0].rank({"q": "cats"}) == rankers[1].rank({"q": "cats"})


def test_an_engine_in_memory_has_the_identity_of_its_documents() -> None:
    engines = [Engine(DOCUMENTS, language="english") for _ in range(2)]
    assert {each.identity for each in engines} == {engines[0].id}
