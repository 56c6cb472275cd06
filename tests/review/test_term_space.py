"""TermSpace: cosines are those of scikit-learn's TF-IDF, for texts of the collection and for others."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.feature_extraction.text import TfidfVectorizer

from haybale.analysis import CHARACTERS, NO_LANGUAGE, Analyzer
from haybale.review.term_space import TermSpace, Words, _numbered_pairs

WORDS = ("tax", "income", "court", "appeal", "tenant", "rent", "lease", "dog", "cat", "lead")


def texts(n: int) -> list[str]:
    rng = np.random.default_rng(0)
    return [" ".join(rng.choice(WORDS, rng.integers(0, 12))) for _ in range(n)]


@pytest.mark.parametrize("pairs_only", [False, True])
def test_cosines_are_those_of_all_terms(pairs_only: bool) -> None:
    """Pairs of a single text are left out of the matrix; products of different texts must not change."""
    made = ["", *texts(40), "", "tax"]
    space = TermSpace.of(Words.of(made, Analyzer(NO_LANGUAGE)), pairs_only=pairs_only)
    vectorizer = TfidfVectorizer(ngram_range=(2, 2) if pairs_only else (1, 2), sublinear_tf=True, max_df=0.95)
    vectors = vectorizer.fit_transform(made)
    expected, found = (vectors @ vectors.T).toarray(), (space.matrix @ space.matrix.T).toarray()
    others = ~np.eye(len(made), dtype=bool)
    np.testing.assert_allclose(found[others], expected[others], atol=1e-5)
    assert space.matrix.shape[1] <= vectors.shape[1]


def test_the_vector_of_a_text_is_that_of_its_row() -> None:
    made = [each for each in texts(20) for _ in range(2)]  # so that no pair occurs only once
    space = TermSpace.of(Words.of(made, Analyzer(NO_LANGUAGE)))
    for row, text in enumerate(made):
        given, found = space.row(row), space.vector(f"{text} unknownword")
        np.testing.assert_array_equal(found.columns, given.columns)
        np.testing.assert_allclose(found.weights, given.weights, atol=1e-6)
    assert not len(space.vector("nothing of this").columns)


@given(
    st.lists(st.text("aIiß租约 -'\u0131\u0130é", max_size=12), max_size=6),
    st.sampled_from(["english", "german", "turkish", "french", NO_LANGUAGE, CHARACTERS]),
)
def test_stems_of_words_are_those_of_texts(texts: list[str], language: str) -> None:
    plain, other = Analyzer(NO_LANGUAGE), Analyzer(language, ())
    words, expected = Words.of(texts, plain), Words.of(texts, other)
    assert other.splits_like(plain) == plain.splits_like(other)
    if other.splits_like(plain):
        stems = words.as_terms_of(other)
        assert (stems.numbers.tolist(), stems.indptr.tolist()) == (expected.numbers.tolist(), expected.indptr.tolist())
        assert list(stems.vocabulary.items()) == list(expected.vocabulary.items())
    else:
        assert language == "turkish"


@settings(max_examples=20)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=40))
def test_pairs_are_numbered_in_their_order(pairs: list[tuple[int, int]]) -> None:
    keys = np.array([(first << 32) | second for first, second in pairs], dtype=np.int64)
    distinct, numbers = _numbered_pairs(keys, 5)
    expected = np.unique(keys, return_inverse=True)
    assert (distinct.tolist(), numbers.tolist()) == (expected[0].tolist(), expected[1].tolist())
