"""Inner products of sparse vectors, beside a loop over the terms in their order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

from haybale.ensemble import sparse_products
from haybale.ensemble.sparse_products import TermColumns, add_products


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), density=st.sampled_from([0, 0.05, 0.4, 1]), frequent=st.sampled_from([1, 2, 9]))
def test_products_are_sums_in_the_order_of_the_terms(seed: int, density: float, frequent: int) -> None:
    """To the bit, whichever terms are rows."""
    rng = np.random.default_rng(seed)
    a, b = (np.where(rng.random((n, 9)) < density, rng.normal(size=(n, 9)), 0).astype(np.float32) for n in (7, 5))
    expected = np.ones((7, 5), dtype=np.float32)
    for term in range(9):
        expected += a[:, term, None] * b[:, term]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sparse_products, "_MIN_VECTORS_FOR_DENSE_ROWS", 2)
        patch.setattr(sparse_products, "_DENSE_ROW_RATIO", frequent)
        columns = TermColumns.of(sparse.csr_matrix(b))
    assert len(columns.rows) == np.count_nonzero(np.count_nonzero(b, axis=0) * frequent >= 5)
    out = np.ones((7, 5), dtype=np.float32)
    add_products(sparse.csr_matrix(a), columns, out)
    np.testing.assert_array_equal(out, expected)
