"""Scalings, γ and distinct rows, compared with the explicit feature matrix; and spaces on a device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse
from sklearn.preprocessing import StandardScaler
from support.problems import CUDA, matrix_of, rbf
from support.worlds import features, random_rows

from haybale.device import CPU, device_of, to_device, to_numpy
from haybale.ensemble.distinct_rows import distinct_rows
from haybale.ensemble.kernel import gram
from haybale.ensemble.spaces import check_spaces, fit_spaces, take_rows
from haybale.errors import DeviceError, InputError, VectorError


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


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("standardize", [False, True])
def test_many_rows_are_scaled_as_few(standardize: bool, dtype: Any) -> None:
    """By several threads, bit for bit."""
    vectors = np.random.default_rng(0).normal(2, 3, size=(700, 5)).astype(dtype)
    rows = np.arange(len(vectors))
    for precise in (np.float32, np.float64):
        scaling = fit_spaces(rows, rows, [vectors], [vectors], 0.5, standardize, dtype=precise).query[0]
        parts = [scaling(vectors[start : start + 100]) for start in range(0, len(vectors), 100)]
        scaled = scaling(vectors)
        assert scaled.dtype == parts[0].dtype == precise
        assert np.array_equal(scaled, np.concatenate(parts))


def two_spaces() -> tuple[list[Any], list[Any]]:
    rng = np.random.default_rng(1)
    wide = [sparse.random(n, 20, density=0.3, random_state=1, dtype=np.float32).tocsr() for n in (8, 11)]
    return [rng.normal(3, 2, size=(8, 3)).astype(np.float32), wide[0]], [
        rng.normal(3, 2, size=(11, 3)).astype(np.float32),
        wide[1],
    ]


def test_dense_and_sparse_spaces_multiply() -> None:
    """The kernel of a dense and a sparse space is the product of their kernels, each with its own γ."""
    queries, passages = two_spaces()
    rows = np.arange(8), np.arange(8)
    spaces = fit_spaces(*rows, queries, passages, [(0.5, 0.7), 0.9])
    for scaled, (dense, wide), gammas in (
        (spaces.queries(queries), queries, (0.5, 0.9)),
        (spaces.passages(passages), passages, (0.7, 0.9)),
    ):
        expected = rbf(dense, dense, gammas[0]) * rbf(wide.toarray(), wide.toarray(), gammas[1])
        np.testing.assert_allclose(gram(scaled), expected, atol=2e-6)
    scale = fit_spaces(*rows, queries[1:], passages[1:], "scale").gamma[0][0]
    together = np.concatenate([queries[1].toarray(), passages[1].toarray()[:8]], axis=1)
    assert scale == pytest.approx(1 / (40 * together.var()), rel=1e-4)


@pytest.mark.parametrize("standardize", [False, True])
@pytest.mark.parametrize("parts", [64, 3])
def test_scalings_on_a_device_are_those_of_numpy(
    cupy: Any, monkeypatch: pytest.MonkeyPatch, standardize: bool, parts: int
) -> None:
    """A dense space, and a sparse one if nothing is centred, in few parts and in many."""
    monkeypatch.setattr("haybale.device_vectors._MAX_ROW_PARTS", parts)
    queries, passages = (spaces[: 1 if standardize else 2] for spaces in two_spaces())
    passages[0][:, 2] = 7  # a constant feature
    on_gpu = [[to_device(matrix, CUDA) for matrix in of] for of in (queries, passages)]
    rng = np.random.default_rng(0)
    query, passage = rng.integers(8, size=50), rng.integers(11, size=50)
    expected = fit_spaces(query, passage, queries, passages, "scale", standardize)
    found = fit_spaces(query, passage, *on_gpu, "scale", standardize)
    np.testing.assert_allclose(found.gamma, expected.gamma, rtol=1e-6)
    for ours, theirs in zip((*found.query, *found.passage), (*expected.query, *expected.passage), strict=True):
        assert isinstance(ours.factor, np.ndarray)
        np.testing.assert_allclose(ours.factor, theirs.factor, rtol=1e-6)
        if theirs.shift is not None:
            np.testing.assert_allclose(ours.shift, theirs.shift, rtol=1e-6)
    scaled = found.passages(on_gpu[1])
    assert scaled.device == CUDA
    np.testing.assert_allclose(matrix_of(scaled.to(CPU)), matrix_of(expected.passages(passages)), rtol=1e-5, atol=1e-5)


def test_spaces_are_checked_and_moved_to_a_device(cupy: Any) -> None:
    queries, _ = two_spaces()
    found = check_spaces(queries, "queries", CUDA)
    assert [device_of(matrix) for matrix in found] == [CUDA, CUDA]
    np.testing.assert_array_equal(to_numpy(found[1]).toarray(), queries[1].toarray())
    assert device_of(check_spaces(found, "queries", CUDA)[1]) == CUDA
    np.testing.assert_array_equal(to_numpy(take_rows(queries[1], [3, 1], CUDA)).toarray(), queries[1][[3, 1]].toarray())
    with pytest.raises(DeviceError, match=r"queries, space 0 .*cuda:0"):
        check_spaces(found, "queries", CPU)
    broken = np.where(np.arange(8)[:, None] == 2, np.float32(np.nan), queries[0])
    with pytest.raises(InputError, match="queries, space 1: row 2 has NaN"):
        check_spaces([found[0], cupy.asarray(broken)], "queries", CUDA)
    with pytest.raises(VectorError, match=r"queries .* 1 spaces, found 2"):
        check_spaces(queries, "queries", CPU, [3])


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 99), n=st.integers(1, 40), d=st.integers(0, 3))
def test_distinct_rows(seed: int, n: int, d: int) -> None:
    """The order of distinct rows depends on their content, not on the order of the rows."""
    rng = np.random.default_rng(seed)
    x = rng.integers(3, size=(n, d)).astype(np.float32) * np.where(rng.random((n, d)) < 0.5, -1, 1)
    x = x.astype(np.float32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("haybale.ensemble.distinct_rows._ROWS", 7)  # several blocks
        first, where = distinct_rows(x)
    np.testing.assert_array_equal(x[first][where], x)
    assert len(first) == len(np.unique(x + np.float32(0), axis=0)) if d else len(first) == 1
    shuffled = rng.permutation(n)
    np.testing.assert_array_equal(x[shuffled][distinct_rows(x[shuffled])[0]], x[first])
