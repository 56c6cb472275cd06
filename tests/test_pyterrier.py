"""The PyTerrier transformers: PyTerrier's own conformance tests, exact rankings, pipelines without Java."""

from __future__ import annotations

import importlib
import sys
import unittest

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from terriers import Numbered, queries, rankings, trained

from haybale.collections import Collection
from haybale.errors import InputError, MissingExtraError
from haybale.retrieval import PARM, BM25Index, PassageIndex, Run

pt = pytest.importorskip("pyterrier")

from haybale.pyterrier import BestPassage, EnsembleReranker, PARMRetriever, PassageRetriever  # noqa: E402

# PyTerrier 1.1 is older than pandas 3.1.
pytestmark = pytest.mark.filterwarnings("ignore:The inplace keyword:DeprecationWarning")


@pytest.fixture
def bm25(toy: Collection) -> BM25Index:
    return BM25Index.from_collection(toy)


@pytest.fixture
def transformers(bm25: BM25Index) -> list:
    ensemble, index, encoder = trained()
    return [
        PassageRetriever(bm25),
        PassageRetriever(index, encoder, unit="passage"),
        PARMRetriever(PARM(bm25, "rrf")),
        EnsembleReranker(ensemble, encoder),
        EnsembleReranker(ensemble, encoder, "passage"),
        BestPassage(index),
    ]


# The contract --------------------------------------------------------------------------------------------


def test_pyterriers_own_conformance_tests(transformers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PT_TEST_TRANSFORMER_REPORTS", "0")
    monkeypatch.setattr(pt.documentation, "objects_inv", dict)  # it would be fetched from the web, for links
    for transformer in transformers:
        case = pt.testing.transformer_test_class(lambda transformer=transformer: transformer)
        result = unittest.TestResult()
        unittest.defaultTestLoader.loadTestsFromTestCase(case).run(result)
        assert result.testsRun >= 2
        assert result.wasSuccessful(), result.failures + result.errors
        assert type(pt.inspect.transformer_apply_attributes(transformer)) is type(transformer)
        assert pt.inspect.subtransformers(transformer) == {}


def test_columns_are_the_querys_and_docno_score_rank(transformers) -> None:
    for transformer in transformers:
        takes = pt.inspect.transformer_inputs(transformer)[0]
        expected = [*takes, *(column for column in ("docno", "score", "rank") if column not in takes)]
        assert pt.inspect.transformer_outputs(transformer, takes) == expected
        empty = transformer(pd.DataFrame(columns=[*takes, "colour"]))
        assert len(empty) == 0
        assert set(empty.columns) == {*expected, "colour"}
        assert (empty["score"].dtype, empty["rank"].dtype) == (np.float64, np.int64)
        for column in takes:
            with pytest.raises(pt.validate.InputValidationError, match=column):
                transformer(pd.DataFrame(columns=[name for name in takes if name != column]))


def test_other_columns_go_along(bm25: BM25Index) -> None:
    ensemble, index, encoder = trained()
    asked = queries("winter salt", "dogs", colour=["red", "blue"]).iloc[::-1]
    for retriever in (PassageRetriever(bm25), PARMRetriever(PARM(bm25, "rrf"))):
        found = retriever(asked)
        assert found["qid"].drop_duplicates().tolist() == ["q1", "q0"]  # in the order of the queries
        assert set(zip(found["qid"], found["query"], found["colour"], strict=True)) == {
            ("q0", "winter salt", "red"),
            ("q1", "dogs", "blue"),
        }
    found = PassageRetriever(index, encoder, k=5, unit="passage")(queries("0", "1", colour=["red", "blue"]))
    found = (EnsembleReranker(ensemble, encoder, "passage") >> BestPassage(index))(found)
    assert set(zip(found["qid"], found["query"], found["colour"], strict=True)) == {
        ("q0", "0", "red"),
        ("q1", "1", "blue"),
    }


# Search --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
@pytest.mark.parametrize("unit", ["document", "passage"])
def test_the_k_best_by_score_then_id(unit: str, kind) -> None:
    """Few different scores: a k-th place that is tied, also beyond the first hits looked at, is decided by id."""
    rng = np.random.default_rng(4)
    vectors, asked = rng.integers(0, 2, size=(120, 3)), rng.integers(0, 3, size=(9, 3)) + np.eye(3, dtype=int)[0]
    starts = np.concatenate(([0], np.sort(rng.choice(np.arange(1, 120), size=29, replace=False)), [120]))
    ids = {"passage_ids": [f"p{-i % 1000}" for i in range(120)], "doc_ids": [f"d{-i % 1000}" for i in range(30)]}
    index = PassageIndex(kind(vectors), starts, **ids)
    own = [None if i % 2 else ids["doc_ids"][i] for i in range(9)]
    encoder = Numbered(kind(asked.astype(np.float32)))
    products = asked @ vectors.T
    for k in (1, 2, 7, 30, 1000):
        retriever = PassageRetriever(index, encoder, k, unit)
        found = rankings(retriever(queries(*map(str, range(9)), own=own)))
        assert len(found) == 9
        for i, row in enumerate(products):
            best: dict[str, float] = {}
            for passage, score in enumerate(row):
                document = ids["doc_ids"][index.doc_of[passage]]
                if document != own[i] and (score > 0 or not index.is_sparse):
                    name = document if unit == "document" else ids["passage_ids"][passage]
                    best[name] = max(score, best.get(name, 0))
            assert found[f"q{i}"] == sorted(best.items(), key=lambda pair: (-pair[1], pair[0]))[:k]


def test_bm25_by_document_and_by_passage(bm25: BM25Index, toy: Collection) -> None:
    asked = queries("winter salt on roads", "the dog at the gate", own=["soup", np.nan])
    rows, documents, scores = bm25.documents(asked["query"].tolist(), 2, exclude=["soup", None])
    expected = Run.from_numbers(["q0", "q1"], toy.doc_ids, rows, documents, scores, 2)
    found = rankings(PassageRetriever(bm25, k=2)(asked))
    assert found == {qid: expected[qid] for qid in expected.query_ids}
    by_passage = PassageRetriever(bm25, k=15, unit="passage")(asked)
    hits = bm25.search(asked["query"].tolist(), 15, exclude=["soup", None])
    assert {qid: {doc for doc, _ in found} for qid, found in rankings(by_passage).items()} == {
        qid: set(ids) for qid, ids in zip(asked["qid"], bm25.ids(hits), strict=True)
    }
    assert rankings(BestPassage(bm25)(by_passage)) == rankings(PassageRetriever(bm25)(asked))


def test_nobodys_own_document_is_nobodys(bm25: BM25Index) -> None:
    asked = queries("winter salt", "dogs")
    for retriever in (PassageRetriever(bm25), PARMRetriever(PARM(bm25, "rrf"))):
        assert rankings(retriever(asked.assign(own=None))) == rankings(retriever(asked))
        with pytest.raises(InputError, match="unknown document id 'nobody'"):
            retriever(asked.assign(own="nobody"))


def test_a_cutoff_is_searched_for(bm25: BM25Index) -> None:
    pipeline = PassageRetriever(bm25, k=9) % 2
    fused = pipeline.compile()
    assert isinstance(fused, PassageRetriever)
    assert (fused.k, PassageRetriever(bm25, k=1).fuse_rank_cutoff(2).k) == (2, 1)
    asked = queries("winter salt", "the gate")
    pd.testing.assert_frame_equal(fused(asked), pipeline(asked))


def test_what_a_search_refuses(bm25: BM25Index) -> None:
    _, index, encoder = trained()
    with pytest.raises(InputError, match="encoder"):
        PassageRetriever(index)
    with pytest.raises(InputError, match="encoder"):
        PassageRetriever(bm25, encoder)
    with pytest.raises(InputError, match="k must be at least 1, found 0"):
        PassageRetriever(bm25, k=0)
    with pytest.raises(InputError, match="'chapter'"):
        PassageRetriever(bm25, unit="chapter")
    for text in (" ", None, np.nan):
        for retriever in (PassageRetriever(bm25), PARMRetriever(PARM(bm25, "rrf"))):
            with pytest.raises(InputError, match="query 'q1' has no text"):
                retriever(queries("dogs", text))


# PARM ----------------------------------------------------------------------------------------------------


def test_parm_ranks_by_the_paragraphs_of_the_query(bm25: BM25Index, toy: Collection) -> None:
    parm = PARM(bm25, "rrf", n_hits=10)
    asked = queries("barking dogs\n\nwinter roads", "tax letter. winter salt", own=[None, "soup"])
    texts = [["barking dogs", "winter roads"], ["tax letter", "winter salt"]]
    expected = parm.rank(["q0", "q1"], texts, exclude=[None, "soup"])
    splitter = str.splitlines, lambda text: text.split(". ")
    found = PARMRetriever(parm, lambda text: [part for part in splitter["." in text](text) if part])(asked)
    assert rankings(found) == {qid: expected[qid] for qid in expected.query_ids}
    assert rankings(PARMRetriever(parm)(asked.iloc[:1])) == {"q0": expected["q0"]}
    assert rankings(PARMRetriever(parm)(asked.iloc[:1])) != rankings(
        PARMRetriever(parm, lambda text: [text])(asked[:1])
    )
    for splitter in (lambda text: [], lambda text: ["dogs", " "], str.strip):
        with pytest.raises(InputError, match="query 'q0': the splitter"):
            PARMRetriever(parm, splitter)(asked)


def test_without_pyterrier_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("haybale.pyterrier")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pyterrier", None)
    with pytest.raises(MissingExtraError, match=r'pip install "haybale\[pyterrier\]"'):
        importlib.import_module("haybale.pyterrier")
