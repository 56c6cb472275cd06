"""The conditional logit: feature weights that make the relevant documents of queries likely."""

from __future__ import annotations

import warnings
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from haybale.parallel import in_threads, one_blas_thread
from haybale.retrieval.hits import Ints
from haybale.vectors import Floats

# The documents of a block, about: with 20 float64 features, a block and its product stay in the cache of a core.
_POOLED_DOCUMENTS_PER_BLOCK = 2**12

Array = NDArray[np.float64]


@one_blas_thread()
def conditional_logit(
    query: Ints, features: Floats, target: Array, l2: float, max_iter: int, prior_coef: Array | None = None
) -> tuple[Array, Array, float, int]:
    """Fit a conditional logit, and return ``(weights, spread, loss, steps)`` at the minimum of the loss.

    loss = −Σ over documents d of target_d · log softmax(x·w)_d + l2 · |w − w⁰|²

    The softmax is over the documents of a query. The penalty is on weights of standardised features; a constant feature
    has weight 0. The returned weights (f,) are those of the raw features, and ``spread`` (f,) holds the standard
    deviations of the features. Newton's method starts at w⁰ and halves each step until it lowers the loss. On one kind
    of processor, the result is bitwise independent of the number of threads: one thread computes each block of queries,
    and the blocks are summed in order.

    McFadden, "Conditional Logit Analysis of Qualitative Choice Behavior", 1974; as a loss of rankings, ListNet's of Cao
    et al., "Learning to Rank: From Pairwise Approach to Listwise Approach", ICML 2007.

    Parameters
    ----------
    query : (n,) int
        The query number of each document, ascending.
    features : (f, n) float32
        The raw features x.
    target : (n,) float64
        The target of each document. Its sum over the documents of a query is the query's share of the loss.
    l2 : float
        Strength of the penalty.
    max_iter : int
        Largest number of Newton steps; a :class:`~sklearn.exceptions.ConvergenceWarning` is given if they are too few.
    prior_coef : (f,) float64, optional
        w⁰ as weights of the raw features; default 0.
    """
    # The computed deviation of a constant may differ from 0, because its mean is rounded.
    spread = np.array(in_threads(lambda x: float(x.std(dtype=np.float64)) if np.ptp(x) > 0 else 0.0, features))
    scale = np.divide(1, spread, out=np.zeros_like(spread), where=spread > 0)
    starts = np.flatnonzero(np.diff(query, prepend=-1))
    counts, share = np.diff(np.append(starts, len(query))), np.add.reduceat(target, starts)
    if not (has_share := share > 0).all():
        rows = np.repeat(has_share, counts)
        features, target, counts, share = features[:, rows], target[rows], counts[has_share], share[has_share]
    ends = np.append(0, np.cumsum(counts))
    cuts = np.append(np.flatnonzero(np.diff(ends[:-1] // _POOLED_DOCUMENTS_PER_BLOCK, prepend=-1)), len(counts))

    def block_loss(raw: Array, first: int, last: int) -> tuple[float, Array, Array]:
        """Return the loss, gradient and Hessian of the queries from ``first`` to ``last`` at raw weights."""
        part = slice(ends[first], ends[last])
        starts, row = ends[first:last] - ends[first], np.repeat(np.arange(last - first), counts[first:last])
        x = features[:, part].astype(np.float64, order="C")
        score = raw @ x
        score -= np.maximum.reduceat(score, starts)[row]
        probability = np.exp(score)
        total = np.add.reduceat(probability, starts)
        loss = -float(target[part] @ (score - np.log(total)[row]))
        probability *= (share[first:last] / total)[row]
        weighted = x * probability
        mean = np.add.reduceat(weighted, starts, axis=1)  # (f, queries), times the query's share
        return loss, mean.sum(axis=1) - x @ target[part], weighted @ x.T - (mean / share[first:last]) @ mean.T

    def total_loss(weights: Array) -> tuple[float, Array, Array]:
        """Return the loss at standardised weights (f,), its gradient (f,) and its Hessian (f, f)."""
        loss, gradient, hessian = 0.0, np.zeros_like(scale), np.zeros((len(scale), len(scale)))
        for parts in in_threads(lambda block: block_loss(weights * scale, *block), pairwise(cuts)):
            loss, gradient, hessian = loss + parts[0], gradient + parts[1], hessian + parts[2]
        hessian = hessian * scale[:, None] * scale + 2 * l2 * np.eye(len(scale))
        difference = weights - prior
        return float(loss + l2 * difference @ difference), gradient * scale + 2 * l2 * difference, hessian

    prior = np.zeros(len(scale)) if prior_coef is None else prior_coef * spread
    weights = prior.copy()
    loss, gradient, hessian = total_loss(weights)
    for n_iter in range(max_iter):
        step = -np.linalg.lstsq(hessian, gradient, rcond=None)[0]  # singular without l2, if features are collinear
        slope, length = float(gradient @ step), 1.0
        if -slope <= 1e-12 * max(1.0, abs(loss)):
            return weights * scale, spread, loss, n_iter
        following = total_loss(weights + step)
        while following[0] > loss + 1e-4 * length * slope and length > 1e-6:
            length /= 2
            following = total_loss(weights + length * step)
        weights, (loss, gradient, hessian) = weights + length * step, following
    from sklearn.exceptions import ConvergenceWarning

    message = f"the weights have not converged after max_iter={max_iter} steps; raise max_iter"
    warnings.warn(message, ConvergenceWarning, stacklevel=5)
    return weights * scale, spread, loss, max_iter
