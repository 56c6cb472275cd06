"""What an aggregation is given, checked before any work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haybale.device import Device, to_numpy
from haybale.errors import InputError, UnknownNameError
from haybale.retrieval.aggregation.products import Vectors
from haybale.retrieval.aggregation.registry import AGGREGATIONS, Aggregation
from haybale.retrieval.hits import Ints


def find_aggregation(name: str) -> Aggregation:
    """The aggregation of that name."""
    if name not in AGGREGATIONS:
        raise UnknownNameError("aggregation", name, AGGREGATIONS)
    return AGGREGATIONS[name]


def checked_offsets(offsets: Ints | None, rows: int) -> Ints:
    """(n_queries + 1,), rising from 0 to the number of rows."""
    if offsets is None:
        return np.arange(rows + 1)
    offsets = np.asarray(to_numpy(offsets), dtype=np.int64)
    if offsets.ndim != 1 or not len(offsets) or offsets[0] != 0 or (np.diff(offsets) < 0).any():
        raise InputError("offsets must rise from 0 to the number of paragraphs")
    if offsets[-1] != rows:
        raise InputError(f"offsets end at {offsets[-1]}, but there are hits of {rows} paragraphs")
    return offsets


def checked_weights(weights: Sequence[float] | NDArray[Any] | None, rows: int) -> NDArray[np.float64]:
    """(rows,), finite and not negative; 1 by default."""
    if weights is None:
        return np.ones(rows)
    weight = np.asarray(to_numpy(weights), dtype=np.float64)
    if weight.shape != (rows,):
        raise InputError(f"expected {rows} weights, one a query paragraph, found shape {weight.shape}")
    wrong = np.flatnonzero(~(np.isfinite(weight) & (weight >= 0)))
    if len(wrong):
        raise InputError(f"weights must be finite and at least 0, found {weight[wrong[0]]} for paragraph {wrong[0]}")
    return weight


def checked_vectors(vectors: Vectors | None, name: str, n_passages: int, rows: int, device: Device) -> Vectors:
    """Vectors that fit the hits, on their device; without any the error names the aggregations that need none."""
    if vectors is None:
        without = ", ".join(known for known, made in AGGREGATIONS.items() if made.vectors is None)
        raise InputError(
            f"the aggregation {name!r} needs vectors of passages and paragraphs, which a lexical index lacks; "
            f"without them there are {without}"
        )
    return vectors.checked(n_passages, rows, device)
