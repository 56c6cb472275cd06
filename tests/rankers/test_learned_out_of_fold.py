"""Learned fusion as a ranker: depth, out-of-fold runs, samples of the training queries."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.engines import assert_same
from support.ranker_cases import ENCODERS, Fitted, batch_of, queries_of
from support.topics import EVIDENCE, LEARNED

from haybale import Engine
from haybale.collections import Collection
from haybale.rankers import BM25, Learned, QueryBatch, SimilarQueries
from haybale.rankers.models.learned_fusion import LearnedFusion
from haybale.rankers.models.new_queries import unseen_queries
from haybale.retrieval import Run

pytestmark = pytest.mark.filterwarnings("ignore:.* bags have no relevant row")


def complete(fused: Run, runs: dict[str, Run]) -> Run:
    """Add the documents that were not fused, below the others, by their best rank and then by id."""
    rows = []
    for query in fused.query_ids:
        scores = dict(fused[query])
        rank: dict[str, int] = {}
        for run in runs.values():
            for place, (doc, _) in enumerate(run[query], 1):
                rank[doc] = min(place, rank.get(doc, place))
        lowest = min(scores.values(), default=0.0)
        scores |= {doc: lowest - place for doc, place in rank.items() if doc not in scores}
        rows += [(query, doc, score) for doc, score in scores.items()]
    return Run.from_frame(pd.DataFrame(rows, columns=["query_id", "doc_id", "score"]))


def test_documents_below_those_that_are_fused(fitted: Fitted) -> None:
    """All documents of the nested rankers are ranked, those beyond ``depth`` by their best rank."""
    learned: Any = fitted("learned(bm25,knn-doc,depth=5)", "tfidf")
    deep = learned.rank("dev", depth=1000)
    short = learned.rank("dev", depth=7)
    assert all(short[query] == deep[query][:7] for query in deep.query_ids)
    knn = learned.rankers_[1].rank("dev", depth=1000)
    query = deep.query_ids[0]
    assert {doc for doc, _ in knn[query]} <= {doc for doc, _ in deep[query]}
    why = learned.explain(queries_of(learned, query), deep[query][-1][0])
    assert why.rank == len(deep[query])
    assert sum(share.share for share in why.shares) == pytest.approx(why.score)
    assert "first 5 documents" in why.notes[0]


@pytest.mark.parametrize("encoder", ENCODERS)
def test_learned_is_the_fusion_of_runs_out_of_fold(fitted: Fitted, topics: Collection, encoder: str) -> None:
    learned: Any = fitted(LEARNED, encoder)
    relevant, batch = topics.relevant_ids("train"), batch_of(learned.engine_, "train")
    batch.label = "train"
    groups = batch.queries.groups
    unseen = unseen_queries(relevant, groups)
    assert unseen.any()
    settings: dict[str, Any] = {
        "trained": [str(inner) for inner in learned.rankers_ if inner.learns_documents],
        "unseen": [query for query, new in zip(batch.ids, unseen, strict=True) if new],
    }
    assert settings["trained"] == ["knn-queries", f"svr({EVIDENCE})"]
    runs = {str(inner): inner.run(batch, 30, out_of_fold=True) for inner in learned.rankers_}
    judged = pd.DataFrame({"query_id": batch.ids, "doc_id": relevant, "relevance": 1}).explode("doc_id").dropna()
    share = learned.fusion_.unseen_share
    fusion = LearnedFusion(depth=30, unseen_share=share).fit(runs, judged, **settings)
    dev = batch_of(learned.engine_)
    deep = {str(inner): inner.run(dev, 1000) for inner in learned.rankers_}
    assert_same(learned.rank("dev"), complete(fusion.fuse(deep), deep))
    members: dict[int, list[str]] = {}
    for query, group in zip(batch.ids, groups.tolist(), strict=True):
        members.setdefault(group, []).append(query)
    by_id = sorted(members.values(), key=min)
    deep = {str(inner): inner.run(batch, 1000, out_of_fold=True) for inner in learned.rankers_}
    found, places = learned.out_of_fold("train"), np.random.RandomState(0).permutation(len(by_id))
    for number in range(5):  # groups of queries are in one fold; each fold is ranked with weights of the others
        fold = [query for place in places[number::5] for query in by_id[place]]
        others = judged[~judged["query_id"].isin(fold)]
        part = {name: run.take(fold) for name, run in deep.items()}
        fused = LearnedFusion(depth=30, unseen_share=share).fit(runs, others, **settings).fuse(part)
        assert_same(found.take(fold), complete(fused, part))
    assert learned.fit_report_["training queries"] == fusion.n_queries_
    assert f"{learned.rankers_[3]} score" in learned.fit_report_["weights"]


def test_out_of_fold_rankings_do_not_depend_on_other_queries(fitted: Fitted, topics: Collection) -> None:
    learned = fitted("learned(bm25,knn-queries,depth=30)", "tfidf")
    train, new = topics.split("train").queries, topics.split("dev").queries
    expected = learned.out_of_fold("train")
    mixed = learned.out_of_fold(topics.queries.take(np.concatenate([new[:3], train[::7], new[3:5]])))
    for query in mixed.query_ids:
        alone = learned.rank("dev") if query.startswith("dev") else expected
        assert mixed[query] == alone[query]
    for number in train[::11]:
        run = learned.out_of_fold(topics.queries.take([number]))
        assert run[run.query_ids[0]] == expected[run.query_ids[0]]
    assert learned.rank("train") != expected


def test_learned_on_a_sample(topics: Collection, engines: dict[str, Engine]) -> None:
    """Weights are learned on the sampled queries; only nested rankers have learned from the others."""
    learned: Any = Learned(BM25(), SimilarQueries(), n_queries=20, depth=30).fit(engines["tfidf"])
    assert len(learned.query_ids_) == 20
    assert learned.learned_from() == {f"train{i}" for i in range(60)}
    others = [query for query in (f"train{i}" for i in range(60)) if query not in learned.query_ids_]
    batch = QueryBatch(engines["tfidf"], topics.queries.take(topics.query_numbers(others)), "train")
    runs = {str(inner): inner.run(batch, 1000, out_of_fold=True) for inner in learned.rankers_}
    assert_same(learned.out_of_fold(batch.queries), complete(learned.fusion_.fuse(runs), runs))
