"""The index on a device, on CuPy's double and on a GPU where there is one, against the oracle: float32 to 1 ulp."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from encoders import HashEncoder
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from index_oracle import oracle

from haybale.collections import Collection
from haybale.device import Device
from haybale.embeddings import EmbeddingStore, embed
from haybale.embeddings import store as reading
from haybale.errors import DeviceError, InputError, VectorError
from haybale.retrieval import Hits, PassageIndex, pool
from haybale.retrieval.exact import cupy_tiles, kept, settling

device_settings = settings(
    max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The simulator runs a thread of Python for each of CUDA's."""
    monkeypatch.setattr(kept, "_THREADS", 4)
    monkeypatch.setattr(kept, "_BLOCKS", 2)


def data_of(rng: np.random.Generator, n: int, d: int, distinct: int) -> np.ndarray:
    """Few distinct vectors, so that ties are everywhere."""
    return rng.normal(size=(distinct, d)).astype(np.float32)[rng.integers(distinct, size=n)]


def assert_hits(hits: Hits, expected: tuple[Any, Any]) -> None:
    hits = hits.to_numpy()
    np.testing.assert_array_equal(hits.passages, expected[0])
    real = hits.passages >= 0
    np.testing.assert_array_max_ulp(hits.scores[real], expected[1][real], 1)
    assert np.isneginf(hits.scores[~real]).all()


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@device_settings
@given(data=st.data(), seed=st.integers(0, 2**32 - 1))
def test_hits_are_the_oracles(cupy: Any, dtype: str, data: st.DataObject, seed: int) -> None:
    n, m, d = data.draw(st.integers(1, 60)), data.draw(st.integers(1, 4)), data.draw(st.integers(1, 9))
    rng = np.random.default_rng(seed)
    passages = data_of(rng, n, d, data.draw(st.integers(1, n)))
    queries = rng.normal(size=(m, d)).astype(np.float32)
    if data.draw(st.booleans()):
        queries[0] = 0
    cuts = np.sort(rng.integers(0, n + 1, size=data.draw(st.integers(0, 5))))
    offsets = np.concatenate(([0], cuts, [n]))
    own = rng.integers(-1, len(offsets) - 1, size=m)
    k, memory = data.draw(st.integers(1, n)), data.draw(st.sampled_from([None, 1.0, 3e4, 1e6]))
    index = PassageIndex(passages, offsets, device="cuda", dtype=dtype, backend="cupy", memory_budget=memory)
    expected = oracle(queries, passages.astype(dtype), k, index.doc_of, own)
    from_host = index.search(queries, k, exclude=own)
    assert isinstance(from_host.passages, np.ndarray)
    assert_hits(from_host, expected)
    there = index.search(cupy.asarray(queries), k, exclude=cupy.asarray(own))
    assert isinstance(there.passages, cupy.ndarray)
    assert isinstance(there.scores, cupy.ndarray)
    assert_hits(there, expected)


def test_more_ties_than_the_first_proposal_holds(cupy: Any) -> None:
    rng = np.random.default_rng(0)
    passages = rng.normal(size=(200, 8)).astype(np.float32)
    passages[50:150] = passages[0] * 3
    for dtype in ("float32", "float16"):
        hits = PassageIndex(cupy.asarray(passages), dtype=dtype).search(passages[:1], 3)
        assert hits.passages.tolist() == [[50, 51, 52]]


def test_float16_scores_are_those_of_the_rounded_vectors(cupy: Any) -> None:
    """On the CPU, too; and queries are not rounded."""
    rng = np.random.default_rng(1)
    passages, queries = rng.normal(size=(80, 12)).astype(np.float32), rng.normal(size=(5, 12)).astype(np.float32)
    expected = oracle(queries, passages.astype(np.float16), 80)
    for where in ({}, {"backend": "faiss"}, {"device": "cuda"}):
        index = PassageIndex(passages, dtype="float16", **where)
        assert index.vectors.dtype == np.float16
        assert_hits(index.search(queries, 80), expected)


@pytest.mark.parametrize("scale", [1e-30, 1e-12, 1e4, 1e15])
def test_queries_beyond_float16(cupy: Any, scale: float) -> None:
    """They are scaled: neither does the least of them vanish nor the largest overflow."""
    rng = np.random.default_rng(2)
    passages, queries = rng.normal(size=(70, 6)).astype(np.float32), rng.normal(size=(3, 6)).astype(np.float32)
    queries *= np.float32(scale)
    queries[:, 0] *= np.float32(1e-3)
    index = PassageIndex(passages, dtype="float16", device="cuda")
    assert_hits(index.search(queries, 9), oracle(queries, passages.astype(np.float16), 9))


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
    half = cupy.asarray(host.astype(np.float16))
    assert PassageIndex(half, dtype="float16").vectors is half


def test_torch_tensors_are_taken_as_they_are() -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.eye(3)
    index = PassageIndex(tensor)
    assert np.shares_memory(index.vectors, tensor.numpy())
    assert index.search(tensor, 1).passages.tolist() == [[0], [1], [2]]
    half = torch.eye(3, dtype=torch.float16)
    assert np.shares_memory(PassageIndex(half, dtype="float16").vectors, half.numpy())


def test_arrays_on_two_devices_are_refused(cupy: Any) -> None:
    host, there = np.eye(3, dtype=np.float32), cupy.eye(3) if hasattr(cupy, "eye") else cupy.asarray(np.eye(3))
    with pytest.raises(DeviceError, match="queries are on cuda:0, and would meet arrays on cpu"):
        PassageIndex(host).search(there, 1)
    with pytest.raises(DeviceError, match="queries are on cuda:0, and would meet arrays on cpu"):
        PassageIndex(host).similarities(there, 1)
    with pytest.raises(VectorError, match="queries: row 1 has NaN"):
        PassageIndex(there).search(cupy.asarray([[1, 1, 1], [1, np.nan, 1]]), 1)


def test_similarities_and_ids(cupy: Any) -> None:
    rng = np.random.default_rng(3)
    passages, queries = rng.normal(size=(9, 4)).astype(np.float32), rng.normal(size=(2, 4)).astype(np.float32)
    ids = [f"p{number}" for number in range(9)]
    here = PassageIndex(passages, [0, 4, 9], passage_ids=ids)
    there = PassageIndex(cupy.asarray(passages), [0, 4, 9], passage_ids=ids)
    expected = here.similarities(queries, 1)
    np.testing.assert_array_max_ulp(there.similarities(queries, 1), expected, 1)
    found = there.similarities(cupy.asarray(queries), 1)
    assert isinstance(found, cupy.ndarray)
    np.testing.assert_array_max_ulp(cupy.asnumpy(found), expected, 1)
    hits = there.search(cupy.asarray(queries), 3, exclude=["0", None])
    assert there.ids(hits) == here.ids(here.search(queries, 3, exclude=["0", None]))
    assert isinstance(hits.top(2).passages, cupy.ndarray)
    for ours, theirs in zip(hits.flat(), hits.to_numpy().flat(), strict=True):
        np.testing.assert_array_equal(cupy.asnumpy(ours), theirs)
    np.testing.assert_array_equal(pool(hits, hits).passages, pool(hits.to_numpy()).passages)
    assert hits.to_numpy().to_numpy().passages.shape == (2, 3)
    with pytest.raises(InputError, match="both be NumPy or both be CuPy"):
        Hits(hits.passages, hits.to_numpy().scores)


def test_tiles_halve_where_memory_runs_out(cupy_double: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, multiply = [], cupy_tiles.products

    def hungry(queries: Any, passages: Any, out: Any, *, add: bool = False) -> None:
        asked.append(out.shape)
        if out.size > room:
            raise cupy_double.cuda.memory.OutOfMemoryError("no room")
        multiply(queries, passages, out, add=add)

    monkeypatch.setattr(cupy_tiles, "products", hungry)
    rng = np.random.default_rng(4)
    passages, queries = rng.normal(size=(90, 5)).astype(np.float32), rng.normal(size=(4, 5)).astype(np.float32)
    index, room = PassageIndex(passages, device="cuda"), 100
    assert_hits(index.search(queries, 6), oracle(queries, passages, 6))
    assert asked[:3] == [(4, 90), (4, 45), (4, 22)]
    room = 2  # too little for the four rows of one column: fewer rows
    assert_hits(index.search(queries, 6), oracle(queries, passages, 6))
    assert (2, 1) in asked
    room = 0
    with pytest.raises(DeviceError, match="out of memory at a tile of 1 queries"):
        index.search(queries, 6)


def test_fewer_queries_where_their_candidates_have_no_room(cupy_double: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes after the products, too: exact scores of all candidates, and their order."""
    asked, plain = [], settling.select

    def hungry(scores: Any, *args: Any) -> Any:
        asked.append(len(scores))
        if len(scores) > 2:
            raise cupy_double.cuda.memory.OutOfMemoryError("no room")
        return plain(scores, *args)

    monkeypatch.setattr(settling, "select", hungry)
    rng = np.random.default_rng(4)
    passages, queries = rng.normal(size=(90, 5)).astype(np.float32), rng.normal(size=(7, 5)).astype(np.float32)
    assert_hits(PassageIndex(passages, device="cuda").search(queries, 6), oracle(queries, passages, 6))
    assert asked[:2] == [7, 3]


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_store_is_read_onto_the_device_chunk_by_chunk(
    cupy: Any, dtype: str, toy: Collection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    embed(toy, HashEncoder(), tmp_path / "store", rows_per_chunk=4)
    store = EmbeddingStore(tmp_path / "store")
    whole, sent, send = store.vectors(), [], reading.to_device
    monkeypatch.setattr(reading, "to_device", lambda rows, device: (sent.append(len(rows)), send(rows, device))[1])
    index = PassageIndex.from_store(store, device="cuda", dtype=dtype, backend="cupy", memory_budget=1e6)
    assert max(sent) == 4
    assert (index.vectors.dtype, index.memory_budget) == (np.dtype(dtype), 1e6)
    np.testing.assert_array_equal(cupy.asnumpy(index.vectors), whole.astype(dtype))
    here = PassageIndex.from_store(store, dtype=dtype)
    assert here.ids(here.search(whole[:3], 4)) == index.ids(index.search(whole[:3], 4))
    with pytest.raises(InputError, match="stored as float32 or float16, found 'float64'"):
        store.vectors("float64")
    same = PassageIndex.from_collection(toy, whole, device="cuda", dtype=dtype)
    np.testing.assert_array_equal(cupy.asnumpy(same.vectors), cupy.asnumpy(index.vectors))


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_an_index_that_was_saved_cut_and_extended_there(cupy: Any, tmp_path: Path, dtype: str) -> None:
    """It is the same on disk wherever it was, and stays on its device."""
    rng = np.random.default_rng(3)
    passages, queries = rng.normal(size=(40, 6)).astype(np.float32), rng.normal(size=(3, 6)).astype(np.float32)
    offsets = np.array([0, 10, 25, 40])
    host, there = (PassageIndex(passages, offsets, dtype=dtype, device=device) for device in ("cpu", "cuda"))
    host.save(tmp_path / "host")
    there.save(tmp_path / "there")
    for path in (tmp_path / "host").iterdir():
        assert path.read_bytes() == (tmp_path / "there" / path.name).read_bytes()
    opened = PassageIndex.open(tmp_path / "host", device="cuda")
    grown = there.take([0, 1]).extended(
        passages[25:], [0, 15], passage_ids=there.passage_ids[25:], doc_ids=there.doc_ids[2:]
    )
    for index in (opened, grown):
        assert isinstance(index.vectors, cupy.ndarray)
        assert index.vectors.dtype == dtype
        assert_hits(index.search(queries, 9), oracle(queries, passages.astype(dtype), 9))
    some = there.take([0, 2])
    assert isinstance(some.vectors, cupy.ndarray)
    rows = np.r_[:10, 25:40]
    assert_hits(some.search(queries, 9), oracle(queries, passages[rows].astype(dtype), 9))
