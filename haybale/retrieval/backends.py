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
from haybale.extras import require
from haybale.machine import fitting, in_tiles
from haybale.vectors import array_namespace

Proposal = tuple[Any, Any]  # (m, k) int64 passage numbers and float32 scores, in any order

_TILE = 2**25  # scores held at once on the CPU: 128 MiB
_DEVICE_TILE = 2**28  # and, if its memory holds them, on a device
_CONVERTED = 2**24  # float16 values converted at once: 64 MiB of float32


def _sums(width: int) -> float:
    """A float32 sum of d products in any order, with room for blocked sums: d · 2^-24 (Higham 2002, eq. 3.5)."""
    return (1.001 * width + 8) * 2.0**-24


@dataclass(frozen=True)
class Backend:
    """One way to search, of a name, on one kind of device.

    ``propose(queries, prepared, k, memory)`` gives the k best of each row of ``queries`` (m, d) float32, where
    ``prepared`` is what ``prepare`` made of the passages, and ``memory`` bytes for what it computes at once (None: as
    it likes). |proposed score − inner product| ≤ ``error(d)`` · |query| · |longest passage|.
    """

    name: str
    runs_on: str  # "cpu" or "cuda"
    propose: Callable[[Any, Any, int, float | None], Proposal]
    error: Callable[[int], float] = _sums
    missing: Callable[[], Exception | None] = lambda: None  # what keeps it from working here: the error to raise
    prepare: Callable[[Any], Any] = lambda passages: passages
    most: float = float("inf")  # its limit on k
    takes_half: bool = False  # passages of float16; queries always are float32. Tiles take those of others
    is_checked: bool = False  # its scores are compared with exact ones, and it is left if they are off by more

    def __reduce__(self) -> tuple[Any, ...]:
        return _named, (self.name,)


# matrix products, tile by tile ------------------------------------------------------------------------------


def propose_by_tiles(queries: Any, passages: Any, k: int, memory: float | None = None) -> Proposal:
    """The k best of each row by float32 products, with NumPy or CuPy; any k, and memory that does not grow with n.

    Passages of float16 are made float32 a tile at a time; a tile that memory does not hold is halved.
    """
    xp, m, n = array_namespace(passages), len(queries), len(passages)
    if memory is None:
        device = device_of(passages)
        memory = 4 * _TILE if device.is_cpu else min(24 * _DEVICE_TILE, device.half_of_memory())
    columns = fitting(memory, (4 if xp is np else 24) * max(1, m))  # CuPy sorts where NumPy partitions
    if passages.dtype != np.float32:
        columns = min(columns, _CONVERTED // max(1, passages.shape[1]))

    def best_of_tile(tile: slice) -> Proposal:
        scores = queries @ passages[tile].astype(np.float32, copy=False).T
        return _largest(xp.broadcast_to(xp.arange(tile.start, tile.stop), scores.shape), scores, k)

    best: Proposal | None = None
    for numbers, scores in in_tiles(n, max(k, columns), best_of_tile, what="passages"):
        if best is not None:
            numbers = xp.concatenate((best[0], numbers), axis=1)
            scores = xp.concatenate((best[1], scores), axis=1)
        best = _largest(numbers, scores, k)
    assert best is not None
    return best


def _largest(numbers: Any, scores: Any, k: int) -> Proposal:
    """The columns with the k largest scores of each row, in any order."""
    xp, n = array_namespace(scores), int(scores.shape[1])
    if n <= k:
        return numbers, scores
    columns = xp.argpartition(scores, n - k, axis=1)[:, n - k :]
    return xp.take_along_axis(numbers, columns, axis=1), xp.take_along_axis(scores, columns, axis=1)


def _checked_error(width: int) -> float:
    return 4 * _sums(width)  # for float32 products made of three TF32 ones


def _cupy_error(width: int) -> float:
    # Where the user lets CuPy multiply in TF32, inputs are rounded to 11 bits.
    coarse = os.environ.get("CUPY_TF32", "0") not in ("", "0")
    return _sums(width) + (2.0**-9 if coarse else 0.0)


# packages ---------------------------------------------------------------------------------------------------


def _propose_faiss(queries: Any, passages: Any, k: int, memory: float | None = None) -> Proposal:
    """faiss's blocked exhaustive search on the array as it lies, without a copy into an index."""
    faiss = _faiss()
    scores, numbers = faiss.knn(queries, passages, k, metric=faiss.METRIC_INNER_PRODUCT)
    return numbers, scores


@cache
def _faiss() -> Any:
    """faiss, which in a forked child works with one thread: OpenMP's others do not live on there, and it would wait."""
    faiss = require("faiss")
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


def _prepare_cuvs(passages: Any) -> Any:
    """A brute-force index over device passages (n, d), which stay in the same memory."""
    with device_of(passages).current():
        index = require("cuvs.neighbors.brute_force", "gpu").build(passages, metric="inner_product")
    return index, passages  # the index only points at the passages


def _propose_cuvs(queries: Any, prepared: Any, k: int, memory: float | None = None) -> Proposal:
    """cuVS's own tiles and selection (cuVS 26.x); it sizes its memory itself."""
    index, passages = prepared
    device = device_of(passages)
    with device.current() as current:
        numbers, scores = _outputs(device, len(queries), k)
        current.synchronize()  # cuVS computes on a stream of its own, which must find the queries made
        require("cuvs.neighbors.brute_force", "gpu").search(index, queries, k, neighbors=numbers, distances=scores)
        current.synchronize()
    return numbers, scores


def _outputs(device: Device, m: int, k: int) -> Proposal:
    return device.xp.empty((m, k), dtype=np.int64), device.xp.empty((m, k), dtype=np.float32)


def _missing(module: str, extra: str | None = None) -> Exception | None:
    try:
        require(module, extra)
    except MissingExtraError as error:
        return error
    return None


def _missing_cuvs() -> Exception | None:
    error = _missing("cuvs", "gpu")
    if error is not None:
        return error
    found = str(getattr(require("cuvs", "gpu"), "__version__", "unknown"))
    if found.partition(".")[0] != "26":
        return DeviceError(f"cuVS 26.x expected, found {found}")
    try:
        importlib.import_module("cuvs.neighbors.brute_force")
    except (ImportError, OSError) as error:  # a library of CUDA that it cannot load
        return DeviceError(f"cuVS is installed but does not load: {error}")
    return None


def _missing_faiss_gpu() -> Exception | None:
    error = _missing("faiss")
    if error is not None:
        return error
    faiss = importlib.import_module("faiss")
    if not hasattr(faiss, "GpuDistanceParams"):
        return DeviceError(
            "this faiss has no GPU support; in place of faiss-cpu: pip install faiss-gpu-cu12 (CUDA 12) or "
            "faiss-gpu-cuvs (CUDA 13)"
        )
    return None if faiss.get_num_gpus() else DeviceError("faiss has GPU support, and finds no GPU")


NUMPY = Backend("numpy", "cpu", propose_by_tiles, takes_half=True)
CUPY = Backend("cupy", "cuda", propose_by_tiles, _cupy_error, partial(_missing, "cupy", "gpu"), takes_half=True)
BACKENDS: dict[str, Backend] = {
    backend.name: backend
    for backend in (
        Backend("faiss", "cpu", _propose_faiss, missing=partial(_missing, "faiss")),
        NUMPY,
        Backend("cuvs", "cuda", _propose_cuvs, _checked_error, _missing_cuvs, _prepare_cuvs, is_checked=True),
        Backend(
            "faiss-gpu", "cuda", _propose_faiss_gpu, _checked_error, _missing_faiss_gpu, most=2048, is_checked=True
        ),
        CUPY,
    )
}


def _named(name: str) -> Backend:
    return BACKENDS[name]


def backends_on(device: Device) -> list[str]:
    """Names of the backends that run on such a device, in the order in which ``"auto"`` takes the first usable.

    >>> backends_on(Device("cpu")), backends_on(Device("cuda"))
    (['faiss', 'numpy'], ['cuvs', 'faiss-gpu', 'cupy'])
    """
    return [name for name, backend in BACKENDS.items() if backend.runs_on == device.kind]


def find_backend(name: str, device: Device, dtype: Any = np.float32) -> Backend:
    """The backend of that name for passages of ``dtype`` on ``device``.

    ``"auto"`` is the first of :func:`backends_on` that is usable and takes that type: on the CPU faiss, which is ahead
    of the tiles at every k measured, and numpy for float16; on a device cuvs or faiss-gpu, and cupy for float16.
    Errors: :class:`UnknownNameError`; :class:`InputError` for one that runs elsewhere; :class:`MissingExtraError` and
    :class:`DeviceError` for a package that is missing or unfit.

    >>> cpu = Device("cpu")
    >>> find_backend("auto", cpu).name, find_backend("auto", cpu, "float16").name
    ('faiss', 'numpy')
    >>> find_backend("cuvs", cpu)
    Traceback (most recent call last):
    haybale.errors.InputError: index backend 'cuvs' runs on cuda, and the passages are on cpu; there: auto, faiss, numpy
    """
    half = np.dtype(dtype) == np.float16
    if name == "auto":
        usable = (BACKENDS[each] for each in backends_on(device))
        found = (backend for backend in usable if (backend.takes_half or not half) and backend.missing() is None)
        return next(found, tiles_on(device))
    if name not in BACKENDS:
        raise UnknownNameError("index backend", name, ["auto", *BACKENDS])
    backend = BACKENDS[name]
    if backend.runs_on != device.kind:
        there = ", ".join(["auto", *backends_on(device)])
        raise InputError(
            f"index backend {name!r} runs on {backend.runs_on}, and the passages are on {device}; there: {there}"
        )
    error = backend.missing()
    if error is not None:
        raise error
    return backend


def tiles_on(device: Device) -> Backend:
    """The backend of a device that has no limits: our own tiles."""
    return NUMPY if device.is_cpu else CUPY


def auto() -> tuple[Device, str, str]:
    """What ``"auto"`` means on this machine: the device, and the backend for float32 and for float16 passages there."""
    device = find_device("auto")
    return device, find_backend("auto", device).name, find_backend("auto", device, np.float16).name
