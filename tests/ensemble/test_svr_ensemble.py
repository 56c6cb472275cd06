"""The ensemble as a whole against scikit-learn's SVR on [q ; p], its scores, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVR
from sklearn.utils._param_validation import InvalidParameterError
from worlds import features, world

from haybale.ensemble import Problem, SVREnsemble, candidate_rows
from haybale.ensemble import support as expansion
from haybale.ensemble.solvers import solve_sklearn
from haybale.errors import InputError, UnknownNameError, VectorError
from haybale.retrieval import Hits, aggregate


@pytest.mark.parametrize("gamma", ["scale", 0.7, (1.5, 0.4)])
@pytest.mark.parametrize("standardize", [True, False])
def test_one_bag_is_sklearns_svr(gamma, standardize: bool) -> None:
    """The whole way at once: candidates to triples to Gram to duals to products, against SVR on a feature matrix."""
    index, queries, relevant = world()
    ensemble = SVREnsemble(1, overlap=0, k=15, gamma=gamma, standardize=standardize, positive_weight=2.5, tol=1e-5)
    ensemble.fit(index, queries, relevant)
    hits = index.search(queries, 15)
    rows = candidate_rows("end-to-end", hits, relevant, index, queries)
    x = features(rows, queries, index.vectors)
    scaler = StandardScaler(with_mean=standardize, with_std=standardize).fit(x)
    half_q, half_p = ensemble.gamma_
    root = np.sqrt(np.repeat([half_q, half_p], index.dim))  # a γ for each half is a scaling of the features
    model = SVR(kernel="rbf", gamma=1.0, tol=1e-5)
    model.fit(scaler.transform(x) * root, rows.label, sample_weight=np.where(rows.label > 0, 2.5, 1.0))
    expected = model.predict(scaler.transform(x) * root)
    scores = ensemble.score_candidates(queries, np.arange(len(index))[None].repeat(len(queries), axis=0))
    np.testing.assert_allclose(scores[rows.query, rows.passage], expected, atol=2e-4)


def test_mean_and_votes_are_those_of_the_bags(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every bag predicted on its own, support row by support row; also in small batches and tiles."""
    index, queries, relevant = world(1)
    ensemble = SVREnsemble(5, k=12, gamma=(2.0, 1.0), threshold=0.3, proof=2).fit(index, queries, relevant)
    support = ensemble.support_
    passages = index.search(queries, 20).passages
    passages[3, 15:] = -1
    predictions = np.zeros((5, *passages.shape))
    # The halves are centred and hold the root of γ; back to what they were made of.
    halves = zip(
        (support.queries, support.passages), (ensemble.spaces_.query[0], ensemble.spaces_.passage[0]), strict=True
    )
    plain_q, plain_p = (half.dense / scaling.factor + scaling.shift for half, scaling in halves)
    queries_of_rows, passages_of_rows = plain_q[support.query], plain_p[support.passage]
    for bag in range(5):
        part = slice(support.offsets[bag], support.offsets[bag + 1])
        for i, query in enumerate(queries):
            kq = np.exp(-2.0 * np.sum((query - queries_of_rows[part]) ** 2, axis=1))
            for j, passage in enumerate(index.vectors[passages[i]]):
                kp = np.exp(-np.sum((passage - passages_of_rows[part]) ** 2, axis=1))
                predictions[bag, i, j] = support.coef[part] @ (kq * kp) + support.intercept[bag]
    real = passages >= 0
    for batch, tile, memory in ((1024, 2048, 2**28), (7, 16, 2000)):
        monkeypatch.setattr(expansion, "_PASSAGES", batch)
        monkeypatch.setattr(expansion, "_SUPPORT", tile)
        monkeypatch.setattr(expansion, "_MEMORY", memory)
        scores = ensemble.score_candidates(queries, passages)
        np.testing.assert_allclose(scores[real], predictions.mean(axis=0)[real], atol=1e-5)
        assert np.isneginf(scores[~real]).all()
        clear = real & (np.abs(predictions - 0.3) > 1e-4).all(axis=0)
        votes = ensemble.votes(queries, passages)
        np.testing.assert_array_equal(votes[clear], (predictions > 0.3).sum(axis=0)[clear])
        assert not votes[~real].any()
        np.testing.assert_array_equal(ensemble.relevant(queries, passages), votes >= 2)


def test_scores_by_id_are_scores_by_number() -> None:
    index, queries, relevant = world()
    ensemble = SVREnsemble(3, k=10).fit(index, queries, relevant)
    by_number = ensemble.score_candidates(queries[:2], np.array([[4, 7, 1], [2, -1, -1]]))
    by_id = ensemble.score(queries[:2], [["4", "7", "1"], ["2"]])
    np.testing.assert_array_equal(by_id[0], by_number[0])
    np.testing.assert_array_equal(by_id[1], by_number[1, :1])
    assert [len(row) for row in ensemble.score(queries[:2], [[], ["3"]])] == [0, 1]


def test_a_score_does_not_depend_on_what_is_scored_with_it() -> None:
    index, queries, relevant = world()
    ensemble = SVREnsemble(3, k=10).fit(index, queries, relevant)
    assert ensemble.support_.is_small
    passages = np.arange(1, 61).reshape(20, 3)
    together = ensemble.score_candidates(queries[:20], passages)
    for i in range(20):
        alone = ensemble.score_candidates(queries[i : i + 1], passages[i : i + 1, ::-1])
        np.testing.assert_allclose(alone[0, ::-1], together[i], rtol=0, atol=1e-7)


def test_it_learns_and_ranks() -> None:
    """New queries to documents seen in training rank far above chance; the own document is left out."""
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


def test_rank_is_the_best_candidate_of_each_document() -> None:
    index, queries, relevant = world()
    ensemble = SVREnsemble(2, k=10).fit(index, queries, relevant)
    candidates = index.search(queries[:1], 30)
    scores = ensemble.score_candidates(queries[:1], candidates.passages)
    _, documents, best = aggregate(Hits(candidates.passages, scores), "maxp", index.doc_of)
    expected = sorted(zip([f"d{d}" for d in documents], best, strict=True), key=lambda pair: (-pair[1], pair[0]))
    assert ensemble.rank(queries[:1], ["q"], candidates=candidates)["q"] == expected


@pytest.mark.parametrize("strategy", ["queries", "rows"])
def test_random_state_and_jobs(strategy: str) -> None:
    index, queries, relevant = world()
    run = {
        (seed, jobs): SVREnsemble(6, k=10, strategy=strategy, rows_per_bag=60, random_state=seed, n_jobs=jobs)
        .fit(index, queries, relevant)
        .rank(queries, [f"q{i}" for i in range(len(queries))], k=10)
        for seed, jobs in ((0, 1), (0, 2), (1, 1))
    }
    assert run[0, 1] == run[0, 2]
    assert run[0, 1] != run[1, 1]


def test_rows_per_bag_and_facts() -> None:
    index, queries, relevant = world()
    ensemble = SVREnsemble(2, k=20, overlap=0, rows_per_bag=150).fit(index, queries, relevant)
    assert ensemble.bag_sizes_ == [150, 150]
    assert ensemble.n_rows_ >= 800


def test_a_bag_too_large_for_its_memory_budget_is_refused() -> None:
    index, queries, relevant = world()
    with pytest.raises(InputError, match=r"a bag of \d+ rows needs .* GB for its kernel matrix, .* set rows_per_bag"):
        SVREnsemble(1, overlap=0, k=10, solver="sklearn", memory_budget=1e6).fit(index, queries, relevant)
    SVREnsemble(1, overlap=0, k=10, solver="sklearn", memory_budget=1e6, rows_per_bag=200).fit(index, queries, relevant)
    with pytest.raises(InputError, match=r"the Gram matrices of a bag of \d+ rows take \S+ MB, the memory_budget is"):
        SVREnsemble(1, overlap=0, k=10, solver="product", memory_budget=1e3).fit(index, queries, relevant)


def test_a_bag_without_a_relevant_row_is_told() -> None:
    index, queries, relevant = world()
    with pytest.warns(UserWarning, match=r"3 of 4 bags have no relevant row"):
        SVREnsemble(4, overlap=0, k=5).fit(index, queries, [relevant[0], *([] for _ in queries[1:])])


def test_injected_does_not_rank() -> None:
    index, queries, relevant = world()
    ensemble = SVREnsemble.as_published(n_bags=2, k=10, protocol="injected").fit(index, queries, relevant)
    with pytest.raises(InputError, match="protocol 'injected' does not rank"):
        ensemble.rank(queries, [f"q{i}" for i in range(len(queries))])


def test_parameters_are_the_estimators() -> None:
    ensemble = SVREnsemble.as_published(n_bags=3)
    assert clone(ensemble).get_params() == ensemble.get_params()
    assert ensemble.get_params()["standardize"]
    assert ensemble.set_params(C=2.0).C == 2.0


def test_a_solver_of_ones_own() -> None:
    index, queries, relevant = world()
    seen: list[int] = []

    def solver(problem: Problem):
        seen.append(len(problem.label))
        return solve_sklearn(problem)

    assert SVREnsemble(3, k=5, solver=solver).fit(index, queries, relevant).bag_sizes_ == seen


def test_bad_input_is_refused() -> None:
    index, queries, relevant = world()
    fit = SVREnsemble(2, k=5).fit
    with pytest.raises(VectorError, match="query_vectors: expected vectors of width 6, found 3"):
        fit(index, queries[:, :3], relevant)
    broken = queries.copy()
    broken[2, 1] = np.nan
    with pytest.raises(VectorError, match="row 2 has NaN"):
        fit(index, broken, relevant)
    with pytest.raises(InputError, match="39 lists of relevant documents for 40 query vectors"):
        fit(index, queries, relevant[1:])
    with pytest.raises(InputError, match="unknown document id 'zz'"):
        fit(index, queries, [["zz"], *relevant[1:]])
    with pytest.raises(InputError, match="nothing to learn"):
        fit(index, queries, [[] for _ in queries])
    with pytest.raises(InputError, match="50 bags need at least as many queries to share out, found 40"):
        SVREnsemble(50, k=5).fit(index, queries, relevant)
    with pytest.raises(InputError, match="candidates of 3 queries for 40"):
        fit(index, queries, relevant, candidates=index.search(queries[:3], 5))
    with pytest.raises(InvalidParameterError, match="'n_bags' parameter"):
        SVREnsemble(0).fit(index, queries, relevant)
    with pytest.raises(InputError, match="gamma must be positive"):
        SVREnsemble(2, gamma=(1.0, -1.0)).fit(index, queries, relevant)
    with pytest.raises(UnknownNameError, match="known: auto, product, working-set, cuml"):
        SVREnsemble(2, solver="libsvm").fit(index, queries, relevant)
    fitted = fit(index, queries, relevant)
    with pytest.raises(InputError, match="unknown passage id 'zz'"):
        fitted.score(queries[:1], [["zz"]])
    with pytest.raises(InputError, match="candidates of 2 queries for 1 query vectors"):
        fitted.score(queries[:1], [["1"], ["2"]])
    with pytest.raises(InputError, match="1 query ids for 2 query vectors"):
        fitted.rank(queries[:2], ["q"])
