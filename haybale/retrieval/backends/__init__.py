"""Backends of exact search: each proposes the k best passages of every query, with a bound on its rounding errors.

A backend is one file here: its class registers itself. The products of two libraries differ in their last bits, so a
proposal is not yet a ranking: :mod:`~haybale.retrieval.exact` asks for more passages than it needs, and orders them.
"""

from __future__ import annotations

import importlib
import pkgutil
from abc import ABC, abstractmethod
from typing import Any, ClassVar

from haybale.device import Device, find_device
from haybale.errors import DeviceError, InputError, MissingExtraError, UnknownNameError

Proposal = tuple[Any, Any]  # (m, k) int64 passage numbers and float32 scores, in any order
BACKENDS: dict[str, Backend] = {}  # by kind of device and priority


class Backend(ABC):
    """A way to search on one kind of device."""

    name: ClassVar[str]
    runs_on: ClassVar[str]  # "cpu" or "cuda"
    priority: ClassVar[int]  # "auto" takes the usable backend with the lowest
    most: ClassVar[float] = float("inf")  # the largest k
    is_checked: ClassVar[bool] = False  # compare its scores with exact ones; use our own backend if they are off

    def __init_subclass__(cls) -> None:
        known = [*BACKENDS.values(), cls()]
        BACKENDS.clear()
        BACKENDS.update({each.name: each for each in sorted(known, key=lambda each: (each.runs_on, each.priority))})

    @abstractmethod
    def check(self) -> None:
        """Raise an error if the backend does not work here."""

    @abstractmethod
    def propose(self, queries: Any, passages: Any, k: int) -> Proposal:
        """Return the k best of ``passages`` (n, d) for each row of ``queries`` (m, d), all float32.

        |proposed score − inner product| ≤ ``error(d)`` · |query| · |longest passage|.
        """

    def error(self, width: int) -> float:
        """Bound the error of a float32 sum of d products in any order: d · 2^-24 plus a margin (Higham 2002, (3.5))."""
        return (1.001 * width + 8) * 2.0**-24

    def missing(self) -> Exception | None:
        """Return the error that keeps the backend from working here, if any."""
        try:
            self.check()
        except (MissingExtraError, DeviceError) as error:
            return error
        return None


def find_backend(name: str, device: Device) -> Backend:
    """Return the backend of that name for passages on ``device``; ``"auto"`` is the first that is usable there.

    Raises :class:`UnknownNameError` for an unknown name, :class:`InputError` for a backend of another kind of device,
    :class:`MissingExtraError` and :class:`DeviceError` for a package that is missing or does not work.

    >>> find_backend("cuvs", Device("cpu"))
    Traceback (most recent call last):
    haybale.errors.InputError: index backend 'cuvs' runs on cuda, and the passages are on cpu; there: auto, numpy, faiss
    """
    there = [backend for backend in BACKENDS.values() if backend.runs_on == device.kind]
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


for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
