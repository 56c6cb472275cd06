"""PARM on an index: batches, errors, and explanations that add up."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from haybale.device import Device, to_numpy
from haybale.embeddings import LSAEncoder, TfidfEncoder
from haybale.errors import InputError, UnknownNameError
from haybale.retrieval import AGGREGATIONS, BM25Index, Hits, ParagraphSearch, PassageIndex
from haybale.retrieval.parm import search

EXACT = ("combsum", "rrf", "vsum", "vscores", "vranks", "vrrf")
LEXICAL = [name for name, aggregation in AGGREGATIONS.items() if aggregation.vectors is None]


def small(seed: int, is_sparse: bool = False, n: int = 60, d: int = 8):
    """An index of documents with 1 to 6 passages, and query documents of 1 to 5 paragraphs."""
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
def test_batches_are_one_search(name: str, is_sparse: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    index, queries, ids = small(1, is_sparse)
    at_once = ParagraphSearch(index, name, n_hits=40).rank(ids, queries, exclude=[3, -1, -1, 5, -1, -1, 0])
    monkeypatch.setattr(search, "_ROWS", 1)
    one_by_one = ParagraphSearch(index, name, n_hits=40).rank(
        ids, queries, exclude=["d3", None, None, "d5", None, None, "d0"]
    )
    assert at_once.query_ids == one_by_one.query_ids
    for query in ids:
        assert [doc for doc, _ in at_once[query]] == [doc for doc, _ in one_by_one[query]]
        np.testing.assert_allclose(*([s for _, s in run[query]] for run in (at_once, one_by_one)), rtol=1e-6)
    assert "d3" not in dict(at_once["q0"])
    assert {"d3", "d5"} & {doc for query in ids for doc, _ in at_once[query]}


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32 - 1),
    name=st.sampled_from(sorted(AGGREGATIONS)),
    is_sparse=st.booleans(),
    occurrences=st.sampled_from(["all", "best"]),
    weighted=st.booleans(),
)
def test_shares_are_the_score(seed: int, name: str, is_sparse: bool, occurrences: str, weighted: bool) -> None:
    index, queries, ids = small(seed, is_sparse, n=20)
    query = queries[0]
    rng = np.random.default_rng(seed)
    weights = rng.choice([0.0, 0.5, 1.0, 2.0], size=query.shape[0]).tolist() if weighted else None
    ranker = ParagraphSearch(index, name, n_hits=15, occurrences=occurrences)
    run = ranker.rank(ids[:1], [query], weights=None if weights is None else [weights])
    found = dict(run["q0"])
    for place, (doc_id, score) in enumerate(run["q0"][:5], start=1):
        why = ranker.explain(query, doc_id, weights=weights)
        assert why.score == score
        assert (why.rank, why.n_documents) == (place, len(found))
        total = why.share.sum()
        assert total == score if name in EXACT else math.isclose(total, score, rel_tol=1e-9, abs_tol=1e-12)
        assert why.to_frame()["share"].sum() == pytest.approx(score)
        document = int(doc_id[1:])
        start, end = index.doc_offsets[document : document + 2]
        assert why.similarity == pytest.approx(
            np.asarray(
                (query @ index.vectors[start:end].T).todense() if is_sparse else query @ index.vectors[start:end].T
            ),
            abs=1e-5,
        )
    for doc_id in set(index.doc_ids.to_pylist()) - set(found):
        why = ranker.explain(query, doc_id, weights=weights)
        assert why.score is None
        assert not why.share.any()
        assert "found by no paragraph" in str(why)
        break


def test_every_pair_has_its_rank() -> None:
    index = PassageIndex(np.eye(4), np.array([0, 2, 4]), doc_ids=["a", "b"])
    queries = np.array([[0.9, 0.5, 0.1, 0.2], [0.0, 0.1, 0.9, 0.2]])
    why = ParagraphSearch(index, "rrf", n_hits=2).explain(queries, "a", labels=["I", "1"])
    np.testing.assert_array_equal(why.ranks, [[1, 2], [0, 0]])
    np.testing.assert_allclose(why.share, [[1 / 61, 1 / 62], [0, 0]], rtol=1e-12)
    frame = why.to_frame()
    assert "most from its paragraphs 0 (50 %), 1 (50 %); through the query's I (100 %)\n" in str(why)
    assert frame["query_paragraph"].tolist() == ["I", "I"]
    assert frame["rank"].tolist() == [1, 2]
    assert frame["share_of_score"].sum() == pytest.approx(1)
    assert len(why.to_frame(all_pairs=True)) == 4
    assert why.to_frame(all_pairs=True)["rank"].isna().sum() == 2


def test_shares_are_percent_only_of_a_score_that_they_are_parts_of() -> None:
    """Vectors that point away from each other: a score below 0, one of 0, and one smaller than what adds to it."""
    index = PassageIndex(np.eye(2), np.array([0, 1, 2]), doc_ids=["a", "b"])
    parm = ParagraphSearch(index, "combsum", n_hits=2)
    away = parm.explain(np.array([[-0.5, 1.0]]), "a")
    assert away.score == pytest.approx(-0.5)
    beyond = parm.explain(np.array([[0.9, 0.0], [-0.8, 0.0]]), "a")
    assert beyond.score == pytest.approx(0.1)
    for why in (away, beyond, parm.explain(np.array([[0.5, 0.0], [-0.5, 0.0]]), "a")):
        assert not why.in_percent
        assert "%" not in str(why)
        assert why.to_frame()["share_of_score"].isna().all()
        assert f"{why.share[0, 0]:+.4f}  0 → 0  (rank" in str(why)
    assert "most from its paragraphs none; through the query's none\n" in str(away)
    assert "most from its paragraphs 0 (+0.1000); through the query's 0 (+0.9000)\n" in str(beyond)
    within = parm.explain(np.array([[0.5, 0.0], [0.6, 0.0], [-0.2, 0.0]]), "a")  # below 0, but within the whole
    assert within.in_percent
    assert "-0.2000  -22 %  2 → 0" in str(within)
    assert within.to_frame()["share_of_score"].sum() == pytest.approx(1)


def test_ties_are_broken_as_in_the_run() -> None:
    index = PassageIndex(np.ones((3, 2)), doc_ids=["c", "a", "b"])
    ranker = ParagraphSearch(index, "maxp")
    run = ranker.rank(["q"], [np.ones((1, 2))])
    assert [doc for doc, _ in run["q"]] == ["a", "b", "c"]
    assert [ranker.explain(np.ones((1, 2)), doc).rank for doc in "abc"] == [1, 2, 3]


@pytest.mark.parametrize("name", LEXICAL)
def test_bm25_explains(name: str) -> None:
    texts = ["a dog on a lead", "the cat sleeps", "taxes for dogs", "tax office", "cats and dogs"]
    index = BM25Index(texts, np.array([0, 2, 4, 5]), doc_ids=["pets", "taxes", "both"], language="english")
    ranker = ParagraphSearch(index, name)
    paragraphs = ["dog leads", "taxes for cats"]
    ranked = ranker.rank(["q"], [paragraphs])["q"]
    for doc_id, score in ranked:
        why = ranker.explain(paragraphs, doc_id, passage_texts=texts)
        assert why.score == score == pytest.approx(why.share.sum())
        assert set(why.to_frame()["passage_text"]) <= set(texts)
        hit = why.ranks > 0
        assert ((why.similarity > 0) >= hit).all()
        assert "dog leads" in str(why) or "taxes for cats" in str(why)


def test_texts_through_an_encoder(toy) -> None:
    texts = toy.passages.texts.to_pylist()
    for encoder in (LSAEncoder(4).fit(texts), TfidfEncoder().fit(texts)):
        index = PassageIndex.from_collection(toy, encoder.encode(texts))
        for name in AGGREGATIONS:
            run = ParagraphSearch(index, name, encoder=encoder, n_hits=3).rank(
                ["q"], [["barking dogs", "puppies chew shoes"]]
            )
            assert "dogs" in [doc for doc, _ in run["q"][:2]], name
        why = ParagraphSearch(index, encoder=encoder).explain(
            ["barking dogs"], "dogs", passage_texts=toy.passages.texts
        )
        assert "dogs bark at the gate" in str(why)


def test_a_query_document_of_thousands_of_paragraphs() -> None:
    index, _, _ = small(3, n=30)
    query = np.random.default_rng(0).normal(size=(3000, 8)).astype(np.float32)
    for name in AGGREGATIONS:
        ranker = ParagraphSearch(index, name, n_hits=1000)
        run = ranker.rank(["q"], [query])
        assert len(run["q"]) == 30
    why = ranker.explain(query, run["q"][0][0])
    assert why.share.sum() == run["q"][0][1]


def test_what_does_not_fit_is_refused() -> None:
    index, queries, ids = small(0)
    lexical = BM25Index(["one two", "three four"], language="english")
    with pytest.raises(InputError, match="'vrrf' needs vectors, which a BM25 index lacks"):
        ParagraphSearch(lexical)
    with pytest.raises(UnknownNameError, match=r"unknown aggregation 'best'; known: maxp, .*vrrf"):
        ParagraphSearch(index, "best")
    with pytest.raises(InputError, match="n_hits must be at least 1"):
        ParagraphSearch(index, n_hits=0)
    ranker = ParagraphSearch(index)
    with pytest.raises(InputError, match="query document 'b' has no paragraphs"):
        ranker.rank(["a", "b"], [queries[0], queries[1][:0]])
    with pytest.raises(InputError, match="query document 'b' has no paragraphs"):
        ParagraphSearch(lexical, "rrf").rank(["a", "b"], [["one"], []])
    with pytest.raises(InputError, match="query document 'a': paragraph 1 of 2 is empty"):
        ParagraphSearch(lexical, "rrf").rank(["a"], [["one", " "]])
    with pytest.raises(InputError, match="query document 'a': expected its paragraphs, found one string"):
        ParagraphSearch(lexical, "rrf").rank(["a"], ["one"])
    with pytest.raises(InputError, match="searched with the texts"):
        ParagraphSearch(lexical, "rrf").rank(["a"], [np.ones((1, 2))])
    with pytest.raises(InputError, match="need an encoder"):
        ranker.rank(["a"], [["one"]])
    with pytest.raises(InputError, match="1 query ids for 2 query documents"):
        ranker.rank(["a"], queries[:2])
    with pytest.raises(InputError, match="weights must hold one number for each paragraph"):
        ranker.rank(ids, queries, weights=[[1.0]] * 7)
    with pytest.raises(InputError, match="unknown document id 'nobody'"):
        ranker.explain(queries[0], "nobody")
    with pytest.raises(InputError, match="1 labels for"):
        ranker.explain(np.ones((2, 8)), "d0", labels=["I"])
    with pytest.raises(UnknownNameError, match="known: share, similarity, rank"):
        ranker.explain(queries[0], "d0").heatmap(of="colour")
    assert ranker.rank([], []).query_ids == []


# On a device ------------------------------------------------------------------------------------------------


class IndexThere(PassageIndex):
    """An index on a device: its vectors are there, and so are the hits of queries from there."""

    def __init__(self, cupy: Any, vectors: np.ndarray, offsets: np.ndarray) -> None:
        super().__init__(vectors, offsets)
        self.host = PassageIndex(vectors, offsets)
        self.cupy, self.device = cupy, Device("cuda", 0)
        self.vectors = cupy.asarray(vectors)

    def search(self, queries: Any, k: int, *, exclude: Any = None) -> Hits:
        assert isinstance(queries, self.cupy.ndarray)
        assert queries.dtype == np.float32
        found = self.host.search(to_numpy(queries), k, exclude=exclude)
        return Hits(self.cupy.asarray(found.passages), self.cupy.asarray(found.scores))

    def similarities(self, queries: Any, document: int) -> Any:
        return self.cupy.asarray(self.host.similarities(to_numpy(queries), document))


def indexes(cupy: Any) -> tuple[PassageIndex, PassageIndex, list[np.ndarray]]:
    rng = np.random.default_rng(0)
    vectors, offsets = rng.normal(size=(40, 4)).astype(np.float32), np.array([0, 5, 12, 13, 30, 40])
    queries = [rng.normal(size=(size, 4)).astype(np.float32) for size in (2, 3, 1)]
    return PassageIndex(vectors, offsets), IndexThere(cupy, vectors, offsets), queries


@pytest.mark.parametrize("name", AGGREGATIONS)
def test_parm_on_a_device(name: str, cupy: Any) -> None:
    here, away, queries = indexes(cupy)
    ids = ["a", "b", "c"]
    expected = ParagraphSearch(here, name, n_hits=10).rank(ids, queries, exclude=["1", None, None])
    ranker = ParagraphSearch(away, name, n_hits=10)
    for given_as in (
        queries,
        [cupy.asarray(query) for query in queries],
        [queries[0], *map(cupy.asarray, queries[1:])],
    ):
        found = ranker.rank(ids, given_as, exclude=["1", None, None])
        for query_id in ids:
            assert [doc for doc, _ in found[query_id]] == [doc for doc, _ in expected[query_id]]
            assert dict(found[query_id]) == pytest.approx(dict(expected[query_id]), rel=1e-6, abs=1e-6)
    hits = ranker.search(queries)
    assert isinstance(hits.hits.passages, cupy.ndarray)
    assert isinstance(hits.vectors.paragraphs, cupy.ndarray)


@pytest.mark.parametrize("name", AGGREGATIONS)
def test_explanations_of_an_index_on_a_device(name: str, cupy: Any) -> None:
    here, away, queries = indexes(cupy)
    best = ParagraphSearch(here, name, n_hits=10).rank(["q"], queries[1:2])["q"][0][0]
    expected = ParagraphSearch(here, name, n_hits=10).explain(queries[1], best)
    found = ParagraphSearch(away, name, n_hits=10).explain(queries[1], best)
    assert found.rank == expected.rank == 1
    assert found.score == pytest.approx(expected.score, rel=1e-6)
    assert found.share.sum() == pytest.approx(found.score)
    np.testing.assert_allclose(found.share, expected.share, rtol=1e-6, atol=1e-7)
    np.testing.assert_array_equal(found.ranks, expected.ranks)
    assert isinstance(found.similarity, np.ndarray)
    assert str(found) == str(expected)


def test_vectors_of_texts_go_to_the_device(cupy: Any) -> None:
    _, away, _ = indexes(cupy)
    encoder = SimpleNamespace(encode_queries=lambda texts: np.array([[len(t), 1, 0, 0] for t in texts], np.float32))
    found = ParagraphSearch(away, "vsum", encoder=encoder, n_hits=5).search([["one", "three"], ["four"]])
    assert isinstance(found.vectors.paragraphs, cupy.ndarray)
    np.testing.assert_array_equal(to_numpy(found.vectors.paragraphs)[:, 0], [3, 5, 4])
