"""The documents of an earlier moment are found among those of now, whatever was done to the engine since."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from haybale import Engine
from haybale.engine.earlier_documents import DocumentsState, DocumentStates

TEXTS = {"a": "Dogs bark.", "b": "Cats purr.", "c": ["Cows moo.", "Cows give milk."]}


@pytest.fixture(params=["in memory", "in a folder"])
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Engine:
    settings = {"language": "english", "encoder": "tfidf(min_df=1)"}
    if request.param == "in memory":
        return Engine(TEXTS, **settings)
    return Engine.build(TEXTS, tmp_path / "engine", **settings)


def texts_of(engine: Engine) -> dict[str, str]:
    collection = engine.snapshot().whole
    return dict(zip(collection.doc_ids.to_pylist(), collection.document_texts(), strict=True))


def test_random_changes_are_told_apart(engine: Engine) -> None:
    """After each change, what is said about every earlier moment is what a comparison of all texts says."""
    rng, states = np.random.default_rng(0), DocumentStates(engine)
    history = [(states.state(engine.snapshot()), texts_of(engine))]
    for step in range(10):
        present = texts_of(engine)
        ids = rng.choice([*"abcdefgh"], size=2, replace=False).tolist()
        texts = [f"Text {number}." for number in rng.integers(0, 9, size=2)]  # some are those of other documents
        gone = [doc_id for doc_id in rng.permutation(sorted(present))[:1].tolist() if step % 3 == 0]
        engine.replace(dict(zip(ids, texts, strict=True)), remove=[doc_id for doc_id in gone if doc_id not in ids])
        now, snapshot = texts_of(engine), engine.snapshot()
        for state, then in history:
            since = states.since(snapshot, DocumentsState.from_json(state.to_json()))
            assert since.is_certain
            assert since.removed == sorted({*then} - {*now})
            assert since.changed == sorted(doc_id for doc_id in {*then} & {*now} if then[doc_id] != now[doc_id])
            for doc_id, text in now.items():
                is_known = text in then.values()
                assert since.novelty(doc_id) == ("" if is_known else "changed" if doc_id in then else "new")
            was_there = dict(zip(snapshot.collection.doc_ids.to_pylist(), since.was_there.tolist(), strict=True))
            assert all(then.get(doc_id) == now[doc_id] for doc_id in now if was_there[doc_id])
        history.append((states.state(snapshot), now))
    assert len({state.digest for state, _ in history}) == len(history)


def test_segments_that_are_merged_are_the_same_documents(tmp_path: Path) -> None:
    engine = Engine.build(TEXTS, tmp_path / "engine", language="english", encoder="tfidf(min_df=1)")
    states = DocumentStates(engine)
    middle = None
    for number in range(12):
        engine.add({f"n{number}": f"Number {number}."})
        if number == 4:
            middle = states.state(engine.snapshot())
    assert middle is not None
    assert len(engine.snapshot()._documents.segments) < 10, "they were not merged"
    since = states.since(engine.snapshot(), middle)
    assert since.is_certain
    assert since.n_added_since == 7
    assert [since.novelty(f"n{number}") for number in (4, 5)] == ["", "new"]


def test_another_engine_and_a_restored_one_are_noticed(tmp_path: Path) -> None:
    folder, settings = tmp_path / "engine", {"language": "english", "encoder": "tfidf(min_df=1)"}
    engine = Engine.build(TEXTS, folder, **settings)
    shutil.copytree(folder, tmp_path / "backup")
    engine.add({"d": "Horses neigh."})
    state = DocumentStates(engine).state(engine.snapshot())
    restored = Engine.open(tmp_path / "backup")
    since = DocumentStates(restored).since(restored.snapshot(), state)
    assert not since.is_certain, "it has fewer documents"
    restored.add({"e": "Sheep bleat."})
    since = DocumentStates(restored).since(restored.snapshot(), state)
    assert not since.is_certain, "it has as many, and others"
    other = Engine.build(TEXTS, tmp_path / "other", **settings)
    other.add({"d": "Horses neigh."})
    assert not DocumentStates(other).since(other.snapshot(), state).is_certain


def test_metadata_is_part_of_a_state(engine: Engine) -> None:
    states = DocumentStates(engine)
    before = states.state(engine.snapshot())
    engine.set_metadata({"a": {"year": 2001}})
    after = states.state(engine.snapshot())
    assert before.metadata is None
    assert after.metadata is not None
    since = states.since(engine.snapshot(), before)
    assert (since.n_added_since, since.novelty("a")) == (0, "")
