"""Forecasts of nDCG@10: coverage of their intervals, saved rankers, shares of unseen queries, and errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from support.topics import topic_collection

from haybale import Engine, Learned, Run, compare, load, parse
from haybale.errors import InputError, NotFittedError
from haybale.evaluation import evaluate
from haybale.rankers import Training
from haybale.rankers.models.forecaster import Forecaster
from haybale.rankers.models.query_performance import PerformanceModel, performance_features

LEARNED = "learned(bm25,knn,knn-queries,depth=30)"
SVR = "svr(evidence=[bm25-doc,knn,knn-queries],n_candidates=12,n_bags=8,n_jobs=1)"
pytestmark = pytest.mark.filterwarnings("ignore:.* bags have no relevant row", "ignore:.*finds no document for")


@pytest.fixture(scope="module")
def engine() -> Engine:
    return Engine(topic_collection(n_train=80, n_dev=30))


@pytest.fixture(scope="module")
def training(engine: Engine) -> Training:
    return Training.of(engine)


def synthetic_runs(seed: int, query_ids: list[str], difficulty: np.ndarray) -> tuple[dict[str, Run], list[list[str]]]:
    """Return two runs of ten documents, and the relevant document of each query; easy queries have high scores."""
    rng, n = np.random.default_rng(seed), len(query_ids)
    rank = np.minimum(rng.geometric(1 - difficulty * 0.9), 10) - 1
    rows, documents = np.repeat(np.arange(n), 10), np.tile(np.arange(10), n)
    runs = {}
    for name in ("own", "other"):
        scores = 1 - difficulty[rows] + rng.normal(scale=0.05, size=len(rows)) - 0.1 * documents
        runs[name] = Run.from_numbers(query_ids, [f"d{k}" for k in range(10)], rows, documents, scores)
    first = [[doc for doc, _ in runs["own"][query]] for query in query_ids]
    return runs, [[ranked[row]] for ranked, row in zip(first, rank.tolist(), strict=True)]


def slow_ndcg(run: Run, query_ids: list[str], relevant: list[list[str]]) -> list[float]:
    """Return nDCG@10 query by query, from its definition."""
    values = []
    for query, judged in zip(query_ids, relevant, strict=True):
        gains = [1 / np.log2(rank + 1) for rank, (doc, _) in enumerate(run[query][:10], 1) if doc in judged]
        values.append(sum(gains) / sum(1 / np.log2(rank + 1) for rank in range(1, len(judged) + 1)))
    return values


@pytest.mark.parametrize(("easiest", "n_seeds"), [(0.0, 40), (0.4, 12)])
def test_intervals_hold_and_forecasts_follow_the_queries_at_hand(easiest: float, n_seeds: int) -> None:
    """Drawn as in training, the intervals hold; where queries are harder, the training mean is much further off."""
    held, errors = 0, np.zeros((n_seeds, 2))
    for seed in range(n_seeds):
        rng = np.random.default_rng(seed)
        ids = [f"q{row}" for row in range(500)]
        difficulty = np.concatenate([rng.uniform(0, 1, 300), rng.uniform(easiest, 1, 200)])
        runs, relevant = synthetic_runs(seed, ids, difficulty)
        of_training, at_hand = ({name: run.take(part) for name, run in runs.items()} for part in (ids[:300], ids[300:]))
        groups, unseen = np.arange(300), np.zeros(300, dtype=bool)
        forecaster = Forecaster.fit(of_training, "own", [], relevant[:300], groups, unseen)
        values = slow_ndcg(runs["own"], ids, relevant)
        np.testing.assert_allclose(forecaster.values, values[:300])
        forecast, as_trained = forecaster.forecast(at_hand, 0.95), forecaster.forecast_as_trained(200, 0.95)
        assert 0 <= forecast.low < forecast.estimate < forecast.high <= 1
        assert (forecast.n_queries, forecast.n_training) == (200, 300)
        errors[seed] = np.array([forecast.estimate, as_trained.estimate]) - np.mean(values[300:])
        held += forecast.low <= np.mean(values[300:]) <= forecast.high
    of_forecast, of_training_mean = np.sqrt(np.mean(errors**2, axis=0))
    if easiest:
        assert of_forecast < 0.4 * of_training_mean
    else:
        assert held >= 36
        assert of_forecast < of_training_mean


def test_residuals_are_of_trees_that_learned_from_no_query_of_the_group() -> None:
    """Queries of one group have the same random value, so only leakage within groups could predict it."""
    rng = np.random.default_rng(0)
    groups = np.repeat(np.arange(40), 10)
    values = rng.uniform(size=40)[groups]
    features = np.column_stack([groups + rng.uniform(-0.1, 0.1, 400), rng.normal(size=400)])
    model = PerformanceModel.fit(features[:, :1] * 7 % 11, values, groups, 0)
    assert np.mean(model.residuals**2) > 0.9 * values.var()
    again = PerformanceModel.fit(features[:, :1] * 7 % 11, values, groups, 0)
    np.testing.assert_array_equal(model.residuals, again.residuals)
    np.testing.assert_array_equal(model.predict(features[:, :1]), again.predict(features[:, :1]))


def test_features_do_not_depend_on_the_other_queries() -> None:
    ids = [f"q{row}" for row in range(20)]
    runs, _ = synthetic_runs(0, ids, np.linspace(0, 1, 20))
    whole = performance_features(runs, ids, "own", ["other"], [])
    chosen = {name: run.take(ids[5:9]) for name, run in runs.items()}
    np.testing.assert_array_equal(performance_features(chosen, ids[5:9], "own", ["other"], []), whole[5:9])
    plain = performance_features(runs, ids, "own", [], ["other"])
    assert np.isfinite(whole).all()
    assert np.isfinite(plain).all()
    none = {"own": runs["own"], "other": runs["other"].top(0)}
    assert np.isfinite(performance_features(none, ids, "own", [], ["other"])).all()


@pytest.mark.parametrize("text", [LEARNED, SVR])
def test_saved_rankers_forecast_the_same(text: str, engine: Engine, training: Training, tmp_path: Path) -> None:
    ranker: Any = parse(text)._fit_on(training)
    forecast = ranker.forecast("dev")
    assert forecast == parse(text)._fit_on(training).forecast("dev")  # deterministic
    ranker.save(tmp_path / "ranker")
    loaded: Any = load(tmp_path / "ranker", engine)
    assert loaded.forecast("dev") == forecast
    assert loaded.forecast_as_trained(300) == ranker.forecast_as_trained(300)
    wide = loaded.forecast("dev", level=0.99)
    assert wide.low < forecast.low < forecast.estimate == wide.estimate
    assert sum(forecast.share.values()) == pytest.approx(1)
    assert forecast.to_dict()["estimate"] == forecast.estimate
    assert f"{forecast.estimate:.3f}" in str(forecast)


def test_values_are_those_of_rankings_out_of_fold(engine: Engine, training: Training) -> None:
    ranker: Any = parse(LEARNED)._fit_on(training)
    values = ranker.learn_forecast().values
    expected = evaluate(ranker.out_of_fold("train"), engine.collection.qrels_frame("train"), ["nDCG@10"])
    judged = pd.Series([bool(documents) for documents in training.relevant], training.batch.ids)
    in_order = expected["nDCG@10"].reindex(judged.index[judged])
    assert values.mean() == pytest.approx(in_order.mean(), abs=0.05)  # grades and twins count differently
    again: Any = parse(SVR)._fit_on(training)
    with_training = parse(SVR)._fit_on(training).learn_forecast(training)  # type: ignore[attr-defined]
    np.testing.assert_array_equal(again.learn_forecast().values, with_training.values)


def test_comparisons_have_the_forecasts(engine: Engine) -> None:
    outcome = compare(engine, {"fused": parse(LEARNED)}, split="dev", baseline="bm25")
    [(name, forecast)] = outcome.forecasts.items()
    assert name == "fused"
    assert forecast == outcome.rankers["fused"].forecast("dev")  # type: ignore[attr-defined]
    assert outcome.to_dict()["forecasts"] == {"fused": forecast.to_dict()}


def test_errors(engine: Engine, training: Training, tmp_path: Path) -> None:
    ranker: Any = parse(LEARNED)._fit_on(training)
    texts = {f"new{row}": text for row, text in enumerate(training.batch.texts)}
    with pytest.raises(InputError, match="at least 10 queries, found 9"):
        ranker.forecast(dict(list(texts.items())[:9]))
    with pytest.raises(InputError, match="was not trained on"):
        ranker.forecast("train")
    with pytest.raises(InputError, match=r"found 1\.0"):
        ranker.forecast("dev", level=1.0)
    with pytest.raises(NotFittedError):
        Learned().forecast("dev")
    few: Any = parse(LEARNED)._fit_on(training.sample(20))
    assert not few.can_forecast
    with pytest.raises(InputError, match="at least 30 training queries"):
        few.forecast("dev")
    parse(SVR)._fit_on(training).save(tmp_path / "svr")
    unlearned: Any = load(tmp_path / "svr", engine)
    with pytest.raises(InputError, match="learn_forecast"):
        unlearned.forecast("dev")
