"""Halves of random rows, and devices with little memory, for the tests of kernels and expansions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cupy_double import OutOfMemoryError

from haybale.device import Device
from haybale.ensemble.gram import kernel_tile
from haybale.ensemble.half import Half

CUDA = Device("cuda", 0)


def half(seed: int, n: int, d: int = 7) -> Half:
    return Half(0.4 * np.random.default_rng(seed).normal(size=(n, d)).astype(np.float32))


def little_memory(monkeypatch: pytest.MonkeyPatch, size: float) -> None:
    """Every tile is small, and so there are many."""
    monkeypatch.setattr(Device, "half_of_memory", lambda self: size)


def scarce(monkeypatch: pytest.MonkeyPatch, module: Any, room: int) -> list[int]:
    """kernel_tile that has memory for ``room`` values; the sizes asked for."""
    asked: list[int] = []

    def tile(a: Half, b: Half, out: Any = None) -> Any:
        asked.append(len(a) * len(b))
        if asked[-1] > room:
            raise OutOfMemoryError("Out of memory allocating")
        return kernel_tile(a, b, out)

    monkeypatch.setattr(module, "kernel_tile", tile)
    return asked
