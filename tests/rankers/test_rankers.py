"""Every ranker: the laws that all obey, what each is by a slow oracle, and what is refused."""

from __future__ import annotations

import copy
import itertools
import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from support.engines import assert_same
from support.topics import EVIDENCE, LEARNED, LEARNING, NEW, RANKERS, SVR, TWINS, word

from haybale import Engine
from haybale.collections import Collection, CollectionBuilder, Queries
from haybale.ensemble import pair_features
from haybale.errors import InputError, NotFittedError, UnknownNameError
from haybale.rankers import (
    BM25,
    KNN,
    RRF,
    EmptyRankingWarning,
    Explanation,
    Learned,
    QueryBatch,
    Ranker,
    Share,
    SimilarQueries,
    Training,
    parse,
)
from haybale.rankers import SVR as SVRRanker
from haybale.rankers import svr as module
from haybale.rankers.bm25 import bm25_with_parameters
from haybale.rankers.learned_fusion import LearnedFusion, unseen_queries
from haybale.rankers.query_batch import queries_of
from haybale.retrieval import Hits, PassageIndex, QueryNeighbours, Run, reciprocal_rank_fusion
from haybale.timing import record_timings

pytestmark = pytest.mark.filterwarnings("ignore:.* bags have no relevant row")
ENCODERS = {"tfidf": {}, "lsa": {"encoder": "lsa", "n_components": 12}}
PAPER = "svr-paper(n_bags=20,n_train=8,n_candidates=9,n_jobs=1)"  # standardises features, so not for sparse vectors
MEMORY = f"svr(evidence=[],candidates=[bm25,knn],unit=passage,{SVR})"
Fitted = Callable[[str, str], Ranker]


@pytest.fixture(scope="module")
def engines(topics: Collection) -> dict[str, Engine]:
    return {name: Engine(topics, **settings) for name, settings in ENCODERS.items()}


@pytest.fixture(scope="module")
def fitted(engines: dict[str, Engine]) -> Fitted:
    """Rankers fitted once, by name and encoder; nothing in them is changed."""
    training = {name: Training.of(engine) for name, engine in engines.items()}
    return lambda name, encoder="tfidf": training[encoder].fitted(parse(name))


def cases() -> list[Any]:
    made = [(name, encoder) for encoder in ENCODERS for name in RANKERS] + [(PAPER, "lsa")]
    return [pytest.param(*case, id=" ".join(case)) for case in made]


def every(function: Any) -> Any:
    """Of every ranker on both encoders."""
    return pytest.mark.parametrize(("name", "encoder"), cases())(function)


@every
def test_the_first_documents_do_not_depend_on_how_many_were_asked_for(fitted: Fitted, name: str, encoder: str) -> None:
    ranker = fitted(name, encoder)
    whole = ranker.rank("dev", depth=1000)
    assert len(whole) == 15
    assert len(whole.flat()[0]) > 70
    for depth in (1, 2, 3, 7, 20, 41):
        assert_same(ranker.rank("dev", depth=depth), whole.top(depth))


@every
def test_a_query_alone_is_ranked_as_among_others(fitted: Fitted, topics: Collection, name: str, encoder: str) -> None:
    ranker = fitted(name, encoder)
    numbers = topics.split("dev").queries
    whole = ranker.rank(topics.queries.take(numbers))
    backwards = ranker.rank(topics.queries.take(numbers[::-1].copy()))
    assert backwards.query_ids == whole.query_ids[::-1]
    for number, query in zip(numbers[:5], whole.query_ids, strict=False):
        for run in (ranker.rank(topics.queries.take([number])), backwards):
            if encoder == "tfidf":
                assert run[query] == whole[query]
            else:  # products of dense matrices of other shapes may differ in the last bits
                assert dict(run[query]) == pytest.approx(dict(whole[query]), rel=1e-5, abs=1e-6)


@every
@pytest.mark.filterwarnings("ignore::haybale.rankers.EmptyRankingWarning")
def test_no_document_from_without(fitted: Fitted, topics: Collection, name: str, encoder: str) -> None:
    """Within some documents no other is found, nor ever the one that a query was taken from."""
    ranker = fitted(name, encoder)
    own = {
        query: topics.doc_ids[int(document)].as_py()
        for query, document in zip(topics.queries.ids.to_pylist(), topics.queries.own, strict=True)
        if document >= 0
    }
    ids = topics.doc_ids.to_pylist()
    some = ids[1::3]
    whole, part = ranker.rank("dev"), ranker.rank("dev", within=some)
    assert_same(ranker.rank("dev", within=np.isin(ids, some)), part)
    assert set(part.flat()[2].to_pylist()) <= set(some)
    assert len(part.flat()[0]) > 20
    for run in (whole, part):
        for query in run.query_ids:
            assert own.get(query) not in dict(run[query])
    assert_same(ranker.rank("dev", within=ids), whole)
    if name.startswith("knn-queries"):
        for query in whole.query_ids:
            assert part[query] == [(doc, score) for doc, score in whole[query] if doc in some]


@every
def test_what_learned_nothing_of_a_query_ranks_it_as_any(fitted: Fitted, name: str, encoder: str) -> None:
    ranker = fitted(name, encoder)
    assert_same(ranker.out_of_fold("dev"), ranker.rank("dev"))
    assert ranker.needs_training == (name in LEARNING or name == PAPER)
    assert bool(ranker.learned_from()) == ranker.needs_training
    if not ranker.needs_training:
        assert_same(ranker.out_of_fold("train"), ranker.rank("train"))


@every
def test_shares_sum_to_the_score(fitted: Fitted, name: str, encoder: str) -> None:
    ranker = fitted(name, encoder)
    run = ranker.rank("dev")
    for query in run.query_ids[:3]:
        listed = run[query]
        for rank, (doc, score) in list(enumerate(listed, 1))[:: max(1, len(listed) // 5)]:
            found = ranker.explain(asked(ranker, query), doc)
            assert (found.query_id, found.doc_id, found.ranker) == (query, doc, str(ranker))
            assert found.score == pytest.approx(score, rel=1e-5, abs=1e-6)
            assert found.rank is not None
            assert listed[found.rank - 1][1] == pytest.approx(score, rel=1e-5, abs=1e-6)
            assert rank == found.rank or encoder == "lsa"
            assert found.shares or score == 0
            check_sums(found)
            json.dumps(found.to_dict())
            assert str(found).startswith(f"{doc}: rank {found.rank:,}, {ranker} ")
    found = ranker.explain({"q": "nothing like it"}, "blank")
    assert (found.score, found.rank, found.shares) == (None, None, [])
    assert str(found) == f"blank: {ranker} does not have it"
    assert found.to_frame().empty


def check_sums(found: Explanation) -> None:
    """Here and in every ranker within."""
    assert found.score is not None
    size = max(abs(found.score), math.fsum(abs(share.share) for share in found.shares))  # of those that cancel out
    assert math.fsum(share.share for share in found.shares) == pytest.approx(found.score, abs=1e-6 * size)
    assert math.fsum(found.to_frame()["share"]) == pytest.approx(found.score, abs=1e-6 * size)
    for share in found.shares:
        if share.of is not None and share.of.score is not None:
            check_sums(share.of)


def asked(ranker: Ranker, *ids: str) -> Queries:
    collection = ranker.engine_.collection
    return collection.queries.take(collection.query_numbers(ids))


@pytest.mark.parametrize("name", [*(name for name in RANKERS if "rrf" not in name), MEMORY])
def test_ties_are_broken_by_document_id(fitted: Fitted, topics: Collection, name: str) -> None:
    """Twins have equal texts: where no judgement tells them apart, they are side by side, the smaller id first."""
    ranker = fitted(name, "tfidf")
    text = topics.document_texts()[topics.document_numbers([TWINS[0]])[0]]
    found = [doc for doc, _ in ranker.rank({"q": text.split("\n")})["q"]]
    if "queries" in name or ("svr" in name and name != MEMORY):
        return  # the first was relevant to training queries, the other was not; and searches rank them
    place = found.index(TWINS[1])
    assert found[place + 1] == TWINS[0]
    for depth in (place + 1, place + 2):
        assert [doc for doc, _ in ranker.rank({"q": text.split("\n")}, depth=depth)["q"]] == found[:depth]


def tops(ranker: Ranker, batch: QueryBatch, depth: int) -> list[set[str]]:
    run = ranker.run_out_of_fold(batch, depth)
    return [{doc for doc, _ in run[query]} for query in batch.ids]


def dev(engine: Engine, split: str = "dev") -> QueryBatch:
    return QueryBatch(engine, engine.collection.queries.take(engine.collection.split(split).queries))


@pytest.mark.parametrize("encoder", ENCODERS)
@pytest.mark.parametrize(
    ("name", "vectors"), [("knn", "passages"), ("knn-doc", "documents"), ("knn-firstp", "first_passages")]
)
def test_nearest_neighbours(fitted: Fitted, encoder: str, name: str, vectors: str) -> None:
    """By the whole matrix of products."""
    ranker = fitted(name, encoder)
    index, batch, run = getattr(ranker.engine_, vectors), dev(ranker.engine_), ranker.rank("dev")
    products: Any = batch.vectors @ index.vectors.T
    products = products.toarray() if index.is_sparse else products
    for row, query in enumerate(batch.ids):
        best: dict[str, float] = {}
        for document, value in zip(index.doc_of, products[row], strict=True):
            doc = str(index.doc_ids[int(document)])
            if document != batch.own[row] and (value != 0 or not index.is_sparse):
                best[doc] = max(best.get(doc, -np.inf), float(value))
        assert dict(run[query]) == pytest.approx(best, abs=1e-6)


@pytest.mark.parametrize("encoder", ENCODERS)
def test_training_queries_of_one_paragraph_are_searched_once(
    engines: dict[str, Engine], encoder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nearest neighbours and PARM take the same hits of passages; what they find is as it is of each by itself."""
    engine, asked = engines[encoder], []
    search = PassageIndex.search
    monkeypatch.setattr(PassageIndex, "search", lambda *a, **how: (asked.append(a[0]), search(*a, **how))[1])
    monkeypatch.setattr("haybale.rankers.knn._HITS", 40)
    monkeypatch.setattr("haybale.rankers.query_batch._DEEP", 5)
    knn, parm = KNN().fit(engine), parse("parm-rrf(n_hits=40)").fit(engine)
    queries = engine.collection.queries
    ids, texts = queries.ids.to_pylist(), queries.texts(range(len(queries)))
    for batch in (
        QueryBatch(engine, queries_of(engine.collection, ids, texts), "train"),
        QueryBatch(engine, queries, "train"),
    ):
        alone = QueryBatch(engine, batch.queries)
        asked.clear()
        runs = [ranker.run(batch, 5) for ranker in (knn, parm)]
        once = len(asked)
        for run, ranker in zip(runs, (knn, parm), strict=True):
            assert_same(run, ranker.run(alone, 5))
        assert batch.single == (batch.queries is not queries)
        if batch.single:
            assert once == 1
            assert len(asked) > once


@pytest.mark.parametrize("encoder", ENCODERS)
def test_similar_queries_leave_a_training_query_out_of_its_neighbours(
    fitted: Fitted, topics: Collection, encoder: str
) -> None:
    """Nor are those that were taken from the same document."""
    ranker = fitted("knn-queries(k=7)", encoder)
    run, engine, relevant = ranker.out_of_fold("train"), ranker.engine_, topics.relevant_ids("train")
    batch = dev(engine, "train")
    groups = batch.queries.groups
    assert len(np.unique(groups)) < len(groups)
    for place, query in enumerate(batch.ids):
        others = groups != groups[place]
        without = QueryNeighbours(
            batch.vectors[others],
            [ids for ids, other in zip(relevant, others, strict=True) if other],
            topics.doc_ids,
            k=7,
        )
        expected = without.rank(batch.vectors[[place]], [query], exclude=batch.own[[place]])
        assert dict(run[query]) == pytest.approx(dict(expected[query]))
    assert run != ranker.rank("train")


def oracle_hits(ranker: Any, name: Ranker, batch: QueryBatch) -> list[dict[int, float]]:
    """Of each query, the passages (or the first of documents) that one of the searches finds, with their scores."""
    engine, n = ranker.engine_, ranker.n_candidates
    fitted: Any = next(each for each in ranker.rankers_ if str(each) == str(name))
    if ranker.unit == "passage":
        hits = fitted.passage_hits(batch, n)
        return [
            {int(p): float(score) for p, score in zip(*row, strict=True) if p >= 0}
            for row in zip(hits.passages, hits.scores, strict=True)
        ]
    ids, offsets = engine.collection.doc_ids.to_pylist(), engine.documents.doc_offsets
    run = fitted.run_out_of_fold(batch, n)
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
def test_the_ensemble_scores_its_pool(fitted: Fitted, topics: Collection, name: str, encoder: str) -> None:
    """New queries by the mean of all bags, training queries by those that saw nothing of their document; no other.

    Without candidates, all documents there are, with the evidence that some have.
    """
    ranker: Any = fitted(name, encoder)
    engine, ensemble = ranker.engine_, ranker.ensemble_
    index = engine.documents if ranker.unit == "document" else engine.passages
    ids = topics.doc_ids.to_pylist()
    evidence = list(ranker.implied().get("evidence", ranker.evidence))
    for split in ("dev", "train"):
        run, batch = ranker.out_of_fold(split), dev(engine, split)
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
            pairs = ensemble._pairs(batch.vectors[[row]], np.zeros(len(pool), dtype=int), numbers[0], features)
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


def test_all_documents_without_candidates(fitted: Fitted) -> None:
    """One that no search found is found; and where evidence counts against them, those that have none lead."""
    ranker: Any = copy.copy(fitted("svr(evidence=[bm25],candidates=none,n_candidates=5,n_bags=8,n_jobs=1)", "tfidf"))
    run, batch = ranker.rank("dev"), dev(ranker.engine_)
    found = [set.union(*each) for each in zip(*(tops(r, batch, 5) for r in ranker.rankers_), strict=True)]
    relevant = ranker.engine_.collection.relevant_ids("dev")
    rows = list(zip(batch.ids, relevant, found, strict=True))
    assert any({doc for doc, _ in run[query][:10]} & set(answers) - have for query, answers, have in rows)
    support, ensemble = ranker.ensemble_.support_, copy.copy(ranker.ensemble_)
    ensemble.support_ = replace(support, feature_weights=-100 * np.abs(support.feature_weights))
    ranker.ensemble_ = ensemble
    for ask in (ranker.rank, ranker.out_of_fold):
        whole = ask("dev")
        assert not any(whole[query][0][0] in have for query, _, have in rows)
        for depth in (1, 2, 5, 20):
            assert_same(ask("dev", depth=depth), whole.top(depth))


def test_evidence_in_explanations(fitted: Fitted) -> None:
    """What the features of each search add, and the memory's pairs; nothing else, so not the intercept."""
    ranker: Any = fitted(f"svr({EVIDENCE})", "tfidf")
    for doc, score in ranker.rank("dev")["dev1"][::9]:
        found = ranker.explain(asked(ranker, "dev1"), doc)
        shares = {share.what.partition(",")[0]: share for share in found.shares}
        for name, inner in zip(("bm25-doc", "knn", "knn-queries"), ranker.rankers_, strict=False):
            rank = inner.explain(asked(inner, "dev1"), doc).rank
            assert shares[name].what == f"{name}, " + (f"rank {rank}" if rank else "not found")
            assert (shares[name].of is None) == (rank is None)
        added = [shares[name].share for name in ("bm25-doc", "knn", "knn-queries")]
        assert np.abs(added).min() > 0
        ends = np.cumsum([0, 3, 3, 2])  # level, rank and first place; score and log score
        expected = [found.detail.features[a:b].sum() for a, b in itertools.pairwise(ends)]
        np.testing.assert_allclose(added, expected)
        assert score == pytest.approx(found.detail.prediction - found.detail.intercept, abs=1e-6)


@pytest.mark.parametrize(
    ("overlap", "rows", "share"), [(None, 30_000, 0.25), (None, 130, None), (0.6, 130, 0.2), (7.0, 30_000, 0.75)]
)
def test_how_much_a_bag_holds(
    engines: dict[str, Engine], monkeypatch: pytest.MonkeyPatch, overlap: float | None, rows: int, share: float | None
) -> None:
    """A quarter of the queries, or 30,000 rows; never so much that hardly a bag knows nothing of a query."""
    assert module._ROWS == 30_000
    monkeypatch.setattr(module, "_ROWS", rows)
    ranker: Any = SVRRanker([BM25(), KNN()], n_bags=8, overlap=overlap, n_jobs=1).fit(engines["tfidf"])
    ensemble = ranker.ensemble_
    share = share or rows / ensemble.n_rows_
    assert 1 / 8 < share < 1
    assert (1 + ensemble.overlap) / 8 == pytest.approx(share, rel=0.05)
    assert np.mean(ensemble.bag_sizes_) == pytest.approx(share * ensemble.n_rows_, rel=0.1)
    assert ensemble.seen_.mean() == pytest.approx(share, rel=0.1)
    assert share > 0.5 or not ensemble.seen_.all(axis=1).any()


def test_more_bags_where_each_would_be_too_large(engines: dict[str, Engine], monkeypatch: pytest.MonkeyPatch) -> None:
    """GerDaLIR's 98,380 training queries have 3.9 million rows: of 24 bags each would need 15 GB."""
    monkeypatch.setattr(module, "_ROWS", 30)

    def bags(**settings: Any) -> Any:
        return SVRRanker([BM25(), KNN()], n_bags=8, n_jobs=1, **settings).fit(engines["tfidf"]).ensemble_

    ensemble = bags()
    assert ensemble.n_rows_ > 2 * 30 * 8
    assert ensemble.n_bags == pytest.approx(ensemble.n_rows_ / 30, abs=1)  # whose rows have missed documents too
    assert np.mean(ensemble.bag_sizes_) == pytest.approx(30, rel=0.3)  # of whole queries
    assert ensemble.seen_.any(axis=1).all()  # every query is in one
    assert bags(overlap=0.6).n_bags == bags(rows_per_bag=20).n_bags == 8


def whole(fused: Run, runs: dict[str, Run]) -> Run:
    """What is fused, and behind it what else was ranked, by its best rank and then its id: query by query."""
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


def test_learned_ranks_as_deep_as_asked_and_no_otherwise(fitted: Fitted) -> None:
    """Its first documents are the same however many are asked; behind what is fused stands all that any ranker has."""
    learned: Any = fitted("learned(bm25,knn-doc,depth=5)", "tfidf")
    deep = learned.rank("dev", depth=1000)
    for depth in (1, 7, 25):
        short = learned.rank("dev", depth=depth)
        assert all(short[query] == deep[query][:depth] for query in deep.query_ids)
    knn = learned.rankers_[1].rank("dev", depth=1000)
    query = deep.query_ids[0]
    assert {doc for doc, _ in knn[query]} <= {doc for doc, _ in deep[query]}
    collection = learned.engine_.collection
    why = learned.explain(collection.queries.take(collection.query_numbers([query])), deep[query][-1][0])
    assert why.rank == len(deep[query])
    assert sum(share.share for share in why.shares) == pytest.approx(why.score)
    assert "behind those" in why.notes[0]


@pytest.mark.parametrize("encoder", ENCODERS)
def test_learned_is_the_fusion_of_runs_out_of_fold(fitted: Fitted, topics: Collection, encoder: str) -> None:
    learned: Any = fitted(LEARNED, encoder)
    relevant, batch = topics.relevant_ids("train"), dev(learned.engine_, "train")
    batch.label = "train"
    groups = batch.queries.groups
    unseen = unseen_queries(relevant, groups)
    assert unseen.any()
    how: dict[str, Any] = {
        "trained": [str(inner) for inner in learned.rankers_ if inner.learns_documents],
        "unseen": [query for query, new in zip(batch.ids, unseen, strict=True) if new],
    }
    assert how["trained"] == ["knn-queries", f"svr({EVIDENCE})"]
    runs = {str(inner): inner.run_out_of_fold(batch, 30) for inner in learned.rankers_}
    judged = pd.DataFrame({"query_id": batch.ids, "doc_id": relevant, "relevance": 1}).explode("doc_id").dropna()
    share = learned.fusion_.unseen_share
    fusion = LearnedFusion(depth=30, unseen_share=share).fit(runs, judged, **how)
    asked = dev(learned.engine_)
    deep = {str(inner): asked.run(inner, 1000) for inner in learned.rankers_}
    assert_same(learned.rank("dev"), whole(fusion.fuse(deep), deep))
    members: dict[int, list[str]] = {}
    for query, group in zip(batch.ids, groups.tolist(), strict=True):
        members.setdefault(group, []).append(query)
    dealt = sorted(members.values(), key=min)
    deep = {str(inner): inner.run_out_of_fold(batch, 1000) for inner in learned.rankers_}
    found, places = learned.out_of_fold("train"), np.random.RandomState(0).permutation(len(dealt))
    for number in range(5):  # each fold, whose queries of one document are together, by what was learned on the others
        fold = [query for place in places[number::5] for query in dealt[place]]
        without = LearnedFusion(depth=30, unseen_share=share).fit(runs, judged[~judged["query_id"].isin(fold)], **how)
        theirs = {name: run.take(fold) for name, run in deep.items()}
        assert_same(found.take(fold), whole(without.fuse(theirs), theirs))
    assert learned.fit_report_["training queries"] == fusion.n_queries_
    assert f"{learned.rankers_[3]} score" in learned.fit_report_


def test_learned_out_of_fold_one_query_at_a_time_and_beside_new_ones(fitted: Fitted, topics: Collection) -> None:
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
    """Weights are learned on the queries that were drawn; the others count as new for them, not for those within."""
    learned: Any = Learned(BM25(), SimilarQueries(), n_queries=20, depth=30).fit(engines["tfidf"])
    assert len(learned.query_ids_) == 20
    assert learned.learned_from() == {f"train{i}" for i in range(60)}
    others = [query for query in (f"train{i}" for i in range(60)) if query not in learned.query_ids_]
    batch = QueryBatch(engines["tfidf"], topics.queries.take(topics.query_numbers(others)), "train")
    runs = {str(inner): inner.run_out_of_fold(batch, 1000) for inner in learned.rankers_}
    assert_same(learned.out_of_fold(batch.queries), whole(learned.fusion_.fuse(runs), runs))


def test_fusion_of_ranks(fitted: Fitted) -> None:
    ranker: Any = fitted(f"rrf(knn,rrf(bm25,svr({EVIDENCE})),depth=25)", "tfidf")
    inner = ranker.rankers_[1]
    for how in ("rank", "out_of_fold"):
        runs = {name: getattr(each, how)("train") for name, each in (("knn", ranker.rankers_[0]), ("inner", inner))}
        expected = reciprocal_rank_fusion([run.top(25) for run in runs.values()])
        assert_same(getattr(ranker, how)("train"), expected)
        parts = [getattr(each, how)("train") for each in inner.rankers_]
        assert_same(runs["inner"], reciprocal_rank_fusion(parts))


def test_a_relevant_document_without_a_passage_is_no_candidate(topics: Collection) -> None:
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
    assert "empty" in dict(ranker.rankers_[-1].rank("dev")["dev0"])  # similar queries know it


@pytest.mark.parametrize(
    ("name", "n_queries"),
    [
        (LEARNED, 3000),
        (f"learned(bm25,svr({SVR}))", 3000),
        (f"learned(bm25,bm25-doc,knn,svr-memory({SVR}),svr({SVR}),svr(unit=passage,{SVR}))", 7),
    ],
)
def test_nested_rankers_share_what_they_ask(
    topics: Collection, monkeypatch: pytest.MonkeyPatch, name: str, n_queries: int
) -> None:
    """Every search of the training queries is done once, whoever asks, and so is every one of the queries ranked."""
    searched: list[tuple[str, int]] = []

    def counted(kind: type[Ranker], method: str) -> None:
        inner = getattr(kind, method)

        def wrapped(self: Ranker, batch: QueryBatch, depth: int) -> Run:
            searched.append((f"{self} {method}", len(batch)))
            return inner(self, batch, depth)

        monkeypatch.setattr(kind, method, wrapped)

    for kind, method in [(BM25, "_rank"), (KNN, "_rank"), (SimilarQueries, "_rank"), (SimilarQueries, "_out_of_fold")]:
        counted(kind, method)
    ranker: Any = parse(name)
    ranker.n_queries = n_queries
    engine = Engine(topics)
    for use, n in ((lambda: ranker.fit(engine), 60), (lambda: ranker.rank("dev"), 15)):
        searched.clear()
        use()
        assert ("bm25 _rank", n) in searched
        assert len({kind for kind, _ in searched}) == len(searched), searched


@pytest.mark.parametrize("k1", [1.2, 3])
def test_rankers_that_differ_in_k3_share_the_weights(engines: dict[str, Engine], k1: float) -> None:
    indexes = [bm25_with_parameters(engines["tfidf"], "passage", k1, 0.75, k3) for k3 in (0, None, 2, 0)]
    assert [index.k3 for index in indexes] == [0, None, 2, 0]
    assert all(index._weights is indexes[0]._weights for index in indexes)
    assert indexes[3] is indexes[0]  # so that what is kept of its searches is found again
    query = {"q": f"{word(3)} {word(3)} {word(3)} {word(104)}"}
    runs = [BM25(k1=k1, k3=k3).fit(engines["tfidf"]).rank(query).to_frame()["score"] for k3 in (0, 2, None)]
    assert all((fewer <= more).all() and (fewer < more).any() for fewer, more in itertools.pairwise(runs))


def test_equal_rankers_are_fitted_once_and_fitted_ones_taken(topics: Collection) -> None:
    engine = Engine(topics)
    memory = SimilarQueries().fit(engine)
    both: Any = RRF(memory, parse("rrf(knn-queries,bm25)")).fit(engine)
    assert both.rankers_[0] is memory
    assert both.rankers_[1].rankers_[0] is not memory  # equal, but nobody said it is fitted
    assert not hasattr(both.rankers[1], "engine_")
    twice: Any = RRF(SimilarQueries(), parse("rrf(knn-queries,bm25)")).fit(engine)
    assert twice.rankers_[0] is twice.rankers_[1].rankers_[0]
    for fitted_on in ((engine, "dev"), (Engine(topics),)):
        assert RRF(memory, BM25()).fit(*fitted_on).rankers_[0] is not memory
    memory.k = 3
    changed: Any = RRF(memory, BM25()).fit(engine)
    assert changed.rankers_[0] is not memory
    assert changed.rankers_[0].neighbours_.k == 3


def test_fitting_leaves_the_ranker_as_it_was_made(topics: Collection) -> None:
    engine = Engine(topics)
    for name in RANKERS:
        ranker = parse(name)
        assert ranker.fit(engine) is ranker
        assert ranker == parse(name)
        assert not any(hasattr(each, "engine_") for each in [ranker.clone(), *ranker.nested()])
        json.dumps(ranker.fit_report_)


def test_many_queries_are_ranked_in_blocks(fitted: Fitted, topics: Collection, monkeypatch: pytest.MonkeyPatch) -> None:
    ranker = fitted(f"rrf(bm25,svr-memory({SVR}),k=20)", "tfidf")
    whole = ranker.rank("train")
    monkeypatch.setattr("haybale.rankers.ranker._BLOCK", 7)
    blocks = ranker.rank("train")
    assert blocks.query_ids == whole.query_ids
    for query in whole.query_ids:
        assert dict(blocks[query]) == pytest.approx(dict(whole[query]))


def few(topics: Collection, n: int) -> tuple[dict[str, list[str]], pd.DataFrame]:
    """The first n training queries, with their judgements."""
    frame = topics.qrels_frame("train")
    ids = list(dict.fromkeys(frame["query_id"]))[:n]
    asked = {query: topics.queries.paragraphs_of(int(topics.query_numbers([query])[0])) for query in ids}
    return asked, frame[frame["query_id"].isin(ids)]


@pytest.mark.parametrize("n", [2, 3, 10])
@pytest.mark.parametrize("name", ["svr", "learned(bm25,knn-queries,svr(unit=passage))"])
def test_fewer_training_queries_than_bags(topics: Collection, name: str, n: int) -> None:
    asked, qrels = few(topics, n)
    with pytest.warns(UserWarning, match=rf"svr.*: {n} training queries for 24 bags; {n} bags are trained"):
        ranker: Any = parse(name).fit(Engine(topics), asked, qrels)
    ensemble = ranker.rankers_[2].ensemble_ if name.startswith("learned") else ranker.ensemble_
    assert ensemble.n_bags == n
    assert len(ranker.rank("dev").flat()[0]) > 30
    assert ranker.out_of_fold(asked).query_ids == list(asked)
    assert ranker.learned_from() == set(asked)


def test_one_training_query(topics: Collection) -> None:
    """Similar queries need no more; an ensemble does, and says so before anything is searched."""
    asked, qrels = few(topics, 1)
    engine = Engine(topics)
    ranker = parse("learned(bm25,knn-queries)").fit(engine, asked, qrels)
    assert len(ranker.rank("dev").flat()[0]) > 30
    with pytest.raises(InputError, match="without 'train0' there are too few queries to learn weights from"):
        ranker.out_of_fold(asked)
    for name in ("svr", "svr-memory"):
        with pytest.raises(InputError, match="learns from at least 2 judged queries, found 1"), record_timings(refuse):
            parse(name).fit(engine, asked, qrels)


def refuse(stage: str, seconds: float) -> None:
    raise AssertionError(f"{stage} was done first")


@pytest.mark.parametrize("name", [*LEARNING, "learned", "learned(bm25,knn)"])
def test_without_training_queries_nothing_is_begun(name: str) -> None:
    builder = CollectionBuilder("no train")
    builder.add_document("d", ["a dog barks", "a dog sleeps"])
    builder.add_query("q", ["dog"], split="test")
    builder.add_query("r", ["cat"], split="unjudged")
    builder.add_judgement("test", "q", "d")
    builder.add_judgement("unjudged", "r", "d", 0)
    engine, ranker = Engine(builder.build()), parse(name)
    for queries, message in [
        (None, "learns from judged queries: no train has no split 'train', only test, unjudged; name the split"),
        ("unjudged", "no query has a relevant document: there is nothing to learn"),
        ({"q": "dog"}, "need their judgements: give qrels, or the name of a split"),
    ]:
        with pytest.raises(InputError, match=message), record_timings(refuse):
            ranker.fit(engine, queries)
    with pytest.raises(UnknownNameError, match="unknown split of no train 'tain'; known: test, unjudged"):
        ranker.fit(engine, "tain")
    assert engine.made == set()
    with pytest.raises(NotFittedError):
        ranker.rank({"q": "dog"})


def test_judgements_as_frames(fitted: Fitted, topics: Collection) -> None:
    name = f"learned(bm25,svr-memory({SVR}))"
    engine, expected = fitted(name, "tfidf").engine_, fitted(name, "tfidf").rank("dev")
    frame = topics.qrels_frame("train")
    for given in (pa.Table.from_pandas(frame), frame.assign(more=1, relevance=frame["relevance"].astype(float))):
        for queries in ("train", topics.queries.take(topics.split("train").queries)):
            assert_same(parse(name).fit(engine, queries, given).rank("dev"), expected)
    names = few(topics, 60)[0]
    assert parse(name).fit(engine, None, frame).learned_from() <= set(names)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"query_id": "nobody"}, "unknown query id 'nobody'"),
        ({"doc_id": "nothing"}, "unknown document id 'nothing'"),
        ({"relevance": "high"}, "relevance"),
        ({"relevance": 0}, "nothing to learn"),
        ({"doc_id": None}, "doc_id"),
        (None, "are judged twice, with different grades"),
    ],
)
def test_judgements_that_are_refused(topics: Collection, changed: Any, message: str) -> None:
    asked, frame = few(topics, 5)
    judged = pd.concat([frame, frame.assign(relevance=9)]) if changed is None else frame.assign(**changed)
    with pytest.raises(InputError, match=message), record_timings(refuse):
        SimilarQueries().fit(Engine(topics), asked, judged)


def test_queries_are_given_in_any_form(fitted: Fitted, topics: Collection, tmp_path: Path) -> None:
    ranker = fitted(f"rrf(knn,rrf(bm25,svr({EVIDENCE})),depth=25)", "tfidf")
    numbers = topics.split("dev").queries
    ids = topics.queries.ids.take(numbers).to_pylist()
    texts = [topics.queries.paragraphs_of(int(number)) for number in numbers]
    own = [topics.doc_ids[int(d)].as_py() if d >= 0 else None for d in topics.queries.own[numbers]]
    expected = ranker.rank("dev")
    frame = pd.DataFrame({"query_id": ids, "text": ["\n".join(parts) for parts in texts], "own": own})
    frame.fillna("").to_json(tmp_path / "q.jsonl", orient="records", lines=True)
    for given in (topics.queries.take(numbers), frame, pa.Table.from_pandas(frame), tmp_path / "q.jsonl"):
        assert_same(ranker.rank(given), expected)
    without = ranker.rank(dict(zip(ids, texts, strict=True)))
    assert without != expected
    assert_same(ranker.rank(frame.assign(own="a document from elsewhere")), without)
    flat = {query: " ".join(parts) for query, parts in zip(ids, texts, strict=True)}
    (tmp_path / "q.tsv").write_text("".join(f"{query}\t{text}\n" for query, text in flat.items()))
    assert_same(ranker.rank(tmp_path / "q.tsv"), ranker.rank(flat))
    assert ranker.rank(list(flat.values())).query_ids == [str(place) for place in range(15)]
    assert ranker.rank(flat["dev0"])["0"] == ranker.rank({7: flat["dev0"]})["7"]
    (tmp_path / "letter.txt").write_text("\n\n".join(texts[1]))
    assert ranker.rank(tmp_path / "letter.txt").query_ids == ["letter"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("", "query '0' is empty"),
        ({"q": []}, "query 'q' is empty"),
        ({"q": "text", "r": ["", " "]}, "query 'r' is empty"),
        ({}, "no query"),
        ({1: "a", "1": "b"}, "query ids: '1' occurs twice"),
        ({"q": 7}, "query 'q': expected a text or a list of paragraphs, found 7"),
        ({"q": ["a", None]}, "query 'q': expected a text or a list of paragraphs"),
        ({None: "a"}, "query ids: expected strings or whole numbers, found None"),
        (7, "expected a frame of .*, found int"),
        (pd.DataFrame({"query_id": ["q"], "text": [None]}), "text"),
        (pd.DataFrame({"query_id": ["q"]}), "text"),
        (Path("no/such/file.tsv"), "no/such/file.tsv: no such file"),
        (Path("no/such/file.txt"), "no/such/file.txt: no such file"),
    ],
)
def test_what_is_no_query_is_refused(fitted: Fitted, given: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        fitted("bm25", "tfidf").rank(given)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("q.jsonl", b'{"_id": "a", "text": "b"}\n{"_id": "c"}\n', r"q.jsonl, line 2: .*text"),
        ("q.jsonl", b'{"_id": "a", "text": " "}\n', r"q.jsonl: query 'a' is empty"),
        ("q.jsonl", b'{"_id": "a", "text": "b"}\n' * 2, r"q.jsonl: query ids: 'a' occurs twice"),
        ("q.tsv", b"a\n", r"q.tsv, line 1"),
        ("q.tsv", b"", r"q.tsv: no query"),
        ("q.tsv", b"a\t\xff\n", r"q\.tsv"),
        ("q.txt", b" \n \n", r"q.txt: the text is empty"),
    ],
)
def test_files_of_queries_name_the_place(
    fitted: Fitted, tmp_path: Path, name: str, content: bytes, message: str
) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message):
        fitted("bm25", "tfidf").rank(tmp_path / name)


def test_what_is_not_fitted_says_so(tmp_path: Path) -> None:
    ranker = parse(LEARNED)
    for use in (ranker.rank, ranker.out_of_fold, lambda text: ranker.explain(text, "d01"), ranker.save):
        with pytest.raises(NotFittedError, match=r"is not fitted: call fit\(engine\) first"):
            use(str(tmp_path / "text"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("use", "message"),
    [
        *((lambda bm25, n=n: bm25.rank("dev", depth=n), "'depth' parameter of rank") for n in (0, 1.5, math.nan, True)),
        (lambda bm25: bm25.out_of_fold("dev", depth=0), "'depth' parameter of out_of_fold"),
        (lambda bm25: bm25.explain("text", "nobody"), "unknown document id 'nobody'"),
        (lambda bm25: bm25.explain("dev", "d01"), "explain takes one query, found 15"),
        (lambda bm25: bm25.rank("dev", within=["nobody"]), "unknown document id 'nobody'"),
        (lambda bm25: RRF("bm25", KNN()).fit(bm25.engine_), "RRF fuses rankers, found 'bm25'"),
        (lambda bm25: RRF(BM25(b=2), KNN()).fit(bm25.engine_), "'b' parameter of BM25"),
    ],
)
def test_what_else_is_refused(fitted: Fitted, use: Callable[[Ranker], Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        use(fitted("bm25", "tfidf"))


@pytest.mark.parametrize("name", RANKERS)
def test_a_query_that_finds_nothing(fitted: Fitted, name: str) -> None:
    ranker = fitted(name, "tfidf")
    asked = {"known": "lababasox kodubakox", "strange": "zzzz", "another": "yyyy"}
    if "candidates=none" in name:  # ranks all there is
        assert {len(ranker.rank(asked)[query]) for query in asked} == {41}
        return
    with pytest.warns(EmptyRankingWarning, match=r"finds no document for 2 of 3 queries, the first is 'strange'"):
        run = ranker.rank(asked)
    assert run.query_ids == list(asked)
    assert run["strange"] == run["another"] == []
    assert len(run["known"]) > 0


@pytest.mark.parametrize("name", RANKERS)
def test_documents_that_come_and_go(topics: Collection, name: str) -> None:
    """A fitted ranker ranks them at once, all others as before where nothing it rests on has changed."""
    engine = Engine(topics)
    ranker = parse(name).fit(engine)
    before = ranker.rank("dev")
    engine.add(NEW)
    grown = ranker.rank("dev")
    gone = [doc for doc, _ in before["dev0"]][:2]
    engine.remove([*gone, *NEW])
    shrunk = ranker.rank("dev")
    assert not {*gone, *NEW} & set(shrunk.flat()[2].to_pylist())
    assert grown.query_ids == shrunk.query_ids == before.query_ids
    with pytest.raises(InputError, match=f"unknown document id '{gone[0]}'"):
        ranker.explain("text", gone[0])


def test_shares_of_shares() -> None:
    inner = Explanation("bm25", "q", "d", 4.0, 2, [Share("term dog", 3.0, "a dog"), Share("term cat", 1.0)])
    empty = Explanation("knn", "q", "d", None, None)
    outer = Explanation(
        "rrf", "q", "d", 0.5, 1, [Share("bm25", 0.3, of=inner), Share("knn", 0.2, of=empty)], ["a note"]
    )
    assert outer.to_frame()["path"].tolist() == ["bm25 / term dog", "bm25 / term cat", "knn"]
    assert outer.to_frame()["share"].tolist() == pytest.approx([0.225, 0.075, 0.2])
    assert outer.text(top=1).splitlines() == [
        "d: rank 1, rrf 0.5000",
        "  +0.3000  bm25",
        "        +3.0000  term dog",
        "                 a dog",
        "        +1.0000  1 more",
        "  +0.2000  1 more",
        "  a note",
    ]
    record = outer.to_dict()
    assert record["shares"][0]["of"]["shares"][0] == {"what": "term dog", "share": 3.0, "text": "a dog"}
    cancelling = Explanation("x", "q", "d", 0.0, 1, [Share("a", 1.0), Share("b", -1.0)])
    assert len(Explanation("y", "q", "d", 2.0, 1, [Share("x", 2.0, of=cancelling)]).to_frame()) == 1
