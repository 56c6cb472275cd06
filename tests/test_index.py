"""Exact search against the slow, obvious way: every product in float64, one stable sort."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from index_oracle import oracle

from haybale.collections import Collection
from haybale.device import CPU
from haybale.embeddings import LSAEncoder
from haybale.errors import InputError, UnknownNameError, VectorError
from haybale.retrieval import Hits, PassageIndex, pool
from haybale.retrieval.exact import backends_on, numpy_tiles
from haybale.retrieval.hits import select

BACKENDS = sorted(backends_on(CPU))


@settings(max_examples=60, deadline=None)
@given(data=st.data(), seed=st.integers(0, 2**32 - 1), name=st.sampled_from(BACKENDS))
def test_hits_are_the_oracles(data: st.DataObject, seed: int, name: str) -> None:
    """Random shapes; few distinct vectors, so that ties are everywhere, also at the k-th place."""
    n, m, d = data.draw(st.integers(1, 90)), data.draw(st.integers(1, 6)), data.draw(st.integers(1, 9))
    rng = np.random.default_rng(seed)
    distinct = rng.normal(size=(data.draw(st.integers(1, n)), d)).astype(np.float32)
    passages = distinct[rng.integers(len(distinct), size=n)]
    queries = rng.normal(size=(m, d)).astype(np.float32)
    if data.draw(st.booleans()):
        queries[0] = 0
    cuts = np.sort(rng.integers(0, n + 1, size=data.draw(st.integers(0, 5))))
    offsets = np.concatenate(([0], cuts, [n]))
    own = rng.integers(-1, len(offsets) - 1, size=m)
    k = data.draw(st.integers(1, n))
    index = PassageIndex(passages, offsets, backend=name)
    hits = index.search(queries, k, exclude=own)
    rows, scores = oracle(queries, passages, k, index.doc_of, own)
    np.testing.assert_array_equal(hits.passages, rows)
    np.testing.assert_array_equal(hits.scores, scores)


@pytest.mark.parametrize("name", BACKENDS)
def test_more_ties_than_the_first_proposal_holds(name: str) -> None:
    """400 equal passages compete for 3 places: the lowest numbers win, however deep the search must go."""
    rng = np.random.default_rng(0)
    passages = rng.normal(size=(1000, 8)).astype(np.float32)
    passages[500:900] = passages[0] * 3
    hits = PassageIndex(passages, backend=name).search(passages[:1], 3)
    assert hits.passages.tolist() == [[500, 501, 502]]


def test_tiles_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    passages, queries = rng.normal(size=(700, 5)), rng.normal(size=(40, 5))
    whole = PassageIndex(passages, backend="numpy").search(queries, 50)
    monkeypatch.setattr(numpy_tiles, "_TILE", 1)
    tiled = PassageIndex(passages, backend="numpy").search(queries, 50)
    np.testing.assert_array_equal(whole.passages, tiled.passages)
    np.testing.assert_array_equal(whole.scores, tiled.scores)


def test_backends_agree_on_real_passages(pydocs: Collection) -> None:
    texts = pydocs.passages.texts[:6000].to_pylist()
    vectors = LSAEncoder(64).fit(texts).encode(texts)
    found = [PassageIndex(vectors, backend=name).search(vectors[:200], 1000) for name in BACKENDS]
    for other in found[1:]:
        np.testing.assert_array_equal(found[0].passages, other.passages)
        np.testing.assert_array_equal(found[0].scores, other.scores)


def test_ids_and_numbers() -> None:
    index = PassageIndex(np.eye(3), [0, 2, 3], passage_ids=["x:0", "x:1", "y:0"], doc_ids=["x", "y"])
    hits = index.search(np.array([[0.2, 0.9, 0.5], [0.2, 0.9, 0.5]]), 2, exclude=[0, -1])
    assert index.ids(hits) == [["y:0"], ["x:1", "y:0"]]
    assert index.numbers(["y:0", "x:0"]).tolist() == [2, 0]
    by_id = index.search(np.array([[0.2, 0.9, 0.5], [0.2, 0.9, 0.5]]), 2, exclude=["x", None])
    np.testing.assert_array_equal(by_id.passages, hits.passages)
    with pytest.raises(InputError, match="unknown document id 'z'"):
        index.search(np.ones((1, 3)), 1, exclude=["z"])
    with pytest.raises(InputError, match="unknown passage id 'z'"):
        index.numbers(["z"])


def test_bad_input_is_refused() -> None:
    index = PassageIndex(np.eye(3))
    with pytest.raises(InputError, match=r"k must lie between 1 and the number of passages in the index, 3; found 4"):
        index.search(np.eye(3), 4)
    with pytest.raises(InputError, match="found 0"):
        index.search(np.eye(3), 0)
    with pytest.raises(VectorError, match="width 3, found 2"):
        index.search(np.ones((1, 2)), 1)
    with pytest.raises(VectorError, match="queries: row 1 has NaN"):
        index.search(np.array([[1, 1, 1], [1, np.nan, 1]]), 1)
    with pytest.raises(VectorError, match="passages: row 0 has NaN"):
        PassageIndex(np.array([[np.nan]]))
    with pytest.raises(InputError, match="exclude must hold 2"):
        index.search(np.ones((2, 3)), 1, exclude=[0])
    with pytest.raises(InputError, match="exclude must hold 1"):
        index.search(np.ones((1, 3)), 1, exclude=[3])
    with pytest.raises(UnknownNameError, match="known: auto, faiss, numpy, cuvs, faiss-gpu, cupy"):
        PassageIndex(np.eye(3), backend="hnsw")
    with pytest.raises(InputError, match="at least one passage"):
        PassageIndex(np.empty((0, 3)))
    with pytest.raises(InputError, match="expected 3 passage_ids, found 2"):
        PassageIndex(np.eye(3), passage_ids=["a", "b"])
    with pytest.raises(InputError, match="hold an id twice"):
        PassageIndex(np.eye(2), passage_ids=["a", "a"])
    with pytest.raises(InputError, match="doc_offsets must rise"):
        PassageIndex(np.eye(3), [0, 2])


def test_vectors_must_fit_the_collection(toy: Collection) -> None:
    with pytest.raises(VectorError, match="expected 15 vectors, one a passage, found 3"):
        PassageIndex.from_collection(toy, np.eye(3))


@settings(max_examples=100, deadline=None)
@given(
    scores=st.lists(st.sampled_from([0.0, 1.0, 2.0, -np.inf]), min_size=1, max_size=30),
    k=st.integers(1, 30),
)
def test_select_is_a_total_order(scores: list[float], k: int) -> None:
    numbers, values = select(np.array([scores], dtype=np.float32), k)
    expected = sorted(range(len(scores)), key=lambda j: (-scores[j], j))[:k]
    assert numbers[0].tolist() == [j if np.isfinite(scores[j]) else -1 for j in expected]
    assert values[0].tolist() == [scores[j] for j in expected]


lists_of_passages = st.lists(st.lists(st.integers(0, 12), unique=True, max_size=6), min_size=3, max_size=3)


@given(a=lists_of_passages, b=lists_of_passages)
def test_pool_is_the_union_by_best_rank(a: list[list[int]], b: list[list[int]]) -> None:
    def hits(rows: list[list[int]]) -> Hits:
        width = max(map(len, rows))
        table = np.array([row + [-1] * (width - len(row)) for row in rows]).reshape(3, width)
        return Hits(table.astype(np.int64), np.where(table < 0, -np.inf, 1).astype(np.float32))

    for row, together in enumerate(pool(hits(a), hits(b)).passages):
        best = {p: min(r.index(p) for r in (a[row], b[row]) if p in r) for p in {*a[row], *b[row]}}
        assert together[together >= 0].tolist() == sorted(best, key=lambda p: (best[p], p))
    np.testing.assert_array_equal(pool(hits(a), hits(b)).passages, pool(hits(b), hits(a)).passages)
