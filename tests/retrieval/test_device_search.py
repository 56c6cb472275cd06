"""The backend "tensor-cores" gives the hits of the backend "numpy", for all inputs and sizes of its buffers.

The stand-in's tensor cores round as badly as their bound allows.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support import cublas_double
from support.cupy_double import installed
from support.cupy_double import ndarray as device_array

from haybale.device import Device
from haybale.errors import DeviceError
from haybale.retrieval import PassageIndex, device_search
from haybale.retrieval.backends import BACKENDS

CUDA = Device("cuda", 0)
WIDTHS = [1, 2, 3, 4, 5, 8, 31, 32, 33, 70]


@st.composite
def cases(draw: st.DrawFn) -> dict[str, Any]:
    """Return passages, queries, documents, exclusions and k. All inner products are exact in float64."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, m, width = draw(st.integers(1, 150)), draw(st.integers(1, 5)), draw(st.sampled_from(WIDTHS))
    digits = draw(st.sampled_from([1, 3, 1000, 2**20]))  # few digits give many ties
    vectors = rng.integers(-digits, digits + 1, size=(n + m, width)).astype(np.float32)
    vectors[rng.random(n + m) < draw(st.sampled_from([0, 0.1, 0.9]))] = 0
    vectors[rng.random(n + m) < 0.1] *= -0.0
    vectors = vectors[rng.integers(0, min(n + m, draw(st.sampled_from([1, 10, 1000]))), size=n + m)]  # duplicates
    if draw(st.booleans()):  # scores that TF32 cannot tell apart
        vectors[:n] = vectors[0] + (vectors[:n] % 2) * np.float32(2.0**-3)
    scale = np.float32(2.0) ** draw(st.sampled_from([0, -100, 40]))
    sizes = rng.multinomial(n, rng.dirichlet(np.ones(draw(st.integers(1, n)))))
    offsets = np.concatenate([[0], np.cumsum(sizes[sizes > 0])])
    return {
        "passages": vectors[:n] * scale,
        "queries": vectors[n:] * (scale if scale < 1 else np.float32(1)),
        "offsets": offsets,
        "ids": [f"d{number}" for number in rng.permutation(len(offsets) - 1)],
        "exclude": rng.integers(-1, len(offsets) - 1, size=m) if draw(st.booleans()) else None,
        "k": draw(st.one_of(st.integers(1, min(n, 5)), st.integers(1, n))),
    }


@st.composite
def buffers(draw: st.DrawFn) -> dict[str, int]:
    """Return sizes of tiles and buffers, from those that hold nearly nothing."""
    return {
        "_PASSAGES_PER_TILE": draw(st.sampled_from([1, 7, 64, 1000])),
        "_SCORES_PER_TILE": draw(st.sampled_from([1, 2**20])),
        "_MIN_KEYS_PER_BUFFER": draw(st.sampled_from([1, 16, 64, 1024])),
        "_MAX_KEYS_IN_SHARED_MEMORY": draw(st.sampled_from([1, 16, 1024])),
    }


@settings(max_examples=200)
@given(case=cases(), sizes=buffers(), batch=st.sampled_from([1, 3, 1000]))
def test_hits_are_those_of_numpy(case: dict[str, Any], sizes: dict[str, int], batch: int) -> None:
    arguments = {"doc_offsets": case["offsets"], "doc_ids": case["ids"]}
    expected = PassageIndex(case["passages"], **arguments).search(case["queries"], case["k"], exclude=case["exclude"])
    with installed(), pytest.MonkeyPatch.context() as patch:
        for name, size in (sizes | {"_MAX_QUERIES_PER_BLOCK": batch}).items():
            patch.setattr(device_search, name, size)
        patch.setattr(logging.getLogger("haybale"), "disabled", True)
        index = PassageIndex(case["passages"], **arguments, device="cuda")
        hits = index.search(case["queries"], case["k"], exclude=case["exclude"])
        assert index.backend_used == "tensor-cores"
    np.testing.assert_array_equal(hits.passages, expected.passages)
    np.testing.assert_array_equal(hits.scores, expected.scores)


@pytest.mark.parametrize(("m", "width"), [(1, 96), (40, 96), (300, 33)])
def test_larger_searches(cupy: Any, m: int, width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Several tiles, floors that rise, and ties. On a device, these are the kernels themselves."""
    monkeypatch.setattr(device_search, "_PASSAGES_PER_TILE", 4096)
    monkeypatch.setattr(device_search, "_SCORES_PER_TILE", 1)
    rng = np.random.default_rng(m)
    vectors = rng.integers(-63, 64, size=(20_000 + m, width)).astype(np.float32)
    vectors[rng.integers(20_000, size=2000)] = vectors[rng.integers(50, size=2000)]
    passages, queries = vectors[:20_000], vectors[20_000:]
    offsets, exclude = np.arange(0, 20_001, 4), rng.integers(-1, 5000, size=m)
    host, index = PassageIndex(passages, offsets), PassageIndex(passages, offsets, device="cuda")
    for k in (1, 50, 1000):
        hits, expected = index.search(queries, k, exclude=exclude), host.search(queries, k, exclude=exclude)
        np.testing.assert_array_equal(hits.passages, expected.passages)
        np.testing.assert_array_equal(hits.scores, expected.scores)
    assert index.backend_used == "tensor-cores"


@pytest.fixture
def unlogged() -> Iterator[None]:
    """Let the backend log each reason again."""
    logged = BACKENDS["tensor-cores"]._logged
    before = set(logged)
    logged.clear()
    yield
    logged |= before


def normal(n: int, width: int, seed: int) -> np.ndarray:
    vectors = np.random.default_rng(seed).normal(size=(n, width)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.mark.parametrize("order", ["random", "rising", "falling"])
def test_the_host_waits_once_for_a_block(
    cupy_double: Any, order: str, monkeypatch: pytest.MonkeyPatch, unlogged: None, caplog: Any
) -> None:
    """However often buffers are compacted: with rising scores, every tile exceeds the threshold."""
    monkeypatch.setattr(device_search, "_PASSAGES_PER_TILE", 256)
    monkeypatch.setattr(device_search, "_SCORES_PER_TILE", 1)
    passages, queries = normal(5000, 24, 0), normal(6, 24, 1)
    if order != "random":
        queries = np.repeat(queries[:1], 6, axis=0)
        passages = passages[np.argsort((passages @ queries[0]) * (1 if order == "rising" else -1))]
    index = PassageIndex(passages, device="cuda")
    on_device = cupy_double.asarray(queries)
    index.search(on_device, 20)  # the length of the longest passage is computed once
    before, launched = device_array.waits, count_launches(monkeypatch)
    hits = index.search(on_device, 20)
    in_search = device_array.waits - before
    n_tiles = -(-5000 // 256)
    assert launched == {"begin_search": 1, "keep_best": n_tiles, "rank_exactly": 1}
    expected = PassageIndex(passages).search(queries, 20)
    np.testing.assert_array_equal(hits.to_numpy().passages, expected.passages)
    np.testing.assert_array_max_ulp(hits.to_numpy().scores, expected.scores, 1)
    checked = device_array.waits
    index._place_queries(on_device)  # checks that the queries are finite
    assert in_search - 1 == device_array.waits - checked
    assert not caplog.records


def count_launches(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Return a dictionary that counts the launches of each kernel from now on."""
    launched: dict[str, int] = {}
    launch = device_search._KERNELS.launch

    def counted(device: Device, name: str, *arguments: Any, **settings: Any) -> None:
        launched[name] = launched.get(name, 0) + 1
        launch(device, name, *arguments, **settings)

    monkeypatch.setattr(device_search._KERNELS, "launch", counted)
    return launched


def test_equal_scores_are_ordered_once(cupy_double: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    passages = np.repeat(np.eye(3, dtype=np.float32), 4, axis=0)
    index = PassageIndex(passages, doc_ids=[f"{number:02}" for number in range(12)][::-1], device="cuda")
    launched = count_launches(monkeypatch)
    assert index.search(np.eye(3), 3).passages.tolist() == [[3, 2, 1], [7, 6, 5], [11, 10, 9]]
    assert launched["order_ties"] == 1


def test_crowded_queries_go_to_tiles_and_the_log_says_so_once(
    cupy_double: Any, unlogged: None, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_search, "_MIN_KEYS_PER_BUFFER", 64)
    passages, queries = normal(400, 5, 0), normal(3, 5, 1)
    passages[100:300] = queries[1]
    index = PassageIndex(passages, device="cuda")
    for _ in range(2):
        hits = index.search(queries, 4)
    assert hits.passages.tolist() == PassageIndex(passages).search(queries, 4).passages.tolist()
    (record,) = caplog.records
    assert (record.levelname, "1 of 3 queries" in record.getMessage()) == ("WARNING", True)
    assert "'cupy'" in record.getMessage()


def test_scores_near_the_largest_float_go_to_tiles(
    cupy_double: Any, unlogged: None, caplog: pytest.LogCaptureFixture
) -> None:
    passages, queries = normal(50, 4, 0) * np.float32(1.2e19), normal(2, 4, 1)
    queries[1] *= np.float32(1.5e19)
    hits = PassageIndex(passages, device="cuda").search(queries, 3)
    assert hits.passages.tolist() == PassageIndex(passages).search(queries, 3).passages.tolist()
    assert "exceed float32" in caplog.text


def test_a_device_that_exceeds_the_bound_is_noticed(cupy_double: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    product = cublas_double.coarse_product
    monkeypatch.setattr(cublas_double, "coarse_product", lambda left, right: product(left, right) * np.float32(0.99))
    passages, queries = normal(60, 8, 0), normal(3, 8, 1)
    index = PassageIndex(passages, device="cuda")
    with pytest.warns(RuntimeWarning, match=r"'tensor-cores'.*'cupy'"):
        hits = index.search(queries, 5)
    assert index.backend_used == "cupy"
    assert hits.passages.tolist() == PassageIndex(passages).search(queries, 5).passages.tolist()


def test_large_k_goes_to_tiles(cupy_double: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("haybale.retrieval.backends.tensor_cores.MAX_K", 10)
    launched = count_launches(monkeypatch)
    passages, queries = normal(60, 8, 0), normal(3, 8, 1)
    index = PassageIndex(passages, device="cuda")
    for k, has_kernels in ((11, False), (10, True)):
        hits = index.search(queries, k)
        assert hits.passages.tolist() == PassageIndex(passages).search(queries, k).passages.tolist()
        assert ("keep_best" in launched) == has_kernels


def test_blocks_and_tiles_follow_the_free_memory(cupy_double: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    shapes: list[tuple[int, ...]] = []
    empty = cupy_double.empty
    room = 2**22

    def limited(shape: Any, **settings: Any) -> Any:
        array = empty(shape, **settings)
        shapes.append(array.shape)
        if array.nbytes > room:
            raise cupy_double.cuda.memory.OutOfMemoryError("no room")
        return array

    passages, queries = normal(3000, 4, 0), normal(40, 4, 1)
    expected = PassageIndex(passages).search(queries, 3).passages.tolist()
    index = PassageIndex(passages, device="cuda")
    monkeypatch.setattr(Device, "half_of_memory", lambda self: 2.0**20)
    monkeypatch.setattr(cupy_double, "empty", limited)
    assert index.search(queries, 3).passages.tolist() == expected
    assert max(4 * m * columns for m, columns in (shape for shape in shapes if len(shape) == 2)) <= 2**20
    monkeypatch.setattr(Device, "half_of_memory", lambda self: 2.0**30)
    room = 2**16  # the free memory was not free: blocks are halved
    assert index.search(queries, 3).passages.tolist() == expected
    room = 1000  # of the hits
    with pytest.raises(DeviceError, match="memory"):
        index.search(queries, 3)
