"""Search over the shards of a store gives bit-identical hits to search over the whole store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.encoders import HashEncoder

from haybale.collections import CollectionBuilder
from haybale.embeddings import EmbeddingStore, embed
from haybale.errors import InputError, StoreError, VectorError
from haybale.retrieval import ParagraphSearch, PassageIndex
from haybale.retrieval.sharded import ShardedIndex


class FewVectors(HashEncoder):
    """Encodes the last character only; some vectors are zero. This makes ties frequent."""

    def encode(self, texts: Any) -> np.ndarray:
        vectors = super().encode([text[-1] for text in texts])
        vectors[[text.endswith("7") for text in texts]] = 0
        return vectors


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> EmbeddingStore:
    """Return a store of 75 passages of 20 documents in 10 chunks, which do not end at documents."""
    rng = np.random.default_rng(0)
    builder, n = CollectionBuilder("many", language="english"), 0
    for number in range(20):
        size = int(rng.integers(1, 7))
        builder.add_document(f"d{number}", [f"passage {i}" for i in range(n, n + size)])
        n += size
    folder = tmp_path_factory.mktemp("sharded") / "store"
    embed(builder.build(), FewVectors(), folder, rows_per_chunk=8)
    return EmbeddingStore(folder)


@pytest.fixture(scope="module")
def whole(store: EmbeddingStore) -> PassageIndex:
    return PassageIndex.from_store(store)


def queries_of(store: EmbeddingStore, seed: int, m: int = 6) -> np.ndarray:
    rng = np.random.default_rng(seed)
    queries = rng.normal(size=(m, store.dim)).astype(np.float32)
    queries[rng.random(m) < 0.2] = 0
    return queries


def assert_same_hits(found: Any, expected: Any) -> None:
    np.testing.assert_array_equal(found.passages, expected.passages)
    np.testing.assert_array_equal(found.scores.view(np.int32), expected.scores.view(np.int32))
    assert found.passages.dtype == expected.passages.dtype


@settings(deadline=None, max_examples=60)
@given(st.integers(1, 12), st.integers(0, 99), st.floats(1, 2000), st.data())
def test_hits_equal_those_of_one_index(
    store: EmbeddingStore, whole: PassageIndex, n_shards: int, seed: int, budget: float, data: Any
) -> None:
    k = data.draw(st.integers(1, len(whole)))
    queries = queries_of(store, seed)
    exclude = data.draw(st.none() | st.lists(st.integers(-1, 19), min_size=6, max_size=6))
    index = ShardedIndex(store, n_shards, memory_budget=budget)
    assert_same_hits(index.search(queries, k, exclude=exclude), whole.search(queries, k, exclude=exclude))


@pytest.mark.parametrize(("backend", "n_jobs"), [("threading", 3), ("sequential", 1), ("loky", 2)])
def test_joblib_backends(store: EmbeddingStore, whole: PassageIndex, backend: str, n_jobs: int) -> None:
    queries = queries_of(store, 1)
    excluded = ["d3", None, "d4", "d19", "d0", None]
    with joblib.parallel_config(backend=backend, n_jobs=n_jobs):
        for n_shards in (None, 5):
            found = ShardedIndex(store, n_shards).search(queries, 30, exclude=excluded)
            assert_same_hits(found, whole.search(queries, 30, exclude=excluded))


def test_store_made_in_shards_is_read_in_input_order(
    tmp_path: Path, store: EmbeddingStore, whole: PassageIndex
) -> None:
    builder = CollectionBuilder("many", language="english")
    texts, documents = store.texts().to_pylist(), store.doc_ids.to_pylist()
    for doc_id in dict.fromkeys(documents):
        builder.add_document(doc_id, [text for text, d in zip(texts, documents, strict=True) if d == doc_id])
    for shard in (1, 2, 3):
        embed(builder.build(), FewVectors(), tmp_path / "parts", rows_per_chunk=8, shard=(shard, 3))
    queries = queries_of(store, 2)
    for budget, k in ((None, 20), (1, 70)):
        index = ShardedIndex(EmbeddingStore(tmp_path / "parts"), 4, memory_budget=budget)
        assert_same_hits(index.search(queries, k), whole.search(queries, k))


@pytest.mark.parametrize("aggregation", ["rrf", "combsum", "vrrf", "vmin"])
def test_parm_on_shards(store: EmbeddingStore, whole: PassageIndex, aggregation: str) -> None:
    documents = [queries_of(store, 5, 3) + 1, queries_of(store, 6, 2) + 1]
    parms = [ParagraphSearch(index, aggregation, n_hits=12) for index in (ShardedIndex(store, 4), whole)]
    runs = [parm.rank(["a", "b"], documents, exclude=["d2", None]) for parm in parms]
    assert runs[0] == runs[1]
    texts = store.texts()
    for doc_id in (runs[0]["a"][0][0], "d2"):
        found, expected = (parm.explain(documents[0], doc_id, passage_texts=texts) for parm in parms)
        assert found.to_frame().equals(expected.to_frame())
        np.testing.assert_array_equal(found.similarity, expected.similarity)


def test_invalid_input_and_missing_stores_are_rejected(store: EmbeddingStore, tmp_path: Path) -> None:
    index = ShardedIndex(store, 2)
    assert "2 shards" in repr(index)
    assert index.search(np.empty((0, 8)), 3).passages.shape == (0, 3)
    with pytest.raises(VectorError, match=r"width 8.* 3"):
        index.search(np.ones((1, 3)), 3)
    with pytest.raises(InputError, match="k must"):
        index.search(np.ones((1, 8)), 71 + len(store))
    for wrong in ({"n_shards": 0}, {"memory_budget": 0}, {"n_jobs": 0}):
        with pytest.raises(InputError, match=next(iter(wrong))):
            ShardedIndex(store, **wrong)
    moved = EmbeddingStore(store.path)
    moved.path = str(tmp_path / "elsewhere")
    with pytest.raises(StoreError, match="elsewhere"):
        ShardedIndex(moved, 2).search(np.ones((1, 8)), 3)
    other = EmbeddingStore(store.path)
    other.manifest = other.manifest | {"encoder": "another"}
    with pytest.raises(StoreError, match="another store"):
        ShardedIndex(other, 2).search(np.ones((1, 8)), 3)
