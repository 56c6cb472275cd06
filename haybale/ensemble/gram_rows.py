"""A cache of rows of a Gram matrix, each computed when it is first needed.

A fit reads only the rows of its support vectors, each of them many times. For 8,000 rows with 1,900 support vectors, it
computes a fifth of the Gram matrix. The matrix is symmetric, so values of a cached row are copied instead of computed
again: computing all rows one by one takes about half of the products.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from haybale.ensemble.kernel import TILE, Points, gram, kernel_tile
from haybale.ensemble.rows import Ints
from haybale.parallel import in_threads
from haybale.vectors import Floats

_MIN_CACHED_SHARE = 0.2  # once more than this share of the computed columns has cached rows, these columns are copied
_COPIED_COLUMNS_PER_TASK = 1024
_MAX_COLUMNS_PER_TASK = 1024  # a task computes these columns of up to TILE rows
_TASK_MULTIPLE = 4  # the number of these tasks for TILE rows is a multiple of it, so that cores finish together


class GramRows:
    """Up to ``room`` rows of the Gram matrix (n, n) of points on the CPU.

    ``values`` (room, n) are the cached rows, and ``slot`` (n,) int32 is the position of each point's row in them, or
    -1. New rows replace the least recently used ones. ``whole`` is the complete matrix, if it is already known.
    """

    def __init__(self, points: Points, room: int, threads: int | None, whole: Floats | None = None) -> None:
        n = len(points)
        self.points, self.threads = points, threads
        self.values = np.empty((min(room, n), n), dtype=np.float32) if whole is None else whole
        self.slot = np.full(n, -1, dtype=np.int32) if whole is None else np.arange(n, dtype=np.int32)
        self._owner = np.full(len(self.values), -1)
        self._last_used = np.zeros(len(self.values), dtype=np.int64)
        self._clock = 0
        self._compute(np.arange(n))

    def _compute(self, columns: Ints) -> None:
        """From now on, compute these columns of new rows, and copy all other columns from cached rows."""
        n = len(self.slot)
        self._columns, self._mirrored = columns, np.setdiff1d(np.arange(n), columns)
        tasks = _TASK_MULTIPLE * max(1, -(-len(columns) // (_TASK_MULTIPLE * _MAX_COLUMNS_PER_TASK)))
        self._width = max(1, -(-len(columns) // tasks))
        parts = [slice(start, start + self._width) for start in range(0, len(columns), self._width)]
        take = self.points.take
        self._parts = in_threads(lambda part: take(part if len(columns) == n else columns[part]), parts, self.threads)

    def hold(self, numbers: Ints) -> None:
        """Cache the rows of these distinct points, at most ``room``."""
        self._clock += 1
        held = self.slot[numbers]
        self._last_used[held[held >= 0]] = self._clock
        missing = numbers[held < 0]
        if not len(missing):
            return
        if len(missing) == len(self.slot):
            self.hold_all()
            return
        slots = np.sort(np.argsort(self._last_used, kind="stable")[: len(missing)])
        replaced = self._owner[slots]
        self._fill(missing, slots, replaced[replaced >= 0])
        self._owner[slots], self._last_used[slots] = missing, self._clock

    def hold_all(self) -> None:
        """Compute all rows that are missing, which costs less per row than computing a few rows at a time."""
        missing = np.flatnonzero(self.slot < 0)
        if len(missing) == len(self.slot):
            gram(self.points, self.threads, out=self.values)
            self.slot[:] = missing
            return
        numbers = [missing[start : start + TILE].astype(np.uint32) for start in range(0, len(missing), TILE)]
        slots = np.flatnonzero(self._owner < 0)[: len(missing)]
        parts, held = [self.points.take(part) for part in numbers], np.flatnonzero(self.slot >= 0)

        def fill(tile_position: tuple[int, int]) -> None:
            i, j = tile_position
            tile = kernel_tile(parts[i], parts[j])
            _write(tile, slots[i * TILE : (i + 1) * TILE], numbers[j], self.values)
            if i != j:
                _write(np.ascontiguousarray(tile.T), slots[j * TILE : (j + 1) * TILE], numbers[i], self.values)

        in_threads(fill, [(i, j) for i in range(len(parts)) for j in range(i + 1)], self.threads)
        self._mirror(held, missing, slots)
        self.values[slots, missing] = 1
        self.slot[missing], self._owner[slots] = slots, missing

    def _mirror(self, columns: Ints, numbers: Ints, slots: Ints) -> None:
        """Copy ``values[slots, columns]`` from the rows of the columns' points, which are cached."""

        def mirror(start: int) -> None:
            _mirror(self.values, self.slot, columns[start : start + _COPIED_COLUMNS_PER_TASK], numbers, slots)

        in_threads(mirror, range(0, len(columns), _COPIED_COLUMNS_PER_TASK), self.threads)

    def _fill(self, numbers: Ints, slots: Ints, replaced: Ints) -> None:
        """Compute rows into slots that held the rows of the points ``replaced``."""
        if len(replaced):
            self.slot[replaced] = -1
            if len(self._mirrored):
                self._compute(np.arange(len(self.slot)))
        elif np.count_nonzero(self.slot[self._columns] >= 0) > _MIN_CACHED_SHARE * len(self._columns):
            self._compute(self._columns[self.slot[self._columns] < 0])
        blocks = range(0, len(numbers), TILE)
        rows = [self.points.take(numbers[start : start + TILE], self.threads) for start in blocks]

        def fill(tile_position: tuple[int, int]) -> None:
            start, part = tile_position
            tile = kernel_tile(rows[start // TILE], self._parts[part])
            columns = self._columns[part * self._width : (part + 1) * self._width]
            _write(tile, slots[start : start + TILE], columns.astype(np.uint32), self.values)

        in_threads(fill, [(start, part) for start in blocks for part in range(len(self._parts))], self.threads)
        self._mirror(self._mirrored, numbers, slots)
        self.values[slots, numbers] = 1
        self.slot[numbers] = slots


@njit(nogil=True, cache=True)
def _write(tile: Floats, slots: Any, columns: Any, values: Floats) -> None:  # pragma: no cover - compiled
    """Assign ``values[slots, columns] = tile``."""
    for i in range(len(slots)):
        row = values[slots[i]]
        for k in range(len(columns)):
            row[columns[k]] = tile[i, k]


@njit(nogil=True, cache=True)
def _mirror(values: Floats, slot: Any, columns: Any, numbers: Any, slots: Any) -> None:  # pragma: no cover - compiled
    """Copy ``values[slots, columns]`` from the rows of the columns' points."""
    for start in range(0, len(columns), 64):
        for i in range(len(slots)):
            row, number = values[slots[i]], numbers[i]
            for k in range(start, min(start + 64, len(columns))):
                row[columns[k]] = values[slot[columns[k]], number]
