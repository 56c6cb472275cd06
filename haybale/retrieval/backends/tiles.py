"""haybale's own backends "numpy" and "cupy": products of queries with tiles of passages."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from haybale.device import device_of
from haybale.extras import import_optional
from haybale.parallel import batch_size_for_memory, in_threads, iter_blocks
from haybale.retrieval.backends import Backend, Proposal
from haybale.vectors import array_namespace

_SCORES_PER_TILE = 2**25  # of the CPU: 128 MiB
_ROWS_PER_TASK = 2**14  # passages whose products with one query a thread computes at a time
_SCORES_PER_DEVICE_TILE = 2**28  # if the memory of the device suffices


class NumPyTiles(Backend):
    name = "numpy"
    runs_on = "cpu"
    priority = 0

    def check(self) -> None:
        """Do nothing: NumPy is always installed."""

    def propose(self, queries: Any, passages: Any, k: int) -> Proposal:
        """Find the k best by float32 products, for any k, in memory that does not depend on n."""
        m, n = len(queries), len(passages)
        if k >= n:
            return np.broadcast_to(np.arange(n), (m, n)), _products(queries, passages)
        from haybale.retrieval.best_scores import BestScores  # compiled loops

        best_scores = BestScores(m, k)

        def scores_of_tile(tile: slice) -> tuple[int, Any]:
            return tile.start, _products(queries, passages[tile])

        columns = batch_size_for_memory(4 * _SCORES_PER_TILE, 4 * max(1, m))
        for first_column, scores in iter_blocks(n, columns, scores_of_tile, what="passages"):
            best_scores.add(scores, first_column)
        return best_scores.take()


class CuPyTiles(NumPyTiles):
    name = "cupy"
    runs_on = "cuda"
    priority = 3

    def check(self) -> None:
        import_optional("cupy", "gpu")

    def propose(self, queries: Any, passages: Any, k: int) -> Proposal:
        """Find the k best by float32 products, for any k, in memory that does not depend on n."""
        xp, m, device = array_namespace(passages), len(queries), device_of(passages)
        # CuPy implements argpartition by sorting, which needs more memory.
        memory = min(24 * _SCORES_PER_DEVICE_TILE, device.half_of_memory())
        columns = batch_size_for_memory(memory, 24 * max(1, m))

        def best_of_tile(tile: slice) -> Proposal:
            scores = queries @ passages[tile].T
            return _largest(xp.broadcast_to(xp.arange(tile.start, tile.stop), scores.shape), scores, k)

        best: Proposal | None = None
        for proposal in iter_blocks(len(passages), max(k, columns), best_of_tile, what="passages"):
            if best is not None:
                proposal = tuple(xp.concatenate(pair, axis=1) for pair in zip(best, proposal, strict=True))
            best = _largest(*proposal, k)
        assert best is not None
        return best

    def error(self, width: int) -> float:
        # With CUPY_TF32, CuPy rounds the inputs of products to 11 bits.
        return super().error(width) + (2.0**-9 if os.environ.get("CUPY_TF32", "0") not in ("", "0") else 0.0)


def _products(queries: Any, passages: Any) -> Any:
    """Return the inner products (m, n) of NumPy matrices.

    The product of a matrix and one vector by OpenBLAS takes up to 2.5 times as long as inner products of its rows.
    """
    if len(queries) != 1:
        return queries @ passages.T
    products = np.empty((1, len(passages)), dtype=np.float32)

    def of_rows(start: int) -> None:
        rows = slice(start, start + _ROWS_PER_TASK)
        np.vecdot(passages[rows], queries, out=products[0, rows])

    in_threads(of_rows, range(0, len(passages), _ROWS_PER_TASK))
    return products


def _largest(numbers: Any, scores: Any, k: int) -> Proposal:
    """Return the columns with the k largest scores of each row, in any order."""
    xp, n = array_namespace(scores), int(scores.shape[1])
    if n <= k:
        return numbers, scores
    columns = xp.argpartition(scores, int(n - k), axis=1)[:, n - k :]  # CuPy takes no integers of NumPy here
    return xp.take_along_axis(numbers, columns, axis=1), xp.take_along_axis(scores, columns, axis=1)
