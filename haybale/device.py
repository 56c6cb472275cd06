"""Find devices and move arrays between them. An array that is already on the device is not copied.

haybale works with arrays of NumPy and CuPy and sparse matrices of SciPy and CuPy. Other objects with
``__cuda_array_interface__`` (CUDA tensors of torch, results of cuML and cuVS, columns of cuDF) are read as CuPy arrays.

Where each stage runs, if an engine, index or model is given a CUDA device:

=====================================  ======  ======================================================================
stage                                  runs    why
=====================================  ======  ======================================================================
search of dense vectors                device  one matrix product; the best passages are scored again, exactly
search of sparse vectors, BM25         CPU     an inverted index reads only the terms of a query; products of CuPy's
                                               sparse matrices took 24 s to compile and .3 s a search
Gram matrices, solving of bags         device  matrix products, and many bags at once
scores of an ensemble                  device  products with all support passages
aggregation of paragraphs (PARM)       device  4 to 9 times as fast as 16 cores for sums of ranks and of vectors, 1.4
                                               times for element-wise minima, before their kernels were rewritten
aggregation with sparse vectors        CPU     sparse vectors are on the CPU
encoders, neural re-rankers            device  torch; each takes a device of its own
pair features, fusion, ranking of      CPU     tables of ids and of few numbers
documents, evaluation
=====================================  ======  ======================================================================

The figures are of one NVIDIA H200 and the 16 cores beside it, measured at commit 4e0241c; ``benchmarks/results/gpu.md``
has those of later code. The log has the device of each stage (:mod:`haybale.timing`), and says once why a stage runs on
the CPU instead.
"""

from __future__ import annotations

import logging
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache
from types import ModuleType
from typing import Any, TypeGuard

import numpy as np
from scipy import sparse

from haybale.device_memory import share_pool, unused_bytes
from haybale.errors import DeviceError, InputError, MissingExtraError, UnknownNameError
from haybale.extras import import_optional
from haybale.parallel import half_of_memory

_LOGGER = logging.getLogger("haybale")


@dataclass(frozen=True)
class Device:
    """The CPU, or one CUDA device."""

    kind: str  # "cpu" or "cuda"
    number: int = 0

    def __str__(self) -> str:
        return self.kind if self.kind == "cpu" else f"{self.kind}:{self.number}"

    @property
    def is_cpu(self) -> bool:
        return self.kind == "cpu"

    @property
    def xp(self) -> ModuleType:
        """The array library of the device: numpy or cupy."""
        return np if self.is_cpu else import_optional("cupy", "gpu")

    @property
    def sparse(self) -> ModuleType:
        """The library of sparse matrices: scipy.sparse or cupyx.scipy.sparse."""
        return sparse if self.is_cpu else import_optional("cupyx.scipy.sparse", "gpu")

    def current(self) -> AbstractContextManager[Any]:
        """Return a context manager that makes this the current CUDA device; on the CPU it does nothing."""
        return nullcontext() if self.is_cpu else self.xp.cuda.Device(self.number)

    def half_of_memory(self) -> float:
        """Return half of the machine's memory, or half of the free memory of the CUDA device, in bytes."""
        if self.is_cpu:
            return half_of_memory()
        return self.free_memory() / 2

    def free_memory(self) -> float:
        """Return the free bytes of the CUDA device; what CuPy holds in its pools without using it counts as free."""
        with self.current() as current:
            return float(current.mem_info[0]) + unused_bytes(self.number)

    def check_fits(self, rows: int, row_bytes: float, what: str) -> None:
        """Raise :class:`DeviceError` if ``rows`` of ``row_bytes`` each do not fit the free memory of the CUDA device.

        Some memory is left for the work with them. ``what`` names the rows. The CPU is not checked.

        >>> CPU.check_fits(10**9, 1e9, "vectors")
        """
        if self.is_cpu:
            return
        free = max(0.0, self.free_memory() - _WORKING_BYTES)
        if rows * row_bytes > free:
            needed, fitting = f"{rows * row_bytes / 1e9:.3g} GB", int(free / row_bytes)
            raise DeviceError(
                f"{rows:,} {what} need {needed} on {self}, found {free / 1e9:.3g} GB free, where {fitting:,} fit; "
                "use device='cpu', or fewer documents"
            )


CPU = Device("cpu")
_WORKING_BYTES = 2**28  # memory of a device that is left for queries, scores and tiles


def find_device(name: str | Device) -> Device:
    """Return the device called ``"cpu"``, ``"cuda"`` (the current one) or ``"cuda:1"``; ``"auto"`` prefers CUDA.

    Raise :class:`UnknownNameError` for another name, :class:`MissingExtraError` if CuPy is not installed, and
    :class:`DeviceError` if the machine lacks the device.

    >>> find_device("gpu")
    Traceback (most recent call last):
    haybale.errors.UnknownNameError: unknown device 'gpu'; known: auto, cpu, cuda, cuda:0, cuda:1, …
    """
    if isinstance(name, Device):
        return name
    if name == "cpu":
        return CPU
    if name == "auto":
        try:
            return find_device("cuda")
        except (MissingExtraError, DeviceError) as error:
            tell_once(f"device 'auto' is the CPU: {error}")
            return CPU
    kind, _, number = str(name).partition(":")
    if kind != "cuda" or (":" in name and not number.isdecimal()):
        raise UnknownNameError("device", name, ["auto", "cpu", "cuda", "cuda:0", "cuda:1", "…"])
    runtime = import_optional("cupy", "gpu").cuda.runtime
    try:
        count = int(runtime.getDeviceCount())
    except RuntimeError as error:  # CuPy's CUDARuntimeError: no driver, or no device
        raise DeviceError(f"device {name!r}: no CUDA driver or device was found ({error}); use 'cpu'") from error
    wanted = int(number) if number else int(runtime.getDevice()) if count else 0
    if wanted >= count:
        names = ", ".join(["cpu", *(f"cuda:{i}" for i in range(count))])
        raise DeviceError(f"device {name!r} does not exist; choose one of {names}")
    device = Device("cuda", wanted)
    with device.current():
        share_pool(wanted)
    return device


@cache
def tell_once(message: str) -> None:
    """Log a message once in a process, such as the reason why work runs on the CPU and not on a device."""
    _LOGGER.info("%s", message)


def is_sparse(array: Any) -> TypeGuard[sparse.csr_matrix]:
    """Return whether an array is a sparse matrix of SciPy or CuPy, or one whose rows are read when they are needed."""
    if sparse.issparse(array) or _library(array) == "cupyx":
        return True
    return getattr(array, "has_sparse_rows", False) is True


def device_of(array: Any) -> Device:
    """Return the device of an array or sparse matrix; lists and other objects count as on the CPU."""
    library = _library(array)
    if library in ("cupy", "cupyx"):
        values = array if library == "cupy" else array.data  # sparse matrices of CuPy do not know their device
        return Device("cuda", int(values.device.id))
    if hasattr(array, "__cuda_array_interface__"):
        return Device("cuda", int(import_optional("cupy", "gpu").asarray(array).device.id))
    return CPU


def to_device(array: Any, device: Device) -> Any:
    """Convert to an array of the device's library, or a CSR matrix if sparse; share memory if already on the device."""
    if device.is_cpu:
        return to_numpy(array)
    with device.current():
        if not is_sparse(array):
            return device.xp.asarray(array if hasattr(array, "__cuda_array_interface__") else np.asarray(array))
        array_device = device_of(array)
        if array_device == device and array.format == "csr":
            return array
        return device.sparse.csr_matrix(array if array_device in (CPU, device) else array.get())


def to_numpy(array: Any) -> Any:
    """Convert to a NumPy array or, if sparse, a SciPy matrix; share memory if it is on the CPU already."""
    if is_sparse(array):
        return array.get() if _library(array) == "cupyx" else array
    on_device = hasattr(array, "__cuda_array_interface__")
    try:
        return import_optional("cupy", "gpu").asnumpy(array) if on_device else np.asarray(array)
    except ValueError:
        kind = type(array).__name__
        raise InputError(f"expected an array whose rows have equal lengths, found a ragged {kind}") from None


def placed(array: Any, device: Device, what: str) -> Any:
    """Move an array from the CPU to the device; raise :class:`DeviceError` for an array on another device."""
    array_device = device_of(array)
    if array_device not in (device, CPU):
        raise DeviceError(
            f"{what} are on {array_device}, expected {device}, where the other arrays are; move them or give NumPy "
            "arrays"
        )
    return to_device(array, device)


def _library(array: Any) -> str:
    return type(array).__module__.partition(".")[0]
