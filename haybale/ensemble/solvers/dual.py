"""What our own solvers do before and after they optimise: equal rows made one, the intercept, the warning."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning

from haybale.device import to_numpy
from haybale.ensemble.problem import Problem
from haybale.ensemble.rows import Ints


def merged_rows(problem: Problem) -> tuple[Ints, NDArray[np.float64]]:
    """``(kept, weight)``: the rows that stand for themselves and their equals, sorted by query, and their weights.

    Rows with the same query, passage, evidence and label are one row with the sum of their weights (the optimum is
    the same); rows of weight zero take no part.
    """
    kept = np.flatnonzero(problem.weight > 0)
    keys: list[NDArray[Any]] = [problem.label[kept], problem.passage[kept], problem.query[kept]]
    if problem.evidence is not None:
        evidence, root = to_numpy(problem.evidence), to_numpy(problem.evidence_root)
        keys = [root[kept], *evidence[kept].T, *keys]
    order = np.lexsort(keys)
    new = np.ones(len(order), dtype=bool)
    new[1:] = np.any([key[order][1:] != key[order][:-1] for key in keys], axis=0)
    kept = kept[order]
    return kept[new], np.add.reduceat(problem.weight[kept], np.flatnonzero(new))


def centred(label: NDArray[np.float64], tol: float) -> tuple[NDArray[np.float64], float, float]:
    """``(labels around 0, what was taken from them, tol)``: small residuals lose less in float32.

    ``tol`` below a millionth of the labels' range is raised to it: float32 tells nothing finer apart.
    """
    centre = float((label.max() + label.min()) / 2)
    label = label - centre
    return label, centre, max(tol, 1e-6 * float(np.abs(label).max()))


def intercept(beta: NDArray[np.float64], error: Any, bound: NDArray[np.float64], epsilon: float) -> float:
    """The mean over free coefficients of what their optimality conditions say, as in LIBSVM."""
    error = error.astype(np.float64)
    free = (beta != 0) & (np.abs(beta) < bound)
    if free.any():
        return float(np.mean(error[free] - epsilon * np.sign(beta[free])))
    gain = np.where(beta < 0, error + epsilon, error - epsilon)[beta < bound]
    cost = np.where(beta > 0, error - epsilon, error + epsilon)[beta > -bound]
    return float((gain.max() + cost.min()) / 2)


def warn_unless_converged(n_iter: int, violation: float, tol: float) -> bool:
    """Whether it did."""
    if violation >= tol:
        warnings.warn(
            f"the support vector regressor stopped after {n_iter:,} steps with a violation of {violation:.2g}, "
            f"tol is {tol:.2g}: raise max_iter or tol",
            ConvergenceWarning,
            stacklevel=3,
        )
    return violation < tol


def step_limit(max_iter: int, n: int) -> int:
    """Steps that a solution of n rows may take; -1 stands for LIBSVM's own limit."""
    return max_iter if max_iter >= 0 else max(10_000_000, 100 * n)
