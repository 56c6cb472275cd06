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
    dtype = np.dtype(dtype)
    size = int(np.prod(shape)) * dtype.itemsize
    return np.frombuffer((ctypes.c_char * size).from_address(address), dtype=dtype).reshape(shape)


def top(scores: np.ndarray, k: int) -> np.ndarray:
    return np.argsort(-scores, axis=1, kind="stable")[:, :k]


# cuVS -------------------------------------------------------------------------------------------------


def cuvs(version: str = "26.10.00") -> dict[str, types.ModuleType]:
    """Modules by name."""
    package, neighbors = types.ModuleType("cuvs"), types.ModuleType("cuvs.neighbors")
    package.__version__ = version
    package.__path__ = neighbors.__path__ = []
    brute_force = types.ModuleType("cuvs.neighbors.brute_force")

    def checked(array: Any, *dtypes: str) -> np.ndarray:
        assert type(array).__module__ == "cupy"
        assert array.dtype.name in dtypes
        assert array.flags.c_contiguous
        return array._array

    def build(dataset: Any, metric: str = "sqeuclidean", metric_arg: float = 2.0, resources: Any = None) -> Any:
        assert metric == "inner_product"
        return types.SimpleNamespace(dataset=checked(dataset, "float32", "float16"))

    def search(
        index: Any, queries: Any, k: int, neighbors: Any = None, distances: Any = None, resources: Any = None,
        prefilter: Any = None,
    ) -> tuple[Any, Any]:  # fmt: skip
        given = checked(queries, index.dataset.dtype.name)
        scores = given.astype(np.float32) @ index.dataset.astype(np.float32).T
        best = top(scores, k)
        checked(neighbors, "int64")[:] = best
        checked(distances, "float32")[:] = np.take_along_axis(scores, best, axis=1)
        return distances, neighbors

    brute_force.build, brute_force.search = build, search
    return {module.__name__: module for module in (package, neighbors, brute_force)}


# faiss ------------------------------------------------------------------------------------------------


def faiss_gpu(gpus: int = 1) -> types.ModuleType:
    """``faiss`` with the part of its GPU interface that is used."""
    faiss = types.ModuleType("faiss")
    faiss.METRIC_INNER_PRODUCT, faiss.DistanceDataType_F32, faiss.DistanceDataType_F16 = 0, 1, 2
    faiss.IndicesDataType_I64 = 1
    faiss.get_num_gpus = lambda: gpus
    faiss.StandardGpuResources = type("StandardGpuResources", (), {})
    faiss.asked = []

    class GpuDistanceParams:
        metric, k, dims, device, use_cuvs = 1, 0, 0, -1, False
        vectors = queries = outDistances = outIndices = None
        vectorType = queryType = outIndicesType = 1
        vectorsRowMajor = queriesRowMajor = True
        numVectors = numQueries = 0

    for kind in ("float", "void", "idx_t"):
        setattr(faiss, f"cast_integer_to_{kind}_ptr", lambda address, kind=kind: (kind, address))

    def pointed(pointer: tuple[str, int], kind: int, shape: tuple[int, int]) -> np.ndarray:
        expected, dtype = {1: ("float", np.float32), 2: ("void", np.float16)}[kind]
        assert pointer[0] == expected
        return at(pointer[1], dtype, shape).astype(np.float32)

    def bf_knn(resources: Any, args: GpuDistanceParams) -> None:
        assert isinstance(resources, faiss.StandardGpuResources)
        assert args.vectorType == args.queryType
        assert args.metric == faiss.METRIC_INNER_PRODUCT
        assert 0 < args.k <= 2048
        faiss.asked.append(args.k)
        vectors = pointed(args.vectors, args.vectorType, (args.numVectors, args.dims))
        queries = pointed(args.queries, args.queryType, (args.numQueries, args.dims))
        scores = queries @ vectors.T
        best = top(scores, args.k)
        assert (args.outDistances[0], args.outIndices[0]) == ("float", "idx_t")
        at(args.outDistances[1], np.float32, best.shape)[:] = np.take_along_axis(scores, best, axis=1)
        at(args.outIndices[1], np.int64, best.shape)[:] = best

    faiss.GpuDistanceParams, faiss.bfKnn = GpuDistanceParams, bf_knn
    return faiss
