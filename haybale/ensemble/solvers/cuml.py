"""``cuml.svm.SVR`` on a GPU: on the gathered kernel matrix, or on materialised features where that is too large.

Where the halves are on a device, the matrix or the features are made there and never leave it. cuML addresses dense
input with 32-bit integers: rows × columns must stay below 2^31 and it does not check, so it is checked here. That is
46,340 rows for a kernel matrix, and 2^31 / width rows for features.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from haybale.device import to_device, to_numpy
from haybale.ensemble.problem import Dual, Problem
from haybale.errors import InputError
from haybale.extras import require

_INDEXABLE = 2**31 - 1
_OLDEST = (26, 2)  # the first release whose SVR takes a kernel matrix


def solve_cuml(problem: Problem) -> Dual:
    """On the gathered kernel matrix up to 46,340 rows; on [q ; p] beyond, where the kernel is a plain product.

    Errors: :class:`~haybale.errors.MissingExtraError` without cuML; :class:`InputError` for a cuML before 26.02, and
    for a bag beyond its limits.
    """
    _check_version()
    n = len(problem.label)
    if n * n <= _INDEXABLE and 4 * n * n <= problem.memory_budget:
        # A number as gamma: 'scale' would take the variance of the whole kernel matrix. The matrix is symmetric,
        # so its transpose is itself in the Fortran order that cuML wants.
        with problem.device.current():
            return _fitted({"kernel": "precomputed", "gamma": 1.0}, problem.gram().T, problem)
    if problem.evidence is not None:
        raise InputError(
            f"cuML takes pair features as a kernel matrix only, at most 46,340 rows and within memory_budget; "
            f"this bag has {n:,} rows"
        )
    with problem.device.current():
        features = problem.features()
        if sparse.issparse(features):
            raise InputError(f"cuML takes sparse spaces as a kernel matrix only; this bag has {n:,} rows")
        if features.size > _INDEXABLE:
            raise InputError(
                f"cuML addresses 2^31 - 1 numbers; this bag has {n:,} rows × {features.shape[1]:,} features"
            )
        return _fitted({"kernel": "rbf", "gamma": 1.0}, features, problem)


def _check_version() -> None:
    version = str(require("cuml", "gpu").__version__)
    found = tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())
    if found < _OLDEST:
        raise InputError(f"cuML {version} has no kernel='precomputed' in its SVR; 26.02 or later is expected")


def _fitted(kernel: dict[str, Any], x: Any, problem: Problem) -> Dual:
    svm = require("cuml.svm", "gpu")
    settings = {"C": problem.C, "epsilon": problem.epsilon, "tol": problem.tol, "max_iter": problem.max_iter}
    # Labels and weights go where x is; what comes back is one number a support vector, wherever it is.
    model = svm.SVR(**kernel, **settings, output_type="numpy" if problem.device.is_cpu else "cupy")
    label, weight = (to_device(values.astype(np.float32), problem.device) for values in (problem.label, problem.weight))
    model.fit(x, label, sample_weight=weight)
    coef = np.zeros(len(problem.label))
    coef[to_numpy(model.support_).astype(np.int64)] = to_numpy(model.dual_coef_).astype(np.float64).ravel()
    intercept = float(np.ravel(to_numpy(model.intercept_))[0])
    return Dual(coef, intercept, int(np.max(to_numpy(getattr(model, "n_iter_", 0)))))
