"""What NumPy computes before numba is loaded is bit for bit what compiled loops compute."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from haybale import first_work
from haybale.retrieval import BM25Index
from haybale.retrieval.parm.kernels import multiply


def test_numpy_computes_until_the_work_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(first_work, "_n_values", 0)
    assert not first_work.numpy_is_faster(1)  # this process has loaded numba
    monkeypatch.delitem(first_work.sys.modules, "numba")
    assert [first_work.numpy_is_faster(n) for n in (1, 2**22, 2**22, 1)] == [True, True, False, False]


@pytest.mark.parametrize("n_terms", [0, 1, 40])
def test_pairs_of_terms_in_a_range_of_texts(n_terms: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    texts = [" ".join(f"w{word}" for word in rng.integers(0, 60, 12)) for _ in range(30)]
    postings = BM25Index(texts, analyzer=str.split)._postings
    terms = rng.integers(0, len(postings.frequencies), n_terms)
    for start, end in [(0, 30), (4, 5), (7, 7), (29, 30)]:
        results = []
        for by_numpy in (True, False):
            monkeypatch.setattr("haybale.retrieval.postings.numpy_is_faster", lambda _, by_numpy=by_numpy: by_numpy)
            results.append(postings.pairs(terms, start, end))
        expected = [
            [pair for pair in range(*postings.offsets[term : term + 2]) if start <= postings.texts[pair] < end]
            for term in terms
        ]
        assert results[0] == results[1]
        assert [list(range(*pairs)) for pairs in results[0]] == expected


@pytest.mark.parametrize(("k1", "b"), [(1.2, 0.75), (0.0, 0.0), (7.0, 1.0)])
def test_weights_of_terms(k1: float, b: float, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(2)
    texts = [" ".join(f"w{word}" for word in rng.geometric(0.1, size)) for size in rng.integers(0, 30, 50)]
    postings = BM25Index(texts, analyzer=str.split)._postings
    weights = []
    for by_numpy in (True, False):
        monkeypatch.setattr("haybale.retrieval.postings.numpy_is_faster", lambda _, by_numpy=by_numpy: by_numpy)
        weights.append(postings.weights(k1, b))
    assert np.array_equal(*weights)


@pytest.mark.parametrize("density", [0.0, 0.3])
def test_products_of_sparse_vectors(density: float, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    passages, queries = (
        sparse.csr_matrix((rng.normal(size=(n, 50)) * (rng.random((n, 50)) < density)).astype(np.float32))
        for n in (40, 5)
    )
    numbers = rng.permutation(40)[:25]
    wanted = rng.random((5, 26)) < 0.6
    wanted[2] = False
    tables = []
    for by_numpy in (True, False):
        monkeypatch.setattr("haybale.retrieval.parm.kernels.numpy_is_faster", lambda _, by_numpy=by_numpy: by_numpy)
        tables.append(multiply(wanted, queries.astype(np.float64), passages, numbers))
    assert np.array_equal(*tables)
    dense = queries.toarray().astype(np.float64) @ passages.toarray()[numbers].T.astype(np.float64)
    np.testing.assert_allclose(tables[0][:, :-1], np.where(wanted[:, :-1], dense, 0), rtol=1e-6, atol=1e-9)
