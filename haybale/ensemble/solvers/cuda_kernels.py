"""One outer iteration of working-set SMO as CUDA kernels; what they compute is said at their twins in ``subproblem``.

A block of ``choose`` and of ``optimise`` is a bag, so that many small bags fill a device as one large bag does. Block
sizes are constants of a kernel, hence the factories. Ties go to the lower place, whatever the order of threads. Shared
arrays stand on a line each: numba's simulator tells them apart by it.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numba import cuda as numba_cuda
from numba import float32, float64, int32

from haybale.ensemble.solvers.subproblem import OUT_OF_REACH, kernel_value

cuda: Any = numba_cuda
_F = np.float32
_FAR = _F(OUT_OF_REACH)
_REACH = _F(-OUT_OF_REACH / 2)
_BITS = 8  # of a key, decided by one look at all rows
_BINS = 1 << _BITS
_value = cuda.jit(device=True)(kernel_value)


@cuda.jit(device=True)
def _up(beta: Any, bound: Any, epsilon: Any) -> Any:
    if beta < 0:
        return epsilon
    return -epsilon if beta < bound else -_FAR


@cuda.jit(device=True)
def _low(beta: Any, bound: Any, epsilon: Any) -> Any:
    if beta > 0:
        return -epsilon
    return epsilon if beta > -bound else _FAR


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

    @cuda.jit
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


@cuda.jit
def fill_matrix(
    kq: Any,
    kp: Any,
    query: Any,
    passage: Any,
    interactions: Any,
    n_interactions: Any,
    evidence: Any,
    n_evidence: Any,
    root: Any,
    working: Any,
    place: Any,
    size: Any,
    matrix: Any,
) -> None:
    """A thread a value; the blocks' second dimension is the bag."""
    b, q = cuda.blockIdx.y, working.shape[1]
    at = cuda.blockIdx.x * cuda.blockDim.x + cuda.threadIdx.x
    i, j = at // q, at % q
    if i < size[b] and j < size[b]:
        row, k = working[b, i], working[b, j]
        matrix[b, i, j] = _value(
            kq, kp, query, passage, interactions, n_interactions, evidence, n_evidence, root, row, place[b, i], k
        )


@cache
def optimise_kernel(q: int) -> Any:
    """``q``: a power of two, at most 1,024; a thread is a row of the working set."""

    @cuda.jit
    def optimise(
        matrix: Any,
        working: Any,
        size: Any,
        error: Any,
        bound: Any,
        epsilon: Any,
        tol: Any,
        fraction: Any,
        limit: Any,
        most: Any,
        beta: Any,
        delta: Any,
        report: Any,
    ) -> None:
        largest = cuda.shared.array(q, float32)
        smallest = cuda.shared.array(q, float32)
        index = cuda.shared.array(q, int32)
        now = cuda.shared.array(q, float64)
        top = cuda.shared.array(q, float64)
        move = cuda.shared.array(1, float64)
        costs = cuda.shared.array(q, float32)
        b, t = cuda.blockIdx.x, cuda.threadIdx.x
        m, row = size[b], 0
        e, up, low, diagonal, first = _F(0), -_FAR, _FAR, _F(1), 0.0
        if t < m:
            row = working[b, t]
            e, diagonal, first = error[row], matrix[b, t, t], beta[row]
            now[t], top[t] = first, bound[row]
            up, low = _up(first, top[t], epsilon), _low(first, top[t], epsilon)
        stop, taken = tol[b], 0
        allowed = min(float64(most), limit[b] - report[b, 1])
        cuda.syncthreads()
        while m > 0 and taken < allowed:
            largest[t], smallest[t], index[t], costs[t] = e + up, e + low, t, e + low
            cuda.syncthreads()
            width = q // 2
            while width > 0:
                if t < width:
                    other = t + width
                    if largest[other] > largest[t] or (largest[other] == largest[t] and index[other] < index[t]):
                        largest[t], index[t] = largest[other], index[other]
                    smallest[t] = min(smallest[t], smallest[other])
                cuda.syncthreads()
                width //= 2
            gain, least, i = largest[0], smallest[0], index[0]
            cuda.syncthreads()
            if taken == 0:
                stop = max(stop, fraction[b] * (gain - least))
            if gain - least < stop:  # the same for all threads of the block
                break
            k_i, own = _F(0), _F(-1)
            if t < m:
                k_i = matrix[b, i, t]
                d = max(gain - (e + low), _F(0))
                own = d * d / max(matrix[b, i, i] + diagonal - _F(2) * k_i, _F(1e-12))
            largest[t], index[t] = own, t
            cuda.syncthreads()
            width = q // 2
            while width > 0:
                if t < width:
                    other = t + width
                    if largest[other] > largest[t] or (largest[other] == largest[t] and index[other] < index[t]):
                        largest[t], index[t] = largest[other], index[other]
                cuda.syncthreads()
                width //= 2
            j = index[0]
            if t == 0:
                # By one thread, in float64: the coefficients add up to 0, and reach their bounds exactly.
                curvature = max(matrix[b, i, i] + matrix[b, j, j] - _F(2) * matrix[b, i, j], _F(1e-12))
                room_i = -now[i] if now[i] < 0 else top[i] - now[i]
                room_j = now[j] if now[j] > 0 else top[j] + now[j]
                step = min(float64(gain - costs[j]) / float64(curvature), min(room_i, room_j))
                if step == room_i:
                    now[i] = 0.0 if now[i] < 0 else top[i]
                else:
                    now[i] += step
                if step == room_j:
                    now[j] = 0.0 if now[j] > 0 else -top[j]
                else:
                    now[j] -= step
                move[0] = step
            cuda.syncthreads()
            if t < m:
                e -= _F(move[0]) * (k_i - matrix[b, j, t])
                if t == i or t == j:  # noqa: SIM109, a comparison each, no tuple
                    up, low = _up(now[t], top[t], epsilon), _low(now[t], top[t], epsilon)
            taken += 1
        if t < m:
            beta[row] = now[t]
            delta[b, t] = _F(now[t] - first)
        if t == 0:
            report[b, 1] += taken

    return optimise


@cache
def update_kernel(lanes: int, slices: int) -> Any:
    """A block updates ``lanes`` rows; ``slices`` threads share a row's sum, and are added up in their order."""
    threads = lanes * slices  # a shape must be one constant, no product

    @cuda.jit
    def update(
        kq: Any,
        kp: Any,
        query: Any,
        passage: Any,
        interactions: Any,
        n_interactions: Any,
        evidence: Any,
        n_evidence: Any,
        root: Any,
        working: Any,
        place: Any,
        size: Any,
        offsets: Any,
        delta: Any,
        beta: Any,
        bound: Any,
        epsilon: Any,
        error: Any,
        gain: Any,
        cost: Any,
    ) -> None:
        part = cuda.shared.array(threads, float64)
        b, t = cuda.blockIdx.y, cuda.threadIdx.x
        k = offsets[b] + cuda.blockIdx.x * lanes + t % lanes
        inside = k < offsets[b + 1]
        total = 0.0
        if inside:
            for s in range(t // lanes, size[b], slices):
                d = delta[b, s]
                if d != 0:
                    # The product in float32, the sum in float64: it is what residuals drift by.
                    total += d * _value(
                        kq,
                        kp,
                        query,
                        passage,
                        interactions,
                        n_interactions,
                        evidence,
                        n_evidence,
                        root,
                        working[b, s],
                        place[b, s],
                        k,
                    )
        part[t] = total
        cuda.syncthreads()
        if inside and t < lanes:
            for other in range(t + lanes, threads, lanes):
                total += part[other]
            now = _F(error[k] - total)
            error[k] = now
            gain[k] = now + _up(beta[k], bound[k], epsilon)
            cost[k] = now + _low(beta[k], bound[k], epsilon)

    return update
