"""Memory of devices, where stages ran, and how many kernels they compile; CuPy is replaced by support.cupy_double."""

from __future__ import annotations

import logging
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from support.compiled_kernels import compiled_kernels
from support.cupy_runtime import Device as DoubleDevice

from haybale import device_memory
from haybale.device import Device, find_device, tell_once
from haybale.ensemble import SVREnsemble
from haybale.errors import DeviceError
from haybale.retrieval import ParagraphSearch, PassageIndex
from haybale.timing import timed

CUDA = Device("cuda")
MIB = 2**20


@pytest.fixture
def passages() -> Any:
    return np.random.default_rng(0).normal(size=(300, 16)).astype(np.float32)


class RMM:
    """The part of RMM and of CUDA's bindings that haybale uses."""

    class CudaMemoryResource: ...

    class CudaAsyncViewMemoryResource:
        def __init__(self, handle: Any) -> None:
            if handle != "the default pool":
                raise ValueError("pool_handle must be a cudaMemPool_t or CUmemoryPool")

    def __init__(self, error: int = 0) -> None:
        self.resources: dict[int, Any] = {0: RMM.CudaMemoryResource()}
        self.get_per_device_resource = self.resources.__getitem__
        self.set_per_device_resource = self.resources.__setitem__
        self.cudaDeviceGetDefaultMemPool = lambda number: (error, "the default pool")


class AsyncPool:
    """``cupy.cuda.MemoryAsyncPool``."""

    def __init__(self, pool_handles: str = "current") -> None:
        assert pool_handles == "default"
        self.unused = 3 * MIB

    def malloc(self, size: int) -> None: ...

    def free_bytes(self) -> int:
        return self.unused

    def free_all_blocks(self) -> None:
        self.unused = 0


def install_rmm(cupy: Any, monkeypatch: pytest.MonkeyPatch, rmm: RMM) -> list[Any]:
    """Put the double of RMM beside that of CuPy; return the allocators that are set."""
    allocators: list[Any] = []
    monkeypatch.setattr(device_memory, "_shared", {})
    cupy.cuda.MemoryAsyncPool, cupy.cuda.set_allocator = AsyncPool, allocators.append
    for name in ("rmm", "cuda", "cuda.bindings"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    for name in ("rmm.mr", "cuda.bindings.runtime"):
        monkeypatch.setitem(sys.modules, name, rmm)
    return allocators


def test_cupy_and_rmm_share_the_pool_of_cuda(cupy_double: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    free = CUDA.free_memory()
    rmm = RMM()
    allocators = install_rmm(cupy_double, monkeypatch, rmm)
    for _ in range(2):
        find_device("cuda")
    assert isinstance(rmm.resources[0], RMM.CudaAsyncViewMemoryResource)
    assert len(allocators) == 1
    assert CUDA.free_memory() == free + 3 * MIB  # what the pool holds without using it is free
    assert CUDA.half_of_memory() == CUDA.free_memory() / 2
    device_memory.free_cached()
    assert CUDA.free_memory() == free


def test_a_chosen_memory_resource_is_kept(cupy_double: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rmm = RMM()
    rmm.resources[0] = chosen = object()
    assert install_rmm(cupy_double, monkeypatch, rmm) == []
    find_device("cuda")
    assert rmm.resources[0] is chosen


def test_a_pool_that_cannot_be_shared_is_reported(
    cupy_double: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    allocators = install_rmm(cupy_double, monkeypatch, RMM(error=801))
    find_device("cuda")
    assert allocators == []
    assert "801" in caplog.text


def test_vectors_that_do_not_fit_are_refused_before_they_are_copied(
    cupy_double: Any, passages: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = PassageIndex(passages, device="cuda")
    index.save(tmp_path / "index")
    room = 2**28 + 4 * 16 * 200  # 200 of 300 vectors
    monkeypatch.setattr(DoubleDevice, "free", room)
    for call in (
        lambda: PassageIndex(passages, device="cuda"),
        lambda: PassageIndex.open(tmp_path / "index", device="cuda"),
        lambda: index.extended(passages[:1], None, passage_ids=["new"], doc_ids=["new"]),
    ):
        with pytest.raises(DeviceError, match=r"30[01] vectors.* GB on cuda:0.* 200 fit.*device='cpu'"):
            call()
    assert PassageIndex(passages[:200], device="cuda").device == CUDA
    assert PassageIndex(sparse.csr_matrix(passages), device="cuda").search_device.is_cpu
    assert PassageIndex.open(tmp_path / "index").device.is_cpu


def test_the_log_says_where_stages_ran_and_what_was_compiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("CUPY_CACHE_DIR", str(tmp_path))
    caplog.set_level(logging.INFO, logger="haybale")
    with timed("index", CUDA):
        for name in ("a.cubin", "b.cubin", "c.tmp"):
            (tmp_path / name).touch()
    with timed("search", CUDA):
        pass
    with timed("fuse", "cpu"):
        (tmp_path / "d.cubin").touch()
    with timed("evaluate"):
        pass
    messages = [record.getMessage() for record in caplog.records]
    assert [" on " in message for message in messages] == [True, False, True, True, False]
    assert "compiled 2 kernels for cuda:0" in messages[1]
    assert str(tmp_path) in messages[1]
    assert messages[2].endswith("on cuda:0")
    assert messages[3].endswith("on cpu")


def test_a_fallback_is_told_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    tell_once.cache_clear()
    monkeypatch.setitem(sys.modules, "cupy", None)
    caplog.set_level(logging.INFO, logger="haybale")
    assert find_device("auto").is_cpu
    assert find_device("auto").is_cpu
    assert len(caplog.records) == 1
    assert "cupy" in caplog.text


def test_a_stage_compiles_few_kernels(cupy_double: Any, passages: Any) -> None:
    """The first run of a stage in a new folder of kernels waits until CuPy has compiled all of them, one by one."""
    queries = np.random.default_rng(1).normal(size=(40, 16)).astype(np.float32)
    on_device = cupy_double.asarray(queries)
    relevant = [{str(number % 100)} for number in range(40)]
    index = PassageIndex(passages, np.arange(0, 301, 3), device="cuda")
    with compiled_kernels() as search:
        hits = index.search(queries, 20)
    with compiled_kernels() as training:
        model = SVREnsemble(4, k=10).fit(index, queries, relevant)
    with compiled_kernels() as scoring:
        model.score_candidates(queries, hits.passages)
    with compiled_kernels() as search_by_model:
        model.search(queries, 5)
    aggregation = {}
    for name in ("rrf", "vrrf", "vmin"):
        engine = ParagraphSearch(index, name, n_hits=20)
        found = engine.search([on_device[start : start + 4] for start in range(0, 40, 4)])
        with compiled_kernels() as aggregation[name]:
            engine.aggregate([str(number) for number in range(10)], found)
    counts = {name: len(kernels) for name, kernels in aggregation.items()}
    counts |= {"search": len(search), "training": len(training - search), "scoring": len(scoring)}
    counts["search by model"] = len(search_by_model - scoring)
    most = {"search": 1, "training": 12, "scoring": 2, "search by model": 9, "rrf": 1, "vrrf": 2, "vmin": 2}
    assert {name: count for name, count in counts.items() if count > most[name]} == {}
