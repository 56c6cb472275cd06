"""Backends of exact search: who proposes a row's k best by products, and how far these may be off.

The products of two libraries differ in their last bits, so a proposal is not yet a ranking: :mod:`.exact` asks for a
few more than it needs and orders them itself.
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
    """A float32 sum of d products in any order, with room for blocked sums: d · 2^-24 (Higham 2002, eq. 3.5)."""
    return (1.001 * width + 8) * 2.0**-24


def _three_tf32(width: int) -> float:
    return 4 * _sums(width)  # float32 products made of three TF32 ones


def _cupy_sums(width: int) -> float:
    # Where the user lets CuPy multiply in TF32, inputs are rounded to 11 bits.
    return _sums(width) + (2.0**-9 if os.environ.get("CUPY_TF32", "0") not in ("", "0") else 0.0)


@dataclass(frozen=True)
class Backend:
    """One way to search, of a name, on one kind of device.

    ``propose(queries, passages, k, memory)`` gives the k best of each row of ``queries`` (m, d), all float32, where
    ``memory`` is bytes for what it computes at once (None: as it likes). |proposed score − inner product| ≤
    ``error(d)`` · |query| · |longest passage|.
    """

    name: str
    runs_on: str  # "cpu" or "cuda"
    propose: Callable[[Any, Any, int, float | None], Proposal]
    check: Callable[[], Any]  # raises what keeps it from working here
    error: Callable[[int], float] = _sums
    most: float = float("inf")  # its limit on k
    is_checked: bool = False  # its scores are compared with exact ones, and it is left if they are off by more

    def missing(self) -> Exception | None:
        """What keeps it from working here, if anything does."""
        try:
            self.check()
        except (MissingExtraError, DeviceError) as error:
            return error
        return None


def propose_by_tiles(queries: Any, passages: Any, k: int, memory: float | None = None) -> Proposal:
    """The k best of each row by float32 products, with NumPy or CuPy; any k, and memory that does not grow with n."""
    xp, m = array_namespace(passages), len(queries)
    if memory is None:
        device = device_of(passages)
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
    """The columns with the k largest scores of each row, in any order."""
    xp, n = array_namespace(scores), int(scores.shape[1])
    if n <= k:
        return numbers, scores
    columns = xp.argpartition(scores, n - k, axis=1)[:, n - k :]
    return xp.take_along_axis(numbers, columns, axis=1), xp.take_along_axis(scores, columns, axis=1)


def _propose_faiss(queries: Any, passages: Any, k: int, memory: float | None = None) -> Proposal:
    """faiss's blocked exhaustive search on the array as it lies, without a copy into an index."""
    faiss = _faiss()
    scores, numbers = faiss.knn(queries, passages, k, metric=faiss.METRIC_INNER_PRODUCT)
    return numbers, scores


@cache
def _faiss() -> Any:
    """faiss, which in a forked child works with one thread: OpenMP's others do not live on there, and it would wait."""
    faiss = import_optional("faiss")
    os.register_at_fork(after_in_child=partial(faiss.omp_set_num_threads, 1))
    return faiss


def _propose_faiss_gpu(queries: Any, passages: Any, k: int, memory: float | None = None) -> Proposal:
    """``faiss.bfKnn`` on the arrays where they lie (``faiss.knn_gpu`` is the same for arrays of NumPy or torch)."""
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
        current.synchronize()  # its work is ordered on its stream, not on CuPy's
    return numbers, scores


@cache
def _faiss_resources() -> Any:
    return importlib.import_module("faiss").StandardGpuResources()


def _propose_cuvs(queries: Any, passages: Any, k: int, memory: float | None = None) -> Proposal:
    """cuVS's own tiles and selection (cuVS 26.x), which sizes its memory itself; its index points at the passages."""
    brute_force, device = import_optional("cuvs.neighbors.brute_force", "gpu"), device_of(passages)
    with device.current() as current:
        numbers, scores = _outputs(device, len(queries), k)
        current.synchronize()  # cuVS computes on a stream of its own, which must find the queries made
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
    except (ImportError, OSError) as error:  # a library of CUDA that it cannot load
        raise DeviceError(f"cuVS is installed but does not load: {error}") from error


def _check_faiss_gpu() -> None:
    faiss = import_optional("faiss")
    if not hasattr(faiss, "GpuDistanceParams"):
        raise DeviceError(
            "this faiss has no GPU support; in place of faiss-cpu: pip install faiss-gpu-cu12 (CUDA 12) or "
            "faiss-gpu-cuvs (CUDA 13)"
        )
    if not faiss.get_num_gpus():
        raise DeviceError("faiss has GPU support, and finds no GPU")


_ALL = (  # on each kind of device the ones that need a package first, then our own tiles, which have no limits
    Backend("faiss", "cpu", _propose_faiss, partial(import_optional, "faiss")),
    Backend("numpy", "cpu", propose_by_tiles, partial(import_optional, "numpy")),
    Backend("cuvs", "cuda", _propose_cuvs, _check_cuvs, _three_tf32, is_checked=True),
    Backend("faiss-gpu", "cuda", _propose_faiss_gpu, _check_faiss_gpu, _three_tf32, most=2048, is_checked=True),
    Backend("cupy", "cuda", propose_by_tiles, partial(import_optional, "cupy", "gpu"), _cupy_sums),
)
BACKENDS = {backend.name: backend for backend in _ALL}


def find_backend(name: str, device: Device) -> Backend:
    """The backend of that name for passages on ``device``; ``"auto"`` is the first that is usable there.

    Errors: :class:`UnknownNameError`; :class:`InputError` for one that runs elsewhere; :class:`MissingExtraError` and
    :class:`DeviceError` for a package that is missing or unfit.

    >>> find_backend("cuvs", Device("cpu"))
    Traceback (most recent call last):
    haybale.errors.InputError: index backend 'cuvs' runs on cuda, and the passages are on cpu; there: auto, faiss, numpy
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
    """The backend of a device that has no limits: our own tiles."""
    return BACKENDS["numpy" if device.is_cpu else "cupy"]


def auto() -> tuple[Device, str]:
    """What ``"auto"`` means on this machine: the device, and the backend there."""
    device = find_device("auto")
    return device, find_backend("auto", device).name
