"""ProductKernelSVR compared with a quadratic programme and with scikit-learn, on the CPU and on a device."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from scipy.optimize import LinearConstraint, minimize
from sklearn.svm import SVR
from sklearn.utils.estimator_checks import parametrize_with_checks
from support.problems import CUDA, rbf

from haybale.device import to_numpy
from haybale.ensemble import ProductKernelSVR
from haybale.errors import DeviceError, InputError, VectorError


def pairs(seed: int, n: int, n_queries: int, n_passages: int, d: int = 3):
    """Return distinct queries and passages, pairs of them (with repetitions), and targets that depend on both."""
    rng = np.random.default_rng(seed)
    q, p = rng.normal(size=(n_queries, d)).astype(np.float32), rng.normal(size=(n_passages, d)).astype(np.float32)
    query, passage = rng.integers(n_queries, size=n), rng.integers(n_passages, size=n)
    y = np.sin(2 * q[query, 0]) * p[passage, 0] + rng.normal(scale=0.1, size=n)
    return q, p, query, passage, y


# the optimum ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(6))
def test_the_solution_is_the_optimum_of_the_quadratic_programme(seed: int) -> None:
    """Compare with SLSQP on the dense dual problem over (α, α*), and check the Karush-Kuhn-Tucker conditions."""
    q, p, query, passage, y = pairs(seed, 14, 4, 8)
    weight, c, eps = np.random.default_rng(seed).uniform(0.3, 2, size=14), 1.5, 0.1
    model = ProductKernelSVR(C=c, epsilon=eps, gamma=(0.6, 0.4), tol=1e-5)
    model.fit_pairs(q, p, query, passage, y, weight)
    kernel = rbf(q[query], q[query], 0.6) * rbf(p[passage], p[passage], 0.4)

    def objective(ab: np.ndarray) -> tuple[float, np.ndarray]:
        beta = ab[:14] - ab[14:]
        slope = kernel @ beta - y
        return float(0.5 * beta @ kernel @ beta - y @ beta + eps * ab.sum()), np.concatenate((slope + eps, eps - slope))

    bound = np.tile(c * weight, 2)
    balance = LinearConstraint(np.concatenate((np.ones(14), -np.ones(14))), 0, 0)
    options = {"ftol": 1e-14, "maxiter": 2000}
    best = minimize(
        objective,
        np.zeros(28),
        jac=True,
        bounds=[(0, b) for b in bound],
        constraints=balance,
        method="SLSQP",
        options=options,
    )
    beta = np.zeros(14)
    beta[model.support_] = model.dual_coef_[0]
    ours = 0.5 * beta @ kernel @ beta - y @ beta + eps * np.abs(beta).sum()
    assert ours == pytest.approx(best.fun, abs=1e-4)
    # Equal rows are merged, and the first of them has the coefficient.
    _, first, where = np.unique(np.stack([query, passage, y]), axis=1, return_index=True, return_inverse=True)
    box = c * np.bincount(where.ravel(), weight)
    assert abs(beta.sum()) < 1e-9
    for row, limit in zip(first, box, strict=True):
        error = y[row] - (kernel[row] @ beta + model.intercept_[0])
        if beta[row] == 0:
            assert abs(error) <= eps + 1e-4
        elif abs(beta[row]) < limit:
            assert error == pytest.approx(eps * np.sign(beta[row]), abs=1e-4)
        else:
            assert abs(beta[row]) <= limit + 1e-9
            assert error * np.sign(beta[row]) >= eps - 1e-4


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 9999),
    n=st.integers(1, 70),
    n_queries=st.integers(1, 8),
    n_passages=st.integers(1, 20),
    kind=st.sampled_from(["plain", "binary", "single", "constant features", "zero weights", "repeated"]),
    gamma=st.sampled_from(["scale", 0.3]),
)
def test_predictions_equal_those_of_scikit_learn(
    seed: int, n: int, n_queries: int, n_passages: int, kind: str, gamma
) -> None:
    """Compare random data with repeated rows, a single label, constant features, one row or weights of zero.

    Both solvers stop at the same violation, which bounds residuals and not predictions. The test therefore uses a small
    tol and a larger tolerance.
    """
    q, p, query, passage, y = pairs(seed, n, n_queries, n_passages)
    rng = np.random.default_rng(seed)
    weight = rng.uniform(0.2, 3, size=n)
    if kind == "binary":
        y = (y > 0.3).astype(float)
    if kind == "single":
        y = np.ones(n)
    if kind == "constant features":
        q[:], p[:, 1:] = 0.5, -2
    if kind == "zero weights":
        weight[rng.random(n) < 0.5] = 0
        weight[0] = 1.0
    if kind == "repeated":
        query, passage = query[rng.integers(n, size=n)], np.full(n, passage[0])
    x = np.concatenate([q[query], p[passage]], axis=1)
    theirs = SVR(gamma=gamma, tol=1e-5).fit(x, y, sample_weight=weight)
    ours = ProductKernelSVR(gamma=gamma, split=3, tol=1e-5).fit(x, y, sample_weight=weight)
    by_pairs = ProductKernelSVR(gamma=gamma, tol=1e-5).fit_pairs(q, p, query, passage, y, weight)
    new = np.concatenate([x, rng.normal(size=(20, 6)).astype(np.float32)])
    np.testing.assert_allclose(ours.predict(new), theirs.predict(new), atol=2e-4 * max(1, np.abs(y).max()))
    np.testing.assert_allclose(by_pairs.predict_pairs(q, p, query, passage), ours.predict(x), atol=2e-4)


# scikit-learn expects its own SVR to fail this check, because γ = "scale" is the variance of the rows without their
# weights. The next test checks weights with a number as γ.
_UNWEIGHTED = "gamma='scale' takes the unweighted variance, as in sklearn.svm.SVR"
_EXPECTED = {"check_sample_weight_equivalence_on_dense_data": _UNWEIGHTED}


@parametrize_with_checks(
    [ProductKernelSVR(), ProductKernelSVR(split=1)], expected_failed_checks=lambda estimator: _EXPECTED
)
def test_scikit_learns_checks(estimator, check) -> None:
    check(estimator)


def test_an_integer_weight_equals_repeated_rows_in_any_order() -> None:
    q, p, query, passage, y = pairs(3, 60, 6, 15)
    x = np.concatenate([q[query], p[passage]], axis=1)
    rng = np.random.default_rng(0)
    weight = rng.integers(0, 4, size=60)
    new = rng.normal(size=(30, 6))
    weighted = ProductKernelSVR(gamma=0.4, split=3).fit(x, y, sample_weight=weight).predict(new)
    repeated = rng.permutation(np.repeat(np.arange(60), weight))
    same = ProductKernelSVR(gamma=0.4, split=3).fit(x[repeated], y[repeated]).predict(new)
    np.testing.assert_allclose(same, weighted, atol=2e-6)  # float32; tol is 1e-3


# ways of solving ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("small", "apart"), [(2**16, 1e-7), (0, 2e-5)])
@pytest.mark.parametrize("how", [{"split": None}, {"split": 20}])
def test_a_prediction_does_not_depend_on_the_rows_of_the_call(
    how: dict, small: int, apart: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small models compute products in float64; other models differ by rounding."""
    monkeypatch.setattr("haybale.ensemble.expansion._MAX_NUMBERS_IN_FLOAT64", small)
    rng = np.random.default_rng(12)
    x = rng.normal(size=(400, 40)).astype(np.float32)
    y = np.sin(2 * x[:, 0]) + x[:, 30]
    model = ProductKernelSVR(C=10, **how).fit(x, y)
    assert model.expansion_.expansion.is_small == (small > 0)
    new = rng.normal(size=(700, 40)).astype(np.float32)
    expected = model.predict(new)
    for size in (1, 2, 3, 7, 16, 50, 300):
        rows = rng.permutation(700)[:size]
        np.testing.assert_allclose(model.predict(new[rows]), expected[rows], rtol=0, atol=apart)


# spaces ----------------------------------------------------------------------------------------------


def test_a_dense_and_a_sparse_space_each_with_its_gamma() -> None:
    q, p, query, passage, y = pairs(9, 90, 8, 25)
    wide_q, wide_p = (sparse.random(n, 40, density=0.2, random_state=n, dtype=np.float32).tocsr() for n in (8, 25))
    gamma = [(0.5, 0.2), (1.5, 0.9)]
    model = ProductKernelSVR(gamma=gamma, tol=1e-5).fit_pairs([q, wide_q], [p, wide_p], query, passage, y)
    assert model.gamma_ == ((0.5, 0.2), (1.5, 0.9))
    parts = [(q, query, 0.5), (p, passage, 0.2), (wide_q.toarray(), query, 1.5), (wide_p.toarray(), passage, 0.9)]
    x = np.concatenate([np.sqrt(g) * half[rows] for half, rows, g in parts], axis=1)
    expected = SVR(gamma=1.0, tol=1e-5).fit(x, y).predict(x)
    found = model.predict_pairs([q, wide_q], [p, wide_p], query, passage)
    np.testing.assert_allclose(found, expected, atol=2e-4)
    alone = ProductKernelSVR(gamma=0.9, tol=1e-5).fit_pairs(wide_q, wide_p, query, passage, y)
    x = np.concatenate([wide_q.toarray()[query], wide_p.toarray()[passage]], axis=1)
    expected = SVR(gamma=0.9, tol=1e-5).fit(x, y).predict(x)
    np.testing.assert_allclose(alone.predict_pairs(wide_q, wide_p, query, passage), expected, atol=2e-4)


# on a device ----------------------------------------------------------------------------------------------


def check_on_a_device(cupy: Any, on_gpu: tuple[Any, Any], here: tuple[Any, Any], rows: Any, **settings: Any) -> Any:
    """Check that a model fitted on device arrays predicts like a model on the CPU, for both kinds of arrays."""
    query, passage, y = rows
    weight = np.linspace(0.5, 2, len(y))
    theirs = ProductKernelSVR(tol=1e-5, **settings).fit_pairs(*here, query, passage, y, weight)
    numbers = cupy.asarray(query), cupy.asarray(passage)
    ours = ProductKernelSVR(tol=1e-5, **settings)
    ours.fit_pairs(*on_gpu, *numbers, cupy.asarray(y), cupy.asarray(weight))
    assert ours.expansion_.device == CUDA
    assert isinstance(ours.dual_coef_, np.ndarray)
    expected = theirs.predict_pairs(*here, query, passage)
    found = ours.predict_pairs(*on_gpu, *numbers)
    assert isinstance(found, cupy.ndarray)
    np.testing.assert_allclose(to_numpy(found), expected, atol=1e-4)
    back = ours.predict_pairs(*here, query, passage)
    assert isinstance(back, np.ndarray)
    np.testing.assert_allclose(back, expected, atol=1e-4)
    return ours, expected


@pytest.mark.parametrize("settings", [{}, {"gamma": (0.4, 0.2)}, {"solver": "sklearn"}, {"memory_budget": 3000}])
def test_a_regressor_on_a_device(cupy: Any, settings: dict[str, Any], tmp_path: Path) -> None:
    q, p, *rows = pairs(0, 90, 8, 25)
    ours, expected = check_on_a_device(cupy, (cupy.asarray(q), cupy.asarray(p)), (q, p), rows, **settings)
    ours.save(tmp_path / "model")
    here = ProductKernelSVR.load(tmp_path / "model")
    np.testing.assert_allclose(here.predict_pairs(q, p, *rows[:2]), expected, atol=1e-4)
    with pytest.raises(DeviceError, match="cuda:0"):
        here.predict_pairs(cupy.asarray(q), cupy.asarray(p), *rows[:2])
    again = ProductKernelSVR.load(tmp_path / "model", device="cuda")
    assert again.expansion_.device == CUDA
    np.testing.assert_allclose(again.predict_pairs(q, p, *rows[:2]), expected, atol=1e-4)


@pytest.mark.parametrize("alone", [True, False])
def test_sparse_spaces_on_a_device(cupy: Any, alone: bool, tmp_path: Path) -> None:
    q, p, *rows = pairs(9, 90, 8, 25)
    wide = [sparse.random(n, 40, density=0.2, random_state=n, dtype=np.float32).tocsr() for n in (8, 25)]
    here = tuple(wide) if alone else ([q, wide[0]], [p, wide[1]])
    own: Any = __import__("cupyx.scipy.sparse").scipy.sparse.csr_matrix
    on_gpu = tuple(map(own, wide)) if alone else tuple([cupy.asarray(a), b] for a, b in ((q, wide[0]), (p, wide[1])))
    ours, expected = check_on_a_device(cupy, on_gpu, here, rows, gamma=0.5 if alone else [(0.5, 0.2), 0.9])
    ours.save(tmp_path / "model")
    for device in (None, "cuda"):
        again = ProductKernelSVR.load(tmp_path / "model", device=device)
        np.testing.assert_allclose(again.predict_pairs(*here, *rows[:2]), expected, atol=1e-4)


def test_features_on_a_device(cupy: Any) -> None:
    q, p, query, passage, y = pairs(0, 90, 8, 25)
    x = np.concatenate([q[query], p[passage]], axis=1)
    expected = ProductKernelSVR(split=3, tol=1e-5).fit(x, y).predict(x)
    for given_as, device in ((cupy.asarray(x), None), (x, "cuda")):
        ours = ProductKernelSVR(split=3, tol=1e-5, device=device).fit(given_as, y)
        assert ours.expansion_.device == CUDA
        found = ours.predict(cupy.asarray(x))
        assert isinstance(found, cupy.ndarray)
        np.testing.assert_allclose(to_numpy(found), expected, atol=1e-4)
        np.testing.assert_allclose(ours.predict(x), expected, atol=1e-4)
    ours = ProductKernelSVR().fit(cupy.asarray(x), cupy.asarray(y), cupy.ones(90))  # a single half
    np.testing.assert_allclose(ours.predict(x), ProductKernelSVR().fit(x, y).predict(x), atol=2e-3)
    with pytest.raises(DeviceError, match="cuda:0"):
        ProductKernelSVR(device="cpu").fit(cupy.asarray(x), y)
    with pytest.raises(DeviceError, match="cuda:0"):
        ProductKernelSVR().fit(x, y).predict(cupy.asarray(x))
    with pytest.raises(DeviceError, match="'cuda:97'"):
        ProductKernelSVR(device="cuda:97").fit(x, y)


# bad input ------------------------------------------------------------------------------------------------


def test_bad_input_is_rejected() -> None:
    q, p, query, passage, y = pairs(11, 30, 5, 9)
    broken = np.where(np.arange(5)[:, None] == 3, np.float32(np.nan), q)
    for data, parameters, message in (
        ((broken, p, query, passage, y), {}, "Q: row 3 has NaN"),
        (([q, q], [p, q], query, passage, y), {}, "P, space 1: expected 9 rows, .* found 5"),
        ((q, [p, p], query, passage, y), {}, "Q and P .* 1 and 2"),
        ((q, p, query, np.where(passage == passage.max(), 9, 0), y), {}, r"passage_index .* 0\.\.9"),
        ((q, p, query.astype(float), passage, y), {}, "query_index .* float64"),
        ((q, p, query, passage[1:], y), {}, r"query_index and passage_index .* \[30, 29\]"),
        ((q, p, query, passage, y[1:]), {}, "^y .* 30 pairs, found 29"),
        ((q, p, query, passage, np.where(np.arange(30) == 2, np.nan, y)), {}, "label .* nan in row 2"),
        ((q, p, query, passage, y, -np.ones(30)), {}, r"weight .* -1\.0 in row 0"),
        ((q, p, query, passage, y, np.zeros(30)), {}, "'weight'"),
        ((q, p, query[:0], passage[:0], y[:0]), {}, "'y'"),
        ((q, p, query, passage, y), {"gamma": [0.1, 0.2]}, "gamma .* 1 spaces, found 2"),
        ((q, sparse.csr_matrix(p), query, passage, y), {}, "dense and sparse"),
    ):
        with pytest.raises(InputError, match=message):
            ProductKernelSVR(**parameters).fit_pairs(*data)
    with pytest.raises(InputError, match=r"split .* 3, found 9"):
        ProductKernelSVR(split=9).fit(q, np.ones(5))
    with pytest.raises(InputError, match="'epsilon'"):
        ProductKernelSVR(epsilon=-1).fit(q, np.ones(5))
    with pytest.raises(VectorError, match=r"P: .* 3, found 2"):
        ProductKernelSVR().fit_pairs(q, p, query, passage, y).predict_pairs(q, p[:, :2], query, passage)
