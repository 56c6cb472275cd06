"""The choice of working sets as a CUDA kernel, a block a bag; its twin in ``subproblem`` says what it chooses.

The largest of n values are found without sorting them: a threshold by counting, a few bits of it at a time.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numba import cuda as numba_cuda
from numba import float32, int32

from haybale.ensemble.solvers.cuda_kernels import kernel_of
from haybale.ensemble.solvers.subproblem import OUT_OF_REACH

cuda: Any = numba_cuda
_F = np.float32
_REACH = _F(-OUT_OF_REACH / 2)
_BITS = 8  # of a key, decided by one look at all rows
_BINS = 1 << _BITS


@cuda.jit(device=True)
def _key(bits: Any, sign: Any) -> Any:
    """0..2^32 - 1, ordered as the float32 of these bits is, or, where sign is -1, the other way round."""
    bits = np.int64(bits)
    if bits < 0:
        bits = -(bits & 0x7FFFFFFF)
    return sign * bits + 0x80000000


@cache
def choose_kernel(threads: int) -> Any:
    """``threads``: a power of two."""

    @cuda.jit(device=True)
    def scanned(counts: Any, t: Any) -> Any:
        """Inclusive sums of ``counts``, in place; what stood before place t."""
        own = counts[t]
        step = 1
        while step < threads:
            cuda.syncthreads()
            before = counts[t - step] if t >= step else 0
            cuda.syncthreads()
            counts[t] += before
            step *= 2
        cuda.syncthreads()
        return counts[t] - own

    @cuda.jit(device=True)
    def largest(
        values: Any,
        bits: Any,
        sign: Any,
        start: Any,
        stop: Any,
        mark: Any,
        most: Any,
        target: Any,
        first: Any,
        counts: Any,
        bins: Any,
        found: Any,
    ) -> Any:
        """Put the rows of the ``most`` largest sign · value into ``target`` from ``first`` on; how many there were.

        The threshold is found a few bits at a time, by counting; the rows above it are then taken in their order.
        """
        t = cuda.threadIdx.x
        prefix: Any = np.int64(0)
        want: Any = np.int64(most)
        for left in range(32 // _BITS):
            shift = 32 - _BITS - _BITS * left
            for bin in range(t, _BINS, threads):
                bins[bin] = 0
            cuda.syncthreads()
            for k in range(start + t, stop, threads):
                if mark[k] == 0 and (values[k] if sign > 0 else -values[k]) > _REACH:
                    key = _key(bits[k], sign) >> shift
                    if key >> _BITS == prefix:
                        cuda.atomic.add(bins, key & (_BINS - 1), 1)
            cuda.syncthreads()
            if t == 0:
                bin, over = _BINS - 1, 0
                while bin > 0 and over + bins[bin] < want:
                    over += bins[bin]
                    bin -= 1
                found[0], found[1] = bin, over
            cuda.syncthreads()
            prefix, want = (prefix << _BITS) | found[0], want - found[1]
            cuda.syncthreads()
        # ``prefix`` is the threshold, ``want`` how many of those equal to it are taken; fewer than ``most`` within
        # reach leave a threshold of 0 in the end, and all are taken.
        chunk = (stop - start + threads - 1) // threads
        begin, end = min(start + t * chunk, stop), min(start + (t + 1) * chunk, stop)
        above, equal = 0, 0
        for k in range(begin, end):
            if mark[k] == 0 and (values[k] if sign > 0 else -values[k]) > _REACH:
                key = _key(bits[k], sign)
                if key > prefix:
                    above += 1
                elif key == prefix:
                    equal += 1
        counts[t] = equal
        before = scanned(counts, t)
        cuda.syncthreads()
        equal = max(0, min(equal, want - before))
        counts[t] = above + equal
        place = first + scanned(counts, t)
        taken = counts[threads - 1]
        cuda.syncthreads()
        for k in range(begin, end):
            if mark[k] == 0 and (values[k] if sign > 0 else -values[k]) > _REACH:
                key = _key(bits[k], sign)
                if key > prefix or (key == prefix and equal > 0):
                    if key == prefix:
                        equal -= 1
                    target[place] = k
                    mark[k] = 1
                    place += 1
        cuda.syncthreads()
        return taken

    @kernel_of(threads)
    def choose(
        gain: Any,
        cost: Any,
        gain_bits: Any,
        cost_bits: Any,
        offsets: Any,
        tol: Any,
        limit: Any,
        mark: Any,
        working: Any,
        size: Any,
        kept: Any,
        report: Any,
    ) -> None:
        counts = cuda.shared.array(threads, int32)
        bins = cuda.shared.array(_BINS, int32)
        found = cuda.shared.array(2, int32)
        most = cuda.shared.array(threads, float32)
        least = cuda.shared.array(threads, float32)
        b, t, q = cuda.blockIdx.x, cuda.threadIdx.x, working.shape[1]
        start, stop = offsets[b], offsets[b + 1]
        most[t], least[t] = _F(-3e38), _F(3e38)
        for k in range(start + t, stop, threads):
            most[t], least[t] = max(most[t], gain[k]), min(least[t], cost[k])
            mark[k] = 0
        cuda.syncthreads()
        width = threads // 2
        while width > 0:
            if t < width:
                most[t], least[t] = max(most[t], most[t + width]), min(least[t], least[t + width])
            cuda.syncthreads()
            width //= 2
        violation = most[0] - least[0]
        begin, end = kept[b], size[b]
        done = violation < tol[b] or report[b, 1] >= limit[b]
        cuda.syncthreads()
        if t == 0:
            report[b, 0] = violation
        if done or stop - start <= q:
            for s in range(t, stop - start, threads):
                if not done:
                    working[b, s] = start + s
            if t == 0:
                size[b], kept[b] = 0 if done else stop - start, 0
            return
        # What the last choice added moves to the front; a chunk of it at a time, since the places overlap.
        step = 2 if end - begin > q // 2 else 1
        n_old = (end - begin) // step
        for chunk in range(0, n_old, threads):
            s = chunk + t
            row = working[b, begin + step * s] if s < n_old else 0
            cuda.syncthreads()
            if s < n_old:
                working[b, s] = row
                mark[row] = 1
            cuda.syncthreads()
        target = working[b]
        n_up = largest(gain, gain_bits, 1, start, stop, mark, (q - n_old) // 2, target, n_old, counts, bins, found)
        n_chosen = n_old + n_up
        n_low = largest(cost, cost_bits, -1, start, stop, mark, q - n_chosen, target, n_chosen, counts, bins, found)
        if t == 0:
            size[b], kept[b] = n_chosen + n_low, n_old

    return choose
