"""LinkedDocuments: walks by dense matrices, the contract of rankers, and use as evidence in other rankers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.engines import assert_same
from support.ranker_contract import check_explanations, check_ranking, check_saved, queries_of

from haybale import Engine
from haybale.collections import Collection
from haybale.context import DocumentGraph, LinearContext
from haybale.context import LinkedDocuments as Linked
from haybale.rankers import KNN, SVR, Learned, QueryBatch, SimilarQueries, parse

pytestmark = pytest.mark.filterwarnings(
    "ignore::haybale.rankers.EmptyRankingWarning", "ignore:.* bags are trained", "ignore:.* bags have no relevant row"
)
NAMES = (
    "linked(knn,n_seeds=3)",
    "linked-cited(knn-queries,steps=1,mask=relevant)",
    "linked-citing(rrf(knn,knn-queries),steps=3,decay=0.9,mask=off)",
)


@pytest.fixture(scope="module")
def engine(structured: Collection) -> Engine:
    return Engine(structured)


def oracle(collection: Collection, ranker: Linked, batch: QueryBatch, row: int) -> dict[str, float]:
    """Return the scores of a query by products with the transition matrix."""
    graph = DocumentGraph.from_collection(collection)
    n, own = graph.n_documents, int(batch.own[row])
    links, ids = np.zeros((n, n)), collection.doc_ids.to_pylist()
    for d in range(n):
        if ranker.direction in ("both", "cited"):
            links[d, graph.cited(d)] = 1
        if ranker.direction in ("both", "citing"):
            links[d, graph.citing(d)] = 1
    if ranker.mask == "own":
        links[own] = links[:, own] = 0
    if ranker.mask == "relevant":
        train = queries_of(collection, "train")
        for o, relevant in zip(train.own.tolist(), collection.relevant_ids("train"), strict=True):
            for doc in relevant:
                if o == own:
                    links[o, ids.index(doc)] = links[ids.index(doc), o] = 0
    transition = links / np.maximum(links.sum(axis=1, keepdims=True), 1)
    mass, found = np.zeros(n), np.zeros(n)
    for rank, (doc, _) in enumerate(ranker.rankers_[0].run(batch, ranker.n_seeds)[batch.ids[row]], 1):
        mass[ids.index(doc)] = 1 / (10 + rank)
    for t in range(ranker.steps):
        mass = mass @ transition
        found += ranker.decay**t * mass
    return {doc: score for d, (doc, score) in enumerate(zip(ids, found.tolist(), strict=True)) if score and d != own}


@pytest.mark.parametrize("name", NAMES)
def test_walks_along_links(engine: Engine, structured: Collection, tmp_path: Path, name: str) -> None:
    ranker: Any = parse(name).fit(engine)
    whole = ranker.rank("dev")
    batch = QueryBatch(engine, queries_of(structured, "dev"))
    for row, query in enumerate(batch.ids):
        assert dict(whole[query]) == pytest.approx(oracle(structured, ranker, batch, row))
    assert_same(check_ranking(ranker), whole)
    assert ranker.needs_training == (name != NAMES[0])
    check_saved(ranker, engine, tmp_path / "ranker")
    for found in check_explanations(ranker, "dev2", n=5):
        assert all(share.of is not None and share.what.startswith("linked with") for share in found.shares)


def test_walks_do_not_follow_links_to_the_answers(structured: Collection) -> None:
    """The mask "relevant" hides the links between a training query's own document and its relevant documents."""
    hidden, seen = (Linked(KNN(), mask=mask, steps=3).fit(Engine(structured)) for mask in ("relevant", "off"))
    graph = DocumentGraph.from_collection(structured)
    assert hidden.mask_ is not None
    ids = structured.doc_ids.to_pylist()
    for own, relevant in hidden.mask_.items():
        assert {ids.index(doc) for doc in relevant} <= set(graph.cited(ids.index(own)).tolist())
    assert hidden.rank("train") != seen.rank("train")


def test_links_are_evidence_in_other_rankers(engine: Engine) -> None:
    """Check fitting, out-of-fold runs and explanations of fusion and of the ensemble."""
    links = Linked(SimilarQueries()), Linked(KNN())
    context = LinearContext(KNN())
    for ranker in (
        Learned(KNN(), context, *links, depth=10),
        SVR((KNN(), context, *links), n_candidates=8, n_bags=4, n_jobs=1),
    ):
        ranker.fit(engine)
        run = ranker.rank("dev")
        assert run.coded()[0].size
        assert ranker.out_of_fold("train") != ranker.rank("train")
        (found,) = check_explanations(ranker, run.query_ids[0], n=1)
        assert any("linked" in share.what or "linear-context" in share.what for share in found.shares)
