"""Test the PyTerrier transformer: PyTerrier's conformance tests, rankings, re-rankings and pipelines without Java."""

from __future__ import annotations

import importlib
import sys
import unittest
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.pages import small

from haybale import BM25, KNN, PARM, RRF, Learned, SimilarQueries
from haybale.collections import open_documents
from haybale.collections.queries import queries_of
from haybale.embeddings import TfidfEncoder
from haybale.engine import Engine
from haybale.errors import InputError, MissingExtraError, NotFittedError, UnknownNameError
from haybale.evaluation import averages, evaluate
from haybale.rankers import Ranker
from haybale.retrieval import Run
from haybale.retrieval.run import distinct_scores

pt = pytest.importorskip("pyterrier")

from haybale.pyterrier import RankerTransformer, to_pyterrier  # noqa: E402

pytestmark = [
    pytest.mark.filterwarnings("ignore:The inplace keyword:DeprecationWarning"),  # PyTerrier 1.1 and pandas 3.1
    pytest.mark.filterwarnings("ignore::haybale.EmptyRankingWarning"),
]
KINDS = [
    *(BM25(), BM25("document"), KNN("first passage"), PARM("rrf", over="bm25"), SimilarQueries()),
    Learned(RRF(BM25(), KNN("document")), PARM("vrrf")),
]
kinds = pytest.mark.parametrize("kind", KINDS, ids=map(str, KINDS))


def queries(*texts: str, **columns: Any) -> pd.DataFrame:
    return pd.DataFrame({"qid": [f"q{i}" for i in range(len(texts))], "query": list(texts), **columns})


def rankings(frame: pd.DataFrame) -> dict[str, list[tuple[str, float]]]:
    """Return ``{qid: [(docno, score), …]}`` for a frame with sorted rows and correct ranks."""
    assert (frame["rank"] == frame.groupby("qid").cumcount()).all()
    return {qid: list(zip(part["docno"], part["score"], strict=True)) for qid, part in frame.groupby("qid")}


@cache
def engine() -> Engine:
    """Return an engine of thirty documents on several topics, with judged queries in train and dev."""
    return Engine(small(), encoder=TfidfEncoder(min_df=1))


def fitted(kind: Ranker, on: Engine | None = None) -> Ranker:
    return kind.clone().fit(on or engine())


def dev_queries(n: int = 6, **columns: Any) -> pd.DataFrame:
    """Return the first queries of dev; each line is a paragraph."""
    queries = engine().collection.queries
    numbers = engine().collection.split("dev").queries[:n]
    return pd.DataFrame({"qid": queries.ids.take(numbers).to_pylist(), "query": queries.texts(numbers)} | columns)


def expected(run: Run) -> dict[str, list[tuple[str, float]]]:
    return rankings(run.to_frame().rename(columns={"query_id": "qid", "doc_id": "docno"}).eval("rank = rank - 1"))


@kinds
def test_conformance_tests_of_pyterrier(kind: Ranker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PT_TEST_TRANSFORMER_REPORTS", "0")
    monkeypatch.setattr(pt.documentation, "objects_inv", dict)  # would be downloaded
    transformer = to_pyterrier(fitted(kind))
    case = pt.testing.transformer_test_class(lambda: transformer)
    result = unittest.TestResult()
    unittest.defaultTestLoader.loadTestsFromTestCase(case).run(result)
    assert result.testsRun >= 2
    assert result.wasSuccessful(), result.failures + result.errors
    again = pt.inspect.transformer_apply_attributes(transformer, depth=7)
    assert (type(again), again.ranker, again.depth) == (RankerTransformer, transformer.ranker, 7)
    assert pt.inspect.subtransformers(transformer) == {}


def test_columns() -> None:
    transformer = to_pyterrier(fitted(BM25()))
    takes = pt.inspect.transformer_inputs(transformer)
    assert takes == [["qid", "query"], ["qid", "docno", "query"]]
    for columns in takes:
        output_columns = [*columns, *(column for column in ("docno", "score", "rank") if column not in columns)]
        assert pt.inspect.transformer_outputs(transformer, columns) == output_columns
        empty = transformer(pd.DataFrame(columns=[*columns, "colour"]))
        assert len(empty) == 0
        assert set(empty.columns) == {*output_columns, "colour"}
        assert (empty["score"].dtype, empty["rank"].dtype) == (np.float64, np.int64)
    with pytest.raises(pt.validate.InputValidationError):
        transformer(pd.DataFrame(columns=["qid", "docno"]))
    frame = dev_queries(2, colour=["red", "blue"]).iloc[::-1]  # other columns are kept
    for pipeline in (to_pyterrier(fitted(KNN())), transformer >> to_pyterrier(fitted(KNN()))):
        found = pipeline(frame)
        assert found["qid"].drop_duplicates().tolist() == ["dev-1", "dev-0"]  # in the order of the queries
        given = frame[["qid", "query", "colour"]].itertuples(index=False, name=None)
        assert set(found[["qid", "query", "colour"]].itertuples(index=False, name=None)) == set(given)


@kinds
def test_retrieved_rankings_equal_those_of_the_ranker(kind: Ranker) -> None:
    ranker, frame = fitted(kind), dev_queries(own=["d1", None, "d3", np.nan, "nobody", "d2"])
    given = frame.rename(columns={"qid": "query_id", "query": "text"})
    for depth in (1, 3, 1000):
        found = rankings(to_pyterrier(ranker, depth=depth)(frame))
        assert found == expected(ranker.rank(given, depth=depth))
        assert "d1" not in dict(found["dev-0"])
    plain = frame.drop(columns="own")
    assert rankings(to_pyterrier(ranker)(plain)) == rankings(to_pyterrier(ranker)(plain.assign(own=None)))


WORDS = st.sampled_from(["dog", "cat", "tax", "road"])
TEXT = st.lists(WORDS, min_size=1, max_size=3).map(" ".join)
DOCUMENTS = st.lists(st.lists(TEXT, max_size=3), min_size=2, max_size=7).filter(lambda texts: any(texts))


@given(DOCUMENTS, st.lists(st.lists(TEXT, min_size=1, max_size=3), min_size=1, max_size=3), st.data())
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_rankings_and_re_rankings_with_ties(
    documents: list[list[str]], texts: list[list[str]], seed: st.DataObject
) -> None:
    """Re-ranking gives the ranker's ranking within the given documents, followed by all others."""
    ids = [f"d{-position % 5}{position}" for position in range(len(documents))]
    collection = replace(open_documents(dict(zip(ids, documents, strict=True))), language="english")
    built = Engine(collection, encoder=TfidfEncoder(min_df=1))
    own = [seed.draw(st.sampled_from([None, *ids])) for _ in texts]
    frame = queries(*("\n".join(text) for text in texts), own=own)
    kind = seed.draw(st.sampled_from([BM25(), BM25("document"), KNN(), PARM("rrf"), RRF(BM25(), KNN())]))
    ranker, depth = fitted(kind, built), seed.draw(st.integers(1, 8))
    transformer = to_pyterrier(ranker, depth=depth)
    given = frame.rename(columns={"qid": "query_id", "query": "text"})
    assert rankings(transformer(frame)) == expected(ranker.rank(given, depth=depth))
    rows = [(qid, docno) for qid in frame["qid"] for docno in seed.draw(st.lists(st.sampled_from(ids), unique=True))]
    before = pd.DataFrame(rows, columns=["qid", "docno"]).merge(frame, on="qid")
    before["rank"] = [-position for position in range(len(before))]  # the last row has the first rank
    found = rankings(transformer(before))
    for row, (qid, text) in enumerate(zip(frame["qid"], texts, strict=True)):
        docs = [docno for query, docno in rows if query == qid and docno != own[row]]
        has_text = any(documents[ids.index(docno)] for docno in docs)
        ranked = ranker.rank({"x": text}, within=docs)["x"] if has_text else []
        lowest = min([0.0, *(score for _, score in ranked)])
        not_found = [docno for docno in docs[::-1] if docno not in dict(ranked)]
        ranked += [(docno, lowest - 1 - position) for position, docno in enumerate(not_found)]
        distinct = distinct_scores(np.array([score for _, score in ranked]), np.zeros(len(ranked), dtype=np.int64))
        assert found.get(qid, []) == list(zip([name for name, _ in ranked], distinct, strict=True))[:depth]


def test_queries_are_split_into_paragraphs() -> None:
    ranker = fitted(PARM("rrf"))
    [[first, second, third]] = [text.split("\n") for text in dev_queries(2)["query"][1:]]
    split = expected(ranker.rank({"q0": [first, second, third]}))
    assert rankings(to_pyterrier(ranker)(queries(f"{first}\n\n {second} \n{third}"))) == split
    by_function = to_pyterrier(ranker, splitter=lambda text: text.split(". "))
    assert rankings(by_function(queries(f"{first}. {second}. {third}"))) == split
    by_name = to_pyterrier(ranker, splitter="blank-lines")
    assert rankings(by_name(queries(f"{first}\n\n{second}\n\n{third}"))) == split
    assert rankings(by_name(queries(f"{first}\n{second}\n{third}"))) != split
    for splitter in (lambda text: [], lambda text: ["dogs", " "], str.strip):
        with pytest.raises(InputError, match=r"'q0'.*splitter"):
            to_pyterrier(ranker, splitter=splitter)(queries(first))


def test_columns_stay_with_their_documents() -> None:
    """Only some rows of a query have its text, as after the operator +."""
    one, two = dev_queries(2)["query"]
    frame = pd.DataFrame(
        {"qid": [*"2121", "2", "2"], "docno": ["d4", "d1", "d1", "d2", "d9", "d23"], "colour": [*"abcdef"]}
    )
    frame["query"] = [None, two, one, None, one, one]
    transformer = to_pyterrier(fitted(KNN()))
    found = transformer(frame)
    assert found["qid"].tolist() == [*"222211"]
    whole = transformer(frame.assign(query=[one, two, one, two, one, one]))
    assert rankings(found) == rankings(whole)
    colours = dict(zip(zip(frame["qid"], frame["docno"], strict=True), frame["colour"], strict=True))
    assert all(colours[row.qid, row.docno] == row.colour for row in found.itertuples())
    without = rankings(transformer(frame.assign(own="d1")))
    assert {qid: {name for name, _ in ranking} for qid, ranking in without.items()} == {
        "1": {"d2"},
        "2": {"d4", "d9", "d23"},
    }
    assert len(transformer(frame[frame["docno"] == "d1"].assign(own="d1"))) == 0


@pytest.mark.parametrize("reranks", [False, True])
def test_documents_removed_meanwhile_do_not_change_which_own_document_is_excluded(
    reranks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first document is removed after the own document of the query was found in the engine."""
    live = Engine(small(), encoder=TfidfEncoder(min_df=1))
    transformer, first = to_pyterrier(fitted(BM25(), live)), live.collection.doc_ids[0].as_py()

    def removing(*arguments: Any) -> Any:
        found = queries_of(*arguments)
        live.remove([first])
        return found

    frame = dev_queries(1)
    found = transformer(frame)["docno"].tolist()
    own = next(doc_id for doc_id in found if doc_id != first)
    frame = frame.assign(own=own)
    if reranks:
        frame = frame.merge(pd.DataFrame({"docno": found}), how="cross")
    monkeypatch.setattr("haybale.pyterrier.queries_of", removing)
    assert transformer(frame)["docno"].tolist() == [doc_id for doc_id in found if doc_id != own]


def test_documents_that_are_not_found_keep_their_order() -> None:
    """Their order is by rank if there is one, else by score, else by row."""
    transformer = to_pyterrier(fitted(BM25()))
    frame = pd.DataFrame({"qid": "q", "query": "nothing", "docno": ["d3", "d1", "d2"]})
    assert transformer(frame)["docno"].tolist() == ["d3", "d1", "d2"]
    assert transformer(frame.assign(score=[0.0, 2.0, 1.0]))["docno"].tolist() == ["d1", "d2", "d3"]
    assert transformer(frame.assign(score=[0.0, 2.0, 1.0], rank=[1, 2, 0]))["docno"].tolist() == ["d2", "d3", "d1"]
    assert transformer(frame)["score"].tolist() == [-1, -2, -3]


def test_invalid_input_is_rejected() -> None:
    ranker = fitted(BM25())
    with pytest.raises(NotFittedError, match="bm25"):
        to_pyterrier(BM25())
    with pytest.raises(InputError, match="'depth'"):
        to_pyterrier(ranker, depth=0)
    with pytest.raises(UnknownNameError, match="'pages'"):
        to_pyterrier(ranker, splitter="pages")
    removed = pd.DataFrame({"qid": "q", "query": "dogs", "docno": ["d1", "d2"], "own": "a"})  # an unknown own document
    assert sorted(to_pyterrier(ranker)(removed)["docno"]) == ["d1", "d2"]
    with pytest.raises(InputError, match="'d99'"):
        to_pyterrier(ranker)(queries("dogs", docno="d99"))
    for text in (" ", None):
        for columns in ({}, {"docno": "d1"}):
            with pytest.raises(InputError, match="'q1'"):
                to_pyterrier(ranker)(queries("dogs", text, **columns))


def test_without_pyterrier_the_error_has_the_pip_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "haybale.pyterrier")
    monkeypatch.setitem(sys.modules, "pyterrier", None)
    with pytest.raises(MissingExtraError, match=r'pip install "haybale\[pyterrier\]"'):
        importlib.import_module("haybale.pyterrier")


def test_a_cutoff_becomes_the_depth() -> None:
    pipeline = to_pyterrier(fitted(BM25()), depth=9) % 2
    fused = pipeline.compile()
    assert fused.depth == 2
    pd.testing.assert_frame_equal(fused(dev_queries()), pipeline(dev_queries()))


def test_an_experiment_with_ties_gives_the_values_of_evaluate() -> None:
    """Many scores of RRF are equal, and PyTerrier's evaluator breaks ties in another way."""
    frame, qrels = dev_queries(24), engine().collection.qrels_frame("dev")
    measures = ["MRR@10", "nDCG@10", "P@5"]
    for kind in (RRF(BM25(), KNN("document")), PARM("rrf", over="bm25", n_hits=3)):
        run = fitted(kind).rank(frame.rename(columns={"qid": "query_id", "query": "text"}))
        rows, *_, scores = run.flat()
        assert ((rows[1:] == rows[:-1]) & (scores[1:] == scores[:-1])).sum() > 20
        table = pt.Experiment(
            [to_pyterrier(fitted(kind)), run.to_frame().rename(columns={"query_id": "qid", "doc_id": "docno"})],
            frame,
            qrels.rename(columns={"query_id": "qid", "doc_id": "docno", "relevance": "label"}),
            [pt.measures.RR @ 10, pt.measures.nDCG @ 10, pt.measures.P @ 5],
        )
        means = averages(evaluate(run, qrels, measures))
        for values in table[["RR@10", "nDCG@10", "P@5"]].to_numpy():
            assert values.tolist() == pytest.approx([means[each] for each in measures], rel=1e-12)


def test_an_experiment_without_java() -> None:
    frame, collection = dev_queries(24), engine().collection
    qrels = collection.qrels_frame("dev")
    bm25, knn, learned = (to_pyterrier(fitted(kind)) for kind in (BM25(), KNN(), Learned(BM25(), SimilarQueries())))
    pipelines = {
        "bm25": bm25,
        "cut": bm25 % 10 >> learned,
        "sum": (0.2 * bm25 + knn) % 5,
        "both": (bm25 % 3 | knn % 3) >> knn,
    }
    measures = ["MRR@10", "nDCG@10"]
    table = pt.Experiment(
        list(pipelines.values()),
        frame,
        qrels.rename(columns={"query_id": "qid", "doc_id": "docno", "relevance": "label"}),
        [pt.measures.RR @ 10, pt.measures.nDCG @ 10],
        names=list(pipelines),
        plan="tree",
    ).set_index("name")
    for name, pipeline in pipelines.items():
        run = Run.from_frame(pipeline(frame).rename(columns={"qid": "query_id", "docno": "doc_id"}))
        means = averages(evaluate(run, qrels, measures))
        assert table.loc[name, ["RR@10", "nDCG@10"]].tolist() == pytest.approx([means[each] for each in measures])
    assert not pt.java.started()
    assert "jnius" not in sys.modules
