"""Latent semantic analysis: TF-IDF, then a truncated singular value decomposition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from numbers import Integral
from typing import ClassVar, Self

import numpy as np

from haybale.analysis import Analyzer, Tokenize
from haybale.collections.collection import Strings
from haybale.embeddings.counting import TermCounts, strings
from haybale.embeddings.tfidf import LexicalEncoder
from haybale.embeddings.token_batches import check_texts
from haybale.manifest import Tensors
from haybale.parameters import COUNT, COUNT_OR_NONE, RANDOM_STATE, Constraints, Interval, check_parameters
from haybale.vectors import Floats, normalized


class LSAEncoder(LexicalEncoder):
    """Project TF-IDF rows on their leading right singular vectors and scale them to length 1.

    Deerwester et al., "Indexing by Latent Semantic Analysis", JASIS 41(6), 1990. The singular vectors are computed by
    the randomised range finder of Halko et al. (2011), as in scikit-learn. A row depends on its text alone.

    Parameters
    ----------
    n_components : int, default 1024
        The number of columns d. It is reduced to the number of texts or terms where these are fewer.
    language, analyzer, char_ngrams, min_df, sublinear_tf : optional
        As in :class:`TfidfEncoder`.
    max_fit_texts : int, optional
        The largest number of texts to fit on; a random sample of larger collections is used. Set it to bound the
        memory. Default: all texts.
    n_iter : int, default 2
        The number of power iterations. More iterations come closer to the exact decomposition.
    random_state : int or None, default 0
        Seed of the sample and the range finder.

    Attributes
    ----------
    components_ : (d, n_terms) float32 array
    vocabulary_, idf_, analyzer_ : as in :class:`TfidfEncoder`

    Examples
    --------
    >>> texts = ["dogs bark", "cats meow", "dogs and cats", "a dog barks", "cats do meow"]
    >>> LSAEncoder(n_components=2, min_df=1).fit(texts).encode(["barking dog"]).shape
    (1, 2)
    """

    name = "lsa"
    _tensors: ClassVar[tuple[str, ...]] = ("idf", "projection")
    _parameter_constraints: ClassVar[Mapping[str, Constraints]] = {
        **LexicalEncoder._parameter_constraints,
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
        super().__init__(
            language=language, analyzer=analyzer, char_ngrams=char_ngrams, min_df=min_df, sublinear_tf=sublinear_tf
        )
        self.n_components = n_components
        self.max_fit_texts = max_fit_texts
        self.n_iter = n_iter
        self.random_state = random_state

    def fit(self, texts: Iterable[str] | Strings) -> Self:
        """Learn terms, weights and projection from texts; an iterator is read once.

        The memory needed is that of the sampled texts, their TF-IDF rows, and about three times (texts + terms) × d
        float32 values. Raise :class:`InputError` if no term occurs in ``min_df`` texts.
        """
        from sklearn.utils.extmath import randomized_svd

        check_parameters("LSAEncoder", self.get_params(), self._parameter_constraints)
        sample = _sampled(texts, self.max_fit_texts, self.random_state)
        counts = TermCounts.of(sample, self.chosen_analyzer())
        matrix = self.fit_counts(counts).tfidf_rows(counts)
        # scikit-learn's TruncatedSVD makes the same call, but also projects all texts, which is not needed here.
        d = min(self.n_components, *matrix.shape)
        components = randomized_svd(
            matrix, d, n_iter=self.n_iter, power_iteration_normalizer="QR", random_state=self.random_state
        )[2]
        self._project(components.T)
        return self

    @property
    def dim(self) -> int:
        """The number of columns d."""
        self._check_fitted()
        return len(self.components_)

    def encode(self, texts: Sequence[str]) -> Floats:
        """Encode (n,) texts to (n, d) float32; a text without a known term gets the zero vector."""
        self._check_fitted()
        return normalized(self.tfidf_rows(TermCounts.of(check_texts(texts), self.analyzer_)) @ self.components_.T)

    def tensors(self) -> Tensors:
        """Return weights and projection."""
        return super().tensors() | {"projection": self.components_.T}

    def set_tensors(self, tensors: Tensors) -> None:
        """Set weights and projection."""
        super().set_tensors(tensors)
        self._project(tensors["projection"])

    def _project(self, projection: Floats) -> None:
        # A transposed view of (n_terms, d): SciPy can multiply by that without a copy for each batch.
        self.components_: Floats = np.ascontiguousarray(projection, dtype=np.float32).T


def _sampled(texts: Iterable[str] | Strings, limit: int | None, random_state: int | None) -> Sequence[str]:
    """Draw at most ``limit`` texts with equal probability and in constant memory, by reservoir sampling.

    Vitter, "Random Sampling with a Reservoir", ACM TOMS 11(1), 1985, algorithm R.
    """
    if limit is None:
        return list(strings(texts))
    rng, sample = np.random.default_rng(random_state), list[str]()
    for seen, text in enumerate(strings(texts), 1):
        slot = int(rng.random() * seen)
        if len(sample) < limit:
            sample.append(text)
        elif slot < limit:
            sample[slot] = text
    return sample
