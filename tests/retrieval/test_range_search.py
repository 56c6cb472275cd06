"""Search in ranges of passages, and by NumPy, compared with sums over all passages that are sorted."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import sparse

from haybale.retrieval import BM25Index, PassageIndex
from haybale.retrieval.exclusion import Cutoffs, Exclusion

D = 12  # terms
Scored = dict[int, float]  # passage or document -> score


def weights(rng: np.random.Generator, shape: tuple[int, int], kind: str, density: float) -> sparse.csr_matrix:
    """Draw numbers that tie often, that never tie, or that are so small that products are rounded to 0."""
    values = {
        "ties": lambda: rng.integers(1, 3, size=shape),
        "distinct": lambda: rng.random(shape),
        "signed": lambda: rng.normal(size=shape),
        "tiny": lambda: rng.choice([-1e-30, 1e-20, 1e-15], size=shape),
    }[kind]()
    return sparse.csr_matrix((values * (rng.random(shape) < density)).astype(np.float32))


def scores_of(columns: sparse.csc_matrix, terms: Any, factors: Any, dtype: type) -> Scored:
    """Return the scores of the passages that have a term, with rounded products added in the order of the terms."""
    sums: dict[int, Any] = {}
    for term, factor in zip(terms, factors, strict=True):
        for place in range(columns.indptr[term], columns.indptr[term + 1]):
            passage, product = int(columns.indices[place]), np.float32(factor) * columns.data[place]
            sums[passage] = dtype(sums.get(passage, dtype(0)) + dtype(product))
    return {passage: float(np.float32(score)) for passage, score in sums.items()}


def assert_finds(index: Any, queries: Any, scored: list[Scored], k: int, top: int, own: Any) -> None:
    """Compare passages, documents by their best passage, and documents by the sum of their best passages."""
    doc_of = index.doc_of
    scored = [{p: s for p, s in each.items() if doc_of[p] != out} for each, out in zip(scored, own, strict=True)]
    hits = index.search(queries, k, exclude=own)
    for row, each in enumerate(scored):
        order = sorted(each, key=lambda p: (-each[p], str(doc_of[p]), p))[:k]
        assert hits.passages[row].tolist() == order + [-1] * (k - len(order))
        assert hits.scores[row].tolist() == [each[p] for p in order] + [-np.inf] * (k - len(order))
    for summed in (1, top):
        rows, documents, found = index.documents(queries, k, exclude=own, top=summed)
        for row, each in enumerate(scored):
            passages: dict[int, list[float]] = {}
            for passage, score in each.items():
                passages.setdefault(int(doc_of[passage]), []).append(score)
            sums = {}
            for document, parts in passages.items():
                best, *more = sorted(parts, reverse=True)[:summed]
                total = best
                for score in more:
                    total += max(score, 0.0)
                sums[document] = float(np.float32(total))
            kth = sorted(sums.values(), reverse=True)[:k][-1] if sums else 0.0
            expected = sorted((d, s) for d, s in sums.items() if s >= kth)
            assert list(zip(documents[rows == row].tolist(), found[rows == row].tolist(), strict=True)) == expected


def offsets_of(rng: np.random.Generator, n: int, documents: str) -> Any:
    cuts = {"one each": n - 1, "many": n // 8, "few": 3}[documents]
    inner = np.arange(1, n) if documents == "one each" else np.sort(rng.integers(0, n + 1, size=cuts))
    return np.concatenate(([0], inner, [n]))


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.sampled_from([1, 50, 1100, 2600]),
    size=st.sampled_from([7, 1024, 1100, 2**16]),
    kind=st.sampled_from(["ties", "distinct", "signed", "tiny"]),
    documents=st.sampled_from(["one each", "many", "few"]),
    density=st.sampled_from([0.004, 0.05, 0.3]),
    k=st.sampled_from([1, 3, 60, 1000]),
    by_numpy=st.booleans(),
)
def test_sums_of_ranges_equal_sums_over_all_passages(
    seed: int,
    n: int,
    size: int,
    kind: str,
    documents: str,
    density: float,
    k: int,
    by_numpy: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("haybale.retrieval.range_search.RANGE", size)
    monkeypatch.setattr("haybale.retrieval.inverted.numpy_is_faster", lambda n_values: by_numpy)
    rng = np.random.default_rng(seed)
    passages, queries = weights(rng, (n, D), kind, density), weights(rng, (2, D), kind, 0.5)
    index = PassageIndex(passages, offsets_of(rng, n, documents))
    columns = sparse.csc_matrix(index.vectors)
    scored = []
    for row in range(queries.shape[0]):
        query = queries[row]
        scored.append(scores_of(columns, query.indices, query.data, np.float64))
    assert_finds(index, queries, scored, min(k, n), 3, rng.integers(-1, len(index.doc_ids), size=2))


@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.sampled_from([2, 50, 2600]),
    size=st.sampled_from([7, 1100, 2**16]),
    documents=st.sampled_from(["one each", "many", "few"]),
    k=st.sampled_from([1, 60, 1000]),
    k3=st.sampled_from([None, 0.0, 2.5]),
    by_numpy=st.booleans(),
)
def test_bm25_of_ranges_equals_sums_over_all_passages(
    seed: int,
    n: int,
    size: int,
    documents: str,
    k: int,
    k3: float | None,
    by_numpy: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Terms of queries are repeated; passages are so short that many tie."""
    monkeypatch.setattr("haybale.retrieval.range_search.RANGE", size)
    monkeypatch.setattr("haybale.retrieval.inverted.numpy_is_faster", lambda n_values: by_numpy)
    rng = np.random.default_rng(seed)
    words = [f"w{i}" for i in range(D)]

    def draw(length: int) -> str:
        return " ".join(rng.choice(words, size=length, p=np.arange(1, D + 1) / sum(range(D + 1))))

    texts = [draw(length) for length in rng.integers(1, 4, size=n).tolist()]
    index = BM25Index(texts, offsets_of(rng, n, documents), analyzer=str.split, k3=k3)
    queries = [draw(9), draw(2)]
    lists = index._lists
    columns = sparse.csc_matrix((lists.weights, lists.passages, lists.offsets), shape=(n, len(index.vocabulary)))
    scored = []
    for text in queries:
        terms = [index.vocabulary[word] for word in text.split() if word in index.vocabulary]
        times = {term: terms.count(term) for term in terms}
        factors = [1.0 for _ in terms]
        if k3 is not None:
            terms = list(times)
            factors = [(k3 + 1) * times[term] / (k3 + times[term]) for term in terms]
        scored.append(scores_of(columns, terms, factors, np.float32))
    kept = [text for text, each in zip(queries, scored, strict=True) if each]
    own = rng.integers(-1, len(index.doc_ids), size=len(kept))
    assert_finds(index, kept, [each for each in scored if each], min(k, n), 2, own)


@pytest.mark.parametrize("top", [0, 1, 3])
def test_later_ranges_hide_the_passages_of_late_documents_as_the_first_does(
    top: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(0)
    index = PassageIndex(weights(rng, (3000, D), "distinct", 0.3), offsets_of(rng, 3000, "many"))
    queries = weights(rng, (3, D), "distinct", 0.5)
    cutoffs = Cutoffs(documents=rng.integers(1000, size=len(index.doc_ids)), queries=np.full(3, 500))
    excluded = Exclusion(np.full(3, -1), cutoffs)
    results = []
    for size, by_numpy in ((2**16, True), (2**16, False), (1024, False)):
        monkeypatch.setattr("haybale.retrieval.range_search.RANGE", size)
        monkeypatch.setattr("haybale.retrieval.inverted.numpy_is_faster", lambda n, by_numpy=by_numpy: by_numpy)
        fresh = PassageIndex(index.vectors, index.doc_offsets)
        if top:
            results.append(fresh.documents(queries, 20, exclude=excluded, top=top))
        else:
            hits = fresh.search(queries, 20, exclude=excluded)
            results.append((hits.passages, hits.scores))
    for result in results[1:]:
        for array, expected in zip(result, results[0], strict=True):
            np.testing.assert_array_equal(array, expected)
