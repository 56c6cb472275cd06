"""PRES on examples of its paper, measures of passages against loops, judgements of sections, rankings of passages."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from support.structured import structured_collection

from haybale import BM25, KNN, Engine, LinearContext, Run, evaluate, evaluate_passages, rank_passages, section_qrels
from haybale.collections import Collection
from haybale.errors import InputError, UnknownNameError


def run_of(ids: list[str], query: str = "q") -> Run:
    scores = np.arange(len(ids), 0, -1, dtype=float)
    return Run.from_frame(pd.DataFrame({"query_id": query, "doc_id": ids, "score": scores}))


@pytest.mark.parametrize(
    ("ranks", "value"),
    [([1], 0.25), ([50, 51, 53, 54], 0.505), ([1, 2, 3, 4], 1.0), ([1, 98, 99, 100], 0.28), ([101, 102], 0.0)],
)
def test_pres(ranks: list[int], value: float) -> None:
    """Check the examples of the paper: four relevant documents, cut-off 100."""
    ids = [f"x{rank}" for rank in range(1, 121)]
    for number, rank in enumerate(ranks):
        ids[rank - 1] = f"r{number}"
    qrels = pd.DataFrame({"query_id": "q", "doc_id": [f"r{i}" for i in range(4)], "relevance": 1})
    found = evaluate(run_of(ids), qrels, ["PRES@100", "Recall@100", "PRES@120"])
    assert found.loc["q", "PRES@100"] == pytest.approx(value)
    assert found.loc["q", "Recall@100"] == sum(rank <= 100 for rank in ranks) / 4
    with pytest.raises(InputError, match="'PRES'"):
        evaluate(run_of(ids), qrels, ["PRES"])


@pytest.fixture(scope="module")
def collection() -> Collection:
    return structured_collection(4)


def test_measures_of_passages(collection: Collection) -> None:
    """Compare with loops; the run lacks some documents, and some have no relevant passage."""
    rng, doc_of = np.random.default_rng(0), collection.passages.doc_of
    ids = collection.passages.ids.to_pylist()
    rows, runs = [], []
    for query in ("q0", "q1", "q2"):
        rows += [(query, ids[p], int(rng.integers(2))) for p in rng.permutation(len(ids))[:12]]
        runs.append(run_of([ids[p] for p in rng.permutation(len(ids))[:20]], query))
    qrels = pd.DataFrame(rows, columns=["query_id", "passage_id", "relevance"])
    found = evaluate_passages(Run.joined(runs), qrels, collection)
    n_missing = 0
    for query, run in zip(("q0", "q1", "q2"), runs, strict=True):
        relevant = {p for q, p, grade in rows if q == query and grade}
        values = []
        for document in {doc_of[ids.index(p)] for p in relevant}:
            wanted = {p for p in relevant if doc_of[ids.index(p)] == document}
            returned = [p for p, _ in run[query] if doc_of[ids.index(p)] == document]
            is_relevant = [p in wanted for p in returned]
            ap = sum(sum(is_relevant[: i + 1]) / (i + 1) for i, hit in enumerate(is_relevant) if hit) / len(wanted)
            values.append((ap, np.mean(is_relevant) if is_relevant else 0.0))
            n_missing += not is_relevant
        np.testing.assert_allclose(found.loc[query], np.mean(values, axis=0))
    assert n_missing
    with pytest.raises(InputError, match="'relevance'"):
        evaluate_passages(Run.joined(runs), qrels.assign(relevance=0), collection)


def test_judgements_of_sections(collection: Collection) -> None:
    sections = collection.sections
    assert sections is not None
    of = collection.passages.sections
    assert of is not None
    children = np.flatnonzero(sections.parents >= 0)
    inner = next(c for c in children.tolist() if (of == c).any() and (of == sections.parents[c]).any())
    outer = int(sections.parents[inner])
    ids = sections.ids.to_pylist()
    rows = [("q", ids[outer], 1), ("q", ids[inner], 2), ("r", ids[inner], 1)]
    frame = pd.DataFrame(rows, columns=["query_id", "section_id", "relevance"])
    found = section_qrels(collection, frame).set_index(["query_id", "passage_id"])["relevance"].to_dict()

    def above(section: int) -> list[int]:
        return [] if section < 0 else [section, *above(int(sections.parents[section]))]

    expected = {}
    for passage, section in zip(collection.passages.ids.to_pylist(), of.tolist(), strict=True):
        if outer in above(section):
            expected["q", passage] = 2 if inner in above(section) else 1
        if inner in above(section):
            expected["r", passage] = 1
    assert found == expected
    with pytest.raises(UnknownNameError, match="section"):
        section_qrels(collection, frame.assign(section_id="nothing"))


def test_rankings_of_passages(collection: Collection) -> None:
    """The score of a document is that of its best passage."""
    engine = Engine(collection)
    for ranker in (BM25(), KNN(), LinearContext(KNN())):
        ranker.fit(engine)
        passages, documents = rank_passages(ranker, "dev"), ranker.rank("dev")
        number = {passage: row for row, passage in enumerate(collection.passages.ids.to_pylist())}
        for query in documents.query_ids:
            best: dict[str, float] = {}
            for passage, score in passages[query]:
                doc = collection.doc_ids[int(collection.passages.doc_of[number[passage]])].as_py()
                best.setdefault(doc, score)
            assert {doc: dict(documents[query])[doc] for doc in best} == pytest.approx(best, abs=1e-6)
            assert len(best) > 2
    with pytest.raises(InputError, match="bm25-doc"):
        rank_passages(BM25("document").fit(engine), "dev")
