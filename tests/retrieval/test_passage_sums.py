"""Documents by the sum of their best passages, compared with all scores of all passages."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import sparse

from haybale import BM25, KNN, Engine
from haybale.collections import Collection
from haybale.errors import InputError
from haybale.retrieval import BM25Index, PassageIndex

Found = dict[int, dict[int, float]]  # query row -> document -> score


def expected(index: Any, queries: Any, m: int, k: int, top: int, excluded: Any, *, only_positive: bool) -> Found:
    """Return the best documents by the scores of every passage."""
    found: Found = {}
    for row in range(m):
        sums = {}
        for document in range(len(index.doc_ids)):
            scores = np.sort(np.asarray(index.similarities(queries[row : row + 1], document))[0])[::-1].astype(float)
            scores = scores[scores > 0] if only_positive else scores
            if len(scores) and document != excluded[row]:
                sums[document] = float(np.float32(scores[0] + np.maximum(scores[1:top], 0).sum()))
        kth = sorted(sums.values(), reverse=True)[:k][-1] if sums else 0.0
        found[row] = {document: score for document, score in sums.items() if score >= kth}
    return found


def by_row(m: int, found: tuple[Any, Any, Any]) -> Found:
    assert (np.diff(found[0]) >= 0).all()
    return {row: {int(d): float(s) for r, d, s in zip(*found, strict=True) if r == row} for row in range(m)}


def assert_same(found: Found, wanted: Found) -> None:
    """Documents that tie up to the last bit may differ."""
    for row, documents in wanted.items():
        for document in documents.keys() ^ found[row].keys():
            score = documents.get(document, found[row].get(document))
            assert score == pytest.approx(min(documents.values()), rel=1e-6, abs=1e-7)
        for document in documents.keys() & found[row].keys():
            assert found[row][document] == pytest.approx(documents[document], rel=1e-6, abs=1e-7)


def vectors(data: st.DataObject, seed: int) -> tuple[Any, ...]:
    """Draw passages, queries, offsets and excluded documents. Few distinct vectors make ties frequent."""
    rng = np.random.default_rng(seed)
    n, m, d = data.draw(st.integers(1, 120)), data.draw(st.integers(1, 4)), data.draw(st.integers(1, 6))
    distinct = rng.normal(size=(data.draw(st.integers(1, n)), d)) + data.draw(st.sampled_from([-2.0, 0.0, 1.0]))
    passages = distinct[rng.integers(len(distinct), size=n)].astype(np.float32)
    cuts = np.sort(rng.integers(0, n + 1, size=data.draw(st.integers(0, 40))))
    queries = rng.normal(size=(m, d)).astype(np.float32)
    return passages, queries, np.concatenate(([0], cuts, [n])), rng.integers(-1, len(cuts) + 1, size=m)


@settings(max_examples=80, deadline=None)
@given(data=st.data(), seed=st.integers(0, 2**32 - 1), k=st.integers(1, 12), top=st.integers(2, 5))
def test_sums_of_vectors_equal_those_of_all_passages(data: st.DataObject, seed: int, k: int, top: int) -> None:
    passages, queries, offsets, own = vectors(data, seed)
    index = PassageIndex(passages, offsets)
    found = by_row(len(queries), index.documents(queries, k, exclude=own, top=top))
    assert_same(found, expected(index, queries, len(queries), k, top, own, only_positive=False))


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), seed=st.integers(0, 2**32 - 1), k=st.integers(1, 12), top=st.integers(2, 5))
def test_sums_of_sparse_vectors_equal_those_of_all_passages(
    cupy_double: Any, data: st.DataObject, seed: int, k: int, top: int
) -> None:
    passages, queries, offsets, own = vectors(data, seed)
    keep = np.random.default_rng(seed)
    rows = sparse.csr_matrix(np.abs(passages) * (keep.random(passages.shape) < 0.5)).astype(np.float32)
    asked = sparse.csr_matrix(np.abs(queries) * (keep.random(queries.shape) < 0.7)).astype(np.float32)
    index = PassageIndex(rows, offsets)
    found = by_row(len(queries), index.documents(asked, k, exclude=own, top=top))
    assert_same(found, expected(index, asked, len(queries), k, top, own, only_positive=True))
    on_device = PassageIndex(rows, offsets, device="cuda")
    assert_same(by_row(len(queries), on_device.documents(asked, k, exclude=own, top=top)), found)


def test_sums_on_a_device_equal_those_on_the_host(cupy_double: Any) -> None:
    rng = np.random.default_rng(3)
    passages, queries = rng.normal(size=(300, 6)).astype(np.float32), rng.normal(size=(5, 6)).astype(np.float32)
    offsets = np.arange(0, 301, 5)
    found = [
        by_row(5, PassageIndex(passages, offsets, device=device).documents(queries, 4, top=3))
        for device in ("cpu", "cuda")
    ]
    assert_same(*found)


def test_documents_with_few_of_their_passages_among_the_hits_are_summed_from_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The best document has no passage that is near alone."""
    rng = np.random.default_rng(0)
    near = np.tile([[0.5, 0.1]], (60, 1))  # documents of one passage
    passages = np.concatenate([near + rng.random((60, 2)) / 100, np.tile([[0.49, 0.0]], (3, 1))]).astype(np.float32)
    index = PassageIndex(passages, np.concatenate([np.arange(61), [63]]))
    depths = []
    plain = index.search
    monkeypatch.setattr(index, "search", lambda *given, **more: depths.append(given[1]) or plain(*given, **more))
    [_, documents, scores] = index.documents(np.array([[1, 0]], dtype=np.float32), 1, top=3)
    assert documents.tolist() == [60]
    assert scores[0] == pytest.approx(1.47, rel=1e-6)
    assert depths[0] < len(passages)


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), k=st.integers(1, 12), top=st.integers(2, 5))
def test_sums_of_bm25_equal_those_of_all_passages(seed: int, k: int, top: int) -> None:
    rng = np.random.default_rng(seed)
    words = np.array(["dog", "cat", "lead", "tax", "rent", "lease"])
    texts = {
        f"d{number}": [" ".join(words[rng.integers(6, size=rng.integers(1, 5))]) for _ in range(rng.integers(1, 6))]
        for number in range(20)
    }
    engine = Engine(texts, language="english", encoder="tfidf(min_df=1)")
    index: BM25Index = engine.bm25()
    queries, own = ["dog tax", "lease"], np.array([3, -1])
    found = by_row(2, index.documents(queries, k, exclude=own, top=top))
    assert_same(found, expected(index, queries, 2, k, top, own, only_positive=True))


@pytest.mark.parametrize("ranker", [BM25(top=3), KNN(top=2), BM25(top=2, k3=0)], ids=str)
def test_shares_are_those_of_the_best_passages(ranker: Any, topics: Collection) -> None:
    engine = Engine(topics)
    ranker = ranker.clone().fit(engine)
    text = topics.queries.texts(np.array([0]))[0]
    for doc_id, score in ranker.rank({"q": text}, depth=5)["q"]:
        found = ranker.explain(text, doc_id)
        assert sum(share.share for share in found.shares) == pytest.approx(score, rel=1e-5)
        assert 1 <= len(found.shares) <= ranker.top
        for share in found.shares:
            assert sum(inner.share for inner in share.of.shares) == pytest.approx(share.share, rel=1e-5)
        assert found.to_frame()["share"].sum() == pytest.approx(score, rel=1e-5)
    [hit, *_] = ranker.search(text, k=1)
    shown = [snippet.passage_id for snippet in hit.snippets]
    assert {share.passage_id for share in ranker.explain(text, hit.doc_id).shares} & set(shown)


@pytest.mark.parametrize("ranker", [BM25("document", top=2), KNN("first passage", top=2), KNN(top=0)], ids=str)
def test_a_sum_needs_passages(ranker: Any, topics: Collection) -> None:
    with pytest.raises(InputError, match="top"):
        ranker.fit(Engine(topics))
