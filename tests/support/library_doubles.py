"""Stand-ins for cuVS and a faiss with GPU support, written from their documented interfaces.

They refuse what the libraries refuse, and compute on the memory of the double's arrays: faiss by address, as it does.
"""

from __future__ import annotations

import ctypes
import types
from typing import Any

import numpy as np


def at(address: int, dtype: Any, shape: tuple[int, ...]) -> np.ndarray:
    """The memory at an address."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    return np.frombuffer((ctypes.c_char * size).from_address(address), dtype=dtype).reshape(shape)


def best(queries: np.ndarray, vectors: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Scores and numbers."""
    scores = queries @ vectors.T
    numbers = np.argsort(-scores, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(scores, numbers, axis=1), numbers


def cuvs() -> dict[str, types.ModuleType]:
    """Modules by name."""
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
    """``faiss`` with the part of its GPU interface that is used."""
    faiss = types.ModuleType("faiss")
    faiss.METRIC_INNER_PRODUCT, faiss.DistanceDataType_F32, faiss.IndicesDataType_I64 = 0, 1, 1
    faiss.get_num_gpus = lambda: 1
    faiss.StandardGpuResources = type("StandardGpuResources", (), {})
    faiss.asked = []

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
        faiss.asked.append(args.k)
        assert [pointer[0] for pointer in (args.vectors, args.queries, args.outDistances)] == ["float"] * 3
        assert args.outIndices[0] == "idx_t"
        vectors = at(args.vectors[1], np.float32, (args.numVectors, args.dims))
        scores, numbers = best(at(args.queries[1], np.float32, (args.numQueries, args.dims)), vectors, args.k)
        at(args.outDistances[1], np.float32, scores.shape)[:] = scores
        at(args.outIndices[1], np.int64, scores.shape)[:] = numbers

    faiss.GpuDistanceParams, faiss.bfKnn = GpuDistanceParams, bf_knn
    return faiss
