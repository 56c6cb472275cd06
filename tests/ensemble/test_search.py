"""Searches of the whole index by an ensemble, compared with sorting all scores; and scores without intercept."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from support.problems import rbf
from support.worlds import candidates_with_features, world

from haybale import PassageIndex
from haybale.ensemble import SVREnsemble, expansion
from haybale.ensemble import svr_ensemble as module
from haybale.ensemble.kernel import Points, kernel_tile
from haybale.errors import InputError
from haybale.retrieval.hits import select


@pytest.mark.parametrize("wide", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("intercept", [True, False])
@given(st.data())
@settings(max_examples=5, deadline=None)
def test_a_search_returns_the_highest_of_all_scores(wide: bool, intercept: bool, data: st.DataObject) -> None:
    """Random tile sizes, equal passages, excluded documents, and out-of-bag scores of training queries."""
    seed, k = data.draw(st.integers(0, 99)), data.draw(st.integers(1, 150))
    index, queries, relevant = world(seed)
    vectors = index.vectors.copy()
    vectors[-15:] = vectors[:15]  # ties
    if wide:
        vectors, queries = (sparse.csr_matrix(np.where(np.abs(x) > 0.25, x, 0)) for x in (vectors, queries))
    index = PassageIndex(vectors, index.doc_offsets, doc_ids=index.doc_ids)
    ensemble = SVREnsemble(4, k=8, gamma=(3.0, 9.0)).fit(index, queries, relevant)
    rng = np.random.default_rng(seed)
    chosen = rng.choice(np.flatnonzero(~ensemble.seen_.all(axis=1)), size=12, replace=False)
    exclude, numbers = rng.integers(-1, len(index.doc_ids), size=12), np.where(rng.random(12) < 0.3, -1, chosen)
    out_of_bag, everything = data.draw(st.booleans()), np.tile(np.arange(len(index)), (12, 1))
    how: dict[str, Any] = {"intercept": intercept, "exclude": exclude, "query_numbers": numbers if out_of_bag else None}
    with pytest.MonkeyPatch.context() as patch:
        for name in ("_MAX_PASSAGES_PER_TILE", "_SUPPORT_PASSAGES_PER_TILE", "_NUMBERS_PER_BLOCK"):
            patch.setattr(expansion, name, data.draw(st.sampled_from([19, 60, 5000])))
        patch.setattr(module, "SLACK", data.draw(st.sampled_from([3, 24])))
        found = ensemble.search(queries[chosen], k, **how)
        scores = ensemble.score_candidates(queries[chosen], everything, intercept=intercept)
        if out_of_bag:
            of_new = scores[numbers < 0]
            scores = ensemble.out_of_bag_scores(numbers, queries[chosen], everything, intercept=intercept)
            np.testing.assert_allclose(scores[numbers < 0], of_new, atol=1e-6)
    scores[index.doc_of == exclude[:, None]] = -np.inf
    passages, best = select(scores, min(k, len(index)), order=index.columns.order)
    np.testing.assert_allclose(found.scores, best, atol=1e-6)
    own = np.where(found.passages < 0, -np.inf, np.take_along_axis(scores, found.passages, axis=1))
    np.testing.assert_allclose(found.scores, own, atol=1e-6)
    # Passages agree unless another score is within rounding; equal scores are in the order of ids.
    with np.errstate(invalid="ignore"):  # excluded passages have -inf, and their difference is NaN
        clear = np.diff(best, axis=1, prepend=np.inf, append=-np.inf) < -1e-5
    np.testing.assert_array_equal(*(of[clear[:, :-1] & clear[:, 1:]] for of in (found.passages, passages)))
    tied = found.scores[:, 1:] == found.scores[:, :-1]
    places = index.columns.order.places[found.passages].astype(np.int64)
    assert (np.diff(places, axis=1)[tied & (found.passages[:, 1:] >= 0)] > 0).all()


def test_the_memory_of_a_search_does_not_grow_with_the_index(monkeypatch: pytest.MonkeyPatch) -> None:
    index, queries, relevant = world()
    ensemble = SVREnsemble(3, k=10).fit(index, queries, relevant)
    sizes: list[int] = []

    def measured_tile(a: Points, b: Points, exact: bool = False) -> np.ndarray:
        sizes.append(len(a) * len(b))
        return kernel_tile(a, b, exact)

    monkeypatch.setattr(expansion, "kernel_tile", measured_tile)
    for name, size in {
        "_MAX_PASSAGES_PER_TILE": 16,
        "_SUPPORT_PASSAGES_PER_TILE": 8,
        "_MAX_PASSAGES_OF_ONE_THREAD": 0,
    }.items():
        monkeypatch.setattr(expansion, name, size)
    monkeypatch.setattr(module, "SLACK", 0)
    support = ensemble.support_
    memory, weights = 2 * (len(support.queries) + len(support.passages) + 16 * 16), expansion._Weights
    monkeypatch.setattr(expansion, "_NUMBERS_PER_BLOCK", memory)
    monkeypatch.setattr(expansion, "_KERNEL_VALUES_PER_BLOCK", 5 * len(support.queries))

    def checked_weights(chunk: Points, *arguments: Any) -> Any:
        columns = 8 * max(map(len, support.expansion.groups))
        assert len(chunk) == 1 or len(chunk) * columns <= memory
        return weights(chunk, *arguments)

    monkeypatch.setattr(expansion, "_Weights", checked_weights)
    ensemble.search(queries, 1)
    assert max(sizes) <= max(16 * 8, 5 * len(support.queries))
    assert sum(sizes) >= len(index) * len(support.passages)


def test_an_ensemble_with_eta_searches_with_the_product_kernel_only() -> None:
    index, queries, relevant, candidates, features = candidates_with_features(1)
    ensemble = SVREnsemble(3, eta=0.6).fit(index, queries, relevant, candidates=candidates, features=features)
    found, support = ensemble.search(queries[:5], 4, intercept=False), ensemble.support_
    q, p = ensemble.spaces_.queries([queries[:5]]).dense, ensemble.spaces_.passages([index.vectors]).dense
    kq, kp = rbf(q, support.queries.dense)[:, support.query], rbf(p, support.passages.dense)[:, support.passage]
    expected = (kq * support.coef) @ kp.T / 3
    np.testing.assert_allclose(found.scores, -np.sort(-expected, axis=1)[:, :4], atol=1e-5)
    with pytest.raises(InputError, match="'k'"):
        ensemble.search(queries[:5], 0)


def test_without_the_intercept_small_sums_keep_their_order() -> None:
    """With a large γ, float32 loses small sums when the intercept is added; also for out-of-bag scores."""
    rng = np.random.default_rng(0)
    axes = np.eye(40, dtype=np.float32)
    passages = axes[:30] + 0.3 * axes[30:].repeat(3, axis=0)
    passages /= np.linalg.norm(passages, axis=1, keepdims=True)
    index, relevant = PassageIndex(passages), [[str(i)] for i in range(30)]
    queries = passages + 0.1 * rng.normal(size=passages.shape).astype(np.float32)
    ensemble = SVREnsemble(6, k=10, gamma=(32.0, 2.5)).fit(index, queries, relevant)
    far = -axes[:5]  # squared distances to all training queries are at least 2, so kernels are at most e^-64
    everything = np.tile(np.arange(30), (5, 1))
    support = ensemble.support_
    (q, p), spaces = (x.astype(np.float64) for x in (far, passages)), ensemble.spaces_
    q, p = spaces.precise().queries([q]).dense, spaces.precise().passages([p]).dense
    kq, kp = rbf(q, support.queries.dense)[:, support.query], rbf(p, support.passages.dense)[:, support.passage]
    weights = (~ensemble.seen_[:5])[:, support.bag] / (~ensemble.seen_[:5]).sum(axis=1)[:, None]
    for of_bags, score in (
        (np.full(weights.shape, 1 / 6), ensemble.score_candidates),
        (weights, partial(ensemble.out_of_bag_scores, np.arange(5))),
    ):
        expected = (kq * support.coef * of_bags) @ kp.T
        assert 0 < np.abs(expected).max() < 1e-20
        lost, kept = score(far, everything), score(far, everything, intercept=False)
        assert all(len(np.unique(row)) == 1 for row in lost)
        np.testing.assert_allclose(kept, expected, rtol=1e-3, atol=1e-8 * np.abs(expected).max())
        assert all(len(np.unique(row)) > 15 for row in kept)
    scores = ensemble.score_candidates(far, everything, intercept=False)
    np.testing.assert_array_equal(
        ensemble.search(far, 9, intercept=False).passages, select(scores, 9, order=ensemble.index_.columns.order)[0]
    )
