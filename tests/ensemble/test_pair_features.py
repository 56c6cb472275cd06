"""Pair features, compared with a simple implementation by dictionaries."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from haybale.ensemble import pair_features
from haybale.ensemble.pair_features import feature_names
from haybale.errors import InputError
from haybale.retrieval import Hits

NONE = -np.inf
# Search results of one query, best first, with few different scores, so that scores are often equal.
listings = st.dictionaries(st.integers(0, 12), st.sampled_from([-2.0, 0.0, 0.5, 3.0, 1e4]), max_size=8).map(
    lambda found: sorted(found.items(), key=lambda each: (-each[1], each[0]))
)


def hits_of(lists: list[list[tuple[int, float]]]) -> Hits:
    """Return the results of some queries as Hits, padded with -1."""
    width = max(map(len, lists), default=0)
    padded = [[*each, *[(-1, NONE)] * (width - len(each))] for each in lists]
    passages, scores = ([[pair[i] for pair in row] for row in padded] for i in (0, 1))
    shape = len(lists), width
    return Hits(np.array(passages, dtype=np.int64).reshape(shape), np.array(scores, dtype=np.float32).reshape(shape))


def features_of(passage: int, found: list[tuple[int, float]], learned: bool) -> list[float]:
    scores = dict(found)
    if passage not in scores:
        return [0.0] * (2 if learned else 3)
    score, lowest, best = scores[passage], min(scores.values()), max(scores.values())
    if learned:
        return [score, math.log(1 + max(score, 0))]
    rank = 1 + [other for other, _ in found].index(passage)
    return [(score - lowest) / (best - lowest) if best > lowest else 1.0, 61 / (60 + rank), 1 / rank]


@settings(max_examples=100, deadline=None)
@given(data=st.data(), m=st.integers(0, 4), learned=st.lists(st.booleans(), max_size=4))
def test_features_equal_the_simple_implementation(data: st.DataObject, m: int, learned: list[bool]) -> None:
    """Ordinary and learned searches, missing candidates, equal scores, padding, no query, no search, no hit."""
    searches = [data.draw(st.lists(listings, min_size=m, max_size=m)) for _ in learned]
    wanted = data.draw(st.lists(st.permutations(range(14)), min_size=m, max_size=m))
    rows = [[(passage, 0.0) for passage in row[: data.draw(st.integers(0, 14))]] for row in wanted]
    candidates = hits_of(rows)
    found = pair_features(candidates, [hits_of(each) for each in searches], learned)
    names = feature_names([str(i) for i in range(len(learned))], learned)
    assert found.shape == (*candidates.passages.shape, len(names))
    assert found.dtype == np.float32
    for row, passages in enumerate(candidates.passages.tolist()):
        for place, passage in enumerate(passages):
            expected = [
                value
                for search, known in zip(searches, learned, strict=True)
                for value in features_of(passage, search[row], known)
            ]
            np.testing.assert_allclose(found[row, place], expected if passage >= 0 else [0] * len(names), rtol=1e-6)
    if not any(learned):
        np.testing.assert_array_equal(pair_features(candidates, [hits_of(each) for each in searches]), found)


def test_searches_of_other_queries_are_rejected() -> None:
    two, one = hits_of([[(1, 2.0)], []]), hits_of([[(1, 2.0)]])
    for searches, learned in (([two, one], None), ([two], [True, False])):
        with pytest.raises(InputError, match="2 queries"):
            pair_features(two, searches, learned)
