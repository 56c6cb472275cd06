"""The backend "faiss": the exhaustive search of faiss on the CPU."""

from __future__ import annotations

import os
from functools import cache, partial
from typing import Any

from haybale.extras import import_optional
from haybale.retrieval.backends import Backend, Proposal


class FaissCPU(Backend):
    name = "faiss"
    runs_on = "cpu"
    priority = 1

    def check(self) -> None:
        import_optional("faiss", "faiss")

    def propose(self, queries: Any, passages: Any, k: int) -> Proposal:
        """Search the array without copying it into an index."""
        faiss = _faiss()
        scores, numbers = faiss.knn(queries, passages, k, metric=faiss.METRIC_INNER_PRODUCT)
        return numbers, scores


@cache
def _faiss() -> Any:
    """Import faiss. A forked child uses one thread, because OpenMP threads do not survive a fork."""
    faiss = import_optional("faiss", "faiss")
    os.register_at_fork(after_in_child=partial(faiss.omp_set_num_threads, 1))
    return faiss
