"""``sklearn.svm.SVR``: on the gathered kernel matrix, and, as the paper has it, on materialised features."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse
from sklearn.svm import SVR

from haybale.ensemble.problem import Dual, Problem
from haybale.errors import InputError


def solve_sklearn(problem: Problem) -> Dual:
    """On the gathered kernel matrix: no feature is ever built, n² · 12 bytes are."""
    problem = problem.to_numpy()
    n = len(problem.label)
    needed = 12 * n * n  # in float32, and as libsvm's float64
    if needed > problem.memory_budget:
        raise InputError(
            f"a bag of {n:,} rows needs {needed / 1e9:.2g} GB for its kernel matrix, the memory_budget is "
            f"{problem.memory_budget / 1e9:.2g} GB; raise it, set rows_per_bag, take more bags, or solver='auto'"
        )
    return _fitted(SVR(kernel="precomputed", **_settings(problem)), problem.gram(), problem)


def solve_sklearn_features(problem: Problem) -> Dual:
    """On [q ; p] itself: slow, and the oracle of the tests. Refuses pair features, whose kernel is a sum."""
    return _fitted(SVR(kernel="rbf", gamma=1.0, **_settings(problem)), problem.features_of_rows(), problem)


def _settings(problem: Problem) -> dict[str, Any]:
    settings = {"C": problem.C, "epsilon": problem.epsilon, "tol": problem.tol, "max_iter": problem.max_iter}
    return settings | {"cache_size": 500}


def _fitted(model: SVR, x: Any, problem: Problem) -> Dual:
    model.fit(x, problem.label, sample_weight=problem.weight)
    coef = np.zeros(len(problem.label))
    dual = model.dual_coef_
    coef[model.support_] = dual.toarray()[0] if sparse.issparse(dual) else dual[0]
    # A run that max_iter ended has warned already.
    n_iter = int(np.max(model.n_iter_))
    return Dual(coef, float(model.intercept_[0]), n_iter, problem.max_iter < 0 or n_iter < problem.max_iter)
