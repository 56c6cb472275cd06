"""Exact search, on the CPU and on a device, against the slow way: every product in float64, one stable sort."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.encoders import HashEncoder
from support.index_oracle import oracle

from haybale.collections import Collection
from haybale.device import Device
from haybale.embeddings import EmbeddingStore, embed
from haybale.embeddings import store as store_module
from haybale.errors import DeviceError, InputError, UnknownNameError, VectorError
from haybale.retrieval import Hits, PassageIndex, exact
from haybale.retrieval.backends import tiles

BACKENDS = ["faiss", "numpy"]


def case(data: st.DataObject, seed: int, most: int) -> tuple[Any, ...]:
    """Random shapes; few distinct vectors, so that ties are everywhere, also at the k-th rank."""
    n, m, d = data.draw(st.integers(1, most)), data.draw(st.integers(1, 5)), data.draw(st.integers(1, 9))
    rng = np.random.default_rng(seed)
    distinct = rng.normal(size=(data.draw(st.integers(1, n)), d)).astype(np.float32)
    passages = distinct[rng.integers(len(distinct), size=n)]
    queries = rng.normal(size=(m, d)).astype(np.float32)
    if data.draw(st.booleans()):
        queries[0] = 0
    cuts = np.sort(rng.integers(0, n + 1, size=data.draw(st.integers(0, 5))))
    offsets = np.concatenate(([0], cuts, [n]))
    return passages, queries, offsets, rng.integers(-1, len(offsets) - 1, size=m), data.draw(st.integers(1, n))


def assert_hits(hits: Hits, expected: tuple[Any, Any]) -> None:
    hits = hits.to_numpy()
    np.testing.assert_array_equal(hits.passages, expected[0])
    real = hits.passages >= 0
    np.testing.assert_array_max_ulp(hits.scores[real], expected[1][real], 1)
    assert np.isneginf(hits.scores[~real]).all()


@settings(max_examples=60, deadline=None)
@given(data=st.data(), seed=st.integers(0, 2**32 - 1), name=st.sampled_from(BACKENDS), tile=st.sampled_from([1, 2**25]))
def test_hits_are_the_oracles(data: st.DataObject, seed: int, name: str, tile: int) -> None:
    passages, queries, offsets, own, k = case(data, seed, 90)
    index = PassageIndex(passages, offsets, backend=name)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiles, "_TILE", tile)
        hits = index.search(queries, k, exclude=own)
    expected = oracle(queries, passages, k, index.doc_of, own)
    np.testing.assert_array_equal(hits.passages, expected[0])
    np.testing.assert_array_equal(hits.scores, expected[1])


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data(), seed=st.integers(0, 2**32 - 1))
def test_documents_of_hits_that_are_known(data: st.DataObject, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As without them, however few they are, and in whatever pieces they are looked at."""
    passages, queries, offsets, own, k = case(data, seed, 90)
    index = PassageIndex(passages, offsets)
    hits = index.search(queries, data.draw(st.integers(1, len(passages))), exclude=own)
    monkeypatch.setattr("haybale.retrieval.index._BATCH", 2)
    found = [index.documents(queries, k, exclude=own, hits=each) for each in (None, hits)]
    assert sorted(zip(*found[0], strict=True)) == sorted(zip(*found[1], strict=True))
    assert (np.diff(found[1][0]) >= 0).all()
    with pytest.raises(InputError, match=f"hits of {len(hits) + 1} queries for {len(hits)}"):
        index.documents(queries, k, hits=Hits(*(np.r_[each, each[:1]] for each in (hits.passages, hits.scores))))


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data(), seed=st.integers(0, 2**32 - 1), memory=st.sampled_from([1.0, 3e3, 1e9]))
def test_hits_are_the_oracles_on_a_device(
    cupy: Any, data: st.DataObject, seed: int, memory: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Device, "half_of_memory", lambda self: memory)
    passages, queries, offsets, own, k = case(data, seed, 60)
    index = PassageIndex(passages, offsets, device="cuda", backend="cupy")
    expected = oracle(queries, passages, k, index.doc_of, own)
    from_host = index.search(queries, k, exclude=own)
    assert isinstance(from_host.passages, np.ndarray)
    assert_hits(from_host, expected)
    there = index.search(cupy.asarray(queries), k, exclude=own)
    assert isinstance(there.passages, cupy.ndarray)
    assert isinstance(there.scores, cupy.ndarray)
    assert_hits(there, expected)


def test_more_ties_than_the_first_proposal_holds(cupy: Any) -> None:
    """400 equal passages compete for 3 places: the lowest numbers win, however deep the search must go."""
    passages = np.random.default_rng(0).normal(size=(1000, 8)).astype(np.float32)
    passages[500:900] = passages[0] * 3
    for where in (*({"backend": name} for name in BACKENDS), {"device": "cuda"}):
        assert PassageIndex(passages, **where).search(passages[:1], 3).passages.tolist() == [[500, 501, 502]]


def test_where_an_index_is(cupy: Any) -> None:
    host = np.eye(3, dtype=np.float32)
    there = cupy.asarray(host)
    index = PassageIndex(there, backend="cupy")
    assert index.vectors is there  # the same memory
    assert index.device == Device("cuda", 0)
    assert repr(index) == "PassageIndex: 3 × 3 float32, 3 documents, on cuda:0, backend cupy: cupy"
    assert PassageIndex(host).vectors is host
    assert PassageIndex(there, device="cpu").device.is_cpu
    assert isinstance(PassageIndex(host, device="auto").vectors, cupy.ndarray)
    for search in (PassageIndex(host).search, PassageIndex(host).similarities):
        with pytest.raises(DeviceError, match="queries are on cuda:0"):
            search(there, 1)
    with pytest.raises(VectorError, match="queries: row 1 has NaN"):
        index.search(cupy.asarray([[1, 1, 1], [1, np.nan, 1]]), 1)


def test_work_is_halved_where_memory_runs_out(cupy_double: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Passages where their products have no room, queries where the exact scores of their candidates have none."""
    rng = np.random.default_rng(4)
    passages, queries = rng.normal(size=(90, 5)).astype(np.float32), rng.normal(size=(4, 5)).astype(np.float32)
    asked: dict[str, list[Any]] = {"_largest": [], "select": []}

    def hungry(module: Any, name: str, room: int, number: int) -> None:
        plain = getattr(module, name)

        def call(*arguments: Any) -> Any:
            asked[name].append(arguments[number].shape)
            if arguments[number].size > room:
                raise cupy_double.cuda.memory.OutOfMemoryError("no room")
            return plain(*arguments)

        monkeypatch.setattr(module, name, call)

    hungry(tiles, "_largest", 300, 1)
    hungry(exact, "select", 60, 0)
    index = PassageIndex(passages, device="cuda")
    assert_hits(index.search(queries, 6), oracle(queries, passages, 6))
    assert asked["_largest"][:2] == [(4, 90), (4, 45)]
    assert asked["select"][:2] == [(4, 30), (2, 30)]
    monkeypatch.undo()
    hungry(exact, "select", 0, 0)
    with pytest.raises(DeviceError, match="out of memory at a tile of 1 queries"):
        index.search(queries, 6)


def test_a_store_is_read_onto_the_device_chunk_by_chunk(
    cupy: Any, toy: Collection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    embed(toy, HashEncoder(), tmp_path / "store", rows_per_chunk=4)
    store = EmbeddingStore(tmp_path / "store")
    whole, sent, send = store.vectors(), [], store_module.to_device
    monkeypatch.setattr(store_module, "to_device", lambda rows, device: (sent.append(len(rows)), send(rows, device))[1])
    index = PassageIndex.from_store(store, device="cuda", backend="cupy")
    assert max(sent) == 4
    np.testing.assert_array_equal(cupy.asnumpy(index.vectors), whole)
    here = PassageIndex.from_store(store)
    assert here.ids(here.search(whole[:3], 4)) == index.ids(index.search(whole[:3], 4))


@pytest.mark.parametrize(
    ("queries", "k", "exclude", "message"),
    [
        (np.eye(3), 4, None, "between 1 and the number of passages in the index, 3; found 4"),
        (np.ones((1, 2)), 1, None, "width 3, found 2"),
        (np.array([[1, 1, 1], [1, np.nan, 1]]), 1, None, "queries: row 1 has NaN"),
        (np.ones((1, 3)), 1, ["z"], "unknown document id 'z'"),
    ],
)
def test_bad_questions_are_refused(queries: Any, k: int, exclude: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        PassageIndex(np.eye(3)).search(queries, k, exclude=exclude)


@pytest.mark.parametrize(
    ("vectors", "settings", "error", "message"),
    [
        (np.array([[np.nan]]), {}, VectorError, "passages: row 0 has NaN"),
        (np.eye(3), {"backend": "hnsw"}, UnknownNameError, "known: auto, numpy, faiss, cuvs, faiss-gpu, cupy"),
        (np.empty((0, 3)), {}, InputError, "at least one passage"),
        (np.eye(3), {"passage_ids": ["a", "b"]}, InputError, "expected 3 passage_ids, found 2"),
        (np.eye(3), {"doc_offsets": [0, 2]}, InputError, "doc_offsets must rise"),
    ],
)
def test_bad_input_is_refused(vectors: Any, settings: dict[str, Any], error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        PassageIndex(vectors, **settings)


def test_vectors_must_fit_the_collection(toy: Collection) -> None:
    with pytest.raises(VectorError, match="expected 15 vectors, one a passage, found 3"):
        PassageIndex.from_collection(toy, np.eye(3))
