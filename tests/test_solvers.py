"""The solvers side by side, on one problem; cuML through a double that answers as cuML documents it."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import ModuleType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.svm import SVR
from worlds import random_rows, world

from haybale.ensemble import SOLVERS, Problem, SVREnsemble
from haybale.ensemble.half import Half
from haybale.ensemble.solvers import cuml as cuml_solver
from haybale.errors import InputError, MissingExtraError


class _CumlSVR:
    """cuml.svm.SVR as far as haybale asks: keywords only, float32 and Fortran order in, no check of its limits."""

    def __init__(self, *, kernel, gamma, C, epsilon, tol, max_iter, output_type) -> None:
        assert kernel in ("rbf", "precomputed")
        assert output_type == "numpy"
        self._model = SVR(kernel=kernel, gamma=gamma, C=C, epsilon=epsilon, tol=tol, max_iter=max_iter)
        self._kernel = kernel

    def fit(self, x, y, sample_weight=None):
        assert x.dtype == y.dtype == sample_weight.dtype == np.float32
        assert self._kernel == "rbf" or x.flags.f_contiguous
        self._model.fit(x.astype(np.float64), y, sample_weight=sample_weight)
        self.support_ = self._model.support_.astype(np.int32)
        self.dual_coef_ = self._model.dual_coef_.astype(np.float32)
        self.intercept_ = np.float32(self._model.intercept_[0])
        self.n_iter_ = np.array([7])
        return self


@pytest.fixture
def cuml(monkeypatch: pytest.MonkeyPatch) -> None:
    package, svm = ModuleType("cuml"), ModuleType("cuml.svm")
    package.svm, svm.SVR = svm, _CumlSVR  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "cuml", package)
    monkeypatch.setitem(sys.modules, "cuml.svm", svm)


def problem(seed: int, n: int, evidence: bool = False, **changes) -> Problem:
    rng = np.random.default_rng(seed)
    rows = random_rows(seed, n, 5, 9)
    if evidence:
        changes["evidence"] = rng.normal(size=(n, 3)).astype(np.float32)
        changes["evidence_root"] = np.where(rng.random(n) < 0.8, np.sqrt(0.7), 0).astype(np.float32)
    halves = (Half(0.6 * rng.normal(size=(m, 3)).astype(np.float32)) for m in (5, 9))
    columns = {"query": rows.query.astype(np.int64), "passage": rows.passage.astype(np.int64)}
    return Problem(
        *halves,
        **columns,
        label=rows.label.astype(np.float64),
        weight=rng.uniform(0.5, 3, size=n),
        **({"tol": 1e-5} | changes),
    )


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
