"""The SVR ensemble as a ranker: scores against an oracle, candidates, evidence, the size of bags."""

from __future__ import annotations

import copy
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.engines import assert_same
from support.ranker_cases import ENCODERS, PAPER, Fitted, batch_of
from support.topics import EVIDENCE, SVR

from haybale import Engine, evaluate
from haybale.collections import Collection, CollectionBuilder
from haybale.ensemble import pair_features
from haybale.errors import InputError
from haybale.rankers import BM25, KNN, QueryBatch, Ranker, SimilarQueries, parse
from haybale.rankers import SVR as SVRRanker
from haybale.rankers import svr as module
from haybale.retrieval import Hits

pytestmark = pytest.mark.filterwarnings("ignore:.* bags have no relevant row")


def tops(ranker: Ranker, batch: QueryBatch, depth: int) -> list[set[str]]:
    run = ranker.run(batch, depth, out_of_fold=True)
    return [{doc for doc, _ in run[query]} for query in batch.ids]


def oracle_hits(ranker: Any, name: Ranker, batch: QueryBatch) -> list[dict[int, float]]:
    """Return for each query the scores of the passages (or first passages of documents) that a ranker finds."""
    engine, n = ranker.engine_, ranker.n_candidates
    fitted: Any = next(each for each in ranker.rankers_ if str(each) == str(name))
    if ranker.unit == "passage":
        hits = fitted.passage_hits(batch, n)
        return [
            {int(p): float(score) for p, score in zip(*row, strict=True) if p >= 0}
            for row in zip(hits.passages, hits.scores, strict=True)
        ]
    ids, offsets = engine.collection.doc_ids.to_pylist(), engine.documents.doc_offsets
    run = fitted.run(batch, n, out_of_fold=True)
    return [{int(offsets[ids.index(doc)]): score for doc, score in run[q] if doc != "blank"} for q in batch.ids]


@pytest.mark.parametrize(
    ("name", "encoder"),
    [
        *((f"svr({EVIDENCE})", encoder) for encoder in ENCODERS),
        *((f"svr(candidates=none,{EVIDENCE})", encoder) for encoder in ENCODERS),
        (f"svr(candidates=[bm25],{EVIDENCE})", "tfidf"),
        (f"svr-memory({SVR})", "lsa"),
        (f"svr(unit=passage,{SVR})", "tfidf"),
        (PAPER, "lsa"),
    ],
)
def test_the_ensemble_scores_its_candidates(fitted: Fitted, topics: Collection, name: str, encoder: str) -> None:
    """All bags score other queries; bags without queries of the same document score training queries."""
    ranker: Any = fitted(name, encoder)
    engine, ensemble = ranker.engine_, ranker.ensemble_
    index = engine.documents if ranker.unit == "document" else engine.passages
    ids = topics.doc_ids.to_pylist()
    evidence = list(ranker._implied().get("evidence", ranker.evidence))
    for split in ("dev", "train"):
        run, batch = ranker.out_of_fold(split), batch_of(engine, split)
        batch.label = "train"
        searches = [oracle_hits(ranker, each, batch) for each in evidence]
        sources = searches
        if not isinstance(ranker.candidates, str):
            sources = [oracle_hits(ranker, each, batch) for each in ranker.candidates or ()]
        for row, query in enumerate(batch.ids):
            pool = {passage for found in sources for passage in found[row]}
            if ranker.candidates is None:
                pool = {p for p in range(len(index)) if index.doc_of[p] != batch.own[row]}
            numbers, features = np.array([sorted(pool)]), None
            if evidence:
                found = [sorted(each[row].items(), key=lambda pair: -pair[1]) for each in searches]
                hits = [Hits(np.array([[p for p, _ in each]]), np.float32([[v for _, v in each]])) for each in found]
                candidates = Hits(numbers, np.zeros(numbers.shape, dtype=np.float32))
                features = pair_features(candidates, hits, [each.learns_documents for each in evidence])[0]
            pairs = ensemble.pair_scores.pairs(
                batch.vectors[[row]], np.zeros(len(pool), dtype=int), numbers[0], features
            )
            by_bag = ensemble.support_.bags(pairs) - ensemble.support_.intercept
            trusted = np.ones(ensemble.n_bags, dtype=bool) if split == "dev" else ~ensemble.seen_[row]
            assert trusted.any()
            best: dict[str, float] = {}
            for passage, value in zip(numbers[0], by_bag[:, trusted].mean(axis=1), strict=True):
                doc = ids[index.doc_of[passage]]
                best[doc] = max(best.get(doc, -np.inf), float(value))
            assert dict(run[query]) == pytest.approx(best, abs=1e-5)
        if split == "train":
            assert not ensemble.seen_.all(axis=1).any()
            assert ensemble.seen_.any(axis=1).sum() > 40


def test_a_first_stage_ranks_all_documents(fitted: Fitted) -> None:
    """It finds documents that no search finds; with negative weights of the evidence, these are ranked first."""
    ranker: Any = copy.copy(fitted("svr(evidence=[bm25],candidates=none,n_candidates=5,n_bags=8,n_jobs=1)", "tfidf"))
    run, batch = ranker.rank("dev"), batch_of(ranker.engine_)
    found = [set.union(*each) for each in zip(*(tops(r, batch, 5) for r in ranker.rankers_), strict=True)]
    relevant = ranker.engine_.collection.relevant_ids("dev")
    rows = list(zip(batch.ids, relevant, found, strict=True))
    assert any({doc for doc, _ in run[query][:10]} & set(answers) - have for query, answers, have in rows)
    support, ensemble = ranker.ensemble_.support_, copy.copy(ranker.ensemble_)
    ensemble.support_ = replace(support, feature_weights=-100 * np.abs(support.feature_weights))
    ranker.ensemble_ = ensemble
    for rank in (ranker.rank, ranker.out_of_fold):
        whole = rank("dev")
        assert not any(whole[query][0][0] in have for query, _, have in rows)
        for depth in (1, 2, 5, 20):
            assert_same(rank("dev", depth=depth), whole.top(depth))


@pytest.mark.parametrize(
    ("overlap", "rows", "share"), [(None, 30_000, 0.25), (None, 130, None), (0.6, 130, 0.2), (7.0, 30_000, 0.75)]
)
def test_the_size_of_bags(
    engines: dict[str, Engine], monkeypatch: pytest.MonkeyPatch, overlap: float | None, rows: int, share: float | None
) -> None:
    """A bag holds a quarter of the queries or 30,000 rows, and some bags lack each query."""
    assert module._MAX_BAG_ROWS == 30_000
    monkeypatch.setattr(module, "_MAX_BAG_ROWS", rows)
    ranker: Any = SVRRanker([BM25(), KNN()], n_bags=8, overlap=overlap, n_jobs=1).fit(engines["tfidf"])
    ensemble = ranker.ensemble_
    share = share or rows / ensemble.n_rows_
    assert 1 / 8 < share < 1
    assert (1 + ensemble.overlap) / 8 == pytest.approx(share, rel=0.05)
    assert np.mean(ensemble.bag_sizes_) == pytest.approx(share * ensemble.n_rows_, rel=0.1)
    assert ensemble.seen_.mean() == pytest.approx(share, rel=0.1)
    assert share > 0.5 or not ensemble.seen_.all(axis=1).any()


def test_more_bags_if_they_would_be_too_large(engines: dict[str, Engine], monkeypatch: pytest.MonkeyPatch) -> None:
    """GerDaLIR's 98,380 training queries have 3.9 million rows, so each of 24 bags would need 15 GB."""
    monkeypatch.setattr(module, "_MAX_BAG_ROWS", 30)

    def bags(**settings: Any) -> Any:
        return SVRRanker([BM25(), KNN()], n_bags=8, n_jobs=1, **settings).fit(engines["tfidf"]).ensemble_

    ensemble = bags()
    assert ensemble.n_rows_ > 2 * 30 * 8
    assert ensemble.n_bags == pytest.approx(ensemble.n_rows_ / 30, abs=1)  # n_rows_ includes missed relevant documents
    assert np.mean(ensemble.bag_sizes_) == pytest.approx(30, rel=0.3)  # a bag holds whole queries
    assert ensemble.seen_.any(axis=1).all()  # every query is in a bag
    assert bags(overlap=0.6).n_bags == bags(rows_per_bag=20).n_bags == 8


def test_documents_without_a_passage_are_no_candidates() -> None:
    builder = CollectionBuilder("gap", language="english")
    builder.add_document("empty", [])
    for d in range(6):
        builder.add_document(f"d{d}", [f"topic{d} word{d % 3}"])
    for split in ("train", "dev"):
        for i in range(6):
            builder.add_query(f"{split}{i}", [f"topic{i} word{i % 3}"], split=split)
            builder.add_judgement(split, f"{split}{i}", f"d{i}")
            builder.add_judgement(split, f"{split}{i}", "empty")
    ranker = parse("svr(n_bags=3,overlap=0.0,n_jobs=1)").fit(Engine(builder.build()))
    assert "empty" not in ranker.rank("dev").flat()[2].to_pylist()
    [similar, *_] = (each for each in ranker.rankers_ if isinstance(each, SimilarQueries))
    assert "empty" in dict(similar.rank("dev")["dev0"])


def test_bags_that_all_have_a_query_are_refused_before_training(
    topics: Collection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ranker that learns from other rankers needs their rankings out of fold."""
    engine, paper = Engine(topics, encoder="lsa(n_components=12)"), "svr-paper(n_bags=4,n_jobs=1)"
    alone = parse(paper).fit(engine)  # it ranks other queries
    assert len(alone.rank("dev")) > 0
    with pytest.raises(InputError, match="are in every bag"):
        alone.out_of_fold("train")

    def solve_bags(*_: Any, **__: Any) -> None:
        raise AssertionError("the bags were trained")

    monkeypatch.setattr("haybale.ensemble.svr_ensemble.solve_bags", solve_bags)
    for learner in (
        f"learned(bm25,{paper})",
        f"svr(evidence=[bm25,rrf(knn,{paper})])",
        f"learned(bm25,rrf(knn,{paper}))",
    ):
        with pytest.raises(InputError, match="strategy='queries'"):
            parse(learner).fit(engine)


@pytest.mark.parametrize("n", [2, 3, 5])
def test_few_training_queries_are_remembered(topics: Collection, n: int) -> None:
    """What differed little in training, such as scores of similar queries out of fold, does not outweigh the rest."""
    engine, qrels = Engine(topics), topics.qrels_frame("train")
    for seed in range(4):
        ids = np.random.default_rng(seed).choice(qrels["query_id"].unique(), n, replace=False)
        queries = topics.queries.take(np.sort([topics.queries.ids.to_pylist().index(name) for name in ids]))
        judged = qrels[qrels["query_id"].isin(ids)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that there are few queries
            ranker = SVRRanker().fit(engine, queries, judged)
        runs = [each.rank(queries, depth=20) for each in (ranker, BM25("document").fit(engine))]
        learned, plain = (evaluate(run, judged, ["nDCG@10"])["nDCG@10"].mean() for run in runs)
        assert learned >= plain
