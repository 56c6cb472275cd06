"""PARM on an index: batches, explanations and errors."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from haybale.embeddings import LSAEncoder, TfidfEncoder
from haybale.errors import InputError
from haybale.retrieval import AGGREGATIONS, BM25Index, ParagraphSearch, PassageIndex
from haybale.retrieval.parm import paragraph_search as search

EXACT = ("combsum", "rrf", "vsum", "vscores", "vranks", "vrrf")
LEXICAL = [name for name, aggregation in AGGREGATIONS.items() if aggregation.vectors is None]


def small(seed: int, is_sparse: bool = False, n: int = 60, d: int = 8):
    """Return an index of documents with 1 to 6 passages, query documents of 1 to 5 paragraphs, and their ids."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 7, size=n)
    offsets = np.concatenate(([0], np.cumsum(sizes)))
    vectors = rng.normal(size=(offsets[-1], d)).astype(np.float32)
    queries = [rng.normal(size=(rng.integers(1, 6), d)).astype(np.float32) for _ in range(7)]
    if is_sparse:
        vectors = sparse.csr_matrix(np.where(vectors > 0, vectors, 0))
        queries = [sparse.csr_matrix(np.where(query > 0, query, 0)) for query in queries]
    ids = [f"d{number}" for number in range(n)]
    return PassageIndex(vectors, offsets, doc_ids=ids), queries, [f"q{number}" for number in range(7)]


@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize("name", AGGREGATIONS)
def test_batches_equal_one_search(name: str, is_sparse: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    index, queries, ids = small(1, is_sparse)
    parm = ParagraphSearch(index, name, n_hits=40)
    at_once = parm.rank(ids, queries, exclude=[3, -1, -1, 5, -1, -1, 0])
    monkeypatch.setattr(search, "_PARAGRAPHS_PER_SEARCH", 1)
    one_by_one = parm.rank(ids, queries, exclude=["d3", None, None, "d5", None, None, "d0"])
    for query in ids:
        assert [doc for doc, _ in at_once[query]] == [doc for doc, _ in one_by_one[query]]
        np.testing.assert_allclose(*([s for _, s in run[query]] for run in (at_once, one_by_one)), rtol=1e-6)
    assert "d3" not in dict(at_once["q0"])
    assert {"d3", "d5"} & {doc for query in ids for doc, _ in at_once[query]}


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), name=st.sampled_from(sorted(AGGREGATIONS)), is_sparse=st.booleans())
def test_shares_sum_to_the_score(seed: int, name: str, is_sparse: bool) -> None:
    index, queries, ids = small(seed, is_sparse, n=20)
    query, ranker = queries[0], ParagraphSearch(index, name, n_hits=15)
    run = ranker.rank(ids[:1], [query])
    found = dict(run["q0"])
    for place, (doc_id, score) in enumerate(run["q0"][:5], start=1):
        why = ranker.explain(query, doc_id)
        assert why.score == score
        assert (why.rank, why.n_documents) == (place, len(found))
        total = why.share.sum()
        assert total == score if name in EXACT else math.isclose(total, score, rel_tol=1e-9, abs_tol=1e-12)
        assert why.to_frame()["share"].sum() == pytest.approx(score)
        products = query @ index.vectors[slice(*index.doc_offsets[int(doc_id[1:]) :][:2])].T
        assert why.similarity == pytest.approx(products.toarray() if is_sparse else products, abs=1e-5)
    for doc_id in sorted(set(index.doc_ids.to_pylist()) - set(found))[:1]:
        why = ranker.explain(query, doc_id)
        assert why.score is why.rank is None
        assert not why.share.any()


def test_ranks_and_shares_of_pairs() -> None:
    index = PassageIndex(np.eye(4), np.array([0, 2, 4]), doc_ids=["a", "b"])
    queries = np.array([[0.9, 0.5, 0.1, 0.2], [0.0, 0.1, 0.9, 0.2]])
    why = ParagraphSearch(index, "rrf", n_hits=2).explain(queries, "a")
    np.testing.assert_array_equal(why.ranks, [[1, 2], [0, 0]])
    np.testing.assert_allclose(why.share, [[1 / 61, 1 / 62], [0, 0]], rtol=1e-12)
    frame = why.to_frame()
    assert [frame[name].tolist() for name in ("query_paragraph", "rank")] == [["0", "0"], [1, 2]]
    assert frame["share_of_score"].sum() == pytest.approx(1)
    axes = why.heatmap().axes[0]
    assert axes.get_title() == "a (rank 1, rrf)"
    np.testing.assert_array_equal(axes.get_images()[0].get_array(), why.share)


def test_percentages_require_shares_within_the_score() -> None:
    """With negative products, a score may be negative, zero, or smaller than one of its shares."""
    index = PassageIndex(np.eye(2), np.array([0, 1, 2]), doc_ids=["a", "b"])
    parm = ParagraphSearch(index, "combsum", n_hits=2)
    for first, second, score in ((-0.5, 0.0, -0.5), (0.9, -0.8, 0.1), (0.5, -0.5, 0.0)):
        why = parm.explain(np.array([[first, 0.0], [second, 0.0]]), "a")
        assert why.score == pytest.approx(score)
        assert not why.in_percent
        assert why.to_frame()["share_of_score"].isna().all()
    within = parm.explain(np.array([[0.5, 0.0], [0.6, 0.0], [-0.2, 0.0]]), "a")  # one share is negative
    assert within.in_percent
    assert within.to_frame()["share_of_score"].sum() == pytest.approx(1)


def test_explanations_break_ties_like_runs() -> None:
    index = PassageIndex(np.ones((3, 2)), doc_ids=["c", "a", "b"])
    ranker = ParagraphSearch(index, "maxp")
    assert [doc for doc, _ in ranker.rank(["q"], [np.ones((1, 2))])["q"]] == ["a", "b", "c"]
    assert [ranker.explain(np.ones((1, 2)), doc).rank for doc in "abc"] == [1, 2, 3]


@pytest.mark.parametrize("name", LEXICAL)
def test_explanations_of_bm25(name: str) -> None:
    texts = ["a dog on a lead", "the cat sleeps", "taxes for dogs", "tax office", "cats and dogs"]
    index = BM25Index(texts, np.array([0, 2, 4, 5]), doc_ids=["pets", "taxes", "both"], language="english")
    ranker, paragraphs = ParagraphSearch(index, name), ["dog leads", "taxes for cats"]
    for doc_id, score in ranker.rank(["q"], [paragraphs])["q"]:
        why = ranker.explain(paragraphs, doc_id, passage_texts=texts)
        assert why.score == score == pytest.approx(why.share.sum())
        assert set(why.to_frame()["passage_text"]) <= set(texts)
        assert ((why.similarity > 0) >= (why.ranks > 0)).all()
        assert set(why.to_frame()["query_text"]) <= set(paragraphs)


def test_paragraphs_as_texts(toy) -> None:
    texts = toy.passages.texts.to_pylist()
    for encoder in (LSAEncoder(4).fit(texts), TfidfEncoder().fit(texts)):
        index = PassageIndex.from_collection(toy, encoder.encode(texts))
        for name in AGGREGATIONS:
            parm = ParagraphSearch(index, name, encoder=encoder, n_hits=3)
            run = parm.rank(["q"], [["barking dogs", "puppies chew shoes"]])
            assert "dogs" in [doc for doc, _ in run["q"][:2]], name
        parm = ParagraphSearch(index, encoder=encoder)
        why = parm.explain(["barking dogs"], "dogs", passage_texts=toy.passages.texts)
        assert "dogs bark at the gate" in why.to_frame()["passage_text"].tolist()


def test_invalid_arguments_are_rejected() -> None:
    index, queries, _ = small(0)
    lexical = BM25Index(["one two", "three four"], language="english")
    dense, words = ParagraphSearch(index), ParagraphSearch(lexical, "rrf")
    for call, named in [
        (lambda: ParagraphSearch(lexical), "'vrrf'.*BM25"),
        (lambda: ParagraphSearch(index, n_hits=0), "n_hits"),
        (lambda: dense.rank(["a", "b"], [queries[0], queries[1][:0]]), "'b'"),
        (lambda: words.rank(["a"], [["one", " "]]), "'a': paragraph 1 of 2"),
        (lambda: words.rank(["a"], ["one"]), "'a'.*string"),
        (lambda: words.rank(["a"], [np.ones((1, 2))]), "texts"),
        (lambda: dense.rank(["a"], [["one"]]), "encoder"),
        (lambda: dense.rank(["a"], queries[:2]), "2 query_ids.* 1"),
    ]:
        with pytest.raises(InputError, match=named):
            call()
    assert dense.rank([], []).query_ids == []
