"""The memory of CUDA devices: share one pool between CuPy and cuML, measure free memory, and free unused memory.

CuPy and torch keep the memory that they free in pools of their own, so one could run out of memory that the other does
not use. :func:`free_cached` empties both; it is called where a stage of one library follows one of another, and before
work that ran out of memory is tried again. cuML allocates through RMM, without a pool by default, and makes CuPy do the
same; :func:`share_pool` lets both allocate from CUDA's own pool instead.
"""

from __future__ import annotations

import importlib
import logging
import sys
from contextlib import suppress
from typing import Any

_LOGGER = logging.getLogger("haybale")
_shared: dict[int, Any] = {}  # CuPy's view of the shared pool of a device; None if it could not be shared


def share_pool(number: int) -> None:
    """Let CuPy and RMM allocate from the default memory pool of the CUDA device, once RMM is in use.

    Nothing changes without RMM, or if a program has chosen another memory resource of RMM. The device must be current.
    """
    if "rmm" not in sys.modules or "cupy" not in sys.modules or number in _shared:
        return
    cupy, resources = sys.modules["cupy"], importlib.import_module("rmm.mr")
    if type(resources.get_per_device_resource(number)) is not resources.CudaMemoryResource:
        return
    _shared[number] = None
    try:
        runtime = importlib.import_module("cuda.bindings.runtime")
        error, handle = runtime.cudaDeviceGetDefaultMemPool(number)
        if int(error):
            raise RuntimeError(str(error))
        resource = resources.CudaAsyncViewMemoryResource(handle)
        pool = cupy.cuda.MemoryAsyncPool("default")
    except (ImportError, RuntimeError, ValueError) as error:
        _LOGGER.warning("cuda:%d: memory is allocated without a pool, which is slow (%s)", number, error)
        return
    cupy.get_default_memory_pool().free_all_blocks()
    resources.set_per_device_resource(number, resource)
    cupy.cuda.set_allocator(pool.malloc)
    _shared[number] = pool


def unused_bytes(number: int) -> float:
    """Return the bytes that the pools of CuPy hold on a CUDA device, the current one, and that no array uses."""
    default_bytes = sys.modules["cupy"].get_default_memory_pool().free_bytes()
    shared = _shared.get(number)
    return float(default_bytes + (0 if shared is None else shared.free_bytes()))


def free_cached() -> None:
    """Free the unused memory in the memory pools of CuPy, RMM and torch."""
    cupy, torch = sys.modules.get("cupy"), sys.modules.get("torch")
    if cupy is not None:
        with suppress(RuntimeError):  # CuPy without a device
            for pool in (cupy.get_default_memory_pool(), *(pool for pool in _shared.values() if pool is not None)):
                pool.free_all_blocks()
    if torch is not None and torch.cuda.is_available():
        torch.cuda.empty_cache()
