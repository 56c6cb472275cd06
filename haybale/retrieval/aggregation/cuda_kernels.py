"""The compiled loops of ``kernels`` for a GPU: a warp takes one passage, or one document, and its lanes the dimensions.

So neighbouring lanes read neighbouring numbers, nothing is gathered or widened beforehand, and sums are float64. A sum
is the lanes' own sums, added in one fixed order: like on a CPU, a pair has the same product whatever is around it.
"""

# numba makes these names known where it is imported.
# mypy: disable-error-code="attr-defined,no-untyped-call,unused-ignore"

from __future__ import annotations

from typing import Any

import numpy as np
from numba import cuda, float64

LANES = 32  # threads of a block, which is one warp
ENOUGH = 2**16 - 1  # blocks that keep a GPU at work; a grid has no more in its second dimension


@cuda.jit(device=True)
def _over_lanes(value: Any, parts: Any, lane: Any) -> Any:  # pragma: no cover - compiled
    """The sum of the lanes' values; every thread of the block must come here."""
    parts[lane] = value
    cuda.syncthreads()
    step = LANES // 2
    while step > 0:
        if lane < step:
            parts[lane] += parts[lane + step]
        cuda.syncthreads()
        step //= 2
    found = parts[0]
    cuda.syncthreads()  # before the next value is put there
    return found


@cuda.jit
def multiply(wanted: Any, q: Any, passages: Any, numbers: Any, out: Any) -> None:  # pragma: no cover - compiled
    """out[i, j] = ⟨q[i], passages[numbers[j]]⟩ where wanted[i, j]; block (j, first i)."""
    parts = cuda.shared.array(LANES, dtype=float64)
    lane = cuda.threadIdx.x
    column = cuda.blockIdx.x
    number = numbers[column]
    for i in range(cuda.blockIdx.y, q.shape[0], cuda.gridDim.y):
        if wanted[i, column]:  # the same for all threads of the block
            total = 0.0
            for k in range(lane, q.shape[1], LANES):
                total += q[i, k] * np.float64(passages[number, k])
            total = _over_lanes(total, parts, lane)
            if lane == 0:
                out[i, column] = np.float32(total)


@cuda.jit
def extremes(
    passage: Any, starts: Any, lengths: Any, query: Any, q: Any, passages: Any, largest: Any, out: Any
) -> None:  # pragma: no cover - compiled
    """out[i] = ⟨q[query[i]], extreme of the lengths[i] passages from passage[starts[i]] on⟩; block i."""
    parts = cuda.shared.array(LANES, dtype=float64)
    lane = cuda.threadIdx.x
    document = cuda.blockIdx.x
    row = query[document]
    first = starts[document]
    last = first + lengths[document]
    total = 0.0
    for k in range(lane, q.shape[1], LANES):
        best = np.float32(passages[passage[first], k])
        for place in range(first + 1, last):
            value = np.float32(passages[passage[place], k])
            if (value > best) == largest:  # of equal ones either
                best = value
        total += q[row, k] * np.float64(best)
    total = _over_lanes(total, parts, lane)
    if lane == 0:
        out[document] = total
