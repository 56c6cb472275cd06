"""Our CUDA kernels by their twins on the double's memory, where the simulator would take minutes.

That a kernel does what its twin does is tested where the kernel is.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from cupy_double import _inside

from haybale.retrieval.aggregation import cuda_kernels as of_aggregation
from haybale.retrieval.exact import cuda_kernels as of_search
from haybale.retrieval.exact.kept import _append_numpy


def launch(kernel: Any, blocks: Any, threads: int, *arguments: Any) -> None:
    """In the place of ``haybale.cuda.launch``; refuses grids that CUDA refuses."""
    x, y = (blocks, 1) if isinstance(blocks, int) else blocks
    assert 0 < x < 2**31
    assert 0 < y < 2**16
    assert 0 < threads <= 1024
    twins = {
        of_search.append_better: _append_numpy,
        of_aggregation.multiply: multiply,
        of_aggregation.extremes: extremes,
    }
    twins[kernel](*(_inside(argument) for argument in arguments))


def multiply(wanted: Any, q: Any, passages: Any, numbers: Any, out: Any) -> None:
    wanted = wanted[:, : len(numbers)]
    out[wanted] = (q @ passages[numbers].astype(np.float64).T)[wanted]


def extremes(
    passage: Any, starts: Any, lengths: Any, query: Any, q: Any, passages: Any, largest: Any, out: Any
) -> None:
    for number, (start, length) in enumerate(zip(starts, lengths, strict=True)):
        of = passages[passage[start : start + length]].astype(np.float64)
        out[number] = q[query[number]] @ (of.max(axis=0) if largest else of.min(axis=0))
