"""The ensemble on sparse vectors, compared with dense copies of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy import sparse
from support.worlds import world

from haybale.ensemble import SVREnsemble, pair_features
from haybale.errors import InputError, VectorError
from haybale.retrieval import PassageIndex
from haybale.vectors import normalized_sparse


def sparse_world(seed: int = 0):
    """Return a world of 12 features, most of them zero: its index and its queries, each as sparse and as dense."""
    index, queries, relevant = world(seed, d=12)
    cut = [np.where(np.abs(matrix) > 0.25, matrix, 0).astype(np.float32) for matrix in (index.vectors, queries)]
    passages, queries = (normalized_sparse(sparse.csr_matrix(matrix)) for matrix in cut)
    ids = {"doc_ids": index.doc_ids}
    both = PassageIndex(passages, index.doc_offsets, **ids), PassageIndex(passages.toarray(), index.doc_offsets, **ids)
    return both, (queries, queries.toarray()), relevant


@pytest.mark.parametrize(
    "changes",
    [{}, {"strategy": "regions"}, {"strategy": "rows", "gamma": "scale"}, {"memory_budget": 4e5}, {"eta": 0.5}],
    ids=lambda changes: " ".join(map(str, changes.values())) or "defaults",
)
@pytest.mark.parametrize("k", [2, 12])  # with k=2, relevant documents are missing, and their nearest passages are added
def test_the_ensemble_equals_that_of_dense_vectors(changes: dict, k: int) -> None:
    indexes, queries, relevant = sparse_world()
    candidates = indexes[0].search(queries[0], k)
    found = []
    for index, vectors in zip(indexes, queries, strict=True):
        given = {"features": pair_features(candidates, [candidates])} if "eta" in changes else {}
        ensemble = SVREnsemble(4, tol=1e-6, **changes).fit(index, vectors, relevant, candidates=candidates, **given)
        found.append(ensemble.score_candidates(vectors, candidates.passages, **given))
    np.testing.assert_allclose(found[0], found[1], atol=1e-4)


def test_an_ensemble_on_a_sparse_index_ranks_explains_and_loads(tmp_path: Path) -> None:
    (index, dense), (queries, dense_queries), relevant = sparse_world()
    ids = [f"q{i}" for i in range(queries.shape[0])]
    ensemble = SVREnsemble(4, k=10).fit(index, queries, relevant, query_ids=ids)
    assert ensemble.support_.passages.dense is None  # not densified
    ensemble.save(tmp_path / "model")
    loaded = SVREnsemble.load(tmp_path / "model", index)
    assert loaded.rank(queries, ids, k=8) == ensemble.rank(queries, ids, k=8)
    score = loaded.score_candidates(queries[1], [[7]])
    np.testing.assert_allclose(ensemble.explain(queries[1], "7").prediction, score[0, 0], atol=1e-6)
    for other, width in ((dense, "12"), (PassageIndex(index.vectors[:, :5]), r"5 \(sparse\)")):
        with pytest.raises(VectorError, match=rf"12 \(sparse\).* {width}$"):
            SVREnsemble.load(tmp_path / "model", other)
    with pytest.raises(VectorError, match=r"query_vectors: .*sparse"):
        ensemble.rank(dense_queries, ids)
    with pytest.raises(InputError, match="standardize"):
        SVREnsemble.as_published(n_bags=4).fit(index, queries, relevant)
    injected = SVREnsemble(4, k=10, protocol="injected").fit(index, queries, relevant)
    assert injected.n_rows_ == (index.search(queries, 10).passages >= 0).sum() + len(relevant)
