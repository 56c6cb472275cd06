"""Novel queries against sets."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from haybale.ensemble import novel_queries
from haybale.errors import InputError


@given(st.lists(st.lists(st.sampled_from("abcdefghijkl"), max_size=4), max_size=8))
def test_novel_queries_share_no_relevant_document(relevant: list[list[str]]) -> None:
    expected = [
        bool(ids) and not any(set(ids) & set(other) for j, other in enumerate(relevant) if j != i)
        for i, ids in enumerate(relevant)
    ]
    found = novel_queries(relevant)
    assert found.dtype == bool
    assert found.tolist() == expected


def test_arrays_of_ids_and_strings() -> None:
    assert novel_queries([np.array(["a"]), ("b", "a"), ["c"]]).tolist() == [False, False, True]
    with pytest.raises(InputError, match="found a string"):
        novel_queries(["d1", "d2"])
