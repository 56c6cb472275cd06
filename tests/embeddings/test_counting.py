"""Counts of terms: those of texts, of documents of consecutive texts, and of an Arrow column."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from haybale.analysis import Analyzer
from haybale.collections import Collection
from haybale.embeddings.counting import TermCounts
from haybale.errors import InputError

PARTS = ["Dogs", "dog's", "cat", "the", "\n", "é", "x", "Straße", "42"]
SOME = st.lists(st.sampled_from(PARTS), max_size=8).map(" ".join)


@settings(max_examples=50, deadline=None)
@given(texts=st.lists(SOME, max_size=12), cuts=st.lists(st.integers(0, 12), max_size=5))
def test_merged_counts_are_those_of_joined_texts(texts: list[str], cuts: list[int]) -> None:
    offsets = np.array(sorted([0, len(texts), *(min(cut, len(texts)) for cut in cuts)]))
    analyzer = Analyzer("english")
    counts = TermCounts.of(texts, analyzer)
    expected = TermCounts.of(["\n".join(texts[a:b]) for a, b in pairwise(offsets.tolist())], analyzer)
    merged = counts.merged(offsets)
    assert list(merged.vocabulary) == list(expected.vocabulary)
    np.testing.assert_array_equal(merged.matrix.toarray(), expected.matrix.toarray())
    assert merged.lengths.tolist() == expected.lengths.tolist()
    assert merged.matrix.has_canonical_format
    names = list(counts.vocabulary)
    words = [Counter(analyzer.terms(text)) for text in texts]
    assert [{names[i]: row[i] for i in np.flatnonzero(row)} for row in counts.matrix.toarray()] == words


def test_an_arrow_column_has_the_counts_of_its_texts(toy: Collection) -> None:
    column, analyzer = toy.passages.texts, Analyzer("english")
    one, other = (TermCounts.of(texts, analyzer) for texts in (column, iter(column.to_pylist())))
    np.testing.assert_array_equal(one.matrix.toarray(), other.matrix.toarray())
    for wrong in ([], [1, 15], [0, 3], [0, 9, 8, 15]):
        with pytest.raises(InputError, match=r"offsets .* 15"):
            one.merged(np.array(wrong))
