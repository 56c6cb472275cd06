"""Scaling, γ and kernels, each the obvious way."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.preprocessing import StandardScaler
from worlds import features, random_rows

from haybale.ensemble import gram as gram_module
from haybale.ensemble.gram import gram, kernel_tile
from haybale.ensemble.half import Half, distinct_rows
from haybale.ensemble.spaces import fit_spaces

# scaling and γ --------------------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 999), d=st.integers(1, 5))
def test_scaling_and_gamma_are_those_of_the_feature_matrix(seed: int, d: int) -> None:
    rng = np.random.default_rng(seed)
    rows = random_rows(seed, 60, 7, 12)
    queries, passages = (rng.normal(2, 3, size=(m, d)).astype(np.float32) for m in (7, 12))
    queries[:, 0] = 1.5  # a constant feature
    spaces = fit_spaces(rows.query, rows.passage, [queries], [passages], "scale", standardize=True)
    expected = StandardScaler().fit_transform(features(rows, queries, passages))
    gamma = spaces.gamma[0]
    assert gamma == pytest.approx((1 / (2 * d * expected.var()),) * 2, rel=1e-3)
    scaled = features(rows, spaces.queries([queries]).dense, spaces.passages([passages]).dense)
    np.testing.assert_allclose(scaled, expected * np.sqrt(gamma[0]), atol=2e-4)
    raw = features(rows, queries, passages)
    plain = fit_spaces(rows.query, rows.passage, [queries], [passages], "scale")
    assert plain.gamma[0][0] == pytest.approx(1 / (2 * d * raw.var()), rel=1e-4)


def test_the_kernel_is_a_product() -> None:
    rng = np.random.default_rng(0)
    q, p = rng.normal(size=(9, 4)).astype(np.float32), rng.normal(size=(9, 4)).astype(np.float32)
    both = np.concatenate([q, p], axis=1)
    np.testing.assert_allclose(gram(Half(both)), gram(Half(q)) * gram(Half(p)), atol=1e-6)
    far = np.sum((both[:, None] - both[None]) ** 2, axis=-1)
    np.testing.assert_allclose(kernel_tile(Half(both), Half(both)), np.exp(-far), atol=5e-6)


@settings(max_examples=20, deadline=None)
@given(n=st.integers(1, 90), tile=st.sampled_from([7, 32, 1024]), seed=st.integers(0, 99))
def test_a_gram_matrix_is_exact_and_symmetric_whatever_the_tiles(n: int, tile: int, seed: int) -> None:
    x = np.random.default_rng(seed).normal(scale=2, size=(n, 5)).astype(np.float32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gram_module, "TILE", tile)
        found = gram(Half(x))
    expected = np.exp(-np.sum((x[:, None].astype(np.float64) - x[None]) ** 2, axis=-1))
    np.testing.assert_allclose(found, expected, atol=5e-6)
    assert (found == found.T).all()
    assert (np.diag(found) == 1).all()


def test_dense_and_sparse_spaces_multiply() -> None:
    """Two spaces side by side, one of them sparse: the product of their kernels, each with its own γ."""
    rng = np.random.default_rng(1)
    dense = [rng.normal(size=(n, 3)).astype(np.float32) for n in (8, 11)]
    wide = [sparse.random(n, 20, density=0.3, random_state=1, dtype=np.float32).tocsr() for n in (8, 11)]
    rows = np.arange(8), np.arange(8)
    spaces = fit_spaces(*rows, [dense[0], wide[0]], [dense[1], wide[1]], [(0.5, 0.7), 0.9])
    for made, half, gammas in (
        (spaces.queries([dense[0], wide[0]]), 0, (0.5, 0.9)),
        (spaces.passages([dense[1], wide[1]]), 1, (0.7, 0.9)),
    ):
        apart = [np.sum((x[:, None] - x[None]) ** 2, axis=-1) for x in (dense[half], wide[half].toarray())]
        np.testing.assert_allclose(gram(made), np.exp(-gammas[0] * apart[0] - gammas[1] * apart[1]), atol=2e-6)
    scale = fit_spaces(*rows, [wide[0]], [wide[1]], "scale").gamma[0][0]
    together = np.concatenate([wide[0].toarray(), wide[1].toarray()[:8]], axis=1)
    assert scale == pytest.approx(1 / (40 * together.var()), rel=1e-4)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 99), n=st.integers(1, 40), d=st.integers(0, 3))
def test_distinct_rows(seed: int, n: int, d: int) -> None:
    """First occurrences and where each row went; their order depends on what the rows hold, not on where they are."""
    rng = np.random.default_rng(seed)
    x = rng.integers(3, size=(n, d)).astype(np.float32) * np.where(rng.random((n, d)) < 0.5, -1, 1)
    x = x.astype(np.float32)
    first, where = distinct_rows(x)
    np.testing.assert_array_equal(x[first][where], x)
    assert len(first) == len(np.unique(x + np.float32(0), axis=0)) if d else len(first) == 1
    shuffled = rng.permutation(n)
    np.testing.assert_array_equal(x[shuffled][distinct_rows(x[shuffled])[0]], x[first])
