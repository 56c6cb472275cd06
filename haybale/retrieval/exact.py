"""Exact search over dense vectors: a backend proposes, inner products summed in float64 decide.

The same lines run on NumPy and on CuPy. A sum of d products in float64 is off by at most d · 2^-53 · |q| · |p| before
it is rounded to float32, so two devices, which add in different orders, give the same float32 or its neighbour: 1 ulp
(more only where the products cancel to less than that bound). One device gives equal vectors equal scores.
"""

from __future__ import annotations

import math
import warnings
from functools import cached_property
from typing import Any

import numpy as np

from haybale.device import Device, to_device
from haybale.machine import fitting, in_tiles
from haybale.retrieval.backends import BACKENDS, Backend, auto, backends_on, find_backend, tiles_on
from haybale.retrieval.hits import NO_PASSAGE, Ints, select
from haybale.vectors import squared_lengths

__all__ = ["BACKENDS", "Backend", "ExactSearch", "auto", "backends_on", "find_backend"]

SLACK = 24  # candidates proposed beyond those asked for, to settle the last places
_RESCORED = 2**18  # float64 values gathered at once on the CPU: 2 MiB, which a cache holds
_GATHERED = 2**30  # bytes gathered at once on a device, at most


class ExactSearch:
    """Exact search over ``vectors`` (n, d), float32 or float16, on ``device``, by proposals of ``backend``.

    ``doc_offsets`` (n_documents + 1,), NumPy; ``memory``, bytes for what is computed at once (None: by the device).
    """

    def __init__(
        self, vectors: Any, doc_offsets: Ints, device: Device, backend: Backend, memory: float | None = None
    ) -> None:
        self.vectors, self.device, self.memory = vectors, device, memory
        self.backend = backend if backend.takes_half or vectors.dtype == np.float32 else tiles_on(device)
        self._sizes = np.diff(doc_offsets)
        self._prepared: dict[str, Any] = {}

    def __getstate__(self) -> dict[str, Any]:
        # What a library has prepared belongs to this process; it is made again.
        return {**self.__dict__, "_prepared": {}}

    def search(self, queries: Any, k: int, excluded: Ints) -> tuple[Any, Any]:
        """``(numbers, scores)``, (m, k) each, in the total order; -1 and -inf where there are fewer hits.

        ``queries`` (m, d) float32 on the device; ``excluded`` (m,), NumPy, the document to leave out (-1: none).
        """
        xp, n = self.device.xp, len(self.vectors)
        passages = xp.full((len(queries), k), NO_PASSAGE, dtype=np.int64)
        scores = xp.full((len(queries), k), -np.inf, dtype=np.float32)
        # k, the passages that may be left out, and a few.
        sizes = np.where(excluded >= 0, self._sizes[excluded], 0)
        depth = min(n, k + int(sizes.max(initial=0)) + SLACK)
        excluded = to_device(excluded, self.device)
        rows = xp.flatnonzero(queries.any(axis=1))
        while len(rows):
            found, rough, exact, bound = self._proposed(queries[rows], depth)
            exact = xp.where(self._doc_of[found] == excluded[rows][:, None], np.float32(-np.inf), exact)
            numbers, best = select(exact, k, found)
            passages[rows], scores[rows] = numbers, best
            if depth == n:
                break
            # What was not proposed scores at most the worst proposal plus twice the error bound.
            undecided = best[:, -1] <= rough.min(axis=1) + 2 * bound
            rows = rows[undecided]
            depth = min(n, 2 * depth)
        return passages, scores

    def inner_products(self, queries: Any, found: Any) -> Any:
        """(m, c) inner products with the passages found (m, c), summed in float64, rounded to float32."""
        if not self.device.is_cpu:
            return self._gathered(queries, found)
        scores = np.empty(found.shape, dtype=np.float32)
        step = max(1, _RESCORED // max(1, self.vectors.shape[1]))
        for row, query in enumerate(queries.astype(np.float64)):
            for left in range(0, found.shape[1], step):
                near = self.vectors[found[row, left : left + step]].astype(np.float64)  # (step, d)
                scores[row, left : left + step] = np.vecdot(near, query)
        return scores

    def _gathered(self, queries: Any, found: Any) -> Any:
        """The same on a device."""
        xp, width, depth = self.device.xp, int(self.vectors.shape[1]), int(found.shape[1])
        wide, flat = queries.astype(np.float64), found.ravel()

        def score(tile: slice) -> Any:
            near = self.vectors[flat[tile]].astype(np.float64)
            near *= wide[xp.arange(tile.start, tile.stop) // depth]
            return near.sum(axis=1).astype(np.float32)

        memory = self.device.half_of_memory() if self.memory is None else self.memory
        size = fitting(min(memory, _GATHERED), width * (8 + 8 + self.vectors.dtype.itemsize))
        tiles = list(in_tiles(flat.size, size, score, what="candidates"))
        return xp.concatenate(tiles).reshape(found.shape) if tiles else xp.empty(found.shape, dtype=np.float32)

    def _proposed(self, queries: Any, depth: int) -> tuple[Any, Any, Any, Any]:
        """Numbers (m, depth), their proposed scores and exact ones, and (m,) how far any proposed score may be off."""
        xp, width = self.device.xp, int(self.vectors.shape[1])
        backend = self.backend if depth <= self.backend.most else tiles_on(self.device)
        lengths = xp.sqrt((queries.astype(np.float64) ** 2).sum(axis=1))
        # A product may vanish below 2^-126, whatever the lengths are.
        bound = backend.error(width) * lengths * self._longest + width * 2.0**-126
        if backend.name not in self._prepared:
            self._prepared[backend.name] = backend.prepare(self.vectors)
        found, rough = backend.propose(queries, self._prepared[backend.name], depth, self.memory)
        exact = self.inner_products(queries, found)
        if backend.is_checked and bool((xp.abs(rough - exact) > 2 * bound[:, None]).any()):
            # Another library's products, which cannot be looked into: found out rather than believed.
            self.backend = tiles_on(self.device)
            warnings.warn(
                f"index backend {backend.name!r} gave scores that are off by more than its products may be; "
                f"{self.backend.name!r} is used instead",
                RuntimeWarning,
                stacklevel=2,
            )
            return self._proposed(queries, depth)
        return found, rough, exact, bound

    @cached_property
    def _doc_of(self) -> Any:
        """(n,) the document of each passage, on the device."""
        return to_device(np.repeat(np.arange(len(self._sizes)), self._sizes), self.device)

    @cached_property
    def _longest(self) -> float:
        """The length of the longest passage, from above: squares below 2^-126 are lost."""
        squares = float(squared_lengths(self.vectors).max())
        return math.sqrt(squares) + math.sqrt(self.vectors.shape[1]) * 2.0**-63
