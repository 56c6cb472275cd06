"""Backends of exact search: each proposes the k best passages of every query, with a bound on its rounding errors.

The products of two libraries differ in their last bits, so a proposal is not yet a ranking. :mod:`.exact` asks for a
few more passages than it needs, and orders them itself.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np

from haybale.device import Device, device_of, find_device
from haybale.errors import DeviceError, InputError, MissingExtraError, UnknownNameError
from haybale.extras import import_optional
from haybale.parallel import batch_size_for_memory, iter_chunks
from haybale.vectors import array_namespace

Proposal = tuple[Any, Any]  # (m, k) int64 passage numbers and float32 scores, in any order

_TILE = 2**25  # scores held at once on the CPU: 128 MiB
_DEVICE_TILE = 2**28  # and, if its memory holds them, on a device


def _sums(width: int) -> float:
    """Bound the error of a float32 sum of d products in any order: d · 2^-24 and a margin (Higham 2002, eq. 3.5)."""
    return (1.001 * width + 8) * 2.0**-24


def _three_tf32(width: int) -> float:
    return 4 * _sums(width)  # float32 products made of three TF32 ones


def _cupy_sums(width: int) -> float:
    # If the user lets CuPy multiply in TF32, inputs are rounded to 11 bits.
    return _sums(width) + (2.0**-9 if os.environ.get("CUPY_TF32", "0") not in ("", "0") else 0.0)


@dataclass(frozen=True)
class Backend:
    """A way to search on one kind of device.

    ``propose(queries, passages, k)`` returns the k best passages of each row of ``queries`` (m, d), all float32.
    |proposed score − inner product| ≤ ``error(d)`` · |query| · |longest passage|.
    """

    name: str
    runs_on: str  # "cpu" or "cuda"
    propose: Callable[[Any, Any, int], Proposal]
    check: Callable[[], Any]  # raises an error if the backend does not work here
    error: Callable[[int], float] = _sums
    most: float = float("inf")  # the largest k
    is_checked: bool = False  # its scores are compared with exact ones; if they are off by more, it is not used

    def missing(self) -> Exception | None:
        """Return the error that keeps the backend from working here, if any."""
        try:
            self.check()
        except (MissingExtraError, DeviceError) as error:
            return error
        return None


def propose_by_tiles(queries: Any, passages: Any, k: int) -> Proposal:
    """Find the k best of each row by float32 products in NumPy or CuPy, for any k, in memory independent of n."""
    xp, m, device = array_namespace(passages), len(queries), device_of(passages)
    memory = 4 * _TILE if device.is_cpu else min(24 * _DEVICE_TILE, device.half_of_memory())
    columns = batch_size_for_memory(memory, (4 if xp is np else 24) * max(1, m))  # CuPy sorts where NumPy partitions

    def best_of_tile(tile: slice) -> Proposal:
        scores = queries @ passages[tile].T
        return _largest(xp.broadcast_to(xp.arange(tile.start, tile.stop), scores.shape), scores, k)

    best: Proposal | None = None
    for found in iter_chunks(len(passages), max(k, columns), best_of_tile, what="passages"):
        if best is not None:
            found = tuple(xp.concatenate(pair, axis=1) for pair in zip(best, found, strict=True))
        best = _largest(*found, k)
    assert best is not None
    return best


def _largest(numbers: Any, scores: Any, k: int) -> Proposal:
    """Return the columns with the k largest scores of each row, in any order."""
    xp, n = array_namespace(scores), int(scores.shape[1])
    if n <= k:
        return numbers, scores
    columns = xp.argpartition(scores, n - k, axis=1)[:, n - k :]
    return xp.take_along_axis(numbers, columns, axis=1), xp.take_along_axis(scores, columns, axis=1)


def _propose_faiss(queries: Any, passages: Any, k: int) -> Proposal:
    """Search with faiss's exhaustive search, which reads the array without copying it into an index."""
    faiss = _faiss()
    scores, numbers = faiss.knn(queries, passages, k, metric=faiss.METRIC_INNER_PRODUCT)
    return numbers, scores


@cache
def _faiss() -> Any:
    """Import faiss; in a forked child it uses one thread, because OpenMP's other threads do not survive a fork."""
    faiss = import_optional("faiss", "faiss")
    os.register_at_fork(after_in_child=partial(faiss.omp_set_num_threads, 1))
    return faiss


def _propose_faiss_gpu(queries: Any, passages: Any, k: int) -> Proposal:
    """Search with ``faiss.bfKnn`` on arrays in GPU memory (``faiss.knn_gpu`` takes arrays of NumPy or torch only)."""
    faiss, device = importlib.import_module("faiss"), device_of(passages)
    with device.current() as current:
        numbers, scores = _outputs(device, len(queries), k)
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
        faiss.bfKnn(_faiss_resources(), request)
        current.synchronize()  # faiss works on a stream of its own, not on CuPy's
    return numbers, scores


@cache
def _faiss_resources() -> Any:
    return importlib.import_module("faiss").StandardGpuResources()


def _propose_cuvs(queries: Any, passages: Any, k: int) -> Proposal:
    """Search with cuVS 26.x, which sizes its memory itself; its index refers to the passages without a copy."""
    brute_force, device = import_optional("cuvs.neighbors.brute_force", "gpu"), device_of(passages)
    with device.current() as current:
        numbers, scores = _outputs(device, len(queries), k)
        current.synchronize()  # cuVS works on a stream of its own: the queries must be complete
        index = brute_force.build(passages, metric="inner_product")
        brute_force.search(index, queries, k, neighbors=numbers, distances=scores)
        current.synchronize()
    return numbers, scores


def _outputs(device: Device, m: int, k: int) -> Proposal:
    return device.xp.empty((m, k), dtype=np.int64), device.xp.empty((m, k), dtype=np.float32)


def _check_cuvs() -> None:
    found = str(getattr(import_optional("cuvs", "gpu"), "__version__", "unknown"))
    if found.partition(".")[0] != "26":
        raise DeviceError(f"cuVS 26.x expected, found {found}")
    try:
        importlib.import_module("cuvs.neighbors.brute_force")
    except (ImportError, OSError) as error:  # a CUDA library is missing
        raise DeviceError(f"cuVS is installed but does not load: {error}") from error


def _check_faiss_gpu() -> None:
    faiss = import_optional("faiss", "gpu")
    if not hasattr(faiss, "GpuDistanceParams"):
        raise DeviceError(
            "this faiss has no GPU support; in place of faiss-cpu: pip install faiss-gpu-cuvs (CUDA 13) or "
            "faiss-gpu-cu12 (CUDA 12)"
        )
    if not faiss.get_num_gpus():
        raise DeviceError("faiss has GPU support but finds no GPU")


_ALL = (  # "auto" takes the first usable one of the device: NumPy beats faiss on the CPU (benchmarks/bench_search.py)
    Backend("numpy", "cpu", propose_by_tiles, partial(import_optional, "numpy")),
    Backend("faiss", "cpu", _propose_faiss, partial(import_optional, "faiss", "faiss")),
    Backend("cuvs", "cuda", _propose_cuvs, _check_cuvs, _three_tf32, is_checked=True),
    Backend("faiss-gpu", "cuda", _propose_faiss_gpu, _check_faiss_gpu, _three_tf32, most=2048, is_checked=True),
    Backend("cupy", "cuda", propose_by_tiles, partial(import_optional, "cupy", "gpu"), _cupy_sums),
)
BACKENDS = {backend.name: backend for backend in _ALL}


def find_backend(name: str, device: Device) -> Backend:
    """Return the backend of that name for passages on ``device``; ``"auto"`` is the first one usable there.

    Errors: :class:`UnknownNameError`; :class:`InputError` for a backend of another kind of device;
    :class:`MissingExtraError` and :class:`DeviceError` for a missing or unsuitable package.

    >>> find_backend("cuvs", Device("cpu"))
    Traceback (most recent call last):
    haybale.errors.InputError: index backend 'cuvs' runs on cuda, and the passages are on cpu; there: auto, numpy, faiss
    """
    there = [backend for backend in _ALL if backend.runs_on == device.kind]
    if name == "auto":
        return next(backend for backend in there if backend.missing() is None)
    if name not in BACKENDS:
        raise UnknownNameError("index backend", name, ["auto", *BACKENDS])
    backend = BACKENDS[name]
    if backend not in there:
        known = ", ".join(["auto", *(each.name for each in there)])
        raise InputError(
            f"index backend {name!r} runs on {backend.runs_on}, and the passages are on {device}; there: {known}"
        )
    backend.check()
    return backend


def tiles_on(device: Device) -> Backend:
    """Return our own backend of a device, which has no limit on k."""
    return BACKENDS["numpy" if device.is_cpu else "cupy"]


def auto() -> tuple[Device, str]:
    """Return what ``"auto"`` means on this machine: the device and its backend."""
    device = find_device("auto")
    return device, find_backend("auto", device).name
