"""One regressor on a device, against the same on the CPU; its problem is solved on the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from haybale.device import Device, to_numpy
from haybale.ensemble import ProductKernelSVR
from haybale.ensemble.problem import Dual, Problem
from haybale.ensemble.solvers.product import solve_product
from haybale.errors import DeviceError

CUDA = Device("cuda", 0)


def on_host(problem: Problem) -> Dual:
    """A solver that knows no device, and is given halves that are on one."""
    assert problem.device == CUDA
    return solve_product(problem.to_numpy())


def rows(seed: int = 0):
    rng = np.random.default_rng(seed)
    q, p = rng.normal(size=(8, 3)).astype(np.float32), rng.normal(size=(25, 3)).astype(np.float32)
    query, passage = rng.integers(8, size=90), rng.integers(25, size=90)
    return q, p, query, passage, np.sin(2 * q[query, 0]) * p[passage, 0]


@pytest.mark.parametrize("settings", [{}, {"interactions": ("difference", "product")}, {"gamma": (0.4, 0.2)}])
def test_a_regressor_on_a_device(cupy: Any, settings: dict[str, Any], tmp_path: Path) -> None:
    q, p, query, passage, y = rows()
    weight = np.linspace(0.5, 2, 90)
    there = [cupy.asarray(part) for part in (q, p)]
    theirs = ProductKernelSVR(tol=1e-5, **settings).fit_pairs(q, p, query, passage, y, weight)
    ours = ProductKernelSVR(tol=1e-5, solver=on_host, **settings)
    numbers = cupy.asarray(query), cupy.asarray(passage)
    ours.fit_pairs(*there, *numbers, cupy.asarray(y), cupy.asarray(weight))
    assert ours.expansion_.device == CUDA
    assert isinstance(ours.dual_coef_, np.ndarray)
    expected = theirs.predict_pairs(q, p, query, passage)
    found = ours.predict_pairs(*there, *numbers)
    assert isinstance(found, cupy.ndarray)
    np.testing.assert_allclose(to_numpy(found), expected, atol=1e-4)
    assert isinstance(ours.predict_pairs(q, p, query, passage), np.ndarray)
    ours.save(tmp_path / "model")
    here = ProductKernelSVR.load(tmp_path / "model")
    np.testing.assert_allclose(here.predict_pairs(q, p, query, passage), expected, atol=1e-4)
    with pytest.raises(DeviceError, match="Q are on cuda:0, and would meet arrays on cpu"):
        here.predict_pairs(*there, query, passage)
    again = ProductKernelSVR.load(tmp_path / "model", device="cuda")
    assert again.expansion_.device == CUDA
    np.testing.assert_allclose(again.predict_pairs(q, p, query, passage), expected, atol=1e-4)


def test_features_on_a_device(cupy: Any) -> None:
    q, p, query, passage, y = rows()
    x = np.concatenate([q[query], p[passage]], axis=1)
    expected = ProductKernelSVR(split=3, tol=1e-5).fit(x, y).predict(x)
    for given, device in ((cupy.asarray(x), None), (x, "cuda")):
        ours = ProductKernelSVR(split=3, tol=1e-5, solver=on_host, device=device).fit(given, y)
        assert ours.expansion_.device == CUDA
        found = ours.predict(cupy.asarray(x))
        assert isinstance(found, cupy.ndarray)
        np.testing.assert_allclose(to_numpy(found), expected, atol=1e-4)
        np.testing.assert_allclose(ours.predict(x), expected, atol=1e-4)
    ours = ProductKernelSVR(solver=on_host).fit(cupy.asarray(x), cupy.asarray(y), cupy.ones(90))  # one half only
    np.testing.assert_allclose(ours.predict(x), ProductKernelSVR().fit(x, y).predict(x), atol=2e-3)


def test_a_regressor_refuses_what_cannot_be(cupy: Any) -> None:
    q, p, query, passage, y = rows()
    x = np.concatenate([q[query], p[passage]], axis=1)
    with pytest.raises(DeviceError, match="X are on cuda:0, and would meet arrays on cpu"):
        ProductKernelSVR(device="cpu").fit(cupy.asarray(x), y)
    with pytest.raises(DeviceError, match="X are on cuda:0, and would meet arrays on cpu"):
        ProductKernelSVR().fit(x, y).predict(cupy.asarray(x))
    with pytest.raises(DeviceError, match="P: a sparse matrix stays on the CPU"):
        ProductKernelSVR().fit_pairs(cupy.asarray(q), sparse.csr_matrix(p), query, passage, y)
    with pytest.raises(DeviceError, match="'cuda:97' does not exist"):
        ProductKernelSVR(device="cuda:97").fit(x, y)
