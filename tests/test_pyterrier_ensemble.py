"""The ensemble as a PyTerrier re-ranker, and pipelines of all the transformers, without Java."""

from __future__ import annotations

import copy
import sys

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import NotFittedError
from terriers import Numbered, queries, rankings, trained
from worlds import candidates_with_features, world

from haybale.ensemble import SVREnsemble
from haybale.errors import InputError
from haybale.evaluation import averages, evaluate
from haybale.retrieval import Hits, PassageIndex, Run

pt = pytest.importorskip("pyterrier")

from haybale.pyterrier import BestPassage, EnsembleReranker, PassageRetriever  # noqa: E402

# PyTerrier 1.1 is older than pandas 3.1.
pytestmark = pytest.mark.filterwarnings("ignore:The inplace keyword:DeprecationWarning")


def test_candidate_passages_are_ranked_as_the_ensemble_does() -> None:
    ensemble, index, encoder = trained()
    pipeline = PassageRetriever(index, encoder, 12, "passage") >> EnsembleReranker(ensemble, encoder, "passage")
    asked = queries("3", "0", "7", own=["d5", None, "d0"])
    expected = ensemble.rank(encoder.vectors[[3, 0, 7]], asked["qid"].tolist(), k=12, exclude=["d5", None, "d0"])
    found = (pipeline >> BestPassage(index))(asked)
    assert rankings(found) == {qid: expected[qid] for qid in expected.query_ids}


def test_retrieved_documents_are_ranked_by_their_best_passage() -> None:
    ensemble, index, encoder = trained()
    docnos = [["d4", "d1", "d9", "d30"], ["d1", "d2"]]
    frame = pd.DataFrame(
        {
            "qid": [*"2121", "2", "2"],
            "docno": ["d4", "d1", "d1", "d2", "d9", "d30"],
            "score": 1.0,
            "colour": [*"abcdef"],
        }
    )
    # As after the operator +, a query stands in some of its rows only.
    frame["query"] = [None, "8", "6", None, "6", "6"]
    found = EnsembleReranker(ensemble, encoder)(frame)
    assert found["qid"].tolist() == [*"222211"]
    for qid, number, names in zip("21", (6, 8), docnos, strict=True):
        passages = [np.flatnonzero(index.doc_of == int(name[1:])) for name in names]
        ids = [[str(p) for part in passages for p in part]]
        scores = dict(zip(ids[0], ensemble.score(encoder.vectors[[number]], ids)[0].tolist(), strict=True))
        best = {name: max(scores[str(p)] for p in part) for name, part in zip(names, passages, strict=True)}
        expected = sorted(best.items(), key=lambda pair: (-pair[1], pair[0]))
        ranking = rankings(found)[qid]
        assert [name for name, _ in ranking] == [name for name, _ in expected]
        np.testing.assert_allclose([score for _, score in ranking], [score for _, score in expected], atol=1e-6)
    colours = dict(zip(zip(frame["qid"], frame["docno"], strict=True), frame["colour"], strict=True))
    assert all(colours[row.qid, row.docno] == row.colour for row in found.itertuples())
    without = rankings(EnsembleReranker(ensemble, encoder)(frame.assign(own="d1")))
    assert {qid: {name for name, _ in ranking} for qid, ranking in without.items()} == {
        "1": {"d2"},
        "2": {"d4", "d9", "d30"},
    }
    assert len(EnsembleReranker(ensemble, encoder)(frame[frame["docno"] == "d1"].assign(own="d1"))) == 0


def test_rows_that_are_left_out_change_no_other_query() -> None:
    """A query of nothing but its own document, and a document without passages."""
    ensemble, index, encoder = trained()
    more = copy.copy(ensemble)
    offsets = np.append(index.doc_offsets, len(index))
    more.index_ = PassageIndex(index.vectors, offsets, doc_ids=[*index.doc_ids.to_pylist(), "empty"])
    frame = pd.DataFrame(
        {
            "qid": ["1", "2", "2", "2"],
            "query": ["8", "6", "6", "6"],
            "docno": ["d1", "d4", "empty", "d9"],
            "own": ["d1", None, None, None],
        }
    )
    found = rankings(EnsembleReranker(more, encoder)(frame))
    assert found == rankings(EnsembleReranker(ensemble, encoder)(frame.iloc[[1, 3]]))
    assert len(found["2"]) == 2


def test_an_ensemble_with_features_and_spaces() -> None:
    index, vectors, relevant, candidates, features = candidates_with_features()
    spaces = [index.vectors[:, :3]]
    ensemble = SVREnsemble(3, k=12, eta=0.5)
    ensemble.fit(index, [vectors, vectors[:, :3]], relevant, candidates=candidates, features=features, spaces=spaces)

    def cheap(texts, hits: Hits):
        return np.stack([hits.passages % 3, np.repeat([[int(text)] for text in texts], hits.passages.shape[1], 1)], 2)

    encoders = [Numbered(vectors), Numbered(vectors[:, :3])]
    found = EnsembleReranker(ensemble, encoders, "passage", features=cheap)(
        pd.DataFrame({"qid": ["a", "a", "b"], "query": ["5", "5", "2"], "docno": ["7", "3", "9"]})
    )
    passages = np.array([[3, 7], [9, -1]])
    chosen = [vectors[[5, 2]], vectors[[5, 2], :3]]
    scores = ensemble.score_candidates(chosen, passages, cheap(["5", "2"], Hits(passages, passages)))
    for row in found.itertuples():
        place = ("ab".index(row.qid), {"3": 0, "7": 1, "9": 0}[row.docno])
        assert row.score == pytest.approx(scores[place], abs=1e-6)


def test_what_a_reranker_refuses() -> None:
    ensemble, _, encoder = trained()
    frame = pd.DataFrame({"qid": ["1"], "query": ["0"], "docno": ["d99"]})
    with pytest.raises(InputError, match="unknown document id 'd99'"):
        EnsembleReranker(ensemble, encoder)(frame)
    with pytest.raises(InputError, match="unknown passage id 'd99'"):
        EnsembleReranker(ensemble, encoder, "passage")(frame)
    with pytest.raises(InputError, match="query '1' has no text"):
        EnsembleReranker(ensemble, encoder)(frame.assign(query=None, docno="d1"))
    with pytest.raises(InputError, match="'chapter'"):
        EnsembleReranker(ensemble, encoder, "chapter")
    with pytest.raises(InputError, match="injected"):
        EnsembleReranker(SVREnsemble(protocol="injected"), encoder)
    with pytest.raises(NotFittedError):
        EnsembleReranker(SVREnsemble(), encoder)(frame)


# Pipelines -----------------------------------------------------------------------------------------------


def test_an_experiment_without_java() -> None:
    ensemble, index, encoder = trained()
    _, vectors, relevant = world()
    asked = queries(*map(str, range(len(vectors))))
    qrels = pd.DataFrame({"qid": asked["qid"], "docno": [ids[0] for ids in relevant], "label": 1})
    knn, reranker = PassageRetriever(index, encoder, 20), EnsembleReranker(ensemble, encoder)
    pipelines = {"knn": knn, "svr": knn % 10 >> reranker, "sum": (knn + (knn >> 0.5 * reranker)) >> reranker}
    measures = ["MRR@10", "nDCG@10"]
    table = pt.Experiment(
        list(pipelines.values()),
        asked,
        qrels,
        [pt.measures.RR @ 10, pt.measures.nDCG @ 10],
        names=list(pipelines),
        plan="tree",
    ).set_index("name")
    judged = qrels.rename(columns={"qid": "query_id", "docno": "doc_id", "label": "relevance"})
    for name, pipeline in pipelines.items():
        run = Run.from_frame(pipeline(asked).rename(columns={"qid": "query_id", "docno": "doc_id"}))
        expected = averages(evaluate(run, judged, measures))
        found = table.loc[name, ["RR@10", "nDCG@10"]].tolist()
        assert found == pytest.approx([expected[measure] for measure in measures])
    both = (knn % 3 >> (reranker ** pt.Transformer.identity()))(asked)
    scores = reranker((knn % 3)(asked)).set_index(["qid", "docno"])["score"]
    for row in both.itertuples():
        assert row.features.tolist() == [scores[row.qid, row.docno], row.score]
    assert not pt.java.started()
    assert "jnius" not in sys.modules
