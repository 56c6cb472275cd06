"""What an outer iteration of working-set SMO computes, as CUDA kernels; their twins in ``subproblem`` say what it is.

A block of ``optimise`` is a bag, so that many small bags fill a device as one large bag does. Block sizes are constants
of a kernel, hence the factories. Ties go to the lower place, whatever the order of threads. Shared arrays stand on a
line each: numba's simulator tells them apart by it. How working sets are chosen is in ``cuda_choice``.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numba import config, float32, float64, int32
from numba import cuda as numba_cuda

from haybale.ensemble.solvers.subproblem import OUT_OF_REACH, kernel_value

cuda: Any = numba_cuda
_F = np.float32
_SIMULATED = bool(vars(config)["ENABLE_CUDASIM"])
_FAR = _F(OUT_OF_REACH)
_value = cuda.jit(device=True)(kernel_value)


def kernel_of(threads: int) -> Any:
    """``cuda.jit`` for blocks of that many threads: all devices have 65,536 registers for a block, and a kernel that
    takes more does not start. The simulator knows no such option."""
    return cuda.jit if _SIMULATED else cuda.jit(max_registers=min(255, 65536 // threads))


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

    @kernel_of(q)
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

    @kernel_of(threads)
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
