"""Exact search on the CPU and on a device, compared with float64 products and a stable sort."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import sparse
from support.encoders import HashEncoder
from support.index_oracle import oracle

from haybale.collections import Collection
from haybale.device import Device, to_device
from haybale.embeddings import EmbeddingStore, embed
from haybale.embeddings import store as store_module
from haybale.errors import DeviceError, InputError, UnknownNameError, VectorError
from haybale.retrieval import Hits, PassageIndex, exact
from haybale.retrieval.backends import tiles


def case(data: st.DataObject, seed: int, max_passages: int) -> tuple[Any, ...]:
    """Draw passages, queries, offsets, excluded documents and k. Few distinct vectors make ties frequent."""
    n, m, d = data.draw(st.integers(1, max_passages)), data.draw(st.integers(1, 5)), data.draw(st.integers(1, 9))
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
@given(data=st.data(), seed=st.integers(0, 2**32 - 1), tile=st.sampled_from([1, 2**25]))
def test_hits_equal_the_oracles(data: st.DataObject, seed: int, tile: int) -> None:
    passages, queries, offsets, own, k = case(data, seed, 90)
    index = PassageIndex(passages, offsets)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiles, "_SCORES_PER_TILE", tile)
        hits = index.search(queries, k, exclude=own)
    expected = oracle(queries, passages, k, index.doc_of, own)
    np.testing.assert_array_equal(hits.passages, expected[0])
    np.testing.assert_array_equal(hits.scores, expected[1])


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(data=st.data(), seed=st.integers(0, 2**32 - 1))
def test_documents_from_known_hits(data: st.DataObject, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Known hits change no result, whatever their number and the batch size."""
    passages, queries, offsets, own, k = case(data, seed, 90)
    index = PassageIndex(passages, offsets)
    hits = index.search(queries, data.draw(st.integers(1, len(passages))), exclude=own)
    monkeypatch.setattr("haybale.retrieval.passage_index._QUERIES_PER_BATCH", 2)
    found = [index.documents(queries, k, exclude=own, hits=each) for each in (None, hits)]
    assert sorted(zip(*found[0], strict=True)) == sorted(zip(*found[1], strict=True))
    assert (np.diff(found[1][0]) >= 0).all()
    with pytest.raises(InputError, match=f"hits.* {len(hits)} queries.* {len(hits) + 1}"):
        index.documents(queries, k, hits=Hits(*(np.r_[each, each[:1]] for each in (hits.passages, hits.scores))))


@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    data=st.data(),
    seed=st.integers(0, 2**32 - 1),
    memory=st.sampled_from([1.0, 3e3, 1e9]),
    backend=st.sampled_from(["cupy", "tensor-cores"]),
)
def test_hits_on_a_device_equal_the_oracles(
    cupy: Any, data: st.DataObject, seed: int, memory: float, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Device, "half_of_memory", lambda self: memory)
    passages, queries, offsets, own, k = case(data, seed, 60)
    index = PassageIndex(passages, offsets, device="cuda", backend=backend)
    expected = oracle(queries, passages, k, index.doc_of, own)
    from_host = index.search(queries, k, exclude=own)
    assert isinstance(from_host.passages, np.ndarray)
    assert_hits(from_host, expected)
    on_device = index.search(cupy.asarray(queries), np.int64(k), exclude=own)
    assert isinstance(on_device.passages, cupy.ndarray)
    assert isinstance(on_device.scores, cupy.ndarray)
    assert_hits(on_device, expected)


def test_ties_beyond_the_first_proposal(cupy: Any) -> None:
    """400 equal passages compete for 3 places; those with the lowest numbers win."""
    passages = np.random.default_rng(0).normal(size=(1000, 8)).astype(np.float32)
    passages[500:900] = passages[0] * 3
    for device in ("cpu", "cuda"):
        assert PassageIndex(passages, device=device).search(passages[:1], 3).passages.tolist() == [[500, 501, 502]]


@pytest.mark.parametrize(("kind", "backend"), [("float32", "cupy"), ("float32 sparse", "auto")])
def test_device_of_an_index(cupy: Any, kind: str, backend: str) -> None:
    host: Any = np.eye(3, dtype=np.float32)
    if kind == "float32 sparse":
        host = sparse.csr_matrix(host)
    vectors = to_device(host, Device("cuda"))
    index = PassageIndex(vectors, backend=backend)
    for matrix, made in ((vectors, index), (host, PassageIndex(host))):  # dense vectors are not copied
        assert made.is_sparse or made.vectors is matrix
    used = "on cpu, backend auto: inverted index" if index.is_sparse else "on cuda:0, backend cupy: cupy"
    assert repr(index) == f"PassageIndex: 3 × 3 {kind}, 3 documents, {used}"
    assert index.device == Device("cuda")
    assert PassageIndex(vectors, device="cpu").device.is_cpu
    assert not PassageIndex(host, device="auto").device.is_cpu
    assert PassageIndex(host).search(host, 1).passages.tolist() == index.search(host, 1).passages.tolist()
    for search in (PassageIndex(host).search, PassageIndex(host).similarities):
        with pytest.raises(DeviceError, match=r"queries.*cuda:0"):
            search(vectors, 1)
    for wrong in ([[1, 1, 1], [1, np.nan, 1]], np.eye(2)):
        with pytest.raises(VectorError, match="queries"):
            index.search(cupy.asarray(wrong), 1)


def test_batches_are_halved_when_memory_is_exhausted(cupy_double: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles of passages are halved for products, and batches of queries for exact scores."""
    rng = np.random.default_rng(4)
    passages, queries = rng.normal(size=(90, 5)).astype(np.float32), rng.normal(size=(4, 5)).astype(np.float32)
    sizes: dict[str, list[Any]] = {"_largest": [], "select": []}

    def limit_memory(module: Any, name: str, room: int, number: int) -> None:
        plain = getattr(module, name)

        def call(*arguments: Any) -> Any:
            sizes[name].append(arguments[number].shape)
            if arguments[number].size > room:
                raise cupy_double.cuda.memory.OutOfMemoryError("no room")
            return plain(*arguments)

        monkeypatch.setattr(module, name, call)

    limit_memory(tiles, "_largest", 300, 1)
    limit_memory(exact, "select", 60, 0)
    index = PassageIndex(passages, device="cuda", backend="cupy")
    assert_hits(index.search(queries, 6), oracle(queries, passages, 6))
    assert sizes["_largest"][:2] == [(4, 90), (4, 45)]
    assert sizes["select"][:2] == [(4, 30), (2, 30)]
    monkeypatch.undo()
    limit_memory(exact, "select", 0, 0)
    with pytest.raises(DeviceError, match=r"memory.* 1 queries"):
        index.search(queries, 6)


def test_store_is_read_to_the_device_chunk_by_chunk(
    cupy: Any, toy: Collection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    embed(toy, HashEncoder(), tmp_path / "store", rows_per_chunk=4)
    store = EmbeddingStore(tmp_path / "store")
    whole, sent, send = store.vectors(), [], store_module.to_device
    monkeypatch.setattr(store_module, "to_device", lambda rows, device: (sent.append(len(rows)), send(rows, device))[1])
    index = PassageIndex.from_store(store, device="cuda", backend="cupy")
    assert max(sent) == 4
    np.testing.assert_array_equal(cupy.asnumpy(index.vectors), whole)
    host = PassageIndex.from_store(store)
    assert host.ids(host.search(whole[:3], 4)) == index.ids(index.search(whole[:3], 4))


def test_invalid_arguments_are_rejected(toy: Collection) -> None:
    index, with_nan = PassageIndex(np.eye(3)), np.array([[1, 1, 1], [1, np.nan, 1]])
    for call, error, named in [
        (lambda: index.search(np.eye(3), 4), InputError, "k must.* 3; found 4"),
        (lambda: index.search(np.ones((1, 2)), 1), VectorError, "width 3.* 2"),
        (lambda: index.search(with_nan, 1), VectorError, "queries: row 1"),
        (lambda: index.search(np.ones((1, 3)), 1, exclude=["z"]), InputError, "'z'"),
        (lambda: PassageIndex(with_nan), VectorError, "passages: row 1"),
        (
            lambda: PassageIndex(np.eye(3), backend="hnsw"),
            UnknownNameError,
            "auto, numpy, tensor-cores, cuvs, faiss-gpu, cupy",
        ),
        (lambda: PassageIndex(np.empty((0, 3))), InputError, "at least one.* 0"),
        (lambda: PassageIndex(np.eye(3), passage_ids=["a", "b"]), InputError, "3 passage_ids.* 2"),
        (lambda: PassageIndex(np.eye(3), doc_offsets=[0, 2]), InputError, "doc_offsets"),
        (lambda: PassageIndex.from_collection(toy, np.eye(3)), VectorError, "15 vectors.* 3"),
    ]:
        with pytest.raises(error, match=named):
            call()
