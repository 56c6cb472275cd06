"""Compiled loops over the (query, passage) pairs that were retrieved, for vectors in main memory.

A matrix product would multiply every query with every passage; of these pairs, a fifth or fewer are needed. Passages
are taken a few at a time, so that they stay in a core's cache while all queries meet them. A pair is computed by the
same instructions in the same order whatever is around it: equal passages have equal products, to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from haybale.machine import in_threads
from haybale.retrieval.hits import Ints
from haybale.vectors import Floats

_CACHED = 2**18  # values of passage vectors a core works on at a time: 1 MiB
_MATH = {"reassoc", "contract"}  # sums in several lanes; NaN has been refused before


@njit(nogil=True, fastmath=_MATH, cache=True)
def _multiply(wanted: Any, q: Any, passages: Any, places: Any, first: Any, out: Any) -> None:
    for i in range(len(q)):  # pragma: no cover - compiled
        row = q[i]
        for column in range(first, first + len(places)):
            if wanted[i, column]:
                vector = passages[places[column - first]]
                total = 0.0
                for k in range(len(row)):
                    total += row[k] * np.float64(vector[k])
                out[i, column] = total


def multiply(wanted: NDArray[np.bool_], q: NDArray[np.float64], passages: Floats, numbers: Ints) -> Floats:
    """(q, m) float32 products of ``q`` (q, d) with ``passages[numbers]`` (m, d) where ``wanted``; else 0.

    ``wanted`` (q, m), or wider. Summed in float64, then rounded. Passages are float32 or float16.
    """
    out = np.zeros((len(q), len(numbers)), dtype=np.float32)

    def fill(part: slice) -> None:
        some = numbers[part]
        if passages.dtype == np.float16:  # which numba has no arithmetic for
            _multiply(wanted, q, passages[some].astype(np.float32), np.arange(len(some)), part.start, out)
        else:
            _multiply(wanted, q, passages, some, part.start, out)

    _in_parts(fill, len(numbers), max(1, _CACHED // passages.shape[1]))
    return out


@njit(nogil=True, fastmath=_MATH, cache=True)
def _extremes(
    wanted: Any, q: Any, passages: Any, before: Any, starts: Any, first: Any, last: Any, largest: Any, out: Any
) -> None:  # pragma: no cover - compiled
    d = passages.shape[1]
    best = np.empty(d, dtype=np.float32)
    for document in range(first, last):
        for i in range(len(q)):
            found = False
            for p in range(starts[document], starts[document + 1]):
                if wanted[i, p]:
                    vector = passages[p - before]
                    if not found:
                        best[:] = vector
                    elif largest:
                        for k in range(d):
                            best[k] = vector[k] if vector[k] > best[k] else best[k]
                    else:
                        for k in range(d):
                            best[k] = vector[k] if vector[k] < best[k] else best[k]
                    found = True
            if found:
                row = q[i]
                total = 0.0
                for k in range(d):
                    total += row[k] * np.float64(best[k])
                out[i, document] = total


def extremes_of_documents(
    wanted: NDArray[np.bool_], q: NDArray[np.float64], passages: Floats, starts: Ints, largest: bool
) -> NDArray[np.float64]:
    """(q, n_documents) ⟨q, extreme of the wanted passages of the document⟩, 0 where none is.

    ``wanted`` (q, n_passages); ``starts`` (n_documents + 1,), where documents begin. Passages are float32 or float16.
    """
    out = np.zeros((len(q), len(starts) - 1))

    def fill(part: slice) -> None:
        before, vectors = 0, passages
        if passages.dtype == np.float16:
            before = int(starts[part.start])
            vectors = passages[before : starts[part.stop]].astype(np.float32)
        _extremes(wanted, q, vectors, before, starts, part.start, part.stop, largest, out)

    mean = max(1, len(passages) // max(1, len(starts) - 1)) * passages.shape[1]
    _in_parts(fill, len(starts) - 1, max(1, _CACHED // mean))
    return out


def _in_parts(fill: Callable[[slice], None], n: int, step: int) -> None:
    in_threads(fill, [slice(start, min(start + step, n)) for start in range(0, n, step)])
