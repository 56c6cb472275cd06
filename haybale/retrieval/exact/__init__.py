"""Exact inner-product search: its backends, one a file, and which of them is used where."""

from __future__ import annotations

from typing import Any

import numpy as np

from haybale.device import Device, find_device
from haybale.errors import InputError, UnknownNameError
from haybale.retrieval.exact.backend import Backend, Proposal
from haybale.retrieval.exact.cupy_tiles import CUPY
from haybale.retrieval.exact.cuvs_brute_force import CUVS
from haybale.retrieval.exact.faiss_cpu import FAISS
from haybale.retrieval.exact.faiss_gpu import FAISS_GPU
from haybale.retrieval.exact.numpy_tiles import NUMPY
from haybale.retrieval.exact.settling import ExactSearch

BACKENDS: dict[str, Backend] = {backend.name: backend for backend in (FAISS, NUMPY, CUVS, FAISS_GPU, CUPY)}

__all__ = ["BACKENDS", "Backend", "ExactSearch", "Proposal", "auto", "backends_on", "fallback", "find_backend"]


def backends_on(device: Device) -> list[str]:
    """Names of the backends that run on such a device, in the order in which ``"auto"`` takes the first usable.

    >>> backends_on(Device("cpu")), backends_on(Device("cuda"))
    (['faiss', 'numpy'], ['cuvs', 'faiss-gpu', 'cupy'])
    """
    return [name for name, backend in BACKENDS.items() if backend.runs_on == device.kind]


def fallback(device: Device) -> Backend:
    """The backend of a device that has no limits: our own tiles."""
    return NUMPY if device.is_cpu else CUPY


def find_backend(name: str, device: Device, dtype: Any = np.float32) -> Backend:
    """The backend of that name for passages of ``dtype`` on ``device``.

    ``"auto"`` is the first of :func:`backends_on` that is usable and multiplies that type as it is: on the CPU faiss,
    which is ahead of the tiles at every k measured, and numpy for float16; on a device cuvs or faiss-gpu, and
    cupy for float16. Errors: :class:`UnknownNameError`; :class:`InputError` for one that runs elsewhere;
    :class:`MissingExtraError` and :class:`DeviceError` for a package that is missing or unfit.

    >>> cpu = Device("cpu")
    >>> find_backend("auto", cpu).name, find_backend("auto", cpu, "float16").name
    ('faiss', 'numpy')
    >>> find_backend("cuvs", cpu)
    Traceback (most recent call last):
    haybale.errors.InputError: index backend 'cuvs' runs on cuda, and the passages are on cpu; there: auto, faiss, numpy
    """
    if name == "auto":
        half = np.dtype(dtype) == np.float16
        for candidate in backends_on(device):
            backend = BACKENDS[candidate]
            if (backend.takes_half or not half) and backend.missing() is None:
                return backend
        return fallback(device)
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


def auto() -> tuple[Device, str, str]:
    """What ``"auto"`` means on this machine: the device, and the backend for float32 and for float16 passages there."""
    device = find_device("auto")
    return device, find_backend("auto", device).name, find_backend("auto", device, np.float16).name
