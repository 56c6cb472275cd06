"""How much queries that training has not met count when weights are learned: the choice, by an oracle."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from haybale import BM25, KNN, Engine, Learned, LearnedFusion, SimilarQueries, evaluate, load
from haybale.collections import Collection, CollectionBuilder
from haybale.errors import InputError
from haybale.rankers import QueryBatch
from haybale.rankers.judged_pools import ndcg
from haybale.rankers.new_queries import NewQueries, unseen_queries
from haybale.retrieval import Run

SHARES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)


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
    batch = QueryBatch(misled.engine_, training.queries, "train")
    runs = {str(inner): inner.run_out_of_fold(batch, 30) for inner in misled.rankers_}
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
    assert misled.fusion_.unseen_share == misled.fit_report_["unseen share"] == chosen
    facts = misled.fit_report_
    assert (facts["new training queries"], facts["best ranker without training"]) == (60, "bm25")
    assert facts["training queries, nDCG@10 by cross-validation"] == pytest.approx(means[chosen][0])
    assert facts["new training queries, nDCG@10"] == pytest.approx(means[chosen][1])
    assert facts["best of all shares"] == pytest.approx(most)
    assert facts["best ranker without training, nDCG@10"] == pytest.approx(bm25)


def test_where_there_is_nothing_to_choose_by(misled: Any) -> None:
    few: Any = Learned(BM25(), SimilarQueries(), depth=30).fit(Engine(repeating(9), encoder="tfidf"))
    assert (few.fusion_.unseen_share, few.selection_report_) == (0, {})
    learned: Any = Learned(SimilarQueries(), SimilarQueries(k=3), depth=30).fit(misled.engine_)
    assert (learned.fusion_.unseen_share, learned.selection_report_) == (0, {})
    given: Any = Learned(BM25(), SimilarQueries(), depth=30, unseen_share=0.35).fit(misled.engine_)
    assert (given.fusion_.unseen_share, given.selection_report_) == (0.35, {})


def test_the_choice_is_kept_and_told(misled: Any, tmp_path: Any) -> None:
    assert not hasattr(misled, "_judged"), "runs of training queries are large"
    misled.save(tmp_path / "kept")
    again: Any = load(tmp_path / "kept", misled.engine_)
    assert again.fit_report_ == misled.fit_report_
    query = misled.engine_.collection.queries.take([0])
    share = misled.fusion_.unseen_share
    for ranker in (misled, again):
        why = ranker.explain(query, ranker.rank(query)["q000"][0][0])
        assert f"weights were learned with {share:.0%} of the loss for unseen queries" in why.notes
    with pytest.raises(InputError, match="unseen_share"):
        Learned(BM25(), unseen_share="often").fit(misled.engine_)


def asked(n_known: int, n_new: int, seed: int = 5) -> dict[str, str]:
    """Queries about what is asked again and again, whose documents two of three share a word with, and new ones."""
    rng, found = np.random.default_rng(seed), {}
    for i in range(n_known):
        kind, others = "topic" if i % 3 else "ask", rng.integers(100, size=2)
        found[f"known{i:03}"] = f"ask{i % 7} ask{i % 7} {kind}{i % 7} word{others[0]} word{others[1]}"
    for i in range(n_new):
        found[f"new{i:03}"] = f"ask{rng.integers(7)} word{100 + i % 60} word{100 + i % 60}"
    return found


@pytest.fixture(scope="module")
def telling() -> Any:
    builder = CollectionBuilder("telling", language="none")
    for doc in range(160):
        more = f"topic{doc}" + " common0" * 30 if doc < 7 else f"ask{doc % 7}" if doc < 21 else ""
        builder.add_document(f"d{doc:03}", [f"word{doc} word{doc} common{doc % 9} {more}"])
    for i, (query, text) in enumerate(asked(140, 60).items()):
        builder.add_query(query, [text], split="train")
        builder.add_judgement("train", query, f"d{i % 7 if i < 140 else i - 40:03}", 1)
    return Learned(BM25(), SimilarQueries(k=5), depth=30).fit(Engine(builder.build(), encoder="tfidf"))


def out_of_fold(ranker: Any) -> tuple[list[str], dict[str, Run]]:
    batch = QueryBatch(ranker.engine_, ranker.engine_.collection.queries, "train")
    return batch.ids, {str(inner): inner.run_out_of_fold(batch, 30) for inner in ranker.rankers_}


def test_how_likely_a_query_is_new(misled: Any) -> None:
    ids, runs = out_of_fold(misled)
    new = np.char.startswith(np.array(ids), "n")
    model = NewQueries.fit(runs, ids, new, ["knn-queries"])
    assert model.share == new.mean()
    features = []
    for query in ids:
        first, score = runs["knn-queries"][query][0]
        listed = [doc for doc, _ in runs["bm25"][query]]
        features.append([score, 1 / (1 + listed.index(first)) if first in listed else 0])
    scaled = StandardScaler().fit_transform(np.array(features))
    oracle = LogisticRegression(max_iter=1000).fit(scaled, new)
    np.testing.assert_allclose(model.probabilities(runs), oracle.predict_proba(scaled)[:, 1], atol=1e-6)
    with pytest.raises(InputError, match="queries that are not"):
        NewQueries.fit(runs, ids, np.ones(len(ids), dtype=bool), ["knn-queries"])


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_the_share_is_the_likeliest(share: float) -> None:
    # One feature, normal with other means in the two kinds: probabilities are exact, and so is what likelihood says.
    rng = np.random.default_rng(0)
    new = rng.random(4000) < share
    score = rng.normal(np.where(new, 0.0, 2.0))
    frame = pd.DataFrame({"query_id": [f"q{i:04}" for i in range(4000)], "doc_id": "d", "score": score})
    model = NewQueries(["memory"], [], 0.3, [-2.0], 2.0 + float(np.log(0.3 / 0.7)))  # log odds: 2 - 2x and the prior's
    found = model.estimate({"memory": Run.from_frame(frame)})
    density = np.exp(-((score[:, None] - [0.0, 2.0]) ** 2) / 2)
    grid = np.linspace(0, 1, 2001)
    likelihood = np.log(density[:, :1] * grid + density[:, 1:] * (1 - grid)).sum(axis=0)
    assert found == pytest.approx(grid[np.argmax(likelihood)], abs=2e-3)
    assert found == pytest.approx(new.mean(), abs=0.04)


@pytest.mark.parametrize(("n_known", "n_new"), [(60, 0), (30, 30), (0, 60)])
def test_weights_for_the_queries_to_be_ranked(telling: Any, n_known: int, n_new: int, tmp_path: Any) -> None:
    queries = asked(n_known, n_new, seed=9)
    ranker = telling.adapted(queries)
    expected = n_new / (n_known + n_new)
    assert ranker.fit_report_["queries expected to be new"] == pytest.approx(expected, abs=0.15)
    means = {
        choice.share: choice.expected(ranker.fit_report_["queries expected to be new"])
        for choice in telling.candidates_
    }
    assert means[ranker.unseen_share] == max(means.values()) == ranker.fit_report_["expected nDCG@10"]
    # It is the ranker with that share, and can be kept.
    given = Learned(BM25(), SimilarQueries(k=5), depth=30, unseen_share=ranker.unseen_share).fit(telling.engine_)
    assert str(given) == str(ranker) != str(telling)
    assert given.rank(queries) == ranker.rank(queries)
    assert given.out_of_fold() == ranker.out_of_fold()
    ranker.save(tmp_path / "kept")
    again: Any = load(tmp_path / "kept", telling.engine_)
    assert again.fit_report_ == ranker.fit_report_
    assert again.adapted(queries).fit_report_ == ranker.fit_report_
    first = next(iter(queries))
    why = again.explain({first: queries[first]}, again.rank(queries)[first][0][0])
    share = ranker.fit_report_["queries expected to be new"]
    assert f"as {share:.0%} of the queries to be ranked were expected to be such" in why.notes
    assert "queries expected to be new" not in telling.fit_report_


def test_more_new_queries_get_a_larger_share(telling: Any) -> None:
    shares = [telling.adapted(asked(*counts, seed=9)).unseen_share for counts in ((60, 0), (0, 60))]
    assert shares[0] < shares[1]


def test_what_cannot_be_adapted(telling: Any) -> None:
    with pytest.raises(InputError, match="expected at least 10 queries"):
        telling.adapted(asked(5, 4))
    given = Learned(BM25(), SimilarQueries(), depth=30, unseen_share=0.2).fit(telling.engine_)
    with pytest.raises(InputError, match="unseen_share='auto'"):
        given.adapted(asked(30, 30))
    plain = Learned(BM25(), KNN(), depth=30).fit(telling.engine_)  # no ranker learns: nothing is new to it
    with pytest.raises(InputError, match="a ranker that learns"):
        plain.adapted(asked(30, 30))
    builder = CollectionBuilder("all new", language="none")
    for i in range(20):
        builder.add_document(f"d{i:02}", [f"word{i} common{i % 3}"])
        builder.add_query(f"q{i:02}", [f"word{i}"], split="train")
        builder.add_judgement("train", f"q{i:02}", f"d{i:02}", 1)
    new = Learned(BM25(), SimilarQueries(), depth=30).fit(Engine(builder.build(), encoder="tfidf"))
    with pytest.raises(InputError, match="10 new training queries"):
        new.adapted("train")


def test_ndcg_is_that_of_ir_measures(misled: Any) -> None:
    collection = misled.engine_.collection
    run, qrels = misled.rank("train"), collection.qrels_frame("train")
    qrels = pd.concat([qrels, qrels.assign(doc_id="d119"), qrels.assign(doc_id="unknown")])
    found = ndcg(run, run.query_ids, qrels)
    table = evaluate(run, qrels, ["nDCG@10"])["nDCG@10"].reindex(run.query_ids)
    np.testing.assert_allclose(found, table)
