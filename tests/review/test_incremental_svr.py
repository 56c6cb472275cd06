"""IncrementalSVR: the solution is the optimum, however its rows came."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize

from haybale.review.incremental_svr import EPSILON, IncrementalSVR


def test_the_solution_is_the_optimum_after_adding_and_removing_rows() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((12, 4)).astype(np.float32)
    kernel, label = x @ x.T + 1, np.where(rng.random(12) < 0.5, 1.0, -1.0)
    cost = rng.random((2, 12)) + 0.1
    cost[1, ::3] = 0
    svr = IncrementalSVR(2)
    for n in range(12):
        svr.add(kernel[n, : n + 1], label[n])
        svr.solve(cost[:, : n + 1])
    svr.remove(5)
    kept = np.delete(np.arange(12), 5)
    svr.solve(cost[:, kept])
    kernel, label, cost = kernel[np.ix_(kept, kept)], label[kept], cost[:, kept]
    for bag in range(2):

        def loss(beta: np.ndarray, cost: np.ndarray = cost[bag]) -> float:
            value = kernel @ beta
            errors = np.maximum(np.abs(label - value) - EPSILON, 0)
            return float(beta @ value / 2 + cost @ errors**2)

        best = minimize(loss, np.zeros(11), tol=1e-9)
        assert loss(svr.beta[bag]) < best.fun * 1.001 + 1e-6
        np.testing.assert_allclose(svr.values[bag], kernel @ svr.beta[bag], atol=1e-3)
        assert (svr.beta[bag][cost[bag] == 0] == 0).all()
