"""Latent semantic analysis: TF-IDF, then a truncated SVD. Needs no model, so it is the default."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.utils.extmath import randomized_svd
from sklearn.utils.validation import check_is_fitted

from haybale.analysis import Analyzer
from haybale.embeddings.encoder import check_texts
from haybale.errors import InputError
from haybale.vectors import Floats, normalized

_BATCH = 65_536  # texts analysed at once: bounds the memory beside the result


class LSAEncoder(BaseEstimator):  # type: ignore[misc]
    """TF-IDF (sublinear term frequency, smoothed idf, L2) projected on its leading right singular vectors.

    Deerwester et al., "Indexing by Latent Semantic Analysis", JASIS 41(6), 1990; the singular vectors by
    Halko et al.'s randomised range finder, as scikit-learn has it.

    Parameters: ``n_components``, the width d, cut to what the texts allow; ``language``, of stop words and
    stemmer; ``min_df``, the texts a term must occur in to count; ``n_iter``, power iterations (more: closer to
    the exact SVD); ``random_state``.

    Fitted: ``vocabulary_`` (term -> column), ``tfidf_`` (the weights), ``components_`` (d, n_terms) float32.

    >>> texts = ["dogs bark", "cats meow", "dogs and cats", "a dog barks", "cats do meow"]
    >>> LSAEncoder(n_components=2, min_df=1).fit(texts).encode(["barking dog"]).shape
    (1, 2)
    """

    def __init__(
        self,
        n_components: int = 1024,
        *,
        language: str = "english",
        min_df: int = 2,
        n_iter: int = 2,
        random_state: int | None = 0,
    ) -> None:
        self.n_components = n_components
        self.language = language
        self.min_df = min_df
        self.n_iter = n_iter
        self.random_state = random_state

    def fit(self, texts: Sequence[str]) -> LSAEncoder:
        """Learn terms, weights and projection from the passages of a collection."""
        if self.n_components < 1:
            raise InputError(f"n_components must be at least 1, found {self.n_components}")
        if not len(texts):
            raise InputError("LSAEncoder.fit: no texts")
        terms = Analyzer(self.language)(texts)
        counts = _counts(terms.ids, len(terms.vocabulary))
        kept = np.flatnonzero(np.bincount(counts.indices, minlength=counts.shape[1]) >= self.min_df)
        if not len(kept):
            raise InputError(f"LSAEncoder.fit: no term occurs in {self.min_df} or more of the {len(texts)} texts")
        names = list(terms.vocabulary)
        self.vocabulary_ = {names[column]: i for i, column in enumerate(kept)}
        self.tfidf_ = TfidfTransformer(sublinear_tf=True).fit(counts[:, kept])
        matrix = self.tfidf_.transform(counts[:, kept])
        width = min(self.n_components, *matrix.shape)
        _, _, components = randomized_svd(
            matrix, width, n_iter=self.n_iter, power_iteration_normalizer="QR", random_state=self.random_state
        )
        self.components_: Floats = np.ascontiguousarray(components, dtype=np.float32)
        return self

    def encode(self, texts: Sequence[str]) -> Floats:
        """(n,) texts to (n, d). A text without a known term gets the zero vector, which is near nothing."""
        check_is_fitted(self, "components_")
        check_texts(texts)
        vectors = np.empty((len(texts), len(self.components_)), dtype=np.float32)
        for start in range(0, len(texts), _BATCH):
            terms = Analyzer(self.language)(texts[start : start + _BATCH], self.vocabulary_)
            weighted = self.tfidf_.transform(_counts(terms.ids, len(self.vocabulary_)))
            vectors[start : start + _BATCH] = normalized(weighted @ self.components_.T)
        return vectors


def _counts(ids: list[list[int]], n_terms: int) -> sparse.csr_matrix:
    """(n_texts, n_terms) float32 term counts."""
    indptr = np.concatenate(([0], np.cumsum([len(row) for row in ids]))).astype(np.int64)
    indices = np.fromiter((term for row in ids for term in row), dtype=np.int32, count=int(indptr[-1]))
    ones = np.ones(len(indices), dtype=np.float32)
    counts = sparse.csr_matrix((ones, indices, indptr), shape=(len(ids), n_terms))
    counts.sum_duplicates()
    return counts
