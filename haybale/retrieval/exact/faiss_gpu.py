"""Search by faiss on a CUDA device, on the arrays where they lie: ``faiss.bfKnn`` with ``GpuDistanceParams``.

Its selection holds k ≤ 2048. It takes queries of the passages' type: over float16 passages they are scaled and rounded,
and only propose. (``faiss.knn_gpu`` is the same for arrays of NumPy or torch.)
"""

from __future__ import annotations

import importlib
from functools import cache
from typing import Any

import numpy as np

from haybale.device import device_of
from haybale.errors import DeviceError
from haybale.retrieval.exact.backend import Backend, Proposal
from haybale.retrieval.exact.cuvs_brute_force import half_or_float_error
from haybale.retrieval.exact.half import scaled, unscaled

MOST = 2048


def propose_faiss_gpu(queries: Any, passages: Any, k: int, memory: float | None = None) -> Proposal:
    """faiss's tiles and selection; it sizes its memory itself."""
    faiss = importlib.import_module("faiss")
    exponents, device = None, device_of(passages)
    if passages.dtype == np.float16:
        queries, exponents = scaled(queries)
        queries = queries.astype(np.float16)
    with device.current() as current:
        xp = device.xp
        numbers = xp.empty((len(queries), k), dtype=np.int64)
        scores = xp.empty((len(queries), k), dtype=np.float32)
        request = faiss.GpuDistanceParams()
        request.metric = faiss.METRIC_INNER_PRODUCT
        request.k, request.dims, request.device = k, int(passages.shape[1]), device.number
        kind = faiss.DistanceDataType_F32 if exponents is None else faiss.DistanceDataType_F16
        request.vectors, request.vectorType, request.numVectors = _pointer(faiss, passages), kind, len(passages)
        request.queries, request.queryType, request.numQueries = _pointer(faiss, queries), kind, len(queries)
        request.vectorsRowMajor = request.queriesRowMajor = True
        request.outDistances = faiss.cast_integer_to_float_ptr(scores.data.ptr)
        request.outIndices = faiss.cast_integer_to_idx_t_ptr(numbers.data.ptr)
        request.outIndicesType = faiss.IndicesDataType_I64
        current.synchronize()
        faiss.bfKnn(_resources(), request)
        current.synchronize()  # its work is ordered on its stream, not on CuPy's
    return numbers, scores if exponents is None else unscaled(scores, exponents)


def missing_faiss_gpu() -> Exception | None:
    """Why faiss cannot be used on a device, as the error to raise; None if it can."""
    try:
        faiss = importlib.import_module("faiss")
    except ImportError as error:
        return DeviceError(f"faiss does not load: {error}")
    if not hasattr(faiss, "GpuDistanceParams"):
        return DeviceError(
            "this faiss has no GPU support; in place of faiss-cpu: pip install faiss-gpu-cu12 (CUDA 12) or "
            "faiss-gpu-cuvs (CUDA 13)"
        )
    if not faiss.get_num_gpus():
        return DeviceError("faiss has GPU support, and finds no GPU")
    return None


@cache
def _resources() -> Any:
    return importlib.import_module("faiss").StandardGpuResources()


def _pointer(faiss: Any, array: Any) -> Any:
    # float16 has no type of its own in faiss.
    cast = faiss.cast_integer_to_void_ptr if array.dtype == np.float16 else faiss.cast_integer_to_float_ptr
    return cast(array.data.ptr)


FAISS_GPU = Backend(
    "faiss-gpu",
    "cuda",
    propose_faiss_gpu,
    half_or_float_error,
    missing_faiss_gpu,
    most=MOST,
    takes_half=False,
    is_checked=True,
)
