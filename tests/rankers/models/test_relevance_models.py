"""Probabilities of relevance against scikit-learn's, their shares by feature, and saved arrays."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.isotonic import IsotonicRegression

from haybale.rankers.models import relevance_models
from haybale.rankers.models.relevance_models import MODELS, IsotonicModel, MeanModel, TreesModel, fit_models


@pytest.fixture(scope="module")
def data() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return features, labels and ranks of 60 queries with 25 candidates."""
    rng = np.random.default_rng(0)
    ranks = np.tile(np.arange(1, 26), 60)
    features = np.column_stack([rng.normal(size=len(ranks)) - 0.1 * ranks, np.log(ranks), rng.random((len(ranks), 3))])
    log_odds = features[:, 0] - features[:, 1] + 2 * features[:, 2] - 1
    return features, rng.random(len(ranks)) < 1 / (1 + np.exp(-log_odds)), ranks


@pytest.mark.parametrize("kind", MODELS)
def test_shares_sum_to_the_log_odds_and_arrays_give_the_same_bits(kind: str, data: tuple[np.ndarray, ...]) -> None:
    features, is_relevant, ranks = data
    model = MODELS[kind].fit(features, is_relevant, ranks)
    probabilities = model.probabilities(features)
    assert model.shares(features).sum(axis=1) == pytest.approx(model.raw_log_odds(features), abs=1e-9)
    again = MODELS[kind].from_arrays({name: array.copy() for name, array in model.arrays().items()})
    assert (again.probabilities(features) == probabilities).all()
    assert (model.probabilities(features[7:8]) == probabilities[7]).all()  # whatever the other candidates are
    assert ((probabilities > 0) & (probabilities < 1)).all()
    assert probabilities.mean() == pytest.approx(is_relevant.mean(), rel=0.1)
    loss = -np.log(np.where(is_relevant, probabilities, 1 - probabilities)).mean()
    share = is_relevant.mean()
    assert loss < -(share * np.log(share) + (1 - share) * np.log(1 - share))


def test_trees_predict_what_scikit_learn_predicts(
    data: tuple[np.ndarray, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    features, is_relevant, ranks = data
    monkeypatch.setattr(relevance_models, "_RANKS_KEPT", 1000)  # all candidates, with the weight 1
    settings = {**relevance_models._TREES, **relevance_models._DRAWN, "random_state": 0}
    expected = GradientBoostingClassifier(**settings).fit(features, is_relevant)
    model = TreesModel.fit(features, is_relevant, ranks)
    assert model.raw_log_odds(features) == pytest.approx(expected.decision_function(features), abs=1e-9)


def test_isotonic_regression_is_that_of_the_score(data: tuple[np.ndarray, ...]) -> None:
    features, is_relevant, ranks = data
    expected = IsotonicRegression(out_of_bounds="clip").fit(features[:, 0], is_relevant)
    model = IsotonicModel.fit(features, is_relevant, ranks)
    assert model.probabilities(features) == pytest.approx(expected.predict(features[:, 0]).clip(1e-6, 1), abs=1e-5)
    rising = np.linspace(-9, 9, 100)[:, None] * [1.0, 0, 0, 0, 0]
    assert (np.diff(model.probabilities(rising)) >= 0).all()


def test_the_mean_model_averages_log_odds(data: tuple[np.ndarray, ...]) -> None:
    models = fit_models("auto", *data)
    assert set(models) == set(MODELS)
    mean = models["mean"]
    assert isinstance(mean, MeanModel)
    log_odds = [models[kind].raw_log_odds(data[0]) for kind in ("logistic", "trees")]
    assert mean.raw_log_odds(data[0]) == pytest.approx(np.mean(log_odds, axis=0))
    assert list(fit_models("trees", *data)) == ["trees"]
