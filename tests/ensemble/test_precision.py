"""Precision: if float32 is not precise enough, ProductKernelSVR still predicts like scikit-learn's SVR, or warns."""

import warnings
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.svm import SVR
from support.topics import topic_collection
from support.worlds import world

import haybale
from haybale.ensemble import ProductKernelSVR, SVREnsemble
from haybale.ensemble.kernel import Points, kernel_tile
from haybale.ensemble.problem import PrecisionWarning

N, D, SPLIT = 200, 6, 3
RNG = np.random.default_rng(5)
X, OTHERS = RNG.normal(size=(N, D)), RNG.normal(size=(80, D))
Y = np.sin(X[:, 0]) + X[:, 4]


def error(X: Any, others: Any, y: Any = Y, **settings: Any) -> float:
    """Return the largest difference from the predictions of scikit-learn, in units of tol."""
    ours = ProductKernelSVR(split=SPLIT, **settings).fit(X, y)
    theirs = SVR(**settings).fit(X, y)
    return float(np.abs(ours.predict(others) - theirs.predict(others)).max() / settings.get("tol", 1e-3))


@pytest.mark.parametrize("c", range(-5, 16, 4))
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_the_parameter_grid_of_the_libsvm_guide(c: int) -> None:
    for g in (-15, -13, -11, -7, -3, 3):
        assert error(X, OTHERS, C=2.0**c, gamma=2.0**g, max_iter=400_000) < 2, g


@pytest.mark.parametrize("size", [3e4, 1e5, 1e6, 1e12])
@pytest.mark.parametrize("split", ["row", "feature"])
def test_an_outlier_does_not_change_other_predictions(size: float, split: str) -> None:
    rows = X.copy()
    rows[(7, 2) if split == "feature" else 7] *= size
    assert error(rows, OTHERS, gamma=1.0) < 2


@pytest.mark.parametrize("gamma", [1e3, 1e5, 1e6, 1e8])
def test_a_large_gamma_on_unit_rows(gamma: float) -> None:
    unit = X / np.linalg.norm(X, axis=1, keepdims=True)
    near = unit[:80] + RNG.normal(size=(80, D)) / np.sqrt(gamma) / 5
    assert error(unit, near, gamma=gamma) < 2
    assert error(unit.astype(np.float32), near.astype(np.float32), gamma=gamma) < 2


@pytest.mark.parametrize("tol", [1e-2, 1e-5, 3e-6, 1e-8])
def test_tol(tol: float) -> None:
    assert error(X, OTHERS, tol=tol) < 2


@pytest.mark.parametrize("scale", [1e-6, 1e-3, 1e3, 1e6])
def test_scales_of_features_and_targets(scale: float) -> None:
    assert error(X * scale, OTHERS * scale) < 2
    assert error(X, OTHERS, (Y + 50) * scale, tol=1e-3 * scale, epsilon=0.1 * scale, C=scale) < 2


@pytest.mark.parametrize("far", [1e3, 1e6])
def test_rows_far_from_the_origin_or_from_each_other(far: float) -> None:
    sides, others = (np.where(np.arange(n) % 2, far, -far)[:, None] for n in (N, len(OTHERS)))
    assert error(X + far, OTHERS + far, gamma=0.2) < 2
    assert error(X + sides, OTHERS + others, gamma=0.2) < 2


def test_distances_of_near_and_equal_rows_are_precise() -> None:
    rows = np.concatenate([X[:5] + 1e9, X[:5] - 1e9])
    expected = np.exp(-((rows[:, None] - rows) ** 2).sum(axis=2))
    np.testing.assert_allclose(kernel_tile(Points(rows), Points(rows.copy())), expected, rtol=1e-12)
    table = sparse.csr_matrix(np.where(X > 0.5, X, 0) * 1e4)
    near = kernel_tile(Points(None, table), Points(None, table.copy()))
    dense = np.exp(-((table.toarray()[:, None] - table.toarray()) ** 2).sum(axis=2))
    np.testing.assert_allclose(near, dense, atol=1e-9)
    assert (near.diagonal() == 1).all()


def test_pairs_of_several_spaces_are_kept_in_float64(tmp_path: Any) -> None:
    query, passage = RNG.integers(0, 20, N), RNG.integers(0, 50, N)
    Q = [RNG.normal(size=(20, 3)), sparse.random(20, 30, 0.3, format="csr", random_state=0) * 300]
    P = [RNG.normal(size=(50, 3)), sparse.random(50, 30, 0.3, format="csr", random_state=1) * 300]
    dense = [np.hstack([matrices[0], matrices[1].toarray()]) for matrices in (Q, P)]
    rows = np.hstack([dense[0][query], dense[1][passage]])
    model = ProductKernelSVR(gamma=1e-3, C=2.0**13).fit_pairs(Q, P, query, passage, Y)
    exact = SVR(gamma=1e-3, C=2.0**13).fit(rows, Y).predict(rows)
    assert model.expansion_.queries.is_precise
    np.testing.assert_allclose(model.predict_pairs(Q, P, query, passage), exact, atol=2e-3)
    model.save(tmp_path / "model")
    again = ProductKernelSVR.load(tmp_path / "model").predict_pairs(Q, P, query, passage)
    np.testing.assert_array_equal(again, model.predict_pairs(Q, P, query, passage))


@pytest.mark.parametrize("settings", [{"solver": "working-set"}, {"memory_budget": 1e5}])
def test_a_model_that_is_not_precise_warns(settings: Any) -> None:
    rows = X.copy()
    rows[7] *= 1e5
    with pytest.warns(PrecisionWarning, match="tol=0.001"):
        ProductKernelSVR(split=SPLIT, gamma=1.0, **settings).fit(rows, Y)


def test_usual_data_is_fitted_in_float32_without_a_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not ProductKernelSVR(split=SPLIT).fit(X, Y).expansion_.queries.is_precise


@pytest.mark.parametrize("scale", [300, 1000])
def test_an_ensemble_that_is_not_precise_warns_once(scale: int) -> None:
    index, queries, relevant = world(0)
    ids = {"doc_offsets": index.doc_offsets, "doc_ids": index.doc_ids}
    far = haybale.PassageIndex(index.vectors * np.float32(scale), **ids)
    with pytest.warns(PrecisionWarning, match="gamma") as found:
        SVREnsemble(4, k=10).fit(far, queries * np.float32(scale), relevant)
    assert sum(issubclass(each.category, PrecisionWarning) for each in found) == 1


@pytest.mark.parametrize("ranker", ["svr(n_bags=4)", "svr-memory(n_bags=4)", "svr(unit=passage,n_bags=4)"])
def test_a_usual_ensemble_does_not_warn(ranker: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", PrecisionWarning)
        haybale.parse(ranker).fit(haybale.Engine(topic_collection()))
