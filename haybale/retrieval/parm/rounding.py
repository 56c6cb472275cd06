"""Round terms of sums on a CUDA device, by the kernels of ``rounding.cu``, which are compiled together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haybale.device import device_of, to_device, to_numpy
from haybale.device_kernels import KernelFile

_KERNELS = KernelFile(Path(__file__).with_name("rounding.cu"))
_THREADS = 256  # of a block


def largest_of_rows(terms: Any) -> NDArray[np.float64]:
    """Return the largest magnitude of each row of terms (n, d), (n,), as a NumPy array."""
    device, (n, d) = device_of(terms), terms.shape
    with device.current():
        out = device.xp.zeros(n)
        if n and d:
            arrays = device.xp.ascontiguousarray(terms, dtype=np.float64), np.int64(d), out
            _KERNELS.launch(device, "largest_of_rows", n, _THREADS, *arrays, shared_bytes=8 * _THREADS)
        found: NDArray[np.float64] = to_numpy(out)
    return found


def rounded_rows(terms: Any, shift: NDArray[np.float64]) -> Any:
    """Return terms (n, d) rounded by adding and subtracting the shift (n,) of their row."""
    device, (n, d) = device_of(terms), terms.shape
    with device.current():
        out = device.xp.empty((n, d))
        if out.size:
            arrays = device.xp.ascontiguousarray(terms, dtype=np.float64), to_device(shift, device), np.int64(d), out
            _KERNELS.launch(device, "round_rows", n, _THREADS, *arrays)
    return out
