"""Candidate rows, compared with rows worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from support.worlds import world

from haybale.ensemble import CandidateRows, SVREnsemble, candidate_rows
from haybale.errors import InputError
from haybale.retrieval import Hits, PassageIndex


def listed(rows: CandidateRows) -> list[tuple[int, int, int]]:
    return list(zip(rows.query.tolist(), rows.passage.tolist(), rows.label.tolist(), strict=True))


def test_end_to_end_rows_by_hand() -> None:
    vectors = np.array([[1, 0], [0.9, 0.1], [0, 1], [0.1, 0.9], [0.5, 0.5]], dtype=np.float32)
    index = PassageIndex(vectors, [0, 2, 4, 5], doc_ids=["a", "b", "c"])
    queries = np.array([[1, 0.1], [0, 1]], dtype=np.float32)
    hits = index.search(queries, 2)
    # Documents a and b are relevant to query 0 (candidates 0, 1); its nearest passage of document b is 3. Document c,
    # which has no candidate, is relevant to query 1 (candidates 2, 3).
    rows = candidate_rows("end-to-end", hits, [["a", "b", "b"], ["c"]], index, queries)
    expected = [(0, 0, 1), (0, 1, 1), (0, 3, 1), (1, 2, 0), (1, 3, 0), (1, 4, 1)]
    assert listed(rows) == expected
    assert rows.place.tolist() == [0, 1, -1, 2, 3, -1]
    without = candidate_rows("end-to-end", hits, [["a", "b"], ["c"]], index, queries, exclude=["b", None])
    assert listed(without) == [row for row in expected if row != (0, 3, 1)]
    with pytest.raises(InputError, match="'protocol'"):
        candidate_rows("other", hits, [[], []], index, queries)


def test_injected_rows_by_hand() -> None:
    """All candidates are negatives; the last passage of a relevant document is a positive."""
    index = PassageIndex(np.eye(4, dtype=np.float32), [0, 3, 4], doc_ids=["a", "b"])
    hits = Hits(np.array([[0, 3]]), np.ones((1, 2), dtype=np.float32))
    rows = candidate_rows("injected", hits, [["a"]], index, np.ones((1, 4), dtype=np.float32))
    assert listed(rows) == [(0, 0, 0), (0, 3, 0), (0, 2, 1)]


def test_excluded_documents_and_documents_without_passages_are_not_positives() -> None:
    index, queries, relevant = world()
    with pytest.raises(InputError, match="'relevant'"):
        SVREnsemble(2, k=5).fit(index, queries, relevant, exclude=[ids[0] for ids in relevant])
    index = PassageIndex(np.eye(2, dtype=np.float32), [0, 1, 1, 2], doc_ids=["a", "b", "c"])
    hits = Hits(np.array([[0]]), np.ones((1, 1), dtype=np.float32))
    for protocol in ("end-to-end", "injected"):
        rows = candidate_rows(protocol, hits, [["b"]], index, np.ones((1, 2), dtype=np.float32))
        assert rows.label.tolist() == [0]


@pytest.mark.parametrize(
    ("query", "label", "message"),
    [
        ([0, 1], [1, 2], "label .* 2"),
        ([1, 0], [0, 1], "'query'"),
        ([0, 1], [1], "'label': 1"),
    ],
)
def test_inconsistent_rows_are_rejected(query: list[int], label: list[int], message: str) -> None:
    with pytest.raises(InputError, match=message):
        CandidateRows(np.array(query, dtype=np.int32), np.zeros(2, dtype=np.int32), np.array(label, dtype=np.int8))
