"""The backends and their selection, with stand-ins for cuVS and for faiss with GPU support.

The stand-ins are written from the documented interfaces, and reject what the libraries reject. They compute on the
memory of the CuPy double's arrays; that of faiss gets addresses, like the library.
"""

from __future__ import annotations

import ctypes
import pickle
import sys
import types
from typing import Any

import numpy as np
import pytest
from support.index_oracle import oracle

from haybale.device import CPU, Device
from haybale.errors import DeviceError, InputError, MissingExtraError
from haybale.retrieval import PassageIndex
from haybale.retrieval.backends import BACKENDS, auto, find_backend
from haybale.retrieval.backends import faiss_gpu as faiss_gpu_backend

CUDA = Device("cuda", 0)


def at(address: int, dtype: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Return an array of the memory at an address."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return np.frombuffer((ctypes.c_char * size).from_address(address), dtype=dtype).reshape(shape)


def best(queries: np.ndarray, vectors: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the scores and numbers of the k best vectors."""
    scores = queries @ vectors.T
    numbers = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(scores, numbers, axis=1), numbers


def cuvs() -> dict[str, types.ModuleType]:
    """Return the modules of the stand-in for cuVS, by name."""
    package, neighbors = types.ModuleType("cuvs"), types.ModuleType("cuvs.neighbors")
    package.__version__ = "26.10.00"
    package.__path__ = neighbors.__path__ = []
    brute_force = types.ModuleType("cuvs.neighbors.brute_force")

    def checked(array: Any, dtype: str = "float32") -> np.ndarray:
        assert type(array).__module__ == "cupy"
        assert array.dtype.name == dtype
        assert array.flags.c_contiguous
        return array._array

    def build(dataset: Any, metric: str = "sqeuclidean") -> Any:
        assert metric == "inner_product"
        return types.SimpleNamespace(dataset=checked(dataset))

    def search(index: Any, queries: Any, k: int, neighbors: Any, distances: Any) -> None:
        checked(distances)[:], checked(neighbors, "int64")[:] = best(checked(queries), index.dataset, k)

    brute_force.build, brute_force.search = build, search
    return {module.__name__: module for module in (package, neighbors, brute_force)}


def faiss_gpu() -> types.ModuleType:
    """Return a stand-in for faiss with the part of its GPU interface that haybale uses."""
    faiss = types.ModuleType("faiss")
    faiss.METRIC_INNER_PRODUCT, faiss.DistanceDataType_F32, faiss.IndicesDataType_I64 = 0, 1, 1
    faiss.get_num_gpus = lambda: 1
    faiss.StandardGpuResources = type("StandardGpuResources", (), {})
    faiss.requested = []

    class GpuDistanceParams:
        metric, k, dims, device, use_cuvs = 1, 0, 0, -1, False
        vectors = queries = outDistances = outIndices = None
        vectorType = queryType = outIndicesType = 1
        vectorsRowMajor = queriesRowMajor = True
        numVectors = numQueries = 0

    for kind in ("float", "idx_t"):
        setattr(faiss, f"cast_integer_to_{kind}_ptr", lambda address, kind=kind: (kind, address))

    def bf_knn(resources: Any, args: GpuDistanceParams) -> None:
        assert isinstance(resources, faiss.StandardGpuResources)
        assert (args.vectorType, args.queryType, args.metric) == (1, 1, faiss.METRIC_INNER_PRODUCT)
        assert 0 < args.k <= 2048
        faiss.requested.append(args.k)
        assert [pointer[0] for pointer in (args.vectors, args.queries, args.outDistances)] == ["float"] * 3
        assert args.outIndices[0] == "idx_t"
        vectors = at(args.vectors[1], np.float32, (args.numVectors, args.dims))
        scores, numbers = best(at(args.queries[1], np.float32, (args.numQueries, args.dims)), vectors, args.k)
        at(args.outDistances[1], np.float32, scores.shape)[:] = scores
        at(args.outIndices[1], np.int64, scores.shape)[:] = numbers

    faiss.GpuDistanceParams, faiss.bfKnn = GpuDistanceParams, bf_knn
    return faiss


@pytest.fixture
def with_cuvs(cupy_double: Any, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    modules = cuvs()
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    return modules


@pytest.fixture
def with_faiss(cupy_double: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    stand_in = faiss_gpu()
    monkeypatch.setitem(sys.modules, "faiss", stand_in)
    faiss_gpu_backend._resources.cache_clear()
    yield stand_in
    faiss_gpu_backend._resources.cache_clear()


@pytest.fixture
def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    passages = rng.normal(size=(40, 7)).astype(np.float32)[rng.integers(40, size=120)]
    return passages, rng.normal(size=(3, 7)).astype(np.float32)


def check(index: PassageIndex, data: tuple[np.ndarray, np.ndarray], k: int) -> None:
    found, expected = index.search(data[1], k), oracle(data[1], data[0], k)
    np.testing.assert_array_equal(found.passages, expected[0])
    np.testing.assert_array_max_ulp(found.scores, expected[1], 1)


@pytest.mark.parametrize("name", ["cuvs", "faiss-gpu"])
def test_all_libraries_give_the_same_hits(name: str, data: Any, with_cuvs: Any, with_faiss: Any) -> None:
    index = PassageIndex(data[0], device="cuda", backend=name)
    for k in (1, 10, 120):
        check(index, data, k)
    assert bool(with_faiss.requested) == (name == "faiss-gpu")
    assert index.backend_used == name


def test_installed_cuda_backends(cupy: Any, data: Any) -> None:
    for name, backend in BACKENDS.items():
        if backend.runs_on == "cuda" and backend.missing() is None:
            check(PassageIndex(cupy.asarray(data[0]), backend=name), data, 10)


def test_auto_selects_the_first_available_backend(
    with_cuvs: Any, with_faiss: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert auto() == (CUDA, "tensor-cores")
    assert find_backend("auto", CPU).name == "numpy"
    missing = MissingExtraError("cupy", "gpu")
    monkeypatch.setattr(type(BACKENDS["tensor-cores"]), "missing", lambda self: missing)
    assert auto() == (CUDA, "cuvs")
    with_cuvs["cuvs"].__version__ = "25.08.00"
    assert find_backend("auto", CUDA).name == "faiss-gpu"
    with_faiss.get_num_gpus = lambda: 0
    assert find_backend("auto", CUDA).name == "cupy"


def test_unavailable_backends_are_rejected(with_cuvs: Any, with_faiss: Any, monkeypatch: Any) -> None:
    def rejects(error: type[Exception], named: str, **settings: str) -> None:
        with pytest.raises(error, match=named):
            PassageIndex(np.eye(3), **settings)

    rejects(InputError, "'numpy'.* cpu.* cuda:0.* auto, tensor-cores, cuvs, faiss", device="cuda", backend="numpy")
    with_cuvs["cuvs"].__version__ = "25.08.00"
    rejects(DeviceError, r"26\.x.* 25\.08\.00", device="cuda", backend="cuvs")
    with_faiss.get_num_gpus = lambda: 0
    rejects(DeviceError, "GPU.*backend='cupy'", device="cuda", backend="faiss-gpu")
    del with_faiss.GpuDistanceParams
    rejects(DeviceError, "pip install faiss-gpu", device="cuda", backend="faiss-gpu")
    with_cuvs["cuvs"].__version__ = "26.10.00"
    monkeypatch.setitem(sys.modules, "cuvs.neighbors.brute_force", None)
    rejects(DeviceError, "cuVS.*cuvs.neighbors.brute_force", device="cuda", backend="cuvs")
    monkeypatch.setitem(sys.modules, "cuvs", None)
    rejects(MissingExtraError, r'cuvs.*pip install "haybale\[gpu\]"', device="cuda", backend="cuvs")
    monkeypatch.setitem(sys.modules, "cupy", None)
    rejects(MissingExtraError, "cupy", device="cuda")


def test_tiles_propose_for_k_above_2048(with_faiss: Any) -> None:
    rng = np.random.default_rng(1)
    data = rng.normal(size=(2100, 3)).astype(np.float32), rng.normal(size=(1, 3)).astype(np.float32)
    index = PassageIndex(data[0], device="cuda", backend="faiss-gpu")
    check(index, data, 2090)
    assert with_faiss.requested == []
    check(index, data, 5)
    assert 0 < max(with_faiss.requested) <= 2048


def test_inexact_backend_is_replaced(with_cuvs: Any, data: Any) -> None:
    """The stand-in rounds the inputs of products to 11 bits, as TF32 does."""
    search = with_cuvs["cuvs.neighbors.brute_force"].search

    def coarse(index: Any, queries: Any, k: int, **outputs: Any) -> Any:
        rounded = (queries._array.view(np.int32) & ~0x1FFF).view(np.float32)
        return search(index, type(queries)(rounded), k, **outputs)

    with_cuvs["cuvs.neighbors.brute_force"].search = coarse
    index = PassageIndex(data[0], device="cuda", backend="cuvs")
    with pytest.warns(RuntimeWarning, match=r"'cuvs'.*'cupy'"):
        check(index, data, 10)
    assert index.backend_used == "cupy"


def test_index_can_be_pickled(data: Any) -> None:
    check(pickle.loads(pickle.dumps(PassageIndex(data[0]))), data, 5)
