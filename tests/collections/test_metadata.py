"""Metadata of documents from the builder, mappings, frames, Parquet and BEIR; types, and the table of documents."""

from __future__ import annotations

import json
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from support.frame_libraries import in_every_library

from haybale import Engine
from haybale.collections import CollectionBuilder, collection_from_frames, open_collection, open_documents
from haybale.collections.metadata import metadata_table, unique_name
from haybale.errors import InputError
from haybale.frames import in_library

JUDGEMENTS = pd.DataFrame({"query_id": ["q"], "text": ["a?"]}), pd.DataFrame({"query_id": ["q"], "doc_id": ["a"]})
ROWS: dict[str, dict[str, Any]] = {
    "a": {"court": "BGH", "decided": date(2015, 3, 1), "year": 2015, "final": True, "topics": ["tax", "labour"]},
    "b": {"court": "BAG", "decided": None, "year": 1999, "final": False, "topics": []},
}


def rows_of(table: pa.Table) -> dict[str, dict[str, Any]]:
    return {row["id"]: {name: row[name] for name in ROWS["a"]} for row in table.to_pylist()}


def test_the_builder_and_mappings_give_typed_columns() -> None:
    builder = CollectionBuilder("c")
    for doc_id, row in ROWS.items():
        builder.add_document(doc_id, "A text.", title=f"On {doc_id}", metadata=row)
    built = builder.build().documents_table()
    mapped = open_documents({key: {"text": "A text.", "title": f"On {key}"} | row for key, row in ROWS.items()})
    assert rows_of(built) == ROWS
    assert built.equals(mapped.documents_table())
    assert built.schema.field("decided").type == pa.date32()
    assert built.slice(0, 1).select(["id", "title", "passages"]).to_pylist() == [
        {"id": "a", "title": "On a", "passages": 1}
    ]


def test_documents_without_metadata_have_id_title_and_number_of_passages() -> None:
    collection = open_documents({"a": ["One.", "Two."], "b": "Three."})
    assert collection.metadata is None
    assert collection.documents_table().to_pydict() == {"id": ["a", "b"], "title": ["", ""], "passages": [2, 1]}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (["2015", "", None], [2015, None, None]),
        (["1.5", "2"], [1.5, 2.0]),
        (["2015-01-31", None], [date(2015, 1, 31), None]),
        (["TRUE", "false"], [True, False]),
        (["007", "8"], ["007", "8"]),
        ([np.int64(3), 4], [3, 4]),
        ([np.float32(0.5), float("nan")], [0.5, None]),
        ([np.datetime64("2015-01-31T12:00:00", "ns"), datetime(2016, 1, 1, 5)], [date(2015, 1, 31), date(2016, 1, 1)]),
        ([pd.Timestamp("2015-01-31"), pd.NaT], [date(2015, 1, 31), None]),
        ([("a", "b"), np.array(["c"]), "d"], [["a", "b"], ["c"], ["d"]]),
        ([{"b", "a"}, None], [["a", "b"], None]),
        ([{"x": 1}], ['{"x": 1}']),
        ([1, "", 2], [1, None, 2]),
        ([2**70, 1], [float(2**70), 1.0]),
        ([10**400, 1], [str(10**400), "1"]),
        ([2**63 + 1, 1], [str(2**63 + 1), "1"]),  # no float is equal to it
        ([pd.NA, 1, pd.NaT, np.datetime64("NaT"), Decimal("sNaN")], [None, 1, None, None, None]),
        ([Decimal("1.5"), Decimal(2)], [1.5, 2.0]),
        ([Decimal("1e400"), "x"], ["1E+400", "x"]),
        ([float("inf"), float("-inf"), 1], [float("inf"), float("-inf"), 1.0]),
        (["inf", "1"], ["inf", "1"]),
        (["1e999", "1"], ["1e999", "1"]),
        ([b"court", "x"], ["court", "x"]),
        ([["a", None, ""], [["b"], 2], []], [["a"], ['["b"]', "2"], []]),
        ([date(1, 1, 1), date(9999, 12, 31)], [date(1, 1, 1), date(9999, 12, 31)]),
        ([np.datetime64("20000-01-01"), "x"], ["20000-01-01", "x"]),
        ([True, "false"], [True, False]),
        ([True, 2], ["true", "2"]),
    ],
)
def test_values_become_typed_columns(values: list[Any], expected: list[Any]) -> None:
    table = metadata_table([{"x": value} for value in values])
    assert table is not None
    assert table["x"].to_pylist() == expected


def test_names_are_unique_without_regard_to_case() -> None:
    table = open_documents({"a": {"text": "x", "ID": 1, "Title": "t", "court": "x", "Court": "y"}}).documents_table()
    assert table.column_names == ["id", "title", "passages", "ID_2", "Title_2", "court", "Court_2"]
    assert unique_name("a", ["A", "a_2"]) == "a_3"


def test_beir_lines_keep_their_metadata_and_further_fields(tmp_path: Path) -> None:
    lines = [
        {"_id": "a", "title": "A", "text": "One.", "metadata": {"court": "BGH", "year": 2015}, "topics": ["tax"]},
        {"_id": "b", "text": "Two.", "metadata": {}, "url": "https://example.org"},
        {"_id": "c", "text": "Three.", "metadata": "plain"},
    ]
    (tmp_path / "corpus.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    metadata = open_collection(tmp_path).metadata
    assert metadata is not None
    assert metadata.to_pydict() == {
        "topics": [["tax"], None, None],
        "court": ["BGH", None, None],
        "year": [2015, None, None],
        "url": [None, "https://example.org", None],
        "metadata": [None, None, "plain"],
    }


@in_every_library
def test_further_columns_of_frames_are_metadata(library: str) -> None:
    passages = pd.DataFrame(
        {"doc_id": ["a", "a", "b"], "text": ["One.", "Two.", "Three."], "title": ["A", "A", None]}
    ).assign(year=[2015, 2015, 1999], topics=[["tax"], ["tax"], None])
    documents = pd.DataFrame({"doc_id": ["b", "a"], "court": ["BAG", "BGH"], "decided": [None, date(2015, 3, 1)]})
    found = collection_from_frames(
        "c", in_library(passages, library), *JUDGEMENTS, documents=in_library(documents, library)
    )
    assert found.metadata is not None
    assert found.doc_titles.to_pylist() == ["A", ""]
    assert found.metadata.to_pydict() == {
        "year": [2015, 1999],
        "topics": [["tax"], None],
        "court": ["BGH", "BAG"],
        "decided": [date(2015, 3, 1), None],
    }


def test_columns_that_are_no_metadata_are_left_out_with_a_warning(tmp_path: Path) -> None:
    passages = pd.DataFrame({"doc_id": ["a", "a"], "text": ["One.", "Two."], "page": [1, 2], "vector": [[0.5], [0.5]]})
    with pytest.warns(UserWarning, match=r"left out columns page, vector"):
        assert open_documents(passages.assign(court=["BGH", None])).metadata.to_pydict() == {"court": ["BGH"]}
    mixed = pd.DataFrame({"doc_id": ["a", "b"], "text": ["One.", "Two."], "x": pd.Series([1, "z"], dtype=object)})
    assert open_documents(mixed).metadata.to_pydict() == {"x": ["1", "z"]}
    for name, frame in (("passages", mixed[["doc_id", "text"]]), ("documents", mixed[["doc_id"]].assign(year=[1, 2]))):
        frame.to_parquet(tmp_path / f"{name}.parquet")
    assert open_collection(tmp_path).metadata.to_pydict() == {"year": [1, 2]}


def test_errors_name_the_document_and_the_row() -> None:
    passages = pd.DataFrame({"doc_id": ["a"], "text": ["One."]})
    unknown = pd.DataFrame({"doc_id": ["a", "z"], "year": [1, 2]})
    with pytest.raises(InputError, match="documents: row 1: document 'z'"):
        collection_from_frames("c", passages, *JUDGEMENTS, documents=unknown)
    for metadata in ({1: "x"}, {"": "x"}, {"x": "\ud800"}, {"x": ["\ud800"]}, {"\0": 1}):
        with pytest.raises(InputError):
            CollectionBuilder("c").add_document("a", "Text.", metadata=metadata)  # type: ignore[arg-type]
    for document in ({"title": "no text"}, {"text": 1}, {"text": "x", "title": 1}):
        with pytest.raises(InputError, match="document 'a'"):
            open_documents({"a": document})


def test_an_engine_keeps_the_metadata_of_added_documents(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"encoder": "tfidf(min_df=1)", "language": "english"}
    engine = Engine.build({"a": {"text": "One tax.", "year": 2015}}, tmp_path / "engine", **settings)
    engine.add({"b": {"text": "Two taxes.", "court": "BGH"}})
    engine.add(pd.DataFrame({"doc_id": ["c"], "text": ["Three taxes."], "year": [1.5]}))
    engine.remove(["b"])
    for each in (engine, Engine.open(tmp_path / "engine")):
        assert each.documents_table().to_pydict() == {
            "id": ["a", "c"],
            "title": ["", ""],
            "passages": [1, 1],
            "year": [2015, 1.5],
            "court": [None, None],
        }


@pytest.mark.parametrize("value", [b"\xff", 10**5000, [10**5000]], ids=["bytes", "digits", "list"])
def test_values_that_no_column_can_hold_are_refused(value: Any) -> None:
    with pytest.raises(InputError):
        open_documents({"a": {"text": "x", "value": value}})
