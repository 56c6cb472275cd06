"""How much queries that training has not met count when weights are learned: the choice, by an oracle."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from haybale import BM25, Engine, Learned, LearnedFusion, SimilarQueries, evaluate, load
from haybale.collections import Collection, CollectionBuilder
from haybale.ensemble import unseen_queries
from haybale.ensemble.learned_fusion import ndcg
from haybale.errors import InputError
from haybale.rankers import Batch
from haybale.retrieval import Run

SHARES = (0.0, 0.2, 0.4, 0.6, 0.8)


def repeating(n_new: int, seed: int = 0) -> Collection:
    """140 queries whose documents are asked for again and again, and new ones, which look like these."""
    rng = np.random.default_rng(seed)
    builder = CollectionBuilder("repeating", language="none")
    for doc in range(120):
        builder.add_document(f"d{doc:03}", [f"word{doc} word{rng.integers(120)} common{rng.integers(9)}"])
    for i in range(140):
        builder.add_query(f"q{i:03}", [f"ask{i % 7} word{rng.integers(120)} common{rng.integers(9)}"], split="train")
        builder.add_judgement("train", f"q{i:03}", f"d{i % 7:03}", 1)
    for i in range(n_new):
        builder.add_query(f"n{i:03}", [f"ask{i % 7} word{20 + i} common{rng.integers(9)}"], split="train")
        builder.add_judgement("train", f"n{i:03}", f"d{20 + i:03}", 1)
    return builder.build()


@pytest.fixture(scope="module")
def misled() -> Any:
    return Learned(BM25(), SimilarQueries(), depth=30).fit(Engine(repeating(60), encoder="tfidf"))


def test_the_share_that_loses_least(misled: Any) -> None:
    training = misled.engine_.collection
    relevant = training.relevant_ids("train")
    batch = Batch(misled.engine_, training.queries, "train")
    runs = {str(inner): batch.out_of_fold(inner, 30) for inner in misled.rankers_}
    new = [q for q, unseen in zip(batch.ids, unseen_queries(relevant), strict=True) if unseen]
    assert len(new) == 60
    qrels = training.qrels_frame("train")
    bm25 = evaluate(runs["bm25"], qrels, ["nDCG@10"])["nDCG@10"].loc[new].mean()
    means = {}
    for share in SHARES:
        parts = []
        for fold in range(5):
            inside = np.array(misled.query_ids_)[misled.fold_of_ == fold].tolist()
            fusion = LearnedFusion(depth=30, unseen_share=share)
            fusion.fit(runs, qrels[~qrels["query_id"].isin(inside)], trained=["knn-queries"], unseen=new)
            parts.append(fusion.fuse({name: run.take(inside) for name, run in runs.items()}))
        values = evaluate(Run.joined(parts), qrels, ["nDCG@10"])["nDCG@10"]
        means[share] = values.mean(), values.loc[new].mean()
    most = max(of_all for of_all, _ in means.values())
    lost = {share: max(most - of_all, bm25 - of_new) for share, (of_all, of_new) in means.items()}
    chosen = min(SHARES, key=lambda share: lost[share])
    assert 0 < chosen < 0.8, "the collection is to ask for a choice"
    assert misled.fusion_.unseen_share == misled.facts["unseen share"] == chosen
    facts = misled.facts
    assert (facts["new ones of these"], facts["which is"]) == (60, "bm25")
    assert facts["training queries, nDCG@10 by folds"] == pytest.approx(means[chosen][0])
    assert facts["nDCG@10 of new ones"] == pytest.approx(means[chosen][1])
    assert facts["the most, with another share"] == pytest.approx(most)
    assert facts["of the best that learns nothing"] == pytest.approx(bm25)


def test_where_there_is_nothing_to_choose_by(misled: Any) -> None:
    few: Any = Learned(BM25(), SimilarQueries(), depth=30).fit(Engine(repeating(9), encoder="tfidf"))
    assert (few.fusion_.unseen_share, few.choice_) == (0, {})
    learned: Any = Learned(SimilarQueries(), SimilarQueries(k=3), depth=30).fit(misled.engine_)
    assert (learned.fusion_.unseen_share, learned.choice_) == (0, {})
    given: Any = Learned(BM25(), SimilarQueries(), depth=30, unseen_share=0.35).fit(misled.engine_)
    assert (given.fusion_.unseen_share, given.choice_) == (0.35, {})


def test_the_choice_is_kept_and_told(misled: Any, tmp_path: Any) -> None:
    assert not hasattr(misled, "_learned_from"), "runs of training queries are large"
    misled.save(tmp_path / "kept")
    again: Any = load(tmp_path / "kept", misled.engine_)
    assert again.facts == misled.facts
    query = misled.engine_.collection.queries.take([0])
    share = misled.fusion_.unseen_share
    for ranker in (misled, again):
        why = ranker.explain(query, ranker.rank(query)["q000"][0][0])
        assert f"weights were learned with {share:.0%} of the loss for queries that training had not met" in why.notes
    with pytest.raises(InputError, match="unseen_share"):
        Learned(BM25(), unseen_share="often").fit(misled.engine_)


def test_ndcg_is_that_of_ir_measures(misled: Any) -> None:
    collection = misled.engine_.collection
    run, qrels = misled.rank("train"), collection.qrels_frame("train")
    qrels = pd.concat([qrels, qrels.assign(doc_id="d119"), qrels.assign(doc_id="unknown")])
    found = ndcg(run, run.query_ids, qrels)
    table = evaluate(run, qrels, ["nDCG@10"])["nDCG@10"].reindex(run.query_ids)
    np.testing.assert_allclose(found, table)
