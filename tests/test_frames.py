"""Test that frames of every library are accepted, and that results are of the same library."""

from __future__ import annotations

import sys

import pandas as pd
import pyarrow as pa
import pytest
from support.frame_libraries import in_every_library

from haybale import Run, evaluate
from haybale.errors import InputError, MissingExtraError, UnknownNameError
from haybale.evaluation import averages, recall_curves, results
from haybale.frames import column_names, in_library, library_of, like, to_arrow, to_pandas

FRAME = pd.DataFrame({"name": ["b", "ä", None], "number": [3, 1, 2], "score": [0.5, -1.0, 2.0]})
RANKED = pd.DataFrame(
    {"query_id": ["q2", "q1", "q1"], "doc_id": ["c", "a", "b"], "score": [1.0, 0.5, 2.0], "note": ["x", "y", "z"]}
)
QRELS = pd.DataFrame({"query_id": ["q1", "q1", "q2"], "doc_id": ["a", "c", "a"], "relevance": [1, 2, 1]})


@in_every_library
def test_frames_are_converted_and_converted_back(library: str) -> None:
    frame = in_library(FRAME, library)
    assert library_of(frame) == library == library_of(like(FRAME, frame))
    assert column_names(frame) == ["name", "number", "score"]
    pd.testing.assert_frame_equal(to_pandas(frame), FRAME, check_dtype=False)
    pd.testing.assert_frame_equal(to_pandas(frame, ["score", "name"]), FRAME[["score", "name"]], check_dtype=False)
    assert to_arrow(frame).to_pydict() == pa.Table.from_pandas(FRAME).to_pydict()
    assert to_arrow(frame, ["number"]).to_pydict() == {"number": [3, 1, 2]}
    assert to_pandas(frame)["number"].tolist() == [3, 1, 2]  # the input has not changed


def test_pandas_frames_are_not_copied_and_an_index_becomes_a_column() -> None:
    assert to_pandas(FRAME) is FRAME
    table = pa.Table.from_pandas(pd.DataFrame({"doc_id": ["a"]}, index=pd.Index(["q"], name="query_id")))
    assert list(to_pandas(table).columns) == ["doc_id", "query_id"]


def test_other_objects_and_libraries_are_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    for value, name in (([1], "list"), ({"a": [1]}, "dict"), (FRAME["name"], "Series")):
        with pytest.raises(InputError, match=f"found {name}"):
            to_pandas(value)
    with pytest.raises(UnknownNameError, match=r"'dask'.*pandas, cudf, polars, pyarrow"):
        in_library(FRAME, "dask")
    for library, pip in (("cudf", r'"haybale\[gpu\]"'), ("polars", "polars")):
        monkeypatch.setitem(sys.modules, library, None)
        with pytest.raises(MissingExtraError, match=f"pip install {pip}"):
            Run.from_frame(RANKED).to_frame(library)


@in_every_library
def test_runs_are_converted_from_and_to_every_library(library: str) -> None:
    run = Run.from_frame(RANKED)
    assert Run.from_frame(in_library(RANKED, library)) == run
    frame = run.to_frame(library)
    assert library_of(frame) == library
    pd.testing.assert_frame_equal(to_pandas(frame), run.to_frame(), check_dtype=False)
    numbers = pd.DataFrame({"query_id": [1, 2], "doc_id": [10, 9], "score": [1.0, 2.0]})
    assert Run.from_frame(in_library(numbers, library))["2"] == [("9", 2.0)]
    for frame, message in [
        (RANKED.assign(query_id=["x", None, "y"]), "run: row 1 .*query_id"),
        (RANKED[["query_id", "doc_id"]], "run: .*column score"),
        (RANKED.assign(score="high"), "run: column score"),
    ]:
        with pytest.raises(InputError, match=message):
            Run.from_frame(in_library(frame, library))
    with pytest.raises(InputError, match=r"qrels: row 1 .*doc_id"):
        evaluate(run, in_library(QRELS.assign(doc_id=["x", None, "y"]), library))


@in_every_library
def test_measures_are_in_the_library_of_the_judgements(library: str) -> None:
    run, qrels = Run.from_frame(RANKED), in_library(QRELS, library)
    expected = evaluate(run, QRELS, ["MRR@10", "Recall@100"])
    assert expected.loc["q1"].tolist() == [0.5, 0.5]
    table = evaluate(run, qrels, ["MRR@10", "Recall@100"])
    assert library_of(table) == library
    if library != "pandas":
        assert column_names(table) == ["query_id", "MRR@10", "Recall@100"]
        pd.testing.assert_frame_equal(to_pandas(table).set_index("query_id"), expected)
    assert averages(table) == averages(expected)
    found = results({"a": table, "b": table}, "a")
    pd.testing.assert_frame_equal(found.values["b"], expected)
    assert found.n_queries == 2
    pd.testing.assert_frame_equal(recall_curves({"r": run}, qrels), recall_curves({"r": run}, QRELS))
