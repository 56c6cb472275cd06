"""Backends of exact inner-product search: each proposes a row's k best by a float32 product.

The products of two libraries differ in their last bits, so a proposal is not yet a ranking: the index asks for a
few more than it needs and settles their order itself (:mod:`haybale.retrieval.index`).
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from haybale.errors import UnknownNameError
from haybale.retrieval.hits import Ints
from haybale.vectors import Floats

Proposal = tuple[Ints, Floats]  # (m, k) passage numbers and approximate scores, in any order
Backend = Callable[[Floats, Floats, int], Proposal]  # (queries, passages, k) -> proposal

_TILE = 32 * 2**20  # scores held at once: 128 MiB


def propose_numpy(queries: Floats, passages: Floats, k: int) -> Proposal:
    """Matrix product and partial sort, tile by tile; no limit on k, and memory that does not grow with n."""
    m, n = len(queries), len(passages)
    rows = max(1, min(m, 1024))
    columns = max(k, _TILE // rows)
    numbers = np.empty((m, k), dtype=np.int64)
    scores = np.empty((m, k), dtype=np.float32)
    for top in range(0, m, rows):
        q = queries[top : top + rows]
        best_n = np.empty((len(q), 0), dtype=np.int64)
        best_s = np.empty((len(q), 0), dtype=np.float32)
        for left in range(0, n, columns):
            s = q @ passages[left : left + columns].T  # (rows, columns)
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


def propose_faiss(queries: Floats, passages: Floats, k: int) -> Proposal:
    """faiss's blocked exhaustive search on the array as it lies, without a copy into an index."""
    import faiss

    scores, numbers = faiss.knn(queries, passages, k, metric=faiss.METRIC_INNER_PRODUCT)
    return numbers, scores


BACKENDS: dict[str, Backend] = {"faiss": propose_faiss, "numpy": propose_numpy}


def backend(name: str) -> Backend:
    """The backend of that name; ``"auto"`` is faiss, which is ahead of the tiles at every k measured on a CPU."""
    if name == "auto":
        name = "faiss"
    if name not in BACKENDS:
        raise UnknownNameError("index backend", name, ["auto", *BACKENDS])
    return BACKENDS[name]
