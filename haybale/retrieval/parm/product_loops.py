"""Multiply query vectors with retrieved passages by compiled loops; :mod:`.kernels` calls them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

_MATH = {"reassoc", "contract"}  # allows sums in several lanes; NaN was rejected before


@njit(nogil=True, fastmath=_MATH, cache=True)
def multiply_dense(wanted: Any, q: Any, passages: Any, numbers: Any, first: Any, out: Any) -> None:
    for i in range(len(q)):  # pragma: no cover - compiled
        row = q[i]
        for column in range(first, first + len(numbers)):
            if wanted[i, column]:
                vector = passages[numbers[column - first]]
                total = 0.0
                for k in range(len(row)):
                    total += row[k] * np.float64(vector[k])
                out[i, column] = total


@njit(nogil=True, cache=True)
def multiply_sparse(
    columns: Any, query: Any, offsets: Any, terms: Any, weights: Any, numbers: Any, out: Any
) -> None:  # pragma: no cover - compiled
    for column in columns:
        passage = numbers[column]
        total = 0.0
        for entry in range(offsets[passage], offsets[passage + 1]):
            total += np.float64(weights[entry]) * query[terms[entry]]
        out[column] = total


@njit(nogil=True, fastmath=_MATH, cache=True)
def extremes(
    wanted: Any, q: Any, passages: Any, before: Any, starts: Any, first: Any, last: Any, largest: Any, out: Any
) -> None:  # pragma: no cover - compiled
    d = passages.shape[1]
    best = np.empty(d, dtype=np.float32)
    for document in range(first, last):
        for i in range(len(q)):
            has_passage = False
            for p in range(starts[document], starts[document + 1]):
                if wanted[i, p]:
                    vector = passages[p - before]
                    if not has_passage:
                        best[:] = vector
                    elif largest:
                        for k in range(d):
                            best[k] = vector[k] if vector[k] > best[k] else best[k]
                    else:
                        for k in range(d):
                            best[k] = vector[k] if vector[k] < best[k] else best[k]
                    has_passage = True
            if has_passage:
                row = q[i]
                total = 0.0
                for k in range(d):
                    total += row[k] * np.float64(best[k])
                out[i, document] = total
