"""Metadata changes without indexing anything again, and stays with its documents."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hostile.columns import changed
from hypothesis import given, settings
from hypothesis import strategies as st

from haybale import BM25, Engine, FileFormatError, InputError

TEXTS = {
    "dogs": {"text": "Dogs bark.", "year": 2015, "court": "BGH"},
    "cats": {"text": "Cats purr.", "year": 2017},
    "cows": "Cows moo.",
}


def built(folder: Path) -> Engine:
    return Engine.build(TEXTS, folder, language="english", encoder="tfidf(min_df=1)")


def values(engine: Engine, name: str) -> dict[str, Any]:
    table = engine.documents_table()
    return dict(zip(table["id"].to_pylist(), table[name].to_pylist(), strict=True))


@pytest.mark.parametrize("in_folder", [False, True])
def test_values_and_columns(in_folder: bool, tmp_path: Path) -> None:
    engine = built(tmp_path / "e") if in_folder else Engine(TEXTS, language="english", encoder="tfidf(min_df=1)")
    ranker = BM25().fit(engine)
    before, snapshot = ranker.rank(["dogs cats cows"]), engine.snapshot()
    engine.set_metadata({})
    engine.set_metadata(
        {"cows": {"year": 2019, "decided": date(2019, 3, 1)}, "dogs": {"court": None, "topics": ["pets"]}}
    )
    for each in (engine, Engine.open(tmp_path / "e")) if in_folder else (engine,):
        assert values(each, "year") == {"dogs": 2015, "cats": 2017, "cows": 2019}
        assert values(each, "court") == dict.fromkeys(TEXTS)
        assert values(each, "decided")["cows"] == date(2019, 3, 1)
        assert values(each, "topics") == {"dogs": ["pets"], "cats": None, "cows": None}
        assert BM25().fit(each).rank(["dogs cats cows"]) == before
        assert each.collection.doc_ids.take(each.documents_where("year > 2016")).to_pylist() == ["cats", "cows"]
    assert values(snapshot, "court")["dogs"] == "BGH"
    assert ranker.rank(["dogs cats"], where="'pets' in topics").to_frame()["doc_id"].tolist() == ["dogs"]


def test_later_changes_of_documents(tmp_path: Path) -> None:
    engine = built(tmp_path / "e")
    engine.set_metadata({"cows": {"court": "OLG"}, "cats": {"court": "LG"}})
    engine.add({"hens": {"text": "Hens cluck.", "court": "AG", "year": "unknown"}})
    engine.replace({"cats": {"text": "Cats hiss.", "court": "VG"}}, remove=["dogs"], metadata={"cows": {"year": 2001}})
    for each in (engine, Engine.open(tmp_path / "e")):
        assert values(each, "court") == {"cows": "OLG", "hens": "AG", "cats": "VG"}
        assert values(each, "year") == {"cows": "2001", "hens": "unknown", "cats": None}
    engine.replace(None, metadata={"hens": {"year": 1999}})
    assert values(engine, "year")["hens"] == 1999


def test_other_processes_take_it_over(tmp_path: Path) -> None:
    one, other = built(tmp_path / "e"), Engine.open(tmp_path / "e")
    one.set_metadata({"cows": {"court": "OLG"}})
    assert values(other, "court")["cows"] is None
    assert other.refresh()
    assert not other.refresh()
    assert values(other, "court") == values(one, "court")
    other.judge(_qrels(), {"q": "moo"})
    assert one.refresh()
    assert values(one, "court")["cows"] == "OLG"
    assert one.collection.splits["train"].grades.tolist() == [1]


def _qrels() -> Any:
    import pandas as pd

    return pd.DataFrame({"query_id": ["q"], "doc_id": ["cows"], "relevance": [1]})


def test_wrong_values_change_nothing(tmp_path: Path) -> None:
    engine = built(tmp_path / "e")
    for wrong in ({"owls": {"year": 1}}, {"cows": {"": 1}}, {"cows": {3: 1}}, {"cows": {"court": "\ud800"}}):
        with pytest.raises(InputError):
            engine.set_metadata(wrong)
    with pytest.raises(InputError, match="set_metadata"):
        engine.snapshot().set_metadata({"cows": {"year": 1}})
    assert engine.documents_table().equals(Engine.open(tmp_path / "e").documents_table())


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    built(tmp_path / "e").set_metadata({"cows": {"court": "OLG"}})
    [path] = (tmp_path / "e" / "metadata").iterdir()
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(FileFormatError, match=path.name):
        Engine.open(tmp_path / "e")


@pytest.mark.parametrize("change", ["add", "replace", "set_metadata"])
def test_a_column_of_lists_stays_one(change: str, tmp_path: Path) -> None:
    documents: dict[str, Any] = {
        "a": {"text": "A text.", "topics": ["tax", "land"]},
        "b": {"text": "Another one.", "topics": ["syntax"]},
    }
    for in_folder in (True, False):
        engine = Engine.build(documents, tmp_path / "e") if in_folder else Engine(documents)
        new = {"text": "A third text.", "topics": "land"}
        if change == "set_metadata":
            engine.set_metadata({"b": {"topics": "land"}})
        else:
            getattr(engine, change)({"c" if change == "add" else "b": new})
        for each in (engine, Engine.open(tmp_path / "e") if in_folder else engine):
            ids = each.whole.doc_ids.to_pylist()
            assert [ids[n] for n in each.documents_where("'tax' in topics")] == ["a"]
            assert [ids[n] for n in each.documents_where("'land' in topics")] == ["a", "c" if change == "add" else "b"]
            assert values(each, "topics")["a"] == ["tax", "land"]


def test_texts_in_a_column_of_numbers_leave_its_filters(tmp_path: Path) -> None:
    engine = built(tmp_path / "e")
    conditions = ("year > 2014", "year > '999'", "year = 2017", "year between 2000 and 2016")
    before = [engine.documents_where(where).tolist() for where in conditions]
    engine.add({"hens": {"text": "Hens cluck.", "year": "unknown"}})
    for each in (engine, Engine.open(tmp_path / "e")):
        assert [each.documents_where(where).tolist() for where in conditions] == before
        assert values(each, "year")["hens"] == "unknown"
    engine.set_metadata({"hens": {"year": 2015}})
    assert engine.documents_table().schema.field("year").type == pa.int64()


def test_texts_stay_as_they_are_beside_a_new_number(tmp_path: Path) -> None:
    engine = Engine({name: {"text": "A text.", "code": code} for name, code in (("a", "1.50"), ("b", "x"))})
    engine.set_metadata({"b": {"code": 7}})
    assert values(engine, "code") == {"a": "1.50", "b": "7"}


def test_infinity_is_shown_as_a_word(tmp_path: Path) -> None:
    engine = Engine.build({"a": {"text": "A text.", "x": float("inf")}, "b": {"text": "b", "x": 1}}, tmp_path / "e")
    assert engine.documents_where("x > 5").tolist() == [0]
    [hit] = json.loads(BM25().fit(engine).search("text").to_json())["hits"]
    assert hit["metadata"] == {"x": "Infinity"}


@settings(deadline=None, max_examples=15)
@given(seed=st.integers(0, 10**6))
def test_filters_find_of_other_documents_what_they_found_before(seed: int, tmp_path_factory: Any) -> None:
    changed(tmp_path_factory.mktemp("columns") / "engine", seed)


def test_the_first_metadata_of_an_engine() -> None:
    engine = Engine({"a": "A text.", "b": "Another."})
    engine.set_metadata({"b": {"year": 2015, "topics": ["x"]}})
    assert values(engine, "year") == {"a": None, "b": 2015}
    engine.set_metadata({"a": {"year": None, "empty": None}})
    assert values(engine, "empty") == {"a": None, "b": None}
