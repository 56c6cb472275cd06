"""Where the kernel values of working sets come from: both Gram matrices, or rows computed when they are needed.

Either way the queries' Gram matrix is whole. ``matrices`` are (n_queries, n_queries) and (n_places, n_passages);
``bring`` puts the kernel rows of the passages of all working sets somewhere, and says where in ``batch.place``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from haybale.device import Device, to_device, to_numpy
from haybale.ensemble.gram import kernel_tile
from haybale.ensemble.half import Half
from haybale.ensemble.rows import Ints
from haybale.ensemble.solvers.batch import Batch
from haybale.errors import DeviceError, InputError
from haybale.machine import free_cached, in_tiles, is_out_of_memory

_TILE = 256  # kernel rows computed at once, at most
_LEAST = 4  # rows of a working set


class GramRows:
    """Both matrices are there: the place of a row is the number of its passage."""

    def __init__(self, kq: Any, kp: Any) -> None:
        self.matrices = (kq, kp)

    def bring(self, batch: Batch) -> None:
        batch.place = batch.passage[batch.working]


class CachedRows:
    """As many rows of the passages' matrix as fit ``budget`` bytes; those longest unused give way. For one bag."""

    def __init__(self, kq: Any, passages: Half, device: Device, budget: float) -> None:
        self._passages, self._device = passages, device
        n = len(passages)
        slots = min(n, int(budget / (4.0 * n * 1.25)))  # a quarter more for the tile being computed
        if slots < min(_LEAST, n):
            raise InputError(
                f"memory_budget leaves {budget / 1e6:,.3g} MB for kernel rows of {n:,} passages: "
                f"{_LEAST} rows and the work on one need {5.0 * n * min(_LEAST, n) / 1e6:,.3g} MB"
            )
        cache = None
        while cache is None:
            try:
                cache = device.xp.empty((slots, n), dtype=np.float32)
            except (MemoryError, RuntimeError) as error:
                if not is_out_of_memory(error):
                    raise
                if slots < 2 * _LEAST:
                    raise DeviceError(f"out of memory at {slots} kernel rows of {n:,} passages: {error}") from error
                slots //= 2
            if cache is None:
                free_cached()
        self.matrices = (kq, cache)
        self._tile = max(1, min(_TILE, slots // 4))
        self._slot = np.full(n, -1)
        self._holds = np.full(slots, -1)
        self._used = np.zeros(slots, dtype=np.int64)
        self._clock = 0

    @property
    def slots(self) -> int:
        return len(self._holds)

    def bring(self, batch: Batch) -> None:
        size = int(batch.size[0])
        passage = to_numpy(batch.passage[batch.working[0, :size]]).astype(np.int64)
        place = np.zeros((1, batch.q), dtype=np.int32)
        place[0, :size] = self._brought(passage)
        batch.place = to_device(place, self._device)

    def _brought(self, passage: Ints) -> Ints:
        """(n,) the slots of these passages' rows; at most as many passages as there are slots."""
        self._clock += 1
        here = self._slot[passage]
        self._used[here[here >= 0]] = self._clock
        missing = np.unique(passage[here < 0])
        places = np.argsort(self._used, kind="stable")[: len(missing)]
        dropped = self._holds[places]
        self._slot[dropped[dropped >= 0]] = -1
        self._slot[missing], self._holds[places], self._used[places] = places, missing, self._clock
        for _ in in_tiles(
            len(missing), self._tile, lambda part: self._compute(missing[part], places[part]), what="kernel rows"
        ):
            pass
        return self._slot[passage]

    def _compute(self, passages: Ints, places: Ints) -> None:
        tile = kernel_tile(self._passages.take(passages), self._passages)
        self.matrices[1][to_device(places, self._device)] = tile
