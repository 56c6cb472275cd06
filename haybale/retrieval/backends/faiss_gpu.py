"""The backend "faiss-gpu": the exhaustive search of faiss in GPU memory."""

from __future__ import annotations

import importlib
from functools import cache
from typing import Any

import numpy as np

from haybale.device import device_of
from haybale.errors import DeviceError
from haybale.extras import import_optional
from haybale.retrieval.backends import Backend, Proposal


class FaissGPU(Backend):
    name = "faiss-gpu"
    runs_on = "cuda"
    priority = 2
    most = 2048
    is_checked = True

    def check(self) -> None:
        faiss = import_optional("faiss", "gpu")
        if not hasattr(faiss, "GpuDistanceParams"):
            raise DeviceError(
                "the installed 'faiss' has no GPU support; replace it: pip install faiss-gpu-cuvs (CUDA 13) or "
                "faiss-gpu-cu12 (CUDA 12)"
            )
        if not faiss.get_num_gpus():
            raise DeviceError("faiss finds no GPU; check the CUDA driver, or use backend='cupy'")

    def error(self, width: int) -> float:
        return 4 * super().error(width)  # float32 products are computed from three TF32 products

    def propose(self, queries: Any, passages: Any, k: int) -> Proposal:
        """Search by ``faiss.bfKnn``, because ``faiss.knn_gpu`` accepts only NumPy and torch arrays."""
        faiss, device = importlib.import_module("faiss"), device_of(passages)
        with device.current() as current:
            numbers = device.xp.empty((len(queries), k), dtype=np.int64)
            scores = device.xp.empty((len(queries), k), dtype=np.float32)
            request = faiss.GpuDistanceParams()
            request.metric = faiss.METRIC_INNER_PRODUCT
            request.k, request.dims, request.device = k, int(passages.shape[1]), device.number
            pointer, kind = faiss.cast_integer_to_float_ptr, faiss.DistanceDataType_F32
            request.vectors, request.vectorType, request.numVectors = pointer(passages.data.ptr), kind, len(passages)
            request.queries, request.queryType, request.numQueries = pointer(queries.data.ptr), kind, len(queries)
            request.vectorsRowMajor = request.queriesRowMajor = True
            request.outDistances = pointer(scores.data.ptr)
            request.outIndices = faiss.cast_integer_to_idx_t_ptr(numbers.data.ptr)
            request.outIndicesType = faiss.IndicesDataType_I64
            current.synchronize()
            faiss.bfKnn(_resources(), request)
            current.synchronize()  # faiss uses its own stream
        return numbers, scores


@cache
def _resources() -> Any:
    return importlib.import_module("faiss").StandardGpuResources()
