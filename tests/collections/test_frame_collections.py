"""Test collections from frames of every library and from folders of Parquet files, with valid and invalid input."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.frame_libraries import in_every_library

from haybale.collections import Collection, CollectionBuilder, collection_from_frames, open_collection
from haybale.errors import FileFormatError, InputError
from haybale.frames import in_library

PASSAGES = pd.DataFrame({"text": ["Ä one", "two", "\u00a0", "three\tfour"], "doc_id": ["a", "b", "b", "a"]})
QUERIES = pd.DataFrame(
    {"query_id": ["x", "y", "z"], "text": ["what?\nhow?", "who?", "when?"], "split": ["dev", "train", None]}
).assign(own=["b", None, "elsewhere"])
JUDGED = pd.DataFrame({"query_id": ["x", "y"], "doc_id": ["a", "b"], "relevance": [2, 0]})


def expected_collection() -> Collection:
    builder = CollectionBuilder("c")
    numbers = {name: builder.add_document(name) for name in "ab"}
    for text, doc_id in PASSAGES.itertuples(index=False):
        if text.strip():
            builder.add_passage(numbers[doc_id], text)
    builder.add_query("x", ["what?", "how?"], own="b", split="dev")
    builder.add_query("y", ["who?"], split="train")
    builder.add_query("z", ["when?"], own="elsewhere")
    builder.add_judgement("dev", "x", "a", 2)
    builder.add_judgement("train", "y", "b", 0)
    return builder.build()


def parquet(folder: Path, **changes: Any) -> Path:
    frames = {"passages": PASSAGES, "queries": QUERIES, "qrels": JUDGED} | changes
    for name, frame in frames.items():
        table = frame if isinstance(frame, pa.Table) else pa.Table.from_pandas(frame)
        pq.write_table(table, folder / f"{name}.parquet", row_group_size=3)
    return folder


@in_every_library
def test_frames_of_any_library_give_the_same_collection(library: str) -> None:
    frames = [in_library(frame, library) for frame in (PASSAGES, QUERIES, JUDGED)]
    with pytest.warns(UserWarning, match="1 passages of only whitespace"):
        found = collection_from_frames("c", *frames, language="german")
    assert found.digest() == expected_collection().digest()
    assert list(found.splits) == ["train", "dev"]
    assert found.language == "german"


@pytest.mark.filterwarnings("ignore:.*of only whitespace")
def test_parquet_files_give_the_same_collection(tmp_path: Path) -> None:
    collection = open_collection(parquet(tmp_path))
    assert collection.digest() == expected_collection().digest()
    found = open_collection(parquet(tmp_path, passages=PASSAGES.assign(passage_id=list("pqrs"), more=1)))
    assert found.passages.ids.to_pylist() == ["p", "s", "q"]
    for name in ("queries", "qrels"):
        (tmp_path / f"{name}.parquet").unlink()
    assert open_collection(tmp_path).n_queries == 0


def test_numeric_ids_categories_and_splits_of_judgements() -> None:
    passages = pd.DataFrame({"doc_id": [7, 7, 8], "text": ["a", "b", "c"], "passage_id": ["p", "q", "r"]})
    queries = pd.DataFrame({"query_id": [1, 2], "text": ["x", "y"]})
    qrels = pd.DataFrame({"query_id": [1, 1, 2], "doc_id": [7, 8, 8], "split": ["test", "dev", "test"]})
    qrels["split"] = qrels["split"].astype("category")
    for library in ("pandas", "polars"):
        frames = [in_library(frame, library) for frame in (passages, queries, qrels)]
        found = collection_from_frames("c", *frames)
        assert found.passages.ids.to_pylist() == ["p", "q", "r"]
        assert {name: found.relevant_ids(name) for name in found.splits} == {"dev": [["8"]], "test": [["7"], ["8"]]}
    plain = collection_from_frames("c", passages, queries, qrels[["query_id", "doc_id"]])
    assert plain.relevant_ids("test") == [["7", "8"], ["8"]]


INVALID: dict[str, dict[str, Any]] = {
    "passages: .*column doc_id": {"passages": PASSAGES[["text"]]},
    "passages: .*column doc_id.* 2": {"passages": pd.concat([PASSAGES, PASSAGES], axis=1)},
    "passages: row 1, column text: .*nothing": {"passages": PASSAGES.assign(text=["a", None, "c", "d"])},
    "passages: .*'float' object": {"passages": PASSAGES.assign(text=pd.Series(["a", "b", 0.5, "d"], dtype=object))},
    "passages: .*surrogates": {"passages": PASSAGES.assign(text=pd.Series([*"abc", "\ud800"], dtype=object))},
    "passages: row 0, column text: .*0.5": {"passages": PASSAGES.assign(text=0.5)},
    "passages: column text: .*UTF-8": {
        "passages": pa.table({"doc_id": ["a"], "text": pa.array([b"\xff"]).view(pa.string())})
    },
    # The third passage is blank and left out, but rows are counted in the frame.
    "passages: row 3: .*'p'": {"passages": PASSAGES.assign(passage_id=["p", "q", "r", "p"])},
    "queries: row 1: .*'x'": {"queries": QUERIES.assign(query_id=["x", "x", "z"])},
    "queries: .*query_id, text.* id": {"queries": pd.DataFrame({"id": ["a"]})},
    "qrels: row 1: .*test.*'w'": {"qrels": JUDGED.assign(query_id=["x", "w"])},
    "qrels: row 0: .*dev.*'d'": {"qrels": JUDGED.assign(doc_id=["d", "a"])},
    "qrels: row 1: .*'z'.* split": {"qrels": JUDGED.assign(query_id=["x", "z"])},
    "qrels: row 0, column split: .*nothing": {"qrels": JUDGED.assign(split=[None, "dev"])},
    "qrels: row 0, column relevance: .*1e": {"qrels": JUDGED.assign(relevance=[1e30, 1])},
    "qrels: row 0, column relevance: .*nothing": {"qrels": JUDGED.assign(relevance=pd.array([None, 1], dtype="Int64"))},
}


@pytest.mark.parametrize("message", INVALID)
@pytest.mark.filterwarnings("ignore:.*of only whitespace")
def test_errors_name_the_frame_or_file_row_and_column(tmp_path: Path, message: str) -> None:
    frames = {"passages": PASSAGES, "queries": QUERIES, "qrels": JUDGED} | INVALID[message]
    with pytest.raises(InputError, match=message):
        collection_from_frames("passages", *frames.values())
    if any(word in message for word in (" 2", "float", "surrogates")):  # pyarrow cannot write such a file
        return
    with pytest.raises(FileFormatError, match=message.replace(":", r"\.parquet:", 1)):
        open_collection(parquet(tmp_path, **frames))


def test_errors_name_missing_and_damaged_parquet_files(tmp_path: Path) -> None:
    (parquet(tmp_path) / "passages.parquet").write_bytes(b"no Parquet")
    with pytest.raises(FileFormatError, match=r"passages\.parquet"):
        open_collection(tmp_path)
    (parquet(tmp_path) / "qrels.parquet").unlink()
    with pytest.raises(InputError, match=r"qrels\.parquet"):
        open_collection(tmp_path)
