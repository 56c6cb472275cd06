"""Pair features, by hand."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse
from worlds import world

from haybale.ensemble import pair_features
from haybale.errors import InputError
from haybale.retrieval import Hits, PassageIndex, pool

NONE = -np.inf


def test_pair_features_by_hand() -> None:
    index, queries, _ = world()
    queries = 3 * queries[:2]
    lexical = Hits(np.array([[4, 7, -1], [-1, -1, -1]]), np.array([[8, 2, NONE], [NONE] * 3], dtype=np.float32))
    nearest = Hits(np.array([[7, 9], [3, 2]]), np.array([[0.5, 0.4], [0.9, 0.3]], dtype=np.float32))
    candidates = pool(lexical, nearest)
    assert candidates.passages.tolist() == [[4, 7, 9], [3, 2, -1]]
    found = pair_features(candidates, [lexical, nearest], index, queries)
    assert found.shape == (2, 3, 3)
    cosine = [
        [q @ index.vectors[p] / np.linalg.norm(q) if p >= 0 else 0 for p in row]
        for q, row in zip(queries, candidates.passages, strict=True)
    ]
    np.testing.assert_allclose(found[:, :, 0], cosine, atol=1e-6)
    # A search that did not find a passage has its last hit's score; one without hits has nothing.
    np.testing.assert_allclose(found[0, :, 1], [1, 2 / 8, 2 / 8])
    np.testing.assert_allclose(found[0, :, 2], [0.4 / 0.5, 1, 0.4 / 0.5])
    assert not found[1, :, 1].any()
    assert not found[1, 2].any()
    wide = sparse.csr_matrix(index.vectors), index.doc_offsets
    again = pair_features(candidates, [lexical, nearest], PassageIndex(*wide), sparse.csr_matrix(queries))
    np.testing.assert_allclose(again, found, atol=1e-6)
    with pytest.raises(InputError, match="of the 2 queries that have candidates"):
        pair_features(candidates, [lexical], index, queries[:1])
