"""Devices, memory pool and errors of the double in ``cupy_double``."""

from __future__ import annotations

import threading
from typing import Any, ClassVar


class _Current(threading.local):
    """The current device, which every thread has its own of; 0 at the start."""

    number = 0


_current = _Current()


class _Kind(type):
    current = property(lambda self: _current.number, lambda self, number: setattr(_current, "number", number))


class Device(metaclass=_Kind):
    """``cupy.cuda.Device``; new arrays are created on the current device."""

    free, total = 2**33, 2**34
    count = 1

    properties: ClassVar[dict[str, Any]] = {  # of an H100, with less memory
        "name": b"Double",
        "major": 9,
        "minor": 0,
        "multiProcessorCount": 132,
        "sharedMemPerBlock": 48 * 1024,
        "sharedMemPerBlockOptin": 227 * 1024,
    }

    def __init__(self, number: int | None = None) -> None:
        self.id = Device.current if number is None else number
        self._before: list[int] = []

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and other.id == self.id

    def __hash__(self) -> int:
        return self.id

    @property
    def mem_info(self) -> tuple[int, int]:
        return self.free, self.total

    def use(self) -> None:
        if not 0 <= self.id < Device.count:
            raise CUDARuntimeError("cudaErrorInvalidDevice: invalid device ordinal")
        Device.current = self.id

    def __enter__(self) -> Device:
        self._before.append(Device.current)
        self.use()
        return self

    def __exit__(self, *_: object) -> None:
        Device.current = self._before.pop()

    def synchronize(self) -> None: ...


def properties(number: int) -> dict[str, Any]:
    """``cupy.cuda.runtime.getDeviceProperties``."""
    if not 0 <= number < Device.count:
        raise CUDARuntimeError("cudaErrorInvalidDevice: invalid device ordinal")
    return Device.properties | {"totalGlobalMem": Device.total}


class OutOfMemoryError(MemoryError):
    """``cupy.cuda.memory.OutOfMemoryError``."""


class CUDARuntimeError(RuntimeError):
    """``cupy.cuda.runtime.CUDARuntimeError``."""


class Pool:
    def total_bytes(self) -> int:
        return 0

    def free_bytes(self) -> int:
        return 0

    def free_all_blocks(self) -> None: ...
