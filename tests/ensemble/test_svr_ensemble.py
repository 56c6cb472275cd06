"""The whole ensemble compared with scikit-learn's SVR on [q ; p]; its scores; input that it rejects."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVR
from support.problems import rbf
from support.worlds import candidates_with_features, features, world

from haybale import PassageIndex
from haybale.ensemble import CandidateRows, SVREnsemble, candidate_rows
from haybale.ensemble.bags import make_bags
from haybale.errors import InputError
from haybale.retrieval import Hits


@pytest.mark.parametrize("gamma", ["scale", 0.7, (1.5, 0.4)])
@pytest.mark.parametrize("standardize", [True, False])
def test_one_bag_predicts_like_sklearns_svr(gamma, standardize: bool) -> None:
    """Compare the whole pipeline with SVR on an explicit feature matrix."""
    index, queries, relevant = world()
    ensemble = SVREnsemble(1, overlap=0, k=15, gamma=gamma, standardize=standardize, positive_weight=2.5, tol=1e-5)
    ensemble.fit(index, queries, relevant)
    hits = index.search(queries, 15)
    rows = candidate_rows("end-to-end", hits, relevant, index, queries)
    x = features(rows, queries, index.vectors)
    scaler = StandardScaler(with_mean=standardize, with_std=standardize).fit(x)
    half_q, half_p = ensemble.gamma_
    root = np.sqrt(np.repeat([half_q, half_p], index.dim))  # a separate γ of each half is a scaling of the features
    model = SVR(kernel="rbf", gamma=1.0, tol=1e-5)
    model.fit(scaler.transform(x) * root, rows.label, sample_weight=np.where(rows.label > 0, 2.5, 1.0))
    expected = model.predict(scaler.transform(x) * root)
    scores = ensemble.score_candidates(queries, np.arange(len(index))[None].repeat(len(queries), axis=0))
    np.testing.assert_allclose(scores[rows.query, rows.passage], expected, atol=2e-4)


def test_votes_and_the_padding_of_candidates() -> None:
    index, queries, relevant = world(1)
    ensemble = SVREnsemble(5, k=12, gamma=(2.0, 1.0), threshold=0.3, min_votes=2).fit(index, queries, relevant)
    passages = index.search(queries, 20).passages
    passages[3, 15:] = -1
    votes, scores = ensemble.votes(queries, passages), ensemble.score_candidates(queries, passages)
    np.testing.assert_array_equal(np.isneginf(scores), passages < 0)
    assert not votes[passages < 0].any()
    assert len(np.unique(votes)) > 2
    np.testing.assert_array_equal(ensemble.relevant(queries, passages), votes >= 2)


def test_models_and_scores_do_not_depend_on_the_thread() -> None:
    """With vectors so wide that the results of BLAS would depend on the number of its threads."""
    rng = np.random.default_rng(7)
    vectors = rng.normal(size=(900, 700)).astype(np.float32) / np.float32(np.sqrt(700))
    index, queries = PassageIndex(vectors), vectors[::45] + np.float32(0.3) * vectors[1::45]
    relevant, passages = [[str(i)] for i in range(0, 900, 45)], rng.integers(900, size=(3, 50))

    def fitted(n_jobs: int) -> SVREnsemble:
        return SVREnsemble(4, k=60, n_jobs=n_jobs, memory_budget=1e8).fit(index, queries, relevant)

    here, with_threads = fitted(1), fitted(2)
    with ThreadPoolExecutor(2) as others:
        in_other_thread = others.submit(fitted, 1).result()
        scores = list(others.map(lambda _: here.score_candidates(queries[:3], passages), range(2)))
    assert not here.support_.expansion.is_small
    for ensemble in (with_threads, in_other_thread):
        np.testing.assert_array_equal(ensemble.support_.coef, here.support_.coef)
    for found in scores:
        np.testing.assert_array_equal(found, here.score_candidates(queries[:3], passages))


def test_an_ensemble_learns_and_ranks() -> None:
    """Rankings of new queries are far better than chance, and do not have excluded documents."""
    index, queries, relevant = world(2, n_queries=200)
    ensemble = SVREnsemble(4, k=20).fit(index, queries[:150], relevant[:150])
    ids = [f"q{i}" for i in range(50)]
    run = ensemble.rank(queries[150:], ids, k=40)
    first = [
        next((i for i, (doc, _) in enumerate(run[q]) if doc in r), 99) for q, r in zip(ids, relevant[150:], strict=True)
    ]
    assert np.mean(1 / (1 + np.array(first))) > 0.4
    own = np.array([int(r[0][1:]) for r in relevant[150:]])
    without = ensemble.rank(queries[150:], ids, k=40, exclude=own)
    assert all(doc not in r for q, r in zip(ids, relevant[150:], strict=True) for doc, _ in without[q])


@pytest.mark.parametrize("strategy", ["queries", "rows"])
def test_the_random_state_changes_the_ranking_and_n_jobs_does_not(strategy: str) -> None:
    index, queries, relevant = world()
    run = {
        (seed, jobs): SVREnsemble(6, k=10, strategy=strategy, rows_per_bag=60, random_state=seed, n_jobs=jobs)
        .fit(index, queries, relevant)
        .rank(queries, [f"q{i}" for i in range(len(queries))], k=10)
        for seed, jobs in ((0, 1), (0, 2), (1, 1))
    }
    assert run[0, 1] == run[0, 2]
    assert run[0, 1] != run[1, 1]


def test_a_bag_too_large_for_the_memory_budget_is_rejected() -> None:
    index, queries, relevant = world()
    with pytest.raises(InputError, match="memory_budget"):
        SVREnsemble(1, overlap=0, k=10, solver="sklearn", memory_budget=1e6).fit(index, queries, relevant)
    SVREnsemble(1, overlap=0, k=10, solver="sklearn", memory_budget=1e6, rows_per_bag=200).fit(index, queries, relevant)


def test_bags_without_a_relevant_row_are_counted_in_a_warning() -> None:
    index, queries, relevant = world()
    with pytest.warns(UserWarning, match="3 of 4 bags"):
        SVREnsemble(4, overlap=0, k=5).fit(index, queries, [relevant[0], *([] for _ in queries[1:])])


def test_the_injected_protocol_does_not_rank() -> None:
    index, queries, relevant = world()
    ensemble = SVREnsemble.as_published(n_bags=2, k=10, protocol="injected").fit(index, queries, relevant)
    with pytest.raises(InputError, match="protocol='injected'"):
        ensemble.rank(queries, [f"q{i}" for i in range(len(queries))])


def test_bad_input_is_rejected() -> None:
    index, queries, relevant, candidates, features = candidates_with_features()
    broken, wrong = queries.copy(), features.copy()
    broken[2, 1], wrong[3, 2, 1] = np.nan, np.nan
    few, twice = index.search(queries[:3], 5), np.arange(40) % 2
    eta = {"eta": 1.0}
    for vectors, labels, settings, given, message in (
        (queries[:, :3], relevant, {}, {}, "query_vectors: .* 6, found 3"),
        (broken, relevant, {}, {}, "row 2 has NaN"),
        (queries, relevant[1:], {}, {}, "relevant .* 40 .* 39"),
        (queries, [["zz"], *relevant[1:]], {}, {}, "'zz'"),
        (queries, [[] for _ in queries], {}, {}, "'relevant'"),
        (queries, relevant, {}, {"candidates": few}, "candidates .* 40 .* 3"),
        (queries, relevant, {}, {"query_ids": ["q"]}, "query_ids .* 40 .* 1"),
        (queries, relevant, {}, {"groups": twice[1:]}, r"groups .*\(40,\), found \(39,\)"),
        (queries, relevant, {"n_bags": 3}, {"groups": twice}, "n_bags=3 .* groups of queries, found 2"),
        (queries, relevant, {"n_bags": 50}, {}, "n_bags=50 .* queries, found 40"),
        (queries, relevant, {"n_bags": 0}, {}, "'n_bags'"),
        (queries, relevant, {"overlap": 2.5}, {}, "overlap .* 2.5"),
        (queries, relevant, {"gamma": (1.0, -1.0)}, {}, "'gamma'"),
        (queries, relevant, {"threshold": np.inf}, {}, "'threshold'"),
        (queries, relevant, {"solver": "libsvm"}, {}, "'libsvm'"),
        (queries, relevant, eta, {"candidates": candidates}, "eta=1.0 .* features"),
        (queries, relevant, eta, {"features": features}, "candidates"),
        (
            queries,
            relevant,
            eta,
            {"candidates": candidates, "features": features[:, :3]},
            r"\(40, 12\), .* \(40, 3, 2\)",
        ),
        (queries, relevant, eta, {"candidates": candidates, "features": wrong}, "query 3, candidate 2"),
    ):
        with pytest.raises(InputError, match=message):
            SVREnsemble(**({"n_bags": 2, "k": 5} | settings)).fit(index, vectors, labels, **given)
    rows = candidate_rows("end-to-end", candidates, relevant, index, queries)
    with pytest.raises(InputError, match=r"eta=1.0 .* features"):
        SVREnsemble(2, eta=1.0).fit_rows(index, queries, rows)
    fitted = SVREnsemble(2, k=5, eta=1.0).fit(index, queries, relevant, candidates=candidates, features=features)
    with pytest.raises(InputError, match=r"passages .* 1 .* 2"):
        fitted.score_candidates(queries[:1], np.zeros((2, 3), dtype=int))
    with pytest.raises(InputError, match="features"):
        fitted.rank(queries, [str(i) for i in range(40)])
    with pytest.raises(InputError, match=r"2 features .* 1$"):
        fitted.score_candidates(queries, candidates.passages, features[:, :, :1])


def test_out_of_bag_scores_that_do_not_exist_are_rejected(tmp_path: Path) -> None:
    index, queries, relevant = world()
    one = SVREnsemble(1, overlap=0, k=5).fit(index, queries, relevant)
    passages = index.search(queries[:2], 5).passages
    with pytest.raises(InputError, match=r"2 of 2 queries .* 4;"):
        one.out_of_bag_scores(np.array([4, 5]), queries[:2], passages)
    for wrong in ([1, 40], [0.5, 1], [1]):
        with pytest.raises(InputError, match=r"query_numbers .* 2 integers from -1 to 39"):
            one.out_of_bag_scores(np.array(wrong), queries[:2], passages)
    grouped = SVREnsemble(2, k=5, overlap=0, strategy="rows").fit(index, queries, relevant, groups=np.zeros(40))
    with pytest.raises(InputError, match="1 of 1 queries"):
        grouped.out_of_bag_scores(np.array([4]), queries[[4]], [[3]])
    one.save(tmp_path / "model")
    with pytest.raises(InputError, match="'seen_'"):
        SVREnsemble.load(tmp_path / "model", index).out_of_bag_scores(np.array([1, 2]), queries[:2], passages)


def test_fit_rows_on_the_rows_of_fit_gives_the_same_model() -> None:
    index, queries, relevant = world()
    rows = candidate_rows("end-to-end", index.search(queries, 10), relevant, index, queries)
    passages = index.search(queries, 5).passages
    from_rows, fitted = (
        SVREnsemble(3, k=10).fit_rows(index, queries, rows),
        SVREnsemble(3, k=10).fit(index, queries, relevant),
    )
    np.testing.assert_array_equal(
        from_rows.score_candidates(queries, passages), fitted.score_candidates(queries, passages)
    )
    np.testing.assert_array_equal(from_rows.seen_, fitted.seen_)
    with pytest.raises(InputError, match="passage numbers"):
        SVREnsemble(3).fit_rows(index, queries, CandidateRows(rows.query, rows.passage + 10_000, rows.label))


def bags_of(ensemble: SVREnsemble, rows: CandidateRows, vectors: np.ndarray, groups: np.ndarray) -> list[np.ndarray]:
    sizes = ensemble.n_bags, ensemble.overlap, ensemble.random_state
    return make_bags(rows, ensemble.strategy, *sizes, vectors, groups)


@pytest.mark.parametrize("seed", [0, 1])
def test_eta_adds_a_linear_kernel_over_pair_features(seed: int) -> None:
    """Compare with scikit-learn's SVR on Kq·Kp + eta/f · z zᵀ for every bag: all scores and out-of-bag scores.

    A passage that was added because it is relevant has no features, because they would reveal its label.
    """
    index, queries, relevant, candidates, features = candidates_with_features(seed)
    candidates, features = candidates.top(5), 7 * features[:, :5] + np.array([100, -3], dtype=np.float32)
    ensemble = SVREnsemble(6, overlap=1.0, gamma=(2.0, 1.0), eta=0.6, threshold=0.2)
    ensemble.fit(index, queries, relevant, candidates=candidates, features=features)
    rows = candidate_rows("end-to-end", candidates, relevant, index, queries)
    added = rows.place < 0
    assert 1 < added.sum() < rows.label.sum()
    given = features.reshape(-1, 2)[rows.place[~added]].astype(np.float64)
    z = np.zeros((len(rows), 2))
    z[~added] = (given - given.mean(axis=0)) / given.std(axis=0)
    query, passage = np.arange(len(queries)).repeat(5), candidates.passages.ravel()
    z_all = (features.reshape(-1, 2) - given.mean(axis=0)) / given.std(axis=0)
    kernel = rbf(queries[query], queries[rows.query], 2.0) * rbf(index.vectors[passage], index.vectors[rows.passage])
    kernel += 0.6 / 2 * z_all @ z.T
    own = rbf(queries[rows.query], queries[rows.query], 2.0)
    own = own * rbf(index.vectors[rows.passage], index.vectors[rows.passage]) + 0.6 / 2 * z @ z.T
    weight, bags = np.where(rows.label > 0, 3.0, 1.0), bags_of(ensemble, rows, queries, np.arange(len(queries)))
    expected = np.stack(
        [
            SVR(kernel="precomputed", tol=1e-6)
            .fit(own[np.ix_(bag, bag)], rows.label[bag], weight[bag])
            .predict(kernel[:, bag])
            for bag in bags
        ],
        axis=1,
    ).reshape(40, 5, 6)
    given = queries, candidates.passages, features
    np.testing.assert_allclose(ensemble.score_candidates(*given), expected.mean(axis=2), atol=2 * ensemble.tol)
    np.testing.assert_allclose(
        ensemble.score_candidates(*given, intercept=False) + ensemble.support_.intercept.mean(),
        expected.mean(axis=2),
        atol=2 * ensemble.tol,
    )
    unseen = np.array([[query not in rows.query[bag] for bag in bags] for query in range(40)])
    assert 0 < unseen.sum(axis=1).min() < unseen.sum(axis=1).max() < 6
    outside = (expected * unseen[:, None]).sum(axis=2) / unseen.sum(axis=1)[:, None]
    np.testing.assert_allclose(ensemble.out_of_bag_scores(np.arange(40), *given), outside, atol=2 * ensemble.tol)
    clear = (np.abs(expected - 0.2) > 2 * ensemble.tol).all(axis=2)
    np.testing.assert_array_equal(ensemble.votes(*given)[clear], (expected > 0.2).sum(axis=2)[clear])


@pytest.mark.parametrize("strategy", ["queries", "rows", "regions"])
def test_out_of_bag_scores_exclude_bags_with_a_query_of_the_same_group(strategy: str) -> None:
    """Every query occurs twice, with one group for both copies."""
    index, queries, relevant, candidates, features = candidates_with_features(3)
    twice = np.arange(40).repeat(2)
    vectors, labels = queries[twice], [relevant[i] for i in twice]
    hits = Hits(candidates.passages[twice], candidates.scores[twice])
    groups = (70 - twice) ** 2  # any numbers
    size = {"queries": 5 / 20, "rows": 8 / 960, "regions": 3 / 20}[strategy] * 20 - 1
    fit: dict[str, Any] = {"candidates": hits, "features": features[twice]}
    settings: dict[str, Any] = {"n_bags": 20, "overlap": max(0.0, size), "strategy": strategy, "eta": 0.5}
    ensemble = SVREnsemble(**settings).fit(index, vectors, labels, groups=groups, **fit)
    rows = candidate_rows("end-to-end", hits, labels, index, vectors)
    bags = bags_of(ensemble, rows, vectors, groups)
    unseen = np.flatnonzero(~ensemble.seen_.all(axis=1))
    assert len(unseen) > 60
    given = vectors[unseen], hits.passages[unseen], features[twice][unseen]
    found, of_bags = ensemble.out_of_bag_scores(unseen, *given), by_bag(ensemble, *given)
    for row, query in enumerate(unseen):
        neither = [not np.isin(rows.query[bag], [query, query ^ 1]).any() for bag in bags]
        assert any(neither)
        np.testing.assert_allclose(found[row], of_bags[row][:, neither].mean(axis=1), atol=1e-5)
    for bag in bags:
        inside = np.unique(rows.query[bag])
        if strategy == "queries":
            assert np.isin(inside ^ 1, inside).all()  # no bag splits a group
            assert len(inside) == 10 * 2
    np.testing.assert_array_equal(ensemble.seen_, ensemble.seen_[np.arange(80) ^ 1])
    if strategy != "regions":  # equal vectors are mostly in the same regions
        apart = SVREnsemble(**settings).fit(index, vectors, labels, **fit).seen_
        assert not np.array_equal(apart, apart[np.arange(80) ^ 1])


def by_bag(ensemble: SVREnsemble, queries: np.ndarray, passages: np.ndarray, features: np.ndarray) -> np.ndarray:
    """Return the predictions (m, k, n_bags) of every bag."""
    query, values = np.arange(len(queries)).repeat(passages.shape[1]), features.reshape(-1, features.shape[2])
    pairs = ensemble.pair_scores.pairs(queries, query, passages.ravel(), values)
    return ensemble.support_.bags(pairs).reshape(*passages.shape, -1)


@pytest.mark.parametrize("noise", [0.0, 1e-14])
def test_a_feature_without_variance_in_training_is_not_magnified(noise: float) -> None:
    """For example, the score of similar queries, if no two training queries are similar."""
    index, queries, relevant, candidates, features = candidates_with_features()
    features[..., 1] *= noise
    ensemble = SVREnsemble(3, eta=1.0).fit(index, queries, relevant, candidates=candidates, features=features)
    expected = ensemble.score_candidates(queries, candidates.passages, features)
    features[..., 1] = 1
    np.testing.assert_allclose(ensemble.score_candidates(queries, candidates.passages, features), expected, atol=1e-5)
