"""Our CUDA kernels of exact search."""

from __future__ import annotations

from typing import Any

from numba import cuda as numba_cuda

cuda: Any = numba_cuda  # its names appear when it is first used, which a type checker does not see


@cuda.jit
def append_better(  # type: ignore[no-untyped-def]
    scores, first, start, stop, thresholds, counts, kept_scores, kept_numbers
) -> Any:  # pragma: no cover - compiled
    """A block takes a row (its number) and, with the others of that row, the columns start..stop of ``scores``.

    A score above the row's threshold is appended to the row's buffer, under the passage number ``first`` + column.
    ``counts`` goes on counting where a buffer is full; what has no place is lost.
    """
    row = cuda.blockIdx.x
    column = start + cuda.blockIdx.y * cuda.blockDim.x + cuda.threadIdx.x
    step = cuda.gridDim.y * cuda.blockDim.x
    capacity = kept_scores.shape[1]
    threshold = thresholds[row]
    while column < stop:
        score = scores[row, column]
        if score > threshold:
            place = cuda.atomic.add(counts, row, 1)
            if place < capacity:
                kept_scores[row, place] = score
                kept_numbers[row, place] = first + column
        column += step
