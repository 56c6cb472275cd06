"""The backend "cuvs": the brute-force search of cuVS 26.x."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from haybale.device import device_of
from haybale.errors import DeviceError
from haybale.extras import import_optional
from haybale.retrieval.backends import Backend, Proposal


class CuVS(Backend):
    name = "cuvs"
    runs_on = "cuda"
    priority = 1
    is_checked = True

    def check(self) -> None:
        version = str(getattr(import_optional("cuvs", "gpu"), "__version__", "unknown"))
        if version.partition(".")[0] != "26":
            raise DeviceError(f"expected cuVS 26.x, found {version}")
        try:
            importlib.import_module("cuvs.neighbors.brute_force")
        except (ImportError, OSError) as error:  # a CUDA library is missing
            raise DeviceError(f"cuVS cannot be loaded ({error}); install its CUDA libraries") from error

    def error(self, width: int) -> float:
        return 4 * super().error(width)  # float32 products are computed from three TF32 products

    def propose(self, queries: Any, passages: Any, k: int) -> Proposal:
        """Search the passages without copying them. cuVS splits the work to fit its memory."""
        brute_force, device = import_optional("cuvs.neighbors.brute_force", "gpu"), device_of(passages)
        with device.current() as current:
            numbers = device.xp.empty((len(queries), k), dtype=np.int64)
            scores = device.xp.empty((len(queries), k), dtype=np.float32)
            current.synchronize()  # cuVS uses its own stream, so the queries must be complete
            index = brute_force.build(passages, metric="inner_product")
            brute_force.search(index, queries, k, neighbors=numbers, distances=scores)
            current.synchronize()
        return numbers, scores
