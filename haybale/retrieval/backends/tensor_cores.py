"""The backend "tensor-cores": haybale's own search on a CUDA device, by products in TF32 and a running threshold."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np

from haybale.device import Device, device_of
from haybale.retrieval.backends import BackendSearch, SearchResult
from haybale.retrieval.backends.tiles import CuPyTiles
from haybale.retrieval.device_search import MAX_K, SearchStatus, nearest, queries_at_once

_LOGGER = logging.getLogger("haybale")
_REASONS = {
    SearchStatus.CROWDED: "too many passages are as near as the k-th nearest to tell them apart by scores in TF32",
    SearchStatus.TOO_LARGE: "inner products may exceed float32",
}


class TensorCores(CuPyTiles):
    """Search by :mod:`~haybale.retrieval.device_search`; what that leaves is proposed by tiles."""

    name = "tensor-cores"
    priority = 0

    def __init__(self) -> None:
        self._logged: set[SearchStatus] = set()

    def queries_at_once(self, vectors: Any, k: int) -> int:
        return queries_at_once(device_of(vectors), len(vectors), k)

    def search(self, search: BackendSearch) -> SearchResult | None:
        if search.k > MAX_K or not len(search.queries):
            return None
        device: Device = device_of(search.vectors)
        hits = nearest(device, search.queries, search.vectors, search.k, search.excluded, search.longest, search.order)
        for state, reason in _REASONS.items():
            count = int(((hits.states & state) != 0).sum())
            if count and state not in self._logged:
                self._logged.add(state)
                _LOGGER.warning(
                    "index backend %r: %s of %s queries are searched by %r, because %s",
                    *(self.name, f"{count:,}", f"{len(hits.states):,}", CuPyTiles.name, reason),
                )
        unfinished = np.flatnonzero(hits.states & (SearchStatus.CROWDED | SearchStatus.TOO_LARGE))
        return SearchResult(hits.passages, hits.scores, unfinished, not (hits.states & SearchStatus.OUT_OF_BOUND).any())
