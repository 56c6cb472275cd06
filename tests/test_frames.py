"""Frames of three libraries: each comes in, the answer goes out in the same; frames to collections."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import cudf_double
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from haybale import Run, evaluate
from haybale.collections import CollectionBuilder, collection_from_frames
from haybale.errors import InputError, MissingExtraError, UnknownNameError
from haybale.evaluation import averages, found_sets, recall_curves, results
from haybale.frames import LIBRARIES, column_names, in_library, library_of, like, to_arrow, to_pandas
from haybale.retrieval import Hits, PassageIndex, hits_frame


@pytest.fixture(autouse=True)
def cudf() -> Iterator[Any]:
    with cudf_double.installed() as double:
        yield double


class Foreign:
    """A frame of a library that haybale does not know and that speaks Arrow."""

    def __init__(self, frame: pd.DataFrame) -> None:
        self._table = pa.Table.from_pandas(frame)
        self.columns = self._table.column_names

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._table.__arrow_c_stream__(requested_schema)


def made(frame: pd.DataFrame, library: str) -> Any:
    return Foreign(frame) if library == "arrow" else in_library(frame, library)


in_every_library = pytest.mark.parametrize("library", [*LIBRARIES, "arrow"])
FRAME = pd.DataFrame({"name": ["b", "ä", None], "number": [3, 1, 2], "score": [0.5, -1.0, 2.0]})


@in_every_library
def test_frames_go_there_and_back(library: str) -> None:
    frame = made(FRAME, library)
    assert library_of(frame) == library
    assert column_names(frame) == ["name", "number", "score"]
    pd.testing.assert_frame_equal(to_pandas(frame), FRAME, check_dtype=False)
    pd.testing.assert_frame_equal(to_pandas(frame, ["score", "name"]), FRAME[["score", "name"]], check_dtype=False)
    assert to_arrow(frame).to_pydict() == pa.Table.from_pandas(FRAME).to_pydict()
    assert library_of(like(FRAME, frame)) == ("pandas" if library == "arrow" else library)


def test_a_frame_of_pandas_is_not_copied() -> None:
    assert to_pandas(FRAME) is FRAME
    assert like(FRAME, FRAME) is FRAME


def test_an_index_that_was_kept_in_a_table_stays_a_column() -> None:
    table = pa.Table.from_pandas(pd.DataFrame({"doc_id": ["a"]}, index=pd.Index(["q"], name="query_id")))
    assert list(to_pandas(table).columns) == ["doc_id", "query_id"]


def test_what_is_no_frame_is_refused(cudf: Any) -> None:
    column = in_library(FRAME, "cudf")["name"]
    for thing, name in (([1], "list"), ({"a": [1]}, "dict"), (FRAME["name"], r"pandas\S*\.Series"), (column, "Series")):
        with pytest.raises(InputError, match=rf"expected a frame of pandas or cuDF.*found \S*{name}"):
            to_pandas(thing)
    with pytest.raises(UnknownNameError, match="known: pandas, cudf, pyarrow"):
        in_library(FRAME, "polars")


def test_a_frame_in_cudf_without_cudf_names_the_pip_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "cudf", None)
    with pytest.raises(MissingExtraError, match=r'cudf is not installed; pip install "haybale\[gpu\]"'):
        run().to_frame("cudf")


# runs and evaluation ------------------------------------------------------------------------------------

RANKED = pd.DataFrame(
    {"query_id": ["q2", "q1", "q1"], "doc_id": ["c", "a", "b"], "score": [1.0, 0.5, 2.0], "note": ["x", "y", "z"]}
)
QRELS = pd.DataFrame({"query_id": ["q1", "q1", "q2"], "doc_id": ["a", "c", "a"], "relevance": [1, 2, 1]})


def run() -> Run:
    return Run.from_frame(RANKED)


@in_every_library
def test_runs_come_from_and_go_to_every_library(library: str) -> None:
    assert Run.from_frame(made(RANKED, library)) == run()
    if library != "arrow":
        frame = run().to_frame(library)
        assert library_of(frame) == library
        pd.testing.assert_frame_equal(to_pandas(frame), run().to_frame(), check_dtype=False)


@in_every_library
def test_numbers_as_ids_and_missing_ones(library: str) -> None:
    numbers = pd.DataFrame({"query_id": [1, 2], "doc_id": [10, 9], "score": [1.0, 2.0]})
    assert Run.from_frame(made(numbers, library))["2"] == [("9", 2.0)]
    for column in ("query_id", "doc_id"):
        broken = RANKED.assign(**{column: ["x", None, "y"]})
        with pytest.raises(InputError, match=f"run: row 1 has no {column}"):
            Run.from_frame(made(broken, library))
        with pytest.raises(InputError, match=f"qrels: row 1 has no {column}"):
            evaluate(run(), made(QRELS.assign(**{column: ["x", None, "y"]}), library))
    with pytest.raises(InputError, match="run: the frame has no column score"):
        Run.from_frame(made(RANKED[["query_id", "doc_id"]], library))
    with pytest.raises(InputError, match="qrels: the frame has no column relevance"):
        evaluate(run(), made(QRELS[["query_id", "doc_id"]], library))


@in_every_library
def test_measures_come_in_the_library_of_the_judgements(library: str) -> None:
    expected = evaluate(run(), QRELS, ["MRR@10", "Recall@100"])
    assert expected.loc["q1"].tolist() == [0.5, 0.5]
    table = evaluate(run(), made(QRELS, library), ["MRR@10", "Recall@100"])
    assert library_of(table) == ("pandas" if library == "arrow" else library)
    if library in ("cudf", "pyarrow"):
        assert column_names(table) == ["query_id", "MRR@10", "Recall@100"]
        pd.testing.assert_frame_equal(to_pandas(table).set_index("query_id"), expected)
    assert averages(table) == averages(expected)
    found = results({"a": table, "b": table}, "a")
    pd.testing.assert_frame_equal(found.values["b"], expected)
    assert found.n_queries == 2


@in_every_library
def test_analyses_take_judgements_of_every_library(library: str) -> None:
    qrels = made(QRELS, library)
    assert found_sets(run(), run(), qrels).counts == found_sets(run(), run(), QRELS).counts
    pd.testing.assert_frame_equal(recall_curves({"r": run()}, qrels), recall_curves({"r": run()}, QRELS))


@in_every_library
def test_hits_as_a_frame(library: str) -> None:
    index = PassageIndex(np.eye(3), passage_ids=["a:0", "a:1", "b:0"])
    hits = index.search(np.array([[0.0, 1.0, 0.5], [0.0, 0.0, 0.0], [1.0, 0.0, 0.0]]), 2)
    if library == "arrow":
        with pytest.raises(UnknownNameError):
            hits_frame(index, ["x", "y", "z"], hits, library)
        return
    frame = hits_frame(index, ["x", "y", "z"], hits, library)
    assert library_of(frame) == library
    expected = [("x", "a:1", 1, 1.0), ("x", "b:0", 2, 0.5), ("z", "a:0", 1, 1.0), ("z", "a:1", 2, 0.0)]
    assert list(to_pandas(frame).itertuples(index=False, name=None)) == expected
    with pytest.raises(InputError, match="2 query ids for 3 rows of hits"):
        hits_frame(index, ["x", "y"], hits, library)
    assert len(to_pandas(hits_frame(index, [], Hits(hits.passages[:0], hits.scores[:0]), library))) == 0


# collections --------------------------------------------------------------------------------------------

PASSAGES = pd.DataFrame({"text": ["Ä one", "two", "\u00a0", "three\tfour"], "doc_id": ["a", "b", "b", "a"]})
QUERIES = pd.DataFrame(
    {"query_id": ["x", "y", "z"], "text": ["what?\nhow?", "who?", "when?"], "split": ["dev", "train", None]}
).assign(own=["b", None, "elsewhere"])
JUDGED = pd.DataFrame({"query_id": ["x", "y"], "doc_id": ["a", "b"], "relevance": [2, 0]})


@in_every_library
def test_a_collection_from_frames_is_that_of_the_builder(library: str) -> None:
    with pytest.warns(UserWarning, match="1 passages of only whitespace"):
        found = collection_from_frames(
            "c", *(made(frame, library) for frame in (PASSAGES, QUERIES, JUDGED)), language="german"
        )
    builder = CollectionBuilder("c", "german")
    numbers = {name: builder.add_document(name) for name in "ab"}
    for text, doc_id in PASSAGES.itertuples(index=False):
        builder.add_passage(numbers[doc_id], text)
    builder.add_query("x", ["what?", "how?"], own="b", split="dev")
    builder.add_query("y", ["who?"], split="train")
    builder.add_query("z", ["when?"], own="elsewhere")
    builder.add_judgement("dev", "x", "a", 2)
    builder.add_judgement("train", "y", "b", 0)
    with pytest.warns(UserWarning, match="1 passages"):
        expected = builder.build()
    same_collection(found, expected)
    assert list(found.splits) == ["train", "dev"]
    assert found.language == "german"


def same_collection(one: Any, other: Any) -> None:
    assert one.doc_ids.to_pylist() == other.doc_ids.to_pylist()
    assert one.doc_titles.to_pylist() == other.doc_titles.to_pylist()
    assert one.passages.ids.to_pylist() == other.passages.ids.to_pylist()
    assert one.passages.texts.to_pylist() == other.passages.texts.to_pylist()
    assert one.passages.doc_offsets.tolist() == other.passages.doc_offsets.tolist()
    assert one.queries.ids.to_pylist() == other.queries.ids.to_pylist()
    assert one.queries.paragraphs.to_pylist() == other.queries.paragraphs.to_pylist()
    assert one.queries.own.tolist() == other.queries.own.tolist()
    assert set(one.splits) == set(other.splits)
    for split in one.splits:
        pd.testing.assert_frame_equal(one.qrels_frame(split), other.qrels_frame(split))


def test_ids_may_be_given_be_numbers_or_categories_and_splits_be_those_of_the_judgements() -> None:
    passages = pd.DataFrame({"doc_id": [7, 7, 8], "text": ["a", "b", "c"], "passage_id": ["p", "q", "r"]})
    queries = pd.DataFrame({"query_id": [1, 2], "text": ["x", "y"]})
    qrels = pd.DataFrame({"query_id": [1, 1, 2], "doc_id": [7, 8, 8], "split": ["test", "dev", "test"]})
    qrels["split"] = qrels["split"].astype("category")
    found = collection_from_frames("c", passages, queries, qrels)
    assert found.passages.ids.to_pylist() == ["p", "q", "r"]
    assert {name: found.relevant_ids(name) for name in found.splits} == {"dev": [["8"]], "test": [["7"], ["8"]]}
    plain = collection_from_frames("c", passages, queries, qrels[["query_id", "doc_id"]])
    assert plain.relevant_ids("test") == [["7", "8"], ["8"]]


BROKEN = {
    "passages: expected a column doc_id; found text": (PASSAGES[["text"]], QUERIES, JUDGED),
    "passages: column doc_id stands there twice": (pd.concat([PASSAGES, PASSAGES], axis=1), QUERIES, JUDGED),
    "qrels: row 0, column relevance: expected a whole number, found 1e": (
        PASSAGES,
        QUERIES,
        JUDGED.assign(relevance=[1e30, 1]),
    ),
    "passages: row 1, column text: expected a string, found nothing": (
        PASSAGES.assign(text=["a", None, "c", "d"]),
        QUERIES,
        JUDGED,
    ),
    "passages: row 2, column text: expected a string, found float": (
        PASSAGES.assign(text=pd.Series(["a", "b", 0.5, "d"], dtype=object)),
        QUERIES,
        JUDGED,
    ),
    "passages: column text: expected strings, found double": (PASSAGES.assign(text=0.5), QUERIES, JUDGED),
    # The third passage is blank, and left out: rows are those of the frame.
    "passages: row 3: duplicate passage id 'p'": (PASSAGES.assign(passage_id=["p", "q", "r", "p"]), QUERIES, JUDGED),
    "passages.* is empty": (PASSAGES.iloc[:0], QUERIES, JUDGED),
    "queries: row 1: duplicate query id 'x'": (PASSAGES, QUERIES.assign(query_id=["x", "x", "z"]), JUDGED),
    "queries: row 2: query 'z' is empty": (PASSAGES, QUERIES.assign(text=["a", "b", " "]), JUDGED),
    "queries: expected columns query_id, text; found id": (PASSAGES, pd.DataFrame({"id": ["a"]}), JUDGED),
    "qrels: row 1: qrels of test name query 'w', which does not exist": (
        PASSAGES,
        QUERIES,
        JUDGED.assign(query_id=["x", "w"]),
    ),
    "qrels: row 0: qrels of dev names document 'd'": (PASSAGES, QUERIES, JUDGED.assign(doc_id=["d", "a"])),
    "qrels: row 1: query 'z' is in no split": (PASSAGES, QUERIES, JUDGED.assign(query_id=["x", "z"])),
    "qrels: row 1, column relevance: expected a whole number, found 0.5": (
        PASSAGES,
        QUERIES,
        JUDGED.assign(relevance=[1.0, 0.5]),
    ),
    "qrels: row 0, column relevance: expected a whole number, found nothing": (
        PASSAGES,
        QUERIES,
        JUDGED.assign(relevance=pd.array([None, 1], dtype="Int64")),
    ),
    "qrels: row 1: .*both 2 and 3": (
        PASSAGES,
        QUERIES,
        pd.DataFrame({"query_id": ["x", "x"], "doc_id": ["a", "a"], "relevance": [2, 3]}),
    ),
}


@pytest.mark.parametrize("message", BROKEN)
def test_bad_frames_of_collections_are_refused_by_frame_row_and_column(message: str) -> None:
    with pytest.raises(InputError, match=message):
        collection_from_frames("passages", *BROKEN[message])
