"""Naive Bayes against scikit-learn's, and latent vectors against a singular value decomposition of the whole matrix."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from sklearn.naive_bayes import MultinomialNB

from haybale.review import TopicFeatures
from haybale.review.latent_space import LatentSpace
from haybale.review.naive_bayes import NaiveBayes

RNG = np.random.default_rng(0)
WORDS = [f"word{i}" for i in range(25)]
TEXTS = [" ".join(RNG.choice(WORDS, 8)) for _ in range(60)]
FEATURES = TopicFeatures.of(TEXTS)
TERMS = FEATURES.terms


def learned(labels: dict[int, bool]) -> NaiveBayes:
    bayes = NaiveBayes(TERMS.n_words)
    for row, label in labels.items():
        bayes.add(TERMS.row(row).columns, label)
    return bayes


@given(st.dictionaries(st.integers(0, 59), st.booleans(), min_size=2, max_size=30))
def test_naive_bayes_is_that_of_scikit_learn(labels: dict[int, bool]) -> None:
    if len(set(labels.values())) < 2:
        return
    occurs = (TERMS.matrix[:, : TERMS.n_words] > 0).astype(float)
    rows, relevant = list(labels), np.array(list(labels.values()))
    weights = np.where(relevant, 1.0, relevant.sum() / (1.2 * (~relevant).sum()))
    weights *= len(weights) / weights.sum()
    expected = MultinomialNB(alpha=1.0, fit_prior=False).fit(occurs[rows], relevant, weights)
    logs = expected.predict_log_proba(occurs)
    np.testing.assert_allclose(learned(labels).predict(TERMS.matrix), logs[:, 1] - logs[:, 0], atol=1e-4)


def test_naive_bayes_forgets() -> None:
    labels = {row: row % 3 == 0 for row in range(20)}
    bayes = learned(labels | {30: True, 31: False})
    for row, label in ((30, True), (31, False)):
        bayes.add(TERMS.row(row).columns, label, -1)
    np.testing.assert_array_equal(bayes.predict(TERMS.matrix), learned(labels).predict(TERMS.matrix))
    assert bayes.knows
    assert not learned({1: False}).knows


def test_latent_vectors_are_those_of_the_whole_decomposition() -> None:
    space = LatentSpace.of(TERMS)
    assert space is not None
    n = space.matrix.shape[1]
    _, _, directions = np.linalg.svd(TERMS.matrix.toarray(), full_matrices=False)
    projected = TERMS.matrix @ directions[:n].T
    projected /= np.linalg.norm(projected, axis=1, keepdims=True)
    np.testing.assert_allclose((space.matrix @ space.matrix.T).toarray(), projected @ projected.T, atol=1e-4)
    again = space.vector(TEXTS[7])
    found = np.zeros(n)
    found[again.columns] = again.weights
    np.testing.assert_allclose(found, space.matrix[7].toarray()[0], atol=1e-5)
    assert not len(space.vector("nobody wrote this").columns)


def test_few_or_empty_texts_have_no_latent_space() -> None:
    for texts in (["One text."], ["One text.", "Two texts."], ["", "", "", "", ""]):
        assert "latent" not in TopicFeatures.of(texts).kernels
    assert "latent" in TopicFeatures.of([*4 * ["tea leaf cup"], *4 * ["oak tree wood"]]).kernels
