"""The documents of a ranking that were relevant to no training query."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from haybale import Engine, Learned, Popularity, UnseenDocuments, load, parse
from haybale.collections import Collection
from haybale.rankers import Training
from haybale.rankers import unseen_documents as module


def test_documents_that_were_relevant_are_left_out(topics: Collection, tmp_path: Path) -> None:
    engine = Engine.build(topics, tmp_path / "engine")
    ranker, inner = parse("unseen(bm25)").fit(engine), parse("bm25").fit(engine)
    relevant = {doc_id for ids in Training.of(engine).relevant for doc_id in ids}
    run, whole = ranker.rank("test"), inner.rank("test")
    for query in run.query_ids:
        assert run[query] == [(doc_id, score) for doc_id, score in whole[query] if doc_id not in relevant]
        assert ranker.rank("test", depth=2)[query] == run[query][:2]
    assert any(run[query] for query in run.query_ids)
    row = next(row for row, query in enumerate(run.query_ids) if run[query])
    doc_id, score = run[run.query_ids[row]][0]
    explanation = ranker.explain(topics.queries.take(topics.split("test").queries[row : row + 1]), doc_id)
    assert explanation.score == score == explanation.shares[0].share
    assert explanation.shares[0].of is not None
    assert explanation.shares[0].of.score == score
    ranker.save(tmp_path / "ranker")
    loaded = load(tmp_path / "ranker", Engine.open(tmp_path / "engine"))
    assert loaded.rank("test") == run
    assert loaded.out_of_fold("train") == ranker.out_of_fold("train")


def test_out_of_fold_other_groups_decide(topics: Collection) -> None:
    """A document that is relevant to queries of the same group only is unseen."""
    engine = Engine(topics)
    training = Training.of(engine)
    groups, relevant = training.batch.groups.tolist(), training.relevant
    run, whole = parse("unseen(bm25)").fit(engine).out_of_fold("train"), parse("bm25").fit(engine).rank("train")
    n_kept = 0
    for row, query in enumerate(training.batch.ids):
        others = {d for other, ids in enumerate(relevant) if groups[other] != groups[row] for d in ids}
        assert run[query] == [(doc_id, score) for doc_id, score in whole[query] if doc_id not in others]
        n_kept += len(set(relevant[row]) & {doc_id for doc_id, _ in run[query]})
    assert n_kept > 0


def test_the_ranker_within_ranks_until_there_are_enough(topics: Collection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MORE", 0)
    ranker = parse("unseen(bm25)").fit(Engine(topics))
    whole = ranker.rank("test", depth=topics.n_documents)
    for depth in (1, 2, 5, 9):
        assert ranker.rank("test", depth=depth) == whole.top(depth)


def test_counts_are_those_of_the_ranking(topics: Collection) -> None:
    engine = Engine(topics)
    training = Training.of(engine)
    popularity = Popularity()._fitted_copy(training)
    batch, n = training.batch, topics.n_documents
    rows, documents = (part.ravel() for part in np.indices((len(batch), n)))
    for out_of_fold in (False, True):
        counts = popularity.counts(batch, rows, documents, out_of_fold=out_of_fold).reshape(len(batch), n)
        query, _, ranked = (run := popularity.run(batch, n, out_of_fold=out_of_fold)).numbers_in(topics)
        expected = np.zeros((len(batch), n))
        expected[query, ranked] = run.coded()[-1]
        own = batch.own >= 0
        counts[np.flatnonzero(own), batch.own[own]] = 0  # the ranking leaves out a query's own document
        assert (counts == expected).all()


@pytest.mark.parametrize("unseen_share", ["auto", 0.5])
def test_a_fusion_weighs_the_two_kinds_of_documents(topics: Collection, unseen_share: float | str) -> None:
    engine = Engine(topics)
    inner = parse("bm25-doc")
    ranker = Learned(inner, parse("knn-queries"), UnseenDocuments(inner), unseen_share=unseen_share).fit(engine)
    weights = ranker.fusion_.weights_.set_index(["run", "feature"])["standardised"]
    assert weights["unseen(bm25-doc)"].abs().sum() > 0
    run, first = ranker.rank("test"), topics.queries.take(topics.split("test").queries[:1])
    for doc_id, score in run[run.query_ids[0]][:5]:
        explanation = ranker.explain(first, doc_id)
        assert sum(share.share for share in explanation.shares) == pytest.approx(score)
