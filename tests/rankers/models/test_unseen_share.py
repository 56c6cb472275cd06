"""The choice of unseen_share and the estimate of the share of unseen queries, against oracles."""

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
from haybale.rankers import QueryBatch, WeightedBM25
from haybale.rankers.models.judged_pools import ndcg
from haybale.rankers.models.new_queries import NewQueries, unseen_queries
from haybale.ranking.ranker import batches_of
from haybale.retrieval import Run

SHARES = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)


def repeating(n_new: int, seed: int = 0) -> Collection:
    """Return a collection with 140 queries for the same 7 documents, and unseen queries with similar words.

    No two queries have the same words.
    """
    rng = np.random.default_rng(seed)
    builder = CollectionBuilder("repeating", language="none")
    for doc in range(120):
        builder.add_document(f"d{doc:03}", [f"word{doc} word{rng.integers(120)} common{rng.integers(9)}"])
    for i in range(140):
        builder.add_query(f"q{i:03}", [f"ask{i % 7} word{i % 120} common{rng.integers(9)}"], split="train")
        builder.add_judgement("train", f"q{i:03}", f"d{i % 7:03}", 1)
    for i in range(n_new):
        builder.add_query(f"n{i:03}", [f"ask{i % 7} word{20 + i} common{rng.integers(9)}"], split="train")
        builder.add_judgement("train", f"n{i:03}", f"d{20 + i:03}", 1)
    return builder.build()


@pytest.fixture(scope="module")
def misled() -> Any:
    return Learned(BM25(), SimilarQueries(), depth=30).fit(Engine(repeating(60), encoder="tfidf"))


def test_the_share_with_the_smallest_worst_case_loss(misled: Any) -> None:
    training = misled.engine_.collection
    relevant = training.relevant_ids("train")
    batch = QueryBatch(misled.engine_, training.queries, "train")
    runs = {str(inner): inner.run(batch, 30, out_of_fold=True) for inner in misled.rankers_}
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
    highest = max(of_all for of_all, _ in means.values())
    loss = {share: max(highest - of_all, bm25 - of_new) for share, (of_all, of_new) in means.items()}
    chosen = min(SHARES, key=lambda share: loss[share])
    assert 0 < chosen < 0.8, "the collection does not test the choice"
    assert misled.fusion_.unseen_share == misled.fit_report_["unseen share"] == chosen
    report = misled.fit_report_
    assert (report["new training queries"], report["best ranker that learns no documents"]) == (60, "bm25")
    assert report["training queries, nDCG@10 by cross-validation"] == pytest.approx(means[chosen][0])
    assert report["new training queries, nDCG@10"] == pytest.approx(means[chosen][1])
    assert report["best unseen share, nDCG@10 by cross-validation"] == pytest.approx(highest)
    assert report["best ranker that learns no documents, nDCG@10"] == pytest.approx(bm25)


def test_shares_that_are_not_chosen_by_cross_validation(misled: Any) -> None:
    few: Any = Learned(BM25(), SimilarQueries(), depth=30).fit(Engine(repeating(9), encoder="tfidf"))
    assert (few.fusion_.unseen_share, few.selection_report_) == (0, {})
    learned: Any = Learned(SimilarQueries(), SimilarQueries(k=3), depth=30).fit(misled.engine_)
    assert (learned.fusion_.unseen_share, learned.selection_report_) == (0, {})
    given: Any = Learned(BM25(), SimilarQueries(), depth=30, unseen_share=0.35).fit(misled.engine_)
    assert (given.fusion_.unseen_share, given.selection_report_) == (0.35, {})


def test_a_trained_ranker_that_learns_no_documents_is_a_baseline(misled: Any) -> None:
    weighted = WeightedBM25(min_count=2, l2=1e-4)
    ranker: Any = Learned(KNN("document"), weighted, SimilarQueries(), depth=30).fit(misled.engine_)
    qrels = misled.engine_.collection.qrels_frame("train")
    batch = QueryBatch(misled.engine_, misled.engine_.collection.queries, "train")
    is_unseen = unseen_queries(misled.engine_.collection.relevant_ids("train"))
    runs = [inner.run(batch, 30, out_of_fold=True) for inner in ranker.rankers_[:2]]
    knn, expected = (evaluate(run, qrels, ["nDCG@10"])["nDCG@10"].loc[batch.ids][is_unseen].mean() for run in runs)
    assert expected > knn, "the collection does not test the choice"
    assert ranker.fit_report_["best ranker that learns no documents"] == str(weighted)
    assert ranker.fit_report_["best ranker that learns no documents, nDCG@10"] == pytest.approx(expected)


def test_the_choice_is_saved_and_explained(misled: Any, tmp_path: Any) -> None:
    assert not hasattr(misled, "_judged"), "the pools of training queries are large"
    misled.save(tmp_path / "saved")
    again: Any = load(tmp_path / "saved", misled.engine_)
    assert again.fit_report_ == misled.fit_report_
    query = misled.engine_.collection.queries.take([0])
    share = misled.fusion_.unseen_share
    for ranker in (misled, again):
        why = ranker.explain(query, ranker.rank(query)["q000"][0][0])
        assert any(f"{share:.0%}" in note for note in why.notes)
    with pytest.raises(InputError, match="unseen_share"):
        Learned(BM25(), unseen_share="often").fit(misled.engine_)


def mixed_queries(n_known: int, n_new: int, seed: int = 5) -> dict[str, str]:
    """Return queries for the same 7 documents, two of three with a word of their document, and unseen queries."""
    rng, queries = np.random.default_rng(seed), {}
    for i in range(n_known):
        kind, others = "topic" if i % 3 else "ask", rng.integers(100, size=2)
        queries[f"known{i:03}"] = f"ask{i % 7} ask{i % 7} {kind}{i % 7} word{others[0]} word{others[1]}"
    for i in range(n_new):
        queries[f"new{i:03}"] = f"ask{rng.integers(7)} word{100 + i % 60} word{100 + i % 60}"
    return queries


@pytest.fixture(scope="module")
def adaptable() -> Any:
    builder = CollectionBuilder("adaptable", language="none")
    for doc in range(160):
        more = f"topic{doc}" + " common0" * 30 if doc < 7 else f"ask{doc % 7}" if doc < 21 else ""
        builder.add_document(f"d{doc:03}", [f"word{doc} word{doc} common{doc % 9} {more}"])
    for i, (query, text) in enumerate(mixed_queries(140, 60).items()):
        builder.add_query(query, [text], split="train")
        builder.add_judgement("train", query, f"d{i % 7 if i < 140 else i - 40:03}", 1)
    return Learned(BM25(), SimilarQueries(k=5), depth=30).fit(Engine(builder.build(), encoder="tfidf"))


def test_the_probability_that_a_query_is_unseen(misled: Any) -> None:
    ids = misled.engine_.collection.queries.ids.to_pylist()
    runs = {str(inner): inner.out_of_fold(depth=30) for inner in misled.rankers_}
    new = np.char.startswith(np.array(ids), "n")
    model = NewQueries.fit(runs, ids, new, ["knn-queries"])
    assert model.share == new.mean()
    features = []
    for query in ids:
        first, score = runs["knn-queries"][query][0]
        listed = [doc for doc, _ in runs["bm25"][query]]
        reciprocal_rank = 1 / (1 + listed.index(first)) if first in listed else 0
        features.append([score, reciprocal_rank, dict(runs["knn-queries"][query]).get(listed[0], 0)])
    scaled = StandardScaler().fit_transform(np.array(features))
    oracle = LogisticRegression(C=0.1, max_iter=1000).fit(scaled, new)
    np.testing.assert_allclose(model.probabilities(runs), oracle.predict_proba(scaled)[:, 1], atol=1e-6)
    with pytest.raises(InputError, match="200 unseen of 200"):
        NewQueries.fit(runs, ids, np.ones(len(ids), dtype=bool), ["knn-queries"])


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.9, 1.0])
def test_the_estimated_share_has_the_largest_likelihood(share: float) -> None:
    # One normally distributed feature, whose mean depends on the class: the probabilities and the likelihood are exact.
    rng = np.random.default_rng(0)
    new = rng.random(4000) < share
    score = rng.normal(np.where(new, 0.0, 2.0))
    frame = pd.DataFrame({"query_id": [f"q{i:04}" for i in range(4000)], "doc_id": "d", "score": score})
    model = NewQueries(
        ["memory"], [], 0.3, [-2.0], 2.0 + float(np.log(0.3 / 0.7))
    )  # log odds: 2 - 2x, plus those of the prior
    found = model.estimate({"memory": Run.from_frame(frame)})
    density = np.exp(-((score[:, None] - [0.0, 2.0]) ** 2) / 2)
    grid = np.linspace(0, 1, 2001)
    likelihood = np.log(density[:, :1] * grid + density[:, 1:] * (1 - grid)).sum(axis=0)
    assert found == pytest.approx(grid[np.argmax(likelihood)], abs=2e-3)
    assert found == pytest.approx(new.mean(), abs=0.04)


@pytest.mark.parametrize(("n_known", "n_new"), [(60, 0), (30, 30), (0, 60)])
def test_weights_adapted_to_the_queries(adaptable: Any, n_known: int, n_new: int, tmp_path: Any) -> None:
    queries = mixed_queries(n_known, n_new, seed=9)
    ranker = adaptable.adapted(queries)
    share = ranker.fit_report_["queries expected to be new"]
    assert share == pytest.approx(n_new / (n_known + n_new), abs=0.15)
    means = {each.share: each.expected(share) for each in adaptable.candidates_}
    assert means[ranker.unseen_share] == max(means.values()) == ranker.fit_report_["expected nDCG@10"]
    # It is equal to a ranker with that share, and can be saved.
    given = Learned(BM25(), SimilarQueries(k=5), depth=30, unseen_share=ranker.unseen_share).fit(adaptable.engine_)
    assert str(given) == str(ranker) != str(adaptable)
    assert given.rank(queries) == ranker.rank(queries)
    assert given.out_of_fold() == ranker.out_of_fold()
    ranker.save(tmp_path / "saved")
    again: Any = load(tmp_path / "saved", adaptable.engine_)
    assert again.fit_report_ == ranker.fit_report_
    assert again.adapted(queries).fit_report_ == ranker.fit_report_
    first = next(iter(queries))
    why = again.explain({first: queries[first]}, again.rank(queries)[first][0][0])
    assert any(f"{share:.0%}" in note for note in why.notes[1:])
    assert "queries expected to be new" not in adaptable.fit_report_


def test_adapting_ranks_the_queries_once_and_only_the_documents_that_count(
    adaptable: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries, ranked = mixed_queries(30, 30, seed=9), []
    rank_batch = BM25.rank_batch

    def counted(self: BM25, batch: Any, depth: int) -> Run:
        ranked.append(len(batch))
        return rank_batch(self, batch, depth)

    monkeypatch.setattr(BM25, "rank_batch", counted)
    batches = list(batches_of(adaptable, queries, within=[f"d{doc:03}" for doc in range(80)]))
    ranker = adaptable.adapted_to(batches, 50)
    [run] = [ranker.run(batch, 50) for batch in batches]
    assert ranked == [60]
    within = {"within": [f"d{doc:03}" for doc in range(80)]}
    again = adaptable.adapted(queries, **within)
    assert (again.fit_report_, again.rank(queries, depth=50, **within)) == (ranker.fit_report_, run)
    assert again.fit_report_ != adaptable.adapted(queries).fit_report_  # others than those of all documents


def test_more_unseen_queries_get_a_larger_share(adaptable: Any) -> None:
    shares = [adaptable.adapted(mixed_queries(*counts, seed=9)).unseen_share for counts in ((60, 0), (0, 60))]
    assert shares[0] < shares[1]


def test_what_cannot_be_adapted(adaptable: Any) -> None:
    with pytest.raises(InputError, match=r"at least 10 .*found 9"):
        adaptable.adapted(mixed_queries(5, 4))
    given = Learned(BM25(), SimilarQueries(), depth=30, unseen_share=0.2)
    untrained = Learned(BM25(), KNN(), depth=30)  # no ranker learns documents, so no query is unseen
    for ranker in (given, untrained):
        with pytest.raises(InputError, match="unseen_share='auto'"):
            ranker.fit(adaptable.engine_).adapted(mixed_queries(30, 30))
    builder = CollectionBuilder("all new", language="none")
    for i in range(20):
        builder.add_document(f"d{i:02}", [f"word{i} common{i % 3}"])
        builder.add_query(f"q{i:02}", [f"word{i}"], split="train")
        builder.add_judgement("train", f"q{i:02}", f"d{i:02}", 1)
    new = Learned(BM25(), SimilarQueries(), depth=30).fit(Engine(builder.build(), encoder="tfidf"))
    with pytest.raises(InputError, match="10 or more unseen"):
        new.adapted("train")


def test_ndcg_is_that_of_ir_measures(misled: Any) -> None:
    collection = misled.engine_.collection
    run, qrels = misled.rank("train"), collection.qrels_frame("train")
    qrels = pd.concat([qrels, qrels.assign(doc_id="d119"), qrels.assign(doc_id="unknown")])
    found = ndcg(run, run.query_ids, qrels)
    table = evaluate(run, qrels, ["nDCG@10"])["nDCG@10"].reindex(run.query_ids)
    np.testing.assert_allclose(found, table)
