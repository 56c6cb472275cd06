"""Tests of sparse rows that grow, against dense products."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from haybale.review import growing_matrix
from haybale.review.growing_matrix import GrowingMatrix
from haybale.review.term_space import TermVector


@given(st.lists(st.integers(0, 5), max_size=6), st.integers(0, 2**32 - 1))
def test_products_are_those_of_the_dense_rows(sizes: list[int], seed: int) -> None:
    random = np.random.default_rng(seed)
    blocks = [
        sparse.random(size, 7, density=0.4, format="csr", dtype=np.float32, random_state=random) for size in [3, *sizes]
    ]
    columns = np.flatnonzero(random.random(7) < 0.5)
    weights = random.random(len(columns), dtype=np.float32)
    dense = np.zeros(7, dtype=np.float32)
    dense[columns] = weights
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(growing_matrix, "_ROWS_PER_SORTED_PART", 4)
        matrix = GrowingMatrix(blocks[0])
        for number, block in enumerate(blocks):
            if number:
                matrix.append(block)
            expected = np.vstack([each.toarray() for each in blocks[: number + 1]]) @ dense
            assert len(matrix) == len(expected)
            np.testing.assert_allclose(matrix.product(TermVector(columns, weights)), expected, rtol=1e-5, atol=1e-6)
