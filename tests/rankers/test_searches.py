"""Nearest neighbours and fused ranks against slow oracles, and searches that rankers share."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from support.engines import assert_same
from support.ranker_cases import ENCODERS, Fitted, batch_of
from support.topics import EVIDENCE, LEARNED, SVR, word

from haybale import Engine
from haybale.collections import Collection
from haybale.collections.queries import queries_of as query_columns
from haybale.rankers import BM25, KNN, RRF, QueryBatch, Ranker, SimilarQueries, parse
from haybale.retrieval import PassageIndex, Run, reciprocal_rank_fusion
from haybale.retrieval.query_saturation import k3_of_length

pytestmark = pytest.mark.filterwarnings("ignore:.* bags have no relevant row")


@pytest.mark.parametrize("encoder", ENCODERS)
@pytest.mark.parametrize(
    ("name", "vectors"), [("knn", "passages"), ("knn-doc", "documents"), ("knn-firstp", "first_passages")]
)
def test_nearest_neighbours(fitted: Fitted, encoder: str, name: str, vectors: str) -> None:
    """Compare with the full matrix of inner products."""
    ranker = fitted(name, encoder)
    index, batch, run = getattr(ranker.engine_, vectors), batch_of(ranker.engine_), ranker.rank("dev")
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
    """Nearest neighbours and PARM share the hits of passages, and rank as they do alone."""
    engine, searched = engines[encoder], []
    search = PassageIndex.search
    monkeypatch.setattr(PassageIndex, "search", lambda *a, **how: (searched.append(a[0]), search(*a, **how))[1])
    monkeypatch.setattr("haybale.rankers.knn._PARM_HITS", 40)
    monkeypatch.setattr("haybale.search.query_batch._MIN_TRAINING_DEPTH", 5)
    knn, parm = KNN().fit(engine), parse("parm-rrf(n_hits=40)").fit(engine)
    queries = engine.collection.queries
    ids, texts = queries.ids.to_pylist(), queries.texts(range(len(queries)))
    for batch in (
        QueryBatch(engine, query_columns(engine.collection, ids, texts), "train"),
        QueryBatch(engine, queries, "train"),
    ):
        alone = QueryBatch(engine, batch.queries)
        searched.clear()
        runs = [ranker.run(batch, 5) for ranker in (knn, parm)]
        n_shared = len(searched)
        for run, ranker in zip(runs, (knn, parm), strict=True):
            assert_same(run, ranker.run(alone, 5))
        assert batch.single == (batch.queries is not queries)
        if batch.single:
            assert n_shared == 1
            assert len(searched) > n_shared


def test_fusion_of_ranks(fitted: Fitted) -> None:
    ranker: Any = fitted(f"rrf(knn,rrf(bm25,svr({EVIDENCE})),depth=25)", "tfidf")
    inner = ranker.rankers_[1]
    for how in ("rank", "out_of_fold"):
        runs = {name: getattr(each, how)("train") for name, each in (("knn", ranker.rankers_[0]), ("inner", inner))}
        expected = reciprocal_rank_fusion([run.top(25) for run in runs.values()])
        assert_same(getattr(ranker, how)("train"), expected)
        parts = [getattr(each, how)("train") for each in inner.rankers_]
        assert_same(runs["inner"], reciprocal_rank_fusion(parts))


@pytest.mark.parametrize("k1", [1.2, 3])
def test_rankers_that_differ_in_k3_share_the_weights(engines: dict[str, Engine], k1: float) -> None:
    indexes = [engines["tfidf"].bm25("passage", k1, 0.75, k3) for k3 in (0, None, 2, 0)]
    assert [index.k3 for index in indexes] == [0, None, 2, 0]
    assert all(index._weights is indexes[0]._weights for index in indexes)
    assert indexes[3] is indexes[0]  # so that cached searches are reused
    query = {"q": f"{word(3)} {word(3)} {word(3)} {word(104)}"}
    runs = [BM25(k1=k1, k3=k3).fit(engines["tfidf"]).rank(query).to_frame()["score"] for k3 in (0, 2, None)]
    assert all((fewer <= more).all() and (fewer < more).any() for fewer, more in itertools.pairwise(runs))


@pytest.mark.parametrize("top", [1, 2])
def test_the_length_of_a_query_sets_k3_over_passages_only(engines: dict[str, Engine], top: int) -> None:
    """Each query is ranked and explained as with the k3 of its length; over documents, each occurrence counts."""
    engine, n_distinct = engines["tfidf"], 3
    ranker, counted, one_k3 = (BM25(k3=k3, top=top).fit(engine) for k3 in ("auto", None, 8))
    for n_terms in (12, 40, 400):
        query = " ".join(word(3 + number % n_distinct) for number in range(n_terms - 1)) + " unheard"
        expected = BM25(k3=k3_of_length(n_terms), top=top).fit(engine)
        run, best = ranker.rank({"q": query}), ranker.search(query, k=1)[0].doc_id
        assert_same(run, expected.rank({"q": query}))
        shares = [
            [(share.what, share.share) for share in each.explain(query, best).shares] for each in (ranker, expected)
        ]
        assert shares[0] == shares[1]
        assert (run == one_k3.rank({"q": query})) == (n_terms > 100)
        assert run != counted.rank({"q": query})
        assert BM25("document").fit(engine).rank({"q": query}) == BM25("document", k3=None).fit(engine).rank(
            {"q": query}
        )


@pytest.mark.parametrize(
    ("name", "n_queries"),
    [
        (LEARNED, 3000),
        (f"learned(bm25,svr({SVR}))", 3000),
        (f"learned(bm25,bm25-doc,knn,svr-memory({SVR}),svr({SVR}),svr(unit=passage,{SVR}))", 7),
    ],
)
def test_nested_rankers_share_searches(
    topics: Collection, monkeypatch: pytest.MonkeyPatch, name: str, n_queries: int
) -> None:
    """Each search of the training queries, and of the ranked queries, is done once."""
    searched: list[tuple[str, int]] = []

    def counted(kind: type[Ranker], method: str) -> None:
        inner = getattr(kind, method)

        def wrapped(self: Ranker, batch: QueryBatch, depth: int) -> Run:
            searched.append((f"{self} {method}", len(batch)))
            return inner(self, batch, depth)

        monkeypatch.setattr(kind, method, wrapped)

    for kind, method in [
        (BM25, "rank_batch"),
        (KNN, "rank_batch"),
        (SimilarQueries, "rank_batch"),
        (SimilarQueries, "out_of_fold_batch"),
    ]:
        counted(kind, method)
    ranker: Any = parse(name)
    ranker.n_queries = n_queries
    engine = Engine(topics)
    for use, n in ((lambda: ranker.fit(engine), 60), (lambda: ranker.rank("dev"), 15)):
        searched.clear()
        use()
        assert ("bm25 rank_batch", n) in searched
        assert len({kind for kind, _ in searched}) == len(searched), searched


def test_equal_rankers_are_fitted_once(topics: Collection) -> None:
    engine = Engine(topics)
    memory = SimilarQueries().fit(engine)
    both: Any = RRF(memory, parse("rrf(knn-queries,bm25)")).fit(engine)
    assert both.rankers_[0] is memory
    assert both.rankers_[1].rankers_[0] is not memory  # an equal ranker, but not the fitted one
    assert not hasattr(both.rankers[1], "engine_")
    twice: Any = RRF(SimilarQueries(), parse("rrf(knn-queries,bm25)")).fit(engine)
    assert twice.rankers_[0] is twice.rankers_[1].rankers_[0]
    for fitted_on in ((engine, "dev"), (Engine(topics),)):
        assert RRF(memory, BM25()).fit(*fitted_on).rankers_[0] is not memory
    memory.k = 3
    changed: Any = RRF(memory, BM25()).fit(engine)
    assert changed.rankers_[0] is not memory
    assert changed.rankers_[0].k == 3
