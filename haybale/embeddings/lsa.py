"""Latent semantic analysis: TF-IDF, then a truncated SVD. Needs no model, so it is the default."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from numbers import Integral
from typing import ClassVar, Self

import numpy as np
from sklearn.utils.extmath import randomized_svd
from sklearn.utils.validation import check_is_fitted

from haybale.analysis import Analyzer, Tokenize
from haybale.collections.collection import Strings
from haybale.embeddings.counting import TermCounts, strings
from haybale.embeddings.tfidf import LexicalEncoder, TfidfEncoder
from haybale.errors import InputError
from haybale.manifest import Tensors
from haybale.parameters import COUNT, COUNT_OR_NONE, RANDOM_STATE, Constraints, Interval, check_parameters
from haybale.vectors import Floats, normalized


class LSAEncoder(LexicalEncoder):
    """TF-IDF projected on its leading right singular vectors, rows of length 1, each of its text alone.

    Deerwester et al., "Indexing by Latent Semantic Analysis", JASIS 41(6), 1990; the singular vectors by
    Halko et al.'s randomised range finder, as scikit-learn has it.

    Parameters
    ----------
    n_components : int, default 1024
        The columns d, cut to what the texts allow.
    language, analyzer, char_ngrams, min_df, sublinear_tf : optional
        As in :class:`TfidfEncoder`.
    max_fit_texts : int, optional
        Fit on a random sample of so many texts where there are more (None: on all), which bounds the memory.
    n_iter : int, default 2
        Power iterations (more: closer to the exact SVD).
    random_state : int or None, default 0
        Of the sample and of the range finder.

    Attributes
    ----------
    tfidf_ : TfidfEncoder
    components_ : (d, n_terms) float32 array

    Examples
    --------
    >>> texts = ["dogs bark", "cats meow", "dogs and cats", "a dog barks", "cats do meow"]
    >>> LSAEncoder(n_components=2, min_df=1).fit(texts).encode(["barking dog"]).shape
    (1, 2)
    """

    _parameter_constraints: ClassVar[dict[str, Constraints]] = {
        **TfidfEncoder._parameter_constraints,
        "n_components": COUNT,
        "max_fit_texts": COUNT_OR_NONE,
        "n_iter": [Interval(Integral, 0, 1000, closed="both")],
        "random_state": RANDOM_STATE,
    }

    def __init__(
        self,
        n_components: int = 1024,
        *,
        language: str | None = "english",
        analyzer: Analyzer | Tokenize | None = None,
        char_ngrams: tuple[int, int] | None = None,
        min_df: int = 2,
        sublinear_tf: bool = True,
        max_fit_texts: int | None = None,
        n_iter: int = 2,
        random_state: int | None = 0,
    ) -> None:
        self.n_components = n_components
        self.language = language
        self.analyzer = analyzer
        self.char_ngrams = char_ngrams
        self.min_df = min_df
        self.sublinear_tf = sublinear_tf
        self.max_fit_texts = max_fit_texts
        self.n_iter = n_iter
        self.random_state = random_state

    def fit(self, texts: Iterable[str] | Strings) -> Self:
        """Learn terms, weights and projection from the passages of a collection; an iterator is gone through once.

        Memory: the sample of texts, its TF-IDF rows, and about three times (texts + terms) × d float32 values.
        """
        check_parameters("LSAEncoder", self.get_params(), self._parameter_constraints)
        sample = _sampled(texts, self.max_fit_texts, self.random_state)
        if not sample:
            raise InputError("LSAEncoder.fit: no texts")
        tfidf = self._tfidf()
        counts = TermCounts.of(sample, tfidf.chosen_analyzer())
        matrix = tfidf.fit_counts(counts).encode_counts(counts)
        # What scikit-learn's TruncatedSVD calls, which would compute the projected texts besides.
        d = min(self.n_components, *matrix.shape)
        components = randomized_svd(
            matrix, d, n_iter=self.n_iter, power_iteration_normalizer="QR", random_state=self.random_state
        )[2]
        self.load_state(tfidf, {"projection": components.T})
        return self

    @property
    def dim(self) -> int:
        """d, the columns of what :meth:`encode` gives."""
        check_is_fitted(self, "components_")
        return len(self.components_)

    def encode(self, texts: Sequence[str]) -> Floats:
        """(n,) texts to (n, d) float32. A text without a known term gets the zero vector, which is near nothing."""
        check_is_fitted(self, "components_")
        return normalized(self.tfidf_.encode(texts) @ self.components_.T)

    _tensors: ClassVar[tuple[str, ...]] = ("idf", "projection")

    def _learned(self) -> tuple[TfidfEncoder, Tensors]:
        check_is_fitted(self, "components_")
        return self.tfidf_, {"idf": self.tfidf_.idf_, "projection": self.components_.T}

    def load_state(self, tfidf: TfidfEncoder, tensors: Tensors) -> None:
        # Held as (n_terms, d): SciPy multiplies by that as it lies, and would copy (d, n_terms) for each batch.
        self.tfidf_: TfidfEncoder = tfidf
        self.components_: Floats = np.ascontiguousarray(tensors["projection"], dtype=np.float32).T


def _sampled(texts: Iterable[str] | Strings, limit: int | None, random_state: int | None) -> Sequence[str]:
    """At most ``limit`` of the texts, each as likely as any other; a list and an iterator give the same sample.

    Vitter, "Random Sampling with a Reservoir", ACM TOMS 11(1), 1985, algorithm R: no more than ``limit`` are held.
    """
    if limit is None:
        return list(strings(texts))
    rng, sample = np.random.default_rng(random_state), list[str]()
    for seen, text in enumerate(strings(texts), 1):
        place = int(rng.random() * seen)
        if len(sample) < limit:
            sample.append(text)
        elif place < limit:
            sample[place] = text
    return sample
