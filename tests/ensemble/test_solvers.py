"""The table of solvers, and cuML, for which a double follows its documentation."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from sklearn.svm import SVR
from support.cupy_double import HAS_CUDA
from support.problems import check_same, moved, random_problem, realistic

from haybale.device import device_of, to_device, to_numpy
from haybale.ensemble import SOLVERS, batched_smo
from haybale.ensemble import cuml as module
from haybale.ensemble.bagging import solve_bags
from haybale.ensemble.cuml import solve_cuml
from haybale.ensemble.solvers import find_solver
from haybale.errors import DeviceError, InputError, MissingExtraError, UnknownNameError


class _CumlSVR:
    """The part of cuml.svm.SVR that haybale uses: float32 arrays, and a kernel matrix in Fortran order."""

    where = "cpu"

    def __init__(self, *, kernel, gamma, C, epsilon, tol, max_iter, output_type) -> None:
        assert (kernel, gamma) == ("precomputed", 1.0)
        assert output_type == ("numpy" if self.where == "cpu" else "cupy")
        self._model = SVR(kernel=kernel, gamma=gamma, C=C, epsilon=epsilon, tol=tol, max_iter=max_iter)

    def fit(self, x, y, sample_weight=None):
        assert x.dtype == y.dtype == sample_weight.dtype == np.float32
        assert x.flags.f_contiguous
        devices = {device_of(array) for array in (x, y, sample_weight)}
        assert [device.kind for device in devices] == [self.where]
        device = devices.pop()
        x, y, sample_weight = (to_numpy(array) for array in (x, y, sample_weight))
        self._model.fit(x.astype(np.float64), y, sample_weight=sample_weight)
        self.support_ = to_device(self._model.support_.astype(np.int32), device)
        self.dual_coef_ = to_device(self._model.dual_coef_.astype(np.float32), device)
        self.intercept_ = to_device(self._model.intercept_.astype(np.float32), device)
        self.n_iter_ = np.array([7])
        return self


@pytest.fixture
def cuml(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    package, svm = ModuleType("cuml"), ModuleType("cuml.svm")
    package.svm, svm.SVR = svm, _CumlSVR  # type: ignore[attr-defined]
    package.__version__ = "26.10.00"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cuml", package)
    monkeypatch.setitem(sys.modules, "cuml.svm", svm)
    return package


@pytest.mark.parametrize("features", [False, True])
def test_on_the_host_and_on_a_device(
    cuml: ModuleType, cupy_double: Any, monkeypatch: pytest.MonkeyPatch, features: bool
) -> None:
    """The kernel matrix, labels and weights are on the device of the vectors; the result is a NumPy array."""
    problem = random_problem(0, 40, features)
    expected, kernel = SOLVERS["sklearn"](problem), problem.gram()
    found = solve_cuml(problem)
    assert found.n_iter == 7
    np.testing.assert_allclose(
        kernel @ found.coef + found.intercept, kernel @ expected.coef + expected.intercept, atol=1e-4
    )
    monkeypatch.setattr(_CumlSVR, "where", "cuda")
    on_gpu = solve_cuml(moved(problem))
    assert on_gpu.n_iter == 7
    np.testing.assert_allclose(on_gpu.coef, found.coef, atol=1e-3)


def test_cuml_is_used_by_name_only(cuml: ModuleType, cupy_double: Any) -> None:
    problem = random_problem(0, 40)
    for where in (problem, moved(problem)):
        assert SOLVERS["cuml"](problem).n_iter == 7
        assert SOLVERS["auto"](where).n_iter != 7


def test_cuml_refuses_problems_beyond_its_limits(cuml: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = random_problem(0, 40)
    monkeypatch.setattr(module, "_MAX_KERNEL_VALUES", 40 * 40 - 1)
    with pytest.raises(InputError, match=r"46,340 rows .* 40 rows"):
        solve_cuml(problem)
    with pytest.raises(InputError, match="40 rows"):
        solve_cuml(random_problem(0, 40, memory_budget=6000))


def test_a_missing_or_old_cuml_is_reported(cuml: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    cuml.__version__ = "25.12.00"  # type: ignore[attr-defined]
    with pytest.raises(InputError, match=r"26\.02 .* 25\.12\.00"):
        solve_cuml(random_problem(0, 10))
    monkeypatch.setitem(sys.modules, "cuml", None)
    with pytest.raises(MissingExtraError, match=r"haybale\[gpu\]"):
        solve_cuml(random_problem(0, 10))


def test_auto_takes_smo_on_a_device_and_says_why_it_does_not(
    cupy: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The CPU, float64 vectors, a small budget and a device without memory are left to the working-set solver."""
    problem = random_problem(3, 60)
    assert SOLVERS["auto"](problem).n_working_sets > 0
    assert SOLVERS["auto"](moved(problem)).n_working_sets == 0
    assert not caplog.records
    small = replace(problem, memory_budget=2000)
    expected = SOLVERS["sklearn"](problem)
    for words in ("budget", "out of memory"):
        with monkeypatch.context() as patch:
            if words == "out of memory":
                patch.setattr(batched_smo, "solve_together", _fail)
            found = SOLVERS["auto"](moved(small if words == "budget" else problem))
        assert found.n_working_sets > 0
        check_same(problem, found, expected)
        (record,) = caplog.records
        assert words in record.getMessage()
        caplog.clear()
    precise = replace(problem, queries=problem.queries.precise(), passages=problem.passages.precise())
    for wrong, words in ((problem, "CPU"), (moved(small), "memory_budget"), (moved(precise), "float64")):
        with pytest.raises(InputError, match=words):
            SOLVERS["smo"](wrong)


def _fail(*_: Any) -> Any:
    raise DeviceError("out of memory")


def test_bad_problems_and_solvers_are_rejected() -> None:
    with pytest.raises(InputError, match="'label'"):
        random_problem(0, 0)
    with pytest.raises(InputError, match=r"features .* 5 rows.* 4"):
        replace(random_problem(0, 5, features=True), features=np.ones((4, 2), dtype=np.float32))
    with pytest.raises(InputError, match=r"passage .* 0\.\.8, found 9\.\.9"):
        replace(random_problem(0, 5), passage=np.full(5, 9))
    with pytest.raises(UnknownNameError, match=r"'libsvm'.*working-set"):
        find_solver("libsvm")
    with pytest.raises(InputError, match="found int"):
        find_solver(3)  # type: ignore[arg-type]


@pytest.mark.gpu
def test_larger_bags_on_a_device() -> None:
    """Bags of 6,000 rows, alone and together, without and with pair features: the same bits, within 2 · tol."""
    if not HAS_CUDA:
        pytest.skip("no CUDA device")
    plain = realistic(6000)
    features = 0.3 * np.random.default_rng(1).normal(size=(6000, 3)).astype(np.float32)
    for problem in (plain, replace(plain, features=features)):
        expected = SOLVERS["sklearn"](replace(problem, memory_budget=1e9))
        alone, again = (SOLVERS["smo"](moved(problem)) for _ in range(2))
        check_same(problem, alone, expected, 2 * problem.tol)
        rows = np.arange(6000)
        together = solve_bags(moved(problem), [rows, rows[:3000], rows], SOLVERS["smo"], None)
        for dual in (again, together[0], together[2]):
            np.testing.assert_array_equal(dual.coef, alone.coef)
            assert (dual.intercept, dual.n_iter) == (alone.intercept, alone.n_iter)
