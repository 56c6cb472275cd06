"""Search by matrix products of NumPy, tile by tile; needs no package, has no limit on k."""

from __future__ import annotations

from typing import Any

import numpy as np

from haybale.retrieval.exact.backend import Backend, Proposal, float32_error
from haybale.tiling import fitting

_TILE = 32 * 2**20  # scores held at once: 128 MiB
_CONVERTED = 16 * 2**20  # float16 values converted at once: 64 MiB of float32


def propose_numpy(queries: Any, passages: Any, k: int, memory: float | None = None) -> Proposal:
    """Matrix product and partial sort, tile by tile; no limit on k, and memory that does not grow with n.

    Passages of float16 are made float32 a tile at a time. ``memory``: bytes for a tile of scores (None: 128 MiB).
    """
    m, n = len(queries), len(passages)
    rows = max(1, min(m, 1024))
    columns = max(k, (_TILE if memory is None else fitting(memory, 4)) // rows)
    if passages.dtype != np.float32:
        columns = max(k, min(columns, _CONVERTED // max(1, passages.shape[1])))
    numbers = np.empty((m, k), dtype=np.int64)
    scores = np.empty((m, k), dtype=np.float32)
    for top in range(0, m, rows):
        q = queries[top : top + rows]
        best_n = np.empty((len(q), 0), dtype=np.int64)
        best_s = np.empty((len(q), 0), dtype=np.float32)
        for left in range(0, n, columns):
            s = q @ passages[left : left + columns].astype(np.float32, copy=False).T  # (rows, columns)
            if s.shape[1] > k:
                kept = np.argpartition(s, s.shape[1] - k, axis=1)[:, s.shape[1] - k :]
            else:
                kept = np.broadcast_to(np.arange(s.shape[1]), s.shape)
            best_s = np.concatenate((best_s, np.take_along_axis(s, kept, axis=1)), axis=1)
            best_n = np.concatenate((best_n, kept + left), axis=1)
            if best_s.shape[1] > k:
                kept = np.argpartition(best_s, best_s.shape[1] - k, axis=1)[:, best_s.shape[1] - k :]
                best_s = np.take_along_axis(best_s, kept, axis=1)
                best_n = np.take_along_axis(best_n, kept, axis=1)
        numbers[top : top + rows], scores[top : top + rows] = best_n, best_s
    return numbers, scores


NUMPY = Backend("numpy", "cpu", propose_numpy, float32_error)
