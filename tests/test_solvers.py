"""The solvers side by side, on one problem; cuML through a double that answers as cuML documents it."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import problem
from sklearn.svm import SVR
from worlds import world

from haybale.device import Device, device_of, to_device, to_numpy
from haybale.ensemble import SOLVERS, SVREnsemble
from haybale.ensemble.solvers import cuml as cuml_solver
from haybale.errors import InputError, MissingExtraError


class _CumlSVR:
    """cuml.svm.SVR as far as haybale asks: keywords only, float32 and Fortran order in, no check of its limits."""

    where = "cpu"

    def __init__(self, *, kernel, gamma, C, epsilon, tol, max_iter, output_type) -> None:
        assert kernel in ("rbf", "precomputed")
        assert output_type == ("numpy" if self.where == "cpu" else "cupy")
        self._model = SVR(kernel=kernel, gamma=gamma, C=C, epsilon=epsilon, tol=tol, max_iter=max_iter)
        self._kernel = kernel

    def fit(self, x, y, sample_weight=None):
        assert x.dtype == y.dtype == sample_weight.dtype == np.float32
        assert self._kernel == "rbf" or x.flags.f_contiguous
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


@pytest.mark.usefixtures("cuml")
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 999), n=st.integers(2, 60), evidence=st.booleans())
def test_all_solvers_agree(seed: int, n: int, evidence: bool) -> None:
    """Random problems, duplicate rows and single-label bags among them, with pair features and without."""
    posed = problem(seed, n, evidence)
    gram = posed.gram()
    names = [name for name in SOLVERS if not (evidence and name == "sklearn-features")]
    predictions = {name: gram @ (dual := SOLVERS[name](posed)).coef + dual.intercept for name in names}
    for name in names:
        np.testing.assert_allclose(predictions[name], predictions["sklearn"], atol=2e-4, err_msg=name)


@pytest.mark.usefixtures("cuml")
@pytest.mark.parametrize("solver", list(SOLVERS))
def test_an_ensemble_of_any_solver_ranks_the_same(solver: str) -> None:
    index, queries, relevant = world()
    ids = [f"q{i}" for i in range(len(queries))]
    scores = [
        SVREnsemble(3, k=10, tol=1e-5, solver=name).fit(index, queries, relevant).rank(queries, ids, k=10).to_frame()
        for name in (solver, "sklearn")
    ]
    merged = scores[0].merge(scores[1], on=["query_id", "doc_id"])
    assert len(merged) == len(scores[0]) == len(scores[1])
    np.testing.assert_allclose(merged["score_x"], merged["score_y"], atol=2e-4)


def test_cuml_is_asked_within_its_limits(cuml: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Precomputed while n² is addressable, features beyond, and an error where neither is."""
    posed = problem(0, 40)
    whole = cuml_solver.solve_cuml(posed)
    assert whole.n_iter == 7
    monkeypatch.setattr(cuml_solver, "_INDEXABLE", 40 * 40 - 1)
    np.testing.assert_allclose(cuml_solver.solve_cuml(posed).coef, whole.coef, atol=1e-4)
    with pytest.raises(InputError, match="cuML takes pair features as a kernel matrix only"):
        cuml_solver.solve_cuml(problem(0, 40, evidence=True))
    monkeypatch.setattr(cuml_solver, "_INDEXABLE", 40 * 6 - 1)
    with pytest.raises(InputError, match=r"this bag has 40 rows × 6 features"):
        cuml_solver.solve_cuml(posed)


def test_cuml_stays_on_the_device(cuml: ModuleType, cupy_double: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel matrix and the features are the device's, labels and weights go there; the result is NumPy's."""
    posed = problem(0, 40, evidence=True)
    plain = replace(posed, evidence=None, evidence_root=None)
    expected = [cuml_solver.solve_cuml(each).coef for each in (posed, plain)]
    monkeypatch.setattr(_CumlSVR, "where", "cuda")
    cuda = Device("cuda", 0)
    found = []
    for each in (posed, plain):
        there = replace(each, queries=each.queries.to(cuda), passages=each.passages.to(cuda))
        found.append(cuml_solver.solve_cuml(there))
        np.testing.assert_allclose(found[-1].coef, expected[len(found) - 1], atol=1e-3)
    monkeypatch.setattr(cuml_solver, "_INDEXABLE", 40 * 40 - 1)
    np.testing.assert_allclose(cuml_solver.solve_cuml(there).coef, expected[1], atol=1e-3)
    with pytest.raises(InputError, match="cuML takes pair features as a kernel matrix only"):
        cuml_solver.solve_cuml(replace(posed, queries=there.queries, passages=there.passages))


def test_solvers_of_the_cpu_take_halves_from_the_device(cupy_double: Any) -> None:
    posed = problem(0, 30)
    cuda = Device("cuda", 0)
    there = replace(posed, queries=posed.queries.to(cuda), passages=posed.passages.to(cuda))
    for name in ("sklearn", "sklearn-features"):
        np.testing.assert_array_equal(SOLVERS[name](there).coef, SOLVERS[name](posed).coef)


@pytest.mark.parametrize("version", ["25.12.00", "26.00", "24.04.1a1"])
def test_cuml_too_old_says_so(cuml: ModuleType, version: str) -> None:
    cuml.__version__ = version  # type: ignore[attr-defined]
    with pytest.raises(InputError, match=rf"cuML {version} has no kernel='precomputed' .* 26.02 or later is expected"):
        cuml_solver.solve_cuml(problem(0, 10))


def test_cuml_absent_names_its_pip_line() -> None:
    with pytest.raises(MissingExtraError, match=r'cuml is not installed; pip install "haybale\[gpu\]"'):
        cuml_solver.solve_cuml(problem(0, 10))


def test_rows_without_evidence_share_none() -> None:
    """K = Kq·Kp + η·Ks, and only Kq·Kp for rows that have no pair features: by hand, for every way of asking."""
    posed = problem(1, 30, evidence=True)
    q, p, s, root = posed.queries.dense, posed.passages.dense, posed.evidence, posed.evidence_root
    expected = np.empty((30, 30))
    for i in range(30):
        for j in range(30):
            kq = np.exp(-np.sum((q[posed.query[i]] - q[posed.query[j]]) ** 2))
            kp = np.exp(-np.sum((p[posed.passage[i]] - p[posed.passage[j]]) ** 2))
            expected[i, j] = kq * kp + root[i] * root[j] * np.exp(-np.sum((s[i] - s[j]) ** 2))
    np.testing.assert_allclose(posed.gram(), expected, atol=1e-5)
    np.testing.assert_allclose(posed.gram(np.array([4, 11, 2])), expected[[4, 11, 2]], atol=1e-5)
    np.testing.assert_allclose(posed.diagonal, np.diag(expected), atol=1e-5)


def test_problems_that_are_none_are_refused() -> None:
    with pytest.raises(InputError, match="an empty bag"):
        problem(0, 0)
    with pytest.raises(InputError, match="evidence and evidence_root belong together"):
        problem(0, 5, evidence_root=np.ones(5, dtype=np.float32))
    with pytest.raises(InputError, match="evidence: expected 5 rows, as there are labels, found 4"):
        replace(problem(0, 5, evidence=True), evidence=np.ones((4, 2), dtype=np.float32))
