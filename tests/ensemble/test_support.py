"""Sums over support rows on the CPU and on a device, for many tile sizes, compared with direct sums."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from support.problems import CUDA, matrix_of, moved, points, rbf

from haybale.device import CPU, to_numpy
from haybale.ensemble import expansion as module
from haybale.ensemble.kernel import Pairs, Points, kernel_tile
from haybale.ensemble.support import Support
from haybale.errors import DeviceError


def expansion(
    seed: int, features: bool = False, kind: str = "dense", n_bags: int = 4
) -> tuple[Support, Pairs, np.ndarray]:
    """Return a random support and random pairs, both with repetitions, and bag weights for each query."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(0, 60, size=n_bags)
    n, m = int(sizes.sum()), 90
    of_rows: dict[str, Any] = {}
    of_pairs: dict[str, Any] = {}
    if features:
        of_rows = {"feature_weights": rng.normal(size=(n_bags, 2))}
        of_pairs = {"features": rng.normal(size=(m, 2)).astype(np.float32)}
    support = Support(
        queries=points(seed, 9, kind=kind),
        passages=points(seed + 1, 20, kind=kind),
        query=rng.integers(9, size=n),
        passage=rng.integers(20, size=n),
        coef=rng.normal(size=n),
        label=np.ones(n, dtype=np.float32),
        offsets=np.concatenate(([0], np.cumsum(sizes))),
        intercept=rng.normal(size=n_bags),
        **of_rows,
    )
    inputs = points(seed + 2, 6, kind=kind), points(seed + 3, 100, kind=kind)
    pairs = Pairs(*inputs, rng.integers(6, size=m), rng.integers(100, size=m), **of_pairs)
    weights = np.where(rng.random((6, n_bags)) < 0.4, 0, rng.random((6, n_bags)))
    return support, pairs, weights


def all_pairs(pairs: Pairs) -> Pairs:
    """Return every query with every passage, query by query, without features."""
    query, passage = (of.ravel() for of in np.indices((len(pairs.queries), len(pairs.passages))))
    return replace(pairs, query=query, passage=passage, features=None)


def direct_sums(support: Support, pairs: Pairs) -> np.ndarray:
    """Return the predictions (n_pairs, n_bags), computed from every kernel value."""
    (kq, kp) = (
        rbf(matrix_of(a)[i], matrix_of(b)[j])
        for a, i, b, j in (
            (pairs.queries, pairs.query, support.queries, support.query),
            (pairs.passages, pairs.passage, support.passages, support.passage),
        )
    )
    member = support.bag[:, None] == np.arange(support.n_bags)
    bags = (kq * kp * support.coef) @ member + support.intercept
    if support.feature_weights is not None and pairs.features is not None:
        bags += np.einsum("nf,bf->nb", pairs.features, support.feature_weights)
    return bags


@pytest.mark.parametrize("weighted", [False, True])
def test_sums_of_groups_add_up_to_the_bit(monkeypatch: pytest.MonkeyPatch, weighted: bool) -> None:
    for name, size in {
        "_SUPPORT_PASSAGES_PER_TILE": 2,
        "_MAX_GROUPS_OF_TILES": 3,
        "_KERNEL_VALUES_PER_BLOCK": 20,
        "_MAX_NUMBERS_IN_FLOAT64": 0,
    }.items():
        monkeypatch.setattr(module, name, size)
    support, pairs, weights = expansion(5, features=True)
    of_bags = weights if weighted else None
    assert [len(group) for group in support.expansion.groups] == [3, 3, 4]
    parts = [support.memory(pairs, of_bags, group) for group in range(3)]
    rest = support.without_memory(pairs.query, pairs.features, of_bags)
    np.testing.assert_array_equal(parts[0] + parts[1] + parts[2] + rest, support.mean(pairs, of_bags))
    assert all(abs(part).max() > 0 for part in parts)


@pytest.mark.parametrize("kind", ["dense", "sparse", "both"])
@pytest.mark.parametrize("features", [False, True])
@pytest.mark.parametrize("small", [True, False])
def test_predictions_equal_direct_sums(
    cupy: Any, monkeypatch: pytest.MonkeyPatch, kind: str, features: bool, small: bool
) -> None:
    """Means, weighted means, bags and shares, with the usual tile sizes and with tiny ones."""
    sizes = (
        {}
        if small
        else {
            "_SUPPORT_PASSAGES_PER_TILE": 13,
            "_MAX_PASSAGES_PER_TILE": 2,
            "_MAX_PASSAGES_OF_ONE_THREAD": 1,
            "_NUMBERS_PER_BLOCK": 50,
            "_KERNEL_VALUES_PER_BLOCK": 20,
            "_MAX_NUMBERS_IN_FLOAT64": 0,
        }
    )
    for name, size in sizes.items():
        monkeypatch.setattr(module, name, size)
    for seed in range(2):
        support, pairs, weights = expansion(seed, features, kind)
        expected = direct_sums(support, pairs)
        one = replace(pairs, query=pairs.query[:1], passage=pairs.passage[:1])
        if features:
            one = replace(one, features=pairs.features[:1])
        for model, inputs, single in ((support, pairs, one), (support.to(CUDA), moved(pairs), moved(one))):
            for found, wanted in (
                (model.mean(inputs), expected.mean(axis=1)),
                (model.mean(inputs, weights), (expected * weights[pairs.query]).sum(axis=1)),
                (model.bags(inputs), expected),
            ):
                assert isinstance(found, np.ndarray)
                assert found.dtype == np.float64
                np.testing.assert_allclose(found, wanted, atol=2e-5)
            for intercept in (True, False):
                sums = expected - (not intercept) * support.intercept
                found = model.mean(inputs, weights, intercept=intercept)
                np.testing.assert_allclose(found, (sums * weights[pairs.query]).sum(axis=1), atol=2e-5)
                found = model.mean(inputs, intercept=intercept)
                np.testing.assert_allclose(found, sums.mean(axis=1), atol=2e-5)
            shares = model.shares(single).sum() + support.intercept.sum()
            if features:
                shares += (support.feature_weights @ single.features[0]).sum()
            assert shares == pytest.approx(expected[0].sum(), abs=2e-5)
        assert support.to(CPU) is support
        np.testing.assert_array_equal(matrix_of(support.to(CUDA).to(CPU).passages), matrix_of(support.passages))


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("small", [True, False])
def test_the_passages_with_the_highest_sums(cupy: Any, monkeypatch: pytest.MonkeyPatch, kind: str, small: bool) -> None:
    """Means and weighted means of the bags; pair features are ignored."""
    sizes = {} if small else {"_SUPPORT_PASSAGES_PER_TILE": 13, "_MAX_PASSAGES_PER_TILE": 2, "_NUMBERS_PER_BLOCK": 50}
    for name, size in sizes.items():
        monkeypatch.setattr(module, name, size)
    support, pairs, weights = expansion(3, True, kind)
    bags = direct_sums(support, all_pairs(pairs)).reshape(6, 100, 4)
    for model, inputs, library in ((support, pairs, np), (support.to(CUDA), moved(pairs), cupy)):
        for of_bags in (None, weights):
            expected = bags.mean(axis=2) if of_bags is None else np.einsum("qpb,qb->qp", bags, of_bags)
            for k, intercept in ((10, True), (200, False)):
                found = model.highest(inputs.queries, 100, inputs.passages.take, k, of_bags, intercept=intercept)
                assert isinstance(found, library.ndarray)
                scores = np.take_along_axis(expected, to_numpy(found), axis=1)
                np.testing.assert_allclose(scores, -np.sort(-expected, axis=1)[:, :k], atol=2e-5)
                assert all(len(np.unique(row)) == min(k, 100) for row in to_numpy(found))


@pytest.mark.usefixtures("cupy")
@pytest.mark.parametrize("where", [CPU, CUDA])
def test_expansions_without_pairs_or_support(where: Any) -> None:
    support, pairs, _ = expansion(0)
    columns = {name: getattr(support, name)[:0] for name in ("query", "passage", "coef", "label")}
    empty = replace(support, offsets=np.zeros(5, dtype=np.int64), **columns).to(where)
    inputs = replace(pairs, queries=pairs.queries.to(where), passages=pairs.passages.to(where))
    np.testing.assert_allclose(to_numpy(empty.bags(inputs)), np.tile(support.intercept, (90, 1)))
    np.testing.assert_array_equal(
        to_numpy(empty.highest(inputs.queries, 100, inputs.passages.take, 3)), [[0, 1, 2]] * 6
    )
    no_pairs = replace(inputs, query=pairs.query[:0], passage=pairs.passage[:0])
    assert support.to(where).mean(no_pairs).shape == (0,)
    no_queries = inputs.queries.take(slice(0, 0))
    assert support.to(where).highest(no_queries, 100, inputs.passages.take, 3).shape == (0, 3)


@pytest.mark.parametrize("features", [False, True])
def test_a_block_that_does_not_fit_is_halved(cupy: Any, monkeypatch: pytest.MonkeyPatch, features: bool) -> None:
    support, pairs, weights = expansion(1, features)
    model, inputs = support.to(CUDA), moved(pairs)
    expected = support.bags(pairs), support.mean(pairs, weights)
    sizes: list[int] = []

    def limit_memory(room: int) -> None:
        def tile(a: Points, b: Points, exact: bool = False) -> Any:
            sizes.append(len(a) * len(b))
            if len(a) * len(b) > room and a.dense.shape[1] > 2:
                raise MemoryError("Out of memory allocating")
            return kernel_tile(a, b, exact)

        monkeypatch.setattr(module, "kernel_tile", tile)

    limit_memory(700)
    np.testing.assert_allclose(to_numpy(model.bags(inputs)), expected[0], atol=2e-5)
    np.testing.assert_allclose(to_numpy(model.mean(inputs, weights)), expected[1], atol=2e-5)
    assert max(sizes) > 700
    limit_memory(2)
    with pytest.raises(DeviceError, match="out of memory at a block of 1 queries"):
        model.bags(inputs)
