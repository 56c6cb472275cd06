"""Backends of exact search: a backend proposes the best passages of a query, with a bound on its rounding errors.

A backend is a file in this folder, whose class registers itself. The products of two libraries differ in their
last bits, so :mod:`~haybale.retrieval.exact` requests more passages than it needs and scores them again. A backend may
also do all of that itself (:meth:`Backend.search`).
"""

from __future__ import annotations

import importlib
import pkgutil
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from haybale.device import Device, find_device
from haybale.errors import DeviceError, InputError, MissingExtraError, UnknownNameError

if TYPE_CHECKING:
    from haybale.retrieval.id_order import IdOrder

Ints = NDArray[np.int64]
Proposal = tuple[Any, Any]  # (m, k) int64 passage numbers and float32 scores, in any order
BACKENDS: dict[str, Backend] = {}  # sorted by kind of device and priority


@dataclass(frozen=True)
class BackendSearch:
    """What :meth:`Backend.search` searches: the ``k`` nearest ``vectors`` (n, d) of each of the ``queries`` (m, d).

    ``excluded`` (m, 2), a NumPy array, has the first passage that each query excludes, and the one after the last.
    ``longest`` is an upper bound on the lengths of the vectors; ``order`` is the order of equal scores.
    """

    queries: Any
    vectors: Any
    k: int
    excluded: Ints
    longest: float
    order: IdOrder


@dataclass(frozen=True)
class SearchResult:
    """Passage numbers and exact scores, (m, k), as :meth:`PassageIndex.search` returns them, on the device.

    ``unfinished``, a NumPy array, holds the rows that the backend did not search. ``is_within_bound`` is False if the
    backend computed a score with a larger error than its bound, which may have lost passages.
    """

    passages: Any
    scores: Any
    unfinished: Ints
    is_within_bound: bool


class Backend(ABC):
    """A library that searches vectors on one kind of device. Subclass it and import the module to add a backend."""

    name: ClassVar[str]  # the value of the parameter ``backend``
    runs_on: ClassVar[str]  # "cpu" or "cuda"
    priority: ClassVar[int]  # "auto" selects the available backend with the lowest priority
    most: ClassVar[float] = float("inf")  # the largest k of ``propose``
    is_checked: ClassVar[bool] = False  # compare scores with exact ones; replace the backend if they exceed its bound

    def __init_subclass__(cls) -> None:
        backends = [*BACKENDS.values(), cls()]
        backends.sort(key=lambda backend: (backend.runs_on, backend.priority))
        BACKENDS.clear()
        BACKENDS.update({backend.name: backend for backend in backends})

    @abstractmethod
    def check(self) -> None:
        """Raise MissingExtraError or DeviceError if the backend is not available on this machine."""

    @abstractmethod
    def propose(self, queries: Any, passages: Any, k: int) -> Proposal:
        """Return the k best of ``passages`` (n, d) for each row of ``queries`` (m, d), all float32.

        A score may differ from the inner product by up to ``error(d)`` · |query| · |longest passage|.
        """

    def search(self, search: BackendSearch) -> SearchResult | None:
        """Search exactly; return None if the backend only proposes, which is the default."""
        return None

    def queries_at_once(self, vectors: Any, k: int) -> int:
        """Return the number of queries to search in one batch."""
        return 1024

    def error(self, width: int) -> float:
        """Bound the relative error of a float32 sum of products: width · 2^-24 plus a margin (Higham 2002, (3.5))."""
        return (1.001 * width + 8) * 2.0**-24

    def missing(self) -> Exception | None:
        """Return the error of :meth:`check`, or None if the backend is available."""
        try:
            self.check()
        except (MissingExtraError, DeviceError) as error:
            return error
        return None


def find_backend(name: str, device: Device) -> Backend:
    """Return the backend of that name for passages on ``device``; ``"auto"`` selects the first available one.

    Raises :class:`UnknownNameError` for an unknown name, :class:`InputError` for a backend of another kind of device,
    and :class:`MissingExtraError` or :class:`DeviceError` if the backend is not available.

    >>> find_backend("cuvs", Device("cpu"))
    Traceback (most recent call last):
    haybale.errors.InputError: index backend 'cuvs' needs passages on cuda, found them on cpu; use auto, numpy
    """
    of_device = [backend for backend in BACKENDS.values() if backend.runs_on == device.kind]
    if name == "auto":
        return next(backend for backend in of_device if backend.missing() is None)
    if name not in BACKENDS:
        raise UnknownNameError("index backend", name, ["auto", *BACKENDS])
    backend = BACKENDS[name]
    if backend not in of_device:
        usable = ", ".join(["auto", *(usable_backend.name for usable_backend in of_device)])
        raise InputError(
            f"index backend {name!r} needs passages on {backend.runs_on}, found them on {device}; use {usable}"
        )
    backend.check()
    return backend


def tiles_on(device: Device) -> Backend:
    """Return haybale's own backend for a device, which has no limit on k."""
    return BACKENDS["numpy" if device.is_cpu else "cupy"]


def auto() -> tuple[Device, str]:
    """Return the device and the backend that ``"auto"`` selects on this machine."""
    device = find_device("auto")
    return device, find_backend("auto", device).name


for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
