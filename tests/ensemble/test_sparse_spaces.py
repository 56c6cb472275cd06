"""Sparse vectors in the aggregations and in the ensemble: the slow way is to densify them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import sparse
from worlds import world

from haybale.ensemble import SVREnsemble, pair_features
from haybale.errors import InputError, VectorError
from haybale.retrieval import PassageIndex, Vectors, rank_documents
from haybale.vectors import normalized_sparse


def sparse_world(seed: int = 0):
    """The world of the ensemble's tests on 12 features, most values cut off; its index sparse, and the same dense."""
    index, queries, relevant = world(seed, d=12)
    cut = [np.where(np.abs(matrix) > 0.25, matrix, 0).astype(np.float32) for matrix in (index.vectors, queries)]
    passages, queries = (normalized_sparse(sparse.csr_matrix(matrix)) for matrix in cut)
    ids = {"doc_ids": index.doc_ids}
    both = PassageIndex(passages, index.doc_offsets, **ids), PassageIndex(passages.toarray(), index.doc_offsets, **ids)
    return both, (queries, queries.toarray()), relevant


@pytest.mark.parametrize("name", ["maxp", "rrf", "vrrf"])
def test_aggregations(name: str) -> None:
    indexes, queries, _ = sparse_world()
    offsets = np.array([0, 3, 3, 10, 40])
    hits = indexes[0].search(queries[0], 15)
    found = []
    for index, vectors in zip(indexes, queries, strict=True):
        given_vectors = Vectors(index.vectors, vectors)
        found.append(rank_documents(index, hits, list("abcd"), name, offsets, vectors=given_vectors).to_frame())
    np.testing.assert_allclose(found[0].score, found[1].score, rtol=1e-5, atol=1e-7)
    assert set(found[0].query_id) == {"a", "c", "d"}


def test_pair_features() -> None:
    indexes, queries, _ = sparse_world()
    hits = indexes[0].search(queries[0], 15)
    found = [pair_features(hits, [hits], i, q, spaces=[(q, i.vectors)]) for i, q in zip(indexes, queries, strict=True)]
    np.testing.assert_allclose(found[0], found[1], atol=1e-6)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"strategy": "regions"},
        {"strategy": "rows", "gamma": "scale"},
        {"solver": "sklearn"},
        {"memory_budget": 4e5},
        {"eta": 0.5},
    ],
    ids=lambda changes: " ".join(map(str, changes.values())) or "defaults",
)
def test_the_ensemble_is_that_of_the_densified_vectors(changes: dict) -> None:
    indexes, queries, relevant = sparse_world()
    candidates = indexes[0].search(queries[0], 12)
    found = []
    for index, vectors in zip(indexes, queries, strict=True):
        given_features = {}
        if changes.get("eta"):
            given_features["features"] = pair_features(candidates, [candidates], index, vectors)
        ensemble = SVREnsemble(4, tol=1e-6, **changes)
        ensemble.fit(index, vectors, relevant, candidates=candidates, **given_features)
        found.append(ensemble.score_candidates(vectors, candidates.passages, **given_features))
    np.testing.assert_allclose(found[0], found[1], atol=1e-4)


def test_a_relevant_passage_that_no_search_found_is_the_nearest_of_its_document() -> None:
    indexes, queries, relevant = sparse_world()
    found = [
        SVREnsemble(3, k=2, tol=1e-6).fit(index, vectors, relevant)
        for index, vectors in zip(indexes, queries, strict=True)
    ]
    passages = indexes[0].search(queries[0], 9).passages
    scores = [model.score_candidates(vectors, passages) for model, vectors in zip(found, queries, strict=True)]
    np.testing.assert_allclose(*scores, atol=1e-4)


def test_an_ensemble_on_a_sparse_index_ranks_explains_and_loads(tmp_path: Path) -> None:
    (index, dense), (queries, dense_queries), relevant = sparse_world()
    ids = [f"q{i}" for i in range(queries.shape[0])]
    ensemble = SVREnsemble(4, k=10).fit(index, queries, relevant, query_ids=ids)
    assert ensemble.support_.passages.dense is None  # fed as it is
    ensemble.save(tmp_path / "model")
    loaded = SVREnsemble.load(tmp_path / "model", index)
    assert loaded.rank(queries, ids, k=8) == ensemble.rank(queries, ids, k=8)
    score = ensemble.score(queries[:2], [["3"], ["3", "7"]])
    np.testing.assert_array_equal(loaded.score(queries[:2], [["3"], ["3", "7"]])[1], score[1])
    explanation = ensemble.explain(queries[1], "7")
    np.testing.assert_allclose(explanation.prediction, score[1][1], atol=1e-6)
    with pytest.raises(VectorError, match=r"spaces of widths 12 \(sparse\); the index and spaces have 12"):
        SVREnsemble.load(tmp_path / "model", dense)
    with pytest.raises(VectorError, match=r"widths 12 \(sparse\); the index and spaces have 5 \(sparse\)"):
        SVREnsemble.load(tmp_path / "model", PassageIndex(index.vectors[:, :5]))
    with pytest.raises(VectorError, match="query_vectors: expected a sparse matrix"):
        ensemble.rank(dense_queries, ids)
    with pytest.raises(InputError, match="standardize centres features"):
        SVREnsemble.as_published(n_bags=4).fit(index, queries, relevant)


def test_the_injected_protocol() -> None:
    (index, _), (queries, _), relevant = sparse_world()
    ensemble = SVREnsemble(4, k=10, protocol="injected").fit(index, queries, relevant)
    assert ensemble.n_rows_ == (index.search(queries, 10).passages >= 0).sum() + len(relevant)
