"""Exact search on a CUDA device by products on tensor cores and a running threshold.

The scores of a tile of passages are computed in TF32 for a block of queries. One kernel appends the scores that reach
the floor of their query to the query's buffer. When half of a buffer is full, the floor rises to the k-th best score so
far, less twice the error bound of :func:`~haybale.device_products.tf32_error`: a passage below it has a smaller exact
score than k other passages. After the last tile, the scores of the passages in the buffers are computed in float64 and
sorted.

The search of a block waits for the device once. Where more passages are as near as the k-th best as half a buffer
holds, as among equal vectors, and where scores may exceed float32, a query is left to another search.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntFlag
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haybale.device import Device
from haybale.device_kernels import KernelFile, count_blocks
from haybale.device_products import tf32_error, tf32_product, underflow_error
from haybale.parallel import batch_size_for_memory
from haybale.retrieval.id_order import IdOrder
from haybale.stopping_work import check_wanted

Ints = NDArray[np.int64]

MAX_K = 2**14  # one block of threads sorts the survivors of a query, which takes too long for more
_KERNELS = KernelFile(Path(__file__).with_name("device_search.cu"))
_PASSAGES_PER_TILE = 2**15  # the minimum; tiles have more passages for few queries
_SCORES_PER_TILE = 2**25  # the maximum of tiles that have more than the minimum of passages
_MIN_KEYS_PER_BUFFER = 2**13
_MAX_QUERIES_PER_BLOCK = 2**14
_THREADS_OF_ROWS, _ROWS_PER_BLOCK = 256, 8  # where a warp works for a row
_THREADS_OF_SORTS = 512  # where a block sorts the keys of a query
_MANY_QUERIES = 2**8  # with fewer queries, a thread block is larger, because there are fewer blocks than fit the device
_SELECTION_BYTES = 1056  # size of the structure Selection in ``device_search.cu``
_MAX_KEYS_IN_SHARED_MEMORY = 4096
_LARGEST_TF32_SCORE = 2.0**126  # queries whose scores may exceed it are left to another search


class SearchStatus(IntFlag):
    """Bits of the state of a query that the kernels in ``device_search.cu`` set."""

    TIED = 1
    CROWDED = 2
    TOO_LARGE = 4
    OUT_OF_BOUND = 8


@dataclass(frozen=True)
class DeviceHits:
    """The hits of a block of queries, on the device, and the state of each query.

    ``passages`` (m, k) int64 and ``scores`` (m, k) float32 are padded with -1 and -inf. ``states`` (m,) int32, a NumPy
    array, holds bits of :class:`SearchStatus`; the hits of a query that is CROWDED or TOO_LARGE are missing.
    """

    passages: Any
    scores: Any
    states: NDArray[np.int32]


def queries_at_once(device: Device, n: int, k: int) -> int:
    """Return the number of queries whose scores and buffers fit half of the free memory."""
    bytes_of_query = 4 * min(n, _PASSAGES_PER_TILE) + 8 * _capacity(n, k) + 12 * k
    return batch_size_for_memory(device.half_of_memory(), bytes_of_query, most=_MAX_QUERIES_PER_BLOCK)


def nearest(
    device: Device, queries: Any, vectors: Any, k: int, excluded: Ints, longest: float, order: IdOrder
) -> DeviceHits:
    """Return the k nearest passages of each query.

    Parameters
    ----------
    device : Device
        Where the arrays are. It must be the current one.
    queries, vectors : (m, d) and (n, d) float32 arrays
        In C order; n is below 2^32.
    k : int
        At most :data:`MAX_K`.
    excluded : (m, 2) NumPy array
        The first passage that each query excludes, and the one after the last.
    longest : float
        An upper bound on the lengths of the passages.
    order : IdOrder
        The order of equal scores.
    """
    xp, m, n, width = device.xp, len(queries), len(vectors), int(vectors.shape[1])
    capacity, n_columns, threads = _capacity(n, k), _columns(device, m, n), 1024 if m < _MANY_QUERIES else 256
    bounds, floors = xp.empty(m, dtype=np.float64), xp.empty(m, dtype=np.float32)
    counts, states = xp.empty(m, dtype=np.int32), xp.empty(m, dtype=np.int32)
    keys, tile_scores = xp.empty((m, capacity), dtype=np.uint64), xp.empty((m, n_columns), dtype=np.float32)
    hits = xp.empty((m, k), dtype=np.int64), xp.empty((m, k), dtype=np.float32)
    ranges = xp.asarray(np.ascontiguousarray(excluded))

    of_bound = [np.float64(value) for value in (longest, *error_bound(width, longest), _LARGEST_TF32_SCORE)]
    sizes = np.int32(m), np.int32(width)
    state_of_queries = bounds, floors, counts, states
    blocks = count_blocks(m, _ROWS_PER_BLOCK, most=m)
    _KERNELS.launch(device, "begin_search", blocks, _THREADS_OF_ROWS, queries, *sizes, *of_bound, *state_of_queries)
    for first in range(0, n, n_columns):
        check_wanted()
        tile = vectors[first : first + n_columns]
        tf32_product(queries, tile, tile_scores[:, : len(tile)])
        of_tile = np.int32(n_columns), np.int32(len(tile)), np.uint32(first), np.int32(k), np.int32(capacity)
        arrays = tile_scores, *of_tile, ranges, *state_of_queries, keys
        _KERNELS.launch(device, "keep_best", m, threads, *arrays, shared_bytes=_SELECTION_BYTES)
    shared_bytes = _SELECTION_BYTES + 8 * min(_MAX_KEYS_IN_SHARED_MEMORY, capacity)
    of_buffer = np.int32(k), np.int32(capacity), np.int32(min(_MAX_KEYS_IN_SHARED_MEMORY, capacity))
    survivors = queries, vectors, np.int32(width), *of_buffer, *state_of_queries, keys
    _KERNELS.launch(device, "rank_exactly", m, _THREADS_OF_SORTS, *survivors, *hits, shared_bytes=shared_bytes)
    host_states = states.get()
    by_id = order.on(device) if (host_states & SearchStatus.TIED).any() else None
    if by_id is not None:
        ties = *of_buffer, counts, states, *by_id, keys, hits[0]
        _KERNELS.launch(device, "order_ties", m, _THREADS_OF_SORTS, *ties, shared_bytes=shared_bytes)
    return DeviceHits(*hits, host_states)


def error_bound(width: int, longest: float) -> tuple[float, float, float]:
    """Return (a, b, c): the scores of query q differ from the exact ones by at most a · |q| · longest + b + c · |q|.

    An exact score is rounded to float32, after a sum in float64 (2^-24, and less than 2^-52 for each product, with
    a margin for lengths that are computed in float64, too).
    """
    relative = tf32_error(width) + 2.0**-24 + (width + 2) * 2.0**-52
    # Below 2^-126, rounding to float32 is off by up to 2^-150, and a score in TF32 may be taken as zero.
    return relative, underflow_error(width, 0, longest) + 2.0**-126 + 2.0**-150, 2.0**-126 * math.sqrt(width)


def length_of_longest(device: Device, vectors: Any) -> float:
    """Return the length of the longest of the vectors (n, d), computed in float64."""
    bits = device.xp.zeros(1, dtype=np.uint64)
    sizes = np.int64(len(vectors)), np.int32(vectors.shape[1])
    blocks = count_blocks(len(vectors), _ROWS_PER_BLOCK, most=2**11)
    _KERNELS.launch(device, "largest_square", blocks, _THREADS_OF_ROWS, vectors, *sizes, bits)
    return math.sqrt(float(bits.get().view(np.float64)[0]))


def exact_scores(device: Device, queries: Any, vectors: Any, candidates: Any) -> Any:
    """Return the inner products of queries (m, d) with their candidates (m, c), as float32 (m, c) on the device.

    They are summed in float64, with the same bits as those of :func:`nearest`. A candidate of -1 gets -inf.
    """
    xp = device.xp
    scores = xp.empty(candidates.shape, dtype=np.float32)
    if scores.size:
        arrays = (xp.ascontiguousarray(array) for array in (queries, vectors, candidates))
        sizes = np.int32(vectors.shape[1]), np.int64(candidates.shape[1]), np.int64(scores.size)
        blocks = count_blocks(scores.size, _ROWS_PER_BLOCK, most=2**16)
        _KERNELS.launch(device, "inner_products", blocks, _THREADS_OF_ROWS, *arrays, *sizes, scores)
    return scores


def _capacity(n: int, k: int) -> int:
    """Return the number of keys of a query's buffer: half of it holds all passages, or at least four times k."""
    return 1 << (min(max(_MIN_KEYS_PER_BUFFER, 8 * k), 2 * max(n, k)) - 1).bit_length()


def _columns(device: Device, m: int, n: int) -> int:
    """Return the number of passages of a tile; rows of 128 bytes are written fastest."""
    fitting = batch_size_for_memory(device.half_of_memory() / 2, 4 * m, most=_SCORES_PER_TILE // m)
    return min(n, max(_PASSAGES_PER_TILE, fitting // 32 * 32))
