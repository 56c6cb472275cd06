"""Search by cuVS's brute force (cuVS 26.x, ``cuvs.neighbors.brute_force``), on the arrays where they lie.

cuVS takes queries of the passages' type: over float16 passages they are scaled and rounded, and only propose.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from haybale.device import device_of
from haybale.errors import DeviceError, MissingExtraError
from haybale.extras import require
from haybale.retrieval.exact.backend import Backend, Proposal
from haybale.retrieval.exact.half import rounded_error, scaled, split_error, unscaled

_MAJOR = "26"


def prepare_cuvs(passages: Any) -> Any:
    """A brute-force index over device passages (n, d), which stay in the same memory."""
    with device_of(passages).current():
        index = require("cuvs.neighbors.brute_force", "gpu").build(passages, metric="inner_product")
    return index, passages  # the index only points at the passages


def propose_cuvs(queries: Any, prepared: Any, k: int, memory: float | None = None) -> Proposal:
    """cuVS's own tiles and selection; it sizes its memory itself."""
    index, passages = prepared
    exponents = None
    if passages.dtype == np.float16:
        queries, exponents = scaled(queries)
        queries = queries.astype(np.float16)
    with device_of(passages).current() as current:
        xp = device_of(passages).xp
        numbers = xp.empty((len(queries), k), dtype=np.int64)
        scores = xp.empty((len(queries), k), dtype=np.float32)
        current.synchronize()  # cuVS computes on a stream of its own, which must find the queries made
        require("cuvs.neighbors.brute_force", "gpu").search(index, queries, k, neighbors=numbers, distances=scores)
        current.synchronize()
    return numbers, scores if exponents is None else unscaled(scores, exponents)


def missing_cuvs() -> Exception | None:
    """Why cuVS cannot be used, as the error to raise; None if it can."""
    try:
        found = str(getattr(require("cuvs", "gpu"), "__version__", "unknown"))
        if found.partition(".")[0] != _MAJOR:
            return DeviceError(f"cuVS {_MAJOR}.x expected, found {found}")
        importlib.import_module("cuvs.neighbors.brute_force")
    except MissingExtraError as error:
        return error
    except (ImportError, OSError) as error:  # a library of CUDA that it cannot load
        return DeviceError(f"cuVS is installed but does not load: {error}")
    return None


def half_or_float_error(width: int, dtype: np.dtype[Any]) -> float:
    """float16: queries rounded; float32: four times the bound of float32 sums, for products made of three TF32 ones."""
    return rounded_error(width) if dtype == np.float16 else split_error(width)


CUVS = Backend(
    "cuvs", "cuda", propose_cuvs, half_or_float_error, missing_cuvs, prepare_cuvs, takes_half=False, is_checked=True
)
