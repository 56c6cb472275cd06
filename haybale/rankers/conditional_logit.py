"""The conditional logit: weights of features that make the relevant documents of queries likely."""

from __future__ import annotations

import warnings
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from haybale.parallel import in_threads, one_blas_thread
from haybale.retrieval.hits import Ints
from haybale.vectors import Floats

_ROWS = 2**12  # turned to float64 at once: with 20 features they and their product stay in a core's cache

Array = NDArray[np.float64]


@one_blas_thread()
def conditional_logit(
    query: Ints, features: Floats, target: Array, l2: float, max_iter: int, prior_coef: Array | None = None
) -> tuple[Array, Array, float, int]:
    """Return ``(weights, spread, loss, steps)`` at the minimum of the loss.

    loss = −Σ over documents d of target_d · log softmax(x·w)_d + l2 · |w − w⁰|²

    The softmax is over the documents of a query. In the penalty the weights are those of standardised features; a
    constant feature has weight 0. The weights (f,) that are returned are those of the raw features, and ``spread`` (f,)
    are their standard deviations. Newton's method starts at w⁰, and its steps are halved until they lower the loss. The
    result has the same bits whatever the number of threads, on processors of one kind: each block of queries is
    computed by one thread, and the blocks are added in their order.

    McFadden, "Conditional Logit Analysis of Qualitative Choice Behavior", 1974; as a loss of rankings, ListNet's of Cao
    et al., "Learning to Rank: From Pairwise Approach to Listwise Approach", ICML 2007.

    Parameters
    ----------
    query : (n,) int
        The query of each document, rising.
    features : (f, n) float32
        x, raw.
    target : (n,) float64
        Sums over a query's documents to its share of the loss.
    l2 : float
    max_iter : int
        Newton steps, at most; a :class:`~sklearn.exceptions.ConvergenceWarning` if they were too few.
    prior_coef : (f,) float64, optional
        w⁰, as weights of the raw features; default: 0.
    """

    # A constant has deviation 0 exactly; its mean may be rounded.
    spread = np.array(in_threads(lambda x: float(x.std(dtype=np.float64)) if np.ptp(x) > 0 else 0.0, features))
    scale = np.divide(1, spread, out=np.zeros_like(spread), where=spread > 0)
    starts = np.flatnonzero(np.diff(query, prepend=-1))
    counts, share = np.diff(np.append(starts, len(query))), np.add.reduceat(target, starts)
    if not (counted := share > 0).all():
        rows = np.repeat(counted, counts)
        features, target, counts, share = features[:, rows], target[rows], counts[counted], share[counted]
    ends = np.append(0, np.cumsum(counts))
    cuts = np.append(np.flatnonzero(np.diff(ends[:-1] // _ROWS, prepend=-1)), len(counts))

    def of_block(raw: Array, first: int, last: int) -> tuple[float, Array, Array]:
        """Return what whole queries, about _ROWS rows, add to the loss, gradient and Hessian in the raw weights."""
        part = slice(ends[first], ends[last])
        starts, of = ends[first:last] - ends[first], np.repeat(np.arange(last - first), counts[first:last])
        some = features[:, part].astype(np.float64, order="C")
        score = raw @ some
        score -= np.maximum.reduceat(score, starts)[of]
        chance = np.exp(score)
        total = np.add.reduceat(chance, starts)
        loss = -float(target[part] @ (score - np.log(total)[of]))
        chance *= (share[first:last] / total)[of]
        weighted = some * chance
        mean = np.add.reduceat(weighted, starts, axis=1)  # (f, queries), times the query's share
        return loss, mean.sum(axis=1) - some @ target[part], weighted @ some.T - (mean / share[first:last]) @ mean.T

    def at(weights: Array) -> tuple[float, Array, Array]:
        """Return the loss at standardised weights (f,), its gradient (f,) and its Hessian (f, f)."""
        loss, gradient, hessian = 0.0, np.zeros_like(scale), np.zeros((len(scale), len(scale)))
        for added, slope, bend in in_threads(lambda block: of_block(weights * scale, *block), pairwise(cuts)):
            loss, gradient, hessian = loss + added, gradient + slope, hessian + bend
        hessian = hessian * scale[:, None] * scale + 2 * l2 * np.eye(len(scale))
        away = weights - centre
        return float(loss + l2 * away @ away), gradient * scale + 2 * l2 * away, hessian

    centre = np.zeros(len(scale)) if prior_coef is None else prior_coef * spread
    weights = centre.copy()
    loss, gradient, hessian = at(weights)
    for n_iter in range(max_iter):
        step = -np.linalg.lstsq(hessian, gradient, rcond=None)[0]  # singular without l2, if features are collinear
        slope, length = float(gradient @ step), 1.0
        if -slope <= 1e-12 * max(1.0, abs(loss)):
            return weights * scale, spread, loss, n_iter
        following = at(weights + step)
        while following[0] > loss + 1e-4 * length * slope and length > 1e-6:
            length /= 2
            following = at(weights + length * step)
        weights, (loss, gradient, hessian) = weights + length * step, following
    from sklearn.exceptions import ConvergenceWarning

    warnings.warn(f"no minimum after max_iter={max_iter} steps", ConvergenceWarning, stacklevel=5)
    return weights * scale, spread, loss, max_iter
