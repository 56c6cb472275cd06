"""faiss's exhaustive search on the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np

from haybale.errors import MissingExtraError
from haybale.extras import require
from haybale.retrieval.exact.backend import Backend, Proposal, float32_error
from haybale.retrieval.exact.numpy_tiles import propose_numpy


def propose_faiss(queries: Any, passages: Any, k: int, memory: float | None = None) -> Proposal:
    """faiss's blocked exhaustive search on the array as it lies, without a copy into an index.

    It takes float32 only: passages of float16 go to the tiles of NumPy.
    """
    if passages.dtype != np.float32:
        return propose_numpy(queries, passages, k, memory)
    faiss = require("faiss")
    scores, numbers = faiss.knn(queries, passages, k, metric=faiss.METRIC_INNER_PRODUCT)
    return numbers, scores


def _missing() -> Exception | None:
    try:
        require("faiss")
    except MissingExtraError as error:
        return error
    return None


FAISS = Backend("faiss", "cpu", propose_faiss, float32_error, missing=_missing, takes_half=False)
