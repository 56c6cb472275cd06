"""Sparse vectors in the index, in the aggregations and in the ensemble: the slow way is to densify them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from worlds import world

from haybale.ensemble import SVREnsemble, pair_features
from haybale.errors import InputError, VectorError
from haybale.retrieval import PassageIndex, Vectors, rank_documents
from haybale.retrieval import sparse_search as module
from haybale.sparse_products import add_products, paired_products
from haybale.vectors import check_sparse, normalized_sparse


def random_csr(rng: np.random.Generator, n: int, d: int, density: float = 0.3, values: int = 3) -> sparse.csr_matrix:
    """Few distinct values, so that ties are everywhere; some rows are empty."""
    dense = rng.integers(1, values + 1, size=(n, d)) * (rng.random((n, d)) < density)
    return sparse.csr_matrix(dense.astype(np.float32))


def oracle(queries, passages, k, doc_of, own):
    """One product at a time in float64; passages without a common term are no hits."""
    rows, values = [], []
    for i, query in enumerate(queries.toarray().astype(np.float64)):
        scores = []
        for j, passage in enumerate(passages.toarray().astype(np.float64)):
            common = np.any((query != 0) & (passage != 0)) and not (own[i] >= 0 and doc_of[j] == own[i])
            scores.append(np.float32(sum(query * passage)) if common else -np.inf)
        order = sorted(range(len(scores)), key=lambda j: (-scores[j], j))[:k]
        rows.append([j if np.isfinite(scores[j]) else -1 for j in order])
        values.append([scores[j] for j in order])
    return np.array(rows), np.array(values, dtype=np.float32)


@settings(max_examples=60, deadline=None)
@given(data=st.data(), seed=st.integers(0, 2**32 - 1))
def test_hits_are_the_oracles(data: st.DataObject, seed: int) -> None:
    n, m, d = data.draw(st.integers(1, 60)), data.draw(st.integers(1, 5)), data.draw(st.integers(1, 12))
    rng = np.random.default_rng(seed)
    density = data.draw(st.sampled_from([0.3, 0.02]))  # of many passages with a term of the query, and of few
    passages, queries = random_csr(rng, n, d, density), random_csr(rng, m, d, max(0.1, density))
    if data.draw(st.booleans()):  # signs: a shared term may add up to nothing, and is a hit all the same
        passages = check_sparse(passages.multiply(rng.choice([-1, 1], size=(n, d))), "passages")
    cuts = np.sort(rng.integers(0, n + 1, size=data.draw(st.integers(0, 5))))
    offsets = np.concatenate(([0], cuts, [n]))
    own = rng.integers(-1, len(offsets) - 1, size=m)
    k = data.draw(st.integers(1, n))
    index = PassageIndex(passages, offsets)
    hits = index.search(queries, k, exclude=own)
    rows, scores = oracle(queries, passages, k, index.doc_of, own)
    np.testing.assert_array_equal(hits.passages, rows)
    np.testing.assert_array_equal(hits.scores, scores)


def test_dense_and_sparse_agree_where_a_term_is_shared() -> None:
    rng = np.random.default_rng(0)
    passages, queries = (normalized_sparse(random_csr(rng, n, 40, values=1000)) for n in (300, 20))
    wide, dense = (
        PassageIndex(passages).search(queries, 50),
        PassageIndex(passages.toarray()).search(queries.toarray(), 50),
    )
    np.testing.assert_array_equal(wide.passages, dense.passages)
    np.testing.assert_allclose(wide.scores, dense.scores, rtol=1e-6)


def test_pieces_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    passages, queries = random_csr(rng, 200, 30), random_csr(rng, 50, 30)
    whole = PassageIndex(passages).search(queries, 30)
    monkeypatch.setattr(module, "_QUERIES", 1)
    monkeypatch.setattr("haybale.retrieval.index._BATCH", 7)
    pieces = PassageIndex(passages).search(queries, 30)
    np.testing.assert_array_equal(whole.passages, pieces.passages)
    np.testing.assert_array_equal(whole.scores, pieces.scores)


def test_any_sparse_layout_is_taken_and_left_as_it_was() -> None:
    """Unsorted, doubled and stored-zero entries, 64-bit floats, other formats."""
    messy = sparse.csr_matrix((np.array([1.0, 2.0, 0.0, 3.0]), [2, 2, 1, 0], [0, 4, 4]), shape=(2, 3))
    expected = [[3, 0, 3], [0, 0, 0]]
    for given_as in (messy, messy.tocoo(), messy.astype(np.float32), sparse.csr_array(messy)):
        index = PassageIndex(given_as)
        assert index.vectors.toarray().tolist() == expected
        assert index.vectors.dtype == np.float32
        assert index.search(sparse.csr_matrix(np.ones((1, 3))), 2).passages.tolist() == [[0, -1]]
    assert messy.data.tolist() == [1, 2, 0, 3]


def test_bad_input_is_refused() -> None:
    index = PassageIndex(sparse.identity(3, format="csr"))
    assert (index.width, len(index), index.is_sparse) == (3, 3, True)
    with pytest.raises(VectorError, match="queries: expected a sparse matrix, as the passages are, found a dense one"):
        index.search(np.eye(3), 1)
    with pytest.raises(VectorError, match="queries: expected a dense matrix, as the passages are, found a sparse one"):
        PassageIndex(np.eye(3)).search(sparse.identity(3, format="csr"), 1)
    with pytest.raises(VectorError, match="width 3, found 2"):
        index.search(sparse.identity(2, format="csr"), 1)
    with pytest.raises(InputError, match="k must lie between 1 and the number of passages"):
        index.search(sparse.identity(3, format="csr"), 4)
    with pytest.raises(VectorError, match="passages: row 1 has NaN"):
        PassageIndex(sparse.csr_matrix([[1.0, 2.0], [0.0, np.nan]]))
    with pytest.raises(InputError, match="backend must be 'auto', found 'faiss'"):
        PassageIndex(sparse.identity(3, format="csr"), backend="faiss")
    with pytest.raises(InputError, match="at least one passage"):
        PassageIndex(sparse.csr_matrix((0, 3)))


def test_from_collection(toy) -> None:
    wide = sparse.random(15, 8, density=0.5, random_state=0, format="csr")
    index = PassageIndex.from_collection(toy, wide)
    assert index.ids(index.search(wide[:1], 1, exclude=["cats"]))[0][0].startswith("dogs")
    with pytest.raises(VectorError, match="expected 15 vectors, one a passage, found 3"):
        PassageIndex.from_collection(toy, wide[:3])


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_products(seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = random_csr(rng, 7, 9), random_csr(rng, 5, 9)
    out = np.ones((7, 5), dtype=np.float32)
    add_products(a, b.tocsc(), out)
    np.testing.assert_array_equal(out, 1 + a.toarray() @ b.toarray().T)
    i, j = rng.integers(7, size=20), rng.integers(5, size=20)
    np.testing.assert_array_equal(paired_products(a, i, b, j), (a.toarray() @ b.toarray().T)[i, j])


# what consumes an index -----------------------------------------------------------------------------------


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
