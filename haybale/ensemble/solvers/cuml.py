"""``cuml.svm.SVR`` on a GPU: on the gathered kernel matrix, or on materialised features where that is too large.

cuML addresses dense input with 32-bit integers: rows × columns must stay below 2^31 and it does not check, so it is
checked here. That is 46,340 rows for a kernel matrix, and 2^31 / width rows for features.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from haybale.ensemble.problem import Dual, Problem
from haybale.errors import InputError
from haybale.extras import require

_INDEXABLE = 2**31 - 1


def solve_cuml(problem: Problem) -> Dual:
    """On the gathered kernel matrix up to 46,340 rows; on [q ; p] beyond, where the kernel is a plain product."""
    n = len(problem.label)
    if n * n <= _INDEXABLE and 4 * n * n <= problem.memory_budget:
        # A number as gamma: 'scale' would take the variance of the whole kernel matrix. The matrix is symmetric,
        # so its transpose is itself in the Fortran order that cuML wants.
        return _fitted({"kernel": "precomputed", "gamma": 1.0}, problem.gram().T, problem)
    if problem.evidence is not None:
        raise InputError(
            f"cuML takes pair features as a kernel matrix only, at most 46,340 rows and within memory_budget; "
            f"this bag has {n:,} rows"
        )
    features = problem.features()
    if not isinstance(features, np.ndarray):
        raise InputError(f"cuML takes sparse spaces as a kernel matrix only; this bag has {n:,} rows")
    if features.size > _INDEXABLE:
        raise InputError(f"cuML addresses 2^31 - 1 numbers; this bag has {n:,} rows × {features.shape[1]:,} features")
    return _fitted({"kernel": "rbf", "gamma": 1.0}, features, problem)


def _fitted(kernel: dict[str, Any], x: Any, problem: Problem) -> Dual:
    svm = require("cuml.svm", "gpu")
    settings = {"C": problem.C, "epsilon": problem.epsilon, "tol": problem.tol, "max_iter": problem.max_iter}
    model = svm.SVR(**kernel, **settings, output_type="numpy")
    weight = problem.weight.astype(np.float32)
    model.fit(x, problem.label.astype(np.float32), sample_weight=weight)
    coef = np.zeros(len(problem.label))
    coef[np.asarray(model.support_, dtype=np.int64)] = np.asarray(model.dual_coef_, dtype=np.float64).ravel()
    return Dual(coef, float(np.ravel(model.intercept_)[0]), int(np.max(getattr(model, "n_iter_", 0))))
