"""One outer iteration of working-set SMO on NumPy arrays: the twin of the CUDA kernels beside it.

The four functions take the same arrays as the kernels and do the same, bag after bag: choose a working set, compute
its kernel matrix, optimise its coefficients with all others held, and take what that changed from all residuals.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba import njit

_F = np.float32
OUT_OF_REACH = 1e30
_BLOCK = 512  # rows whose residuals are updated at a time: they stay in the first-level cache


def kernel_value(
    kq: Any,
    kp: Any,
    query: Any,
    passage: Any,
    interactions: Any,
    n_interactions: int,
    evidence: Any,
    n_evidence: int,
    root: Any,
    row: int,
    place: int,
    k: int,
) -> Any:  # pragma: no cover - compiled
    """Kq · Kp · Kr + r r Ks of ``row``, whose passage's kernel values are ``kp[place]``, with row ``k``; float32."""
    value = kq[query[row], query[k]] * kp[place, passage[k]]
    if n_interactions > 0:
        far = _F(0)
        for f in range(n_interactions):
            d = interactions[f, row] - interactions[f, k]
            far += d * d
        value *= _F(math.exp(-far))
    if n_evidence > 0:
        weight = root[row] * root[k]
        if weight > 0:
            far = _F(0)
            for f in range(n_evidence):
                d = evidence[f, row] - evidence[f, k]
                far += d * d
            value += weight * _F(math.exp(-far))
    return value


_value = njit(inline="always")(kernel_value)


def choose(
    gain: Any,
    cost: Any,
    offsets: Any,
    tol: Any,
    limit: Any,
    working: Any,
    size: Any,
    kept: Any,
    report: Any,
) -> None:
    """Fill ``working`` (n_bags, q) with rows, ``size`` (n_bags,) of them; 0 where a bag is done.

    Rows that the last choice added are kept (``kept`` of them), every second where they fill more than half; of the
    places left, half go to the largest gains and half to the smallest costs, ties to the lower row. A bag of q rows
    or fewer is its own working set.
    ``report`` (n_bags, 2) takes the violation; it holds the steps taken so far.
    """
    q = working.shape[1]
    for b in range(len(size)):
        start, stop = offsets[b], offsets[b + 1]
        report[b, 0] = gain[start:stop].max() - cost[start:stop].min()
        if report[b, 0] < tol[b] or report[b, 1] >= limit[b]:
            size[b] = kept[b] = 0
            continue
        if stop - start <= q:
            size[b], kept[b] = stop - start, 0
            working[b, : size[b]] = np.arange(start, stop)
            continue
        added = working[b, kept[b] : size[b]]
        old = added[: len(added) // 2 * 2 : 2].copy() if len(added) > q // 2 else added.copy()
        free = np.ones(stop - start, dtype=bool)
        free[old - start] = False
        up = _largest(gain[start:stop], free, (q - len(old)) // 2)
        free[up] = False
        low = _largest(-cost[start:stop], free, q - len(old) - len(up))
        chosen = np.concatenate([old, start + up, start + low])
        working[b, : len(chosen)] = chosen
        size[b], kept[b] = len(chosen), len(old)


def _largest(values: Any, free: Any, most: int) -> Any:
    """Positions of the largest values within reach, in rising order."""
    able = np.flatnonzero(free & (values > -OUT_OF_REACH / 2))
    if len(able) <= most:
        return able
    values = values[able]
    threshold = np.partition(values, len(able) - most)[len(able) - most]
    above, equal = np.flatnonzero(values > threshold), np.flatnonzero(values == threshold)
    return able[np.sort(np.concatenate([above, equal[: most - len(above)]]))]


@njit(nogil=True, cache=True)
def fill_matrix(
    kq: Any,
    kp: Any,
    query: Any,
    passage: Any,
    interactions: Any,
    n_interactions: int,
    evidence: Any,
    n_evidence: int,
    root: Any,
    working: Any,
    place: Any,
    size: Any,
    matrix: Any,
) -> None:  # pragma: no cover - compiled
    """``matrix`` (n_bags, q, q): the kernel values of the working sets."""
    for b in range(len(size)):
        for i in range(size[b]):
            for j in range(size[b]):
                matrix[b, i, j] = _value(
                    kq,
                    kp,
                    query,
                    passage,
                    interactions,
                    n_interactions,
                    evidence,
                    n_evidence,
                    root,
                    working[b, i],
                    place[b, i],
                    working[b, j],
                )


@njit(inline="always")
def _offsets(beta: Any, bound: Any, epsilon: Any) -> Any:  # pragma: no cover - compiled
    """What raising a coefficient gains beside its residual, and what lowering it costs."""
    up = epsilon if beta < 0 else (-epsilon if beta < bound else -_F(OUT_OF_REACH))
    low = -epsilon if beta > 0 else (epsilon if beta > -bound else _F(OUT_OF_REACH))
    return up, low


@njit(nogil=True, cache=True)
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
    most: int,
    beta: Any,
    delta: Any,
    report: Any,
) -> None:  # pragma: no cover - compiled
    """SMO on the working sets, up to ``most`` steps; ``delta`` (n_bags, q) takes the changes of the coefficients.

    Ends where the violation within the set is below ``tol`` and, unless the set is the whole bag (``fraction`` 0),
    below that fraction of what it was at first.
    """
    q = working.shape[1]
    e, up, low = np.empty(q, dtype=np.float32), np.empty(q, dtype=np.float32), np.empty(q, dtype=np.float32)
    first, top, now = np.empty(q), np.empty(q), np.empty(q)
    for b in range(len(size)):
        m, kernel = size[b], matrix[b]
        for t in range(m):
            row = working[b, t]
            e[t], top[t], first[t], now[t] = error[row], bound[row], beta[row], beta[row]
            up[t], low[t] = _offsets(now[t], top[t], epsilon)
        stop, taken = tol[b], 0
        allowed = min(float(most), limit[b] - report[b, 1])
        while m > 0 and taken < allowed:
            gain, least, i = -_F(3e38), _F(3e38), 0
            for t in range(m):
                g = e[t] + up[t]
                if g > gain:
                    gain, i = g, t
                least = min(least, e[t] + low[t])
            if taken == 0:
                stop = max(stop, fraction[b] * (gain - least))
            if gain - least < stop:
                break
            best, j = -_F(1), 0
            for t in range(m):
                d = max(gain - (e[t] + low[t]), _F(0))
                d = d * d / max(kernel[i, i] + kernel[t, t] - _F(2) * kernel[i, t], _F(1e-12))
                if d > best:
                    best, j = d, t
            curvature = max(kernel[i, i] + kernel[j, j] - _F(2) * kernel[i, j], _F(1e-12))
            # A coefficient stops at 0, where its offset changes sign, and at its bound.
            room_i = -now[i] if now[i] < 0 else top[i] - now[i]
            room_j = now[j] if now[j] > 0 else top[j] + now[j]
            move = min(np.float64(gain - (e[j] + low[j])) / curvature, min(room_i, room_j))
            now[i] = (0.0 if now[i] < 0 else top[i]) if move == room_i else now[i] + move
            now[j] = (0.0 if now[j] > 0 else -top[j]) if move == room_j else now[j] - move
            for k in (i, j):
                up[k], low[k] = _offsets(now[k], top[k], epsilon)
            change = _F(move)
            for t in range(m):
                e[t] -= change * (kernel[i, t] - kernel[j, t])
            taken += 1
        for t in range(m):
            beta[working[b, t]] = now[t]
            delta[b, t] = now[t] - first[t]
        report[b, 1] += taken


@njit(nogil=True, cache=True)
def update(
    kq: Any,
    kp: Any,
    query: Any,
    passage: Any,
    interactions: Any,
    n_interactions: int,
    evidence: Any,
    n_evidence: int,
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
) -> None:  # pragma: no cover - compiled
    """Take Σ_w delta_w K(w, k) from the residual of every row k; what raising it gains and lowering it costs then."""
    plain = n_interactions == 0 and n_evidence == 0
    total = np.empty(_BLOCK)
    for b in range(len(size)):
        for start in range(offsets[b], offsets[b + 1], _BLOCK):
            stop = min(start + _BLOCK, offsets[b + 1])
            total[:] = 0
            for s in range(size[b]):
                d, row, at = delta[b, s], working[b, s], place[b, s]
                if d == 0:
                    continue
                if plain:
                    kq_row, kp_row = kq[query[row]], kp[at]
                    for k in range(start, stop):
                        total[k - start] += d * (kq_row[query[k]] * kp_row[passage[k]])
                else:
                    for k in range(start, stop):
                        total[k - start] += d * _value(
                            kq,
                            kp,
                            query,
                            passage,
                            interactions,
                            n_interactions,
                            evidence,
                            n_evidence,
                            root,
                            row,
                            at,
                            k,
                        )
            for k in range(start, stop):
                error[k] -= total[k - start]
                up, low = _offsets(beta[k], bound[k], epsilon)
                gain[k], cost[k] = error[k] + up, error[k] + low
