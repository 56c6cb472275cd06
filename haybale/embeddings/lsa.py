"""Latent semantic analysis: TF-IDF, then a truncated SVD. Needs no model, so it is the default."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.utils.extmath import randomized_svd
from sklearn.utils.validation import check_is_fitted

from haybale.analysis import Analyzer, Split
from haybale.collections.collection import Strings
from haybale.embeddings.counting import BATCH, TermCounts, batches
from haybale.embeddings.encoder import check_texts
from haybale.embeddings.encoder_files import (
    Tensors,
    described,
    load_encoder,
    restored,
    restored_analyzer,
    save_encoder,
)
from haybale.embeddings.tfidf import TfidfEncoder
from haybale.errors import FileFormatError, InputError
from haybale.vectors import Floats, Matrix, normalized


class LSAEncoder(BaseEstimator):  # type: ignore[misc]
    """TF-IDF projected on its leading right singular vectors, rows of length 1.

    Deerwester et al., "Indexing by Latent Semantic Analysis", JASIS 41(6), 1990; the singular vectors by
    Halko et al.'s randomised range finder, as scikit-learn has it.

    Parameters
    ----------
    n_components : int, default 1024
        The width d, cut to what the texts allow.
    language, analyzer, words, char_ngrams, min_df, sublinear_tf
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
        What is projected.
    components_ : (d, n_terms) float32 array
        The singular vectors.

    Notes
    -----
    A row depends on its text alone, whatever other texts are encoded with it.

    Examples
    --------
    >>> texts = ["dogs bark", "cats meow", "dogs and cats", "a dog barks", "cats do meow"]
    >>> LSAEncoder(n_components=2, min_df=1).fit(texts).encode(["barking dog"]).shape
    (1, 2)
    """

    def __init__(
        self,
        n_components: int = 1024,
        *,
        language: str | None = "english",
        analyzer: Analyzer | Split | None = None,
        words: bool = True,
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
        self.words = words
        self.char_ngrams = char_ngrams
        self.min_df = min_df
        self.sublinear_tf = sublinear_tf
        self.max_fit_texts = max_fit_texts
        self.n_iter = n_iter
        self.random_state = random_state

    def fit(self, texts: Iterable[str] | Strings) -> Self:
        """Learn terms, weights and projection from the passages of a collection; an iterator is gone through once.

        Memory: the sample of texts, its TF-IDF rows, and about three times (texts + terms) × width float32 values.
        """
        self._check_parameters()
        sample = _sampled(texts, self.max_fit_texts, self.random_state)
        if not sample:
            raise InputError("LSAEncoder.fit: no texts")
        tfidf = self._tfidf()
        if tfidf.counts_words_alone:
            counts = TermCounts.of(sample, tfidf.chosen_analyzer(sample)[0])
            return self._fit(tfidf.fit_counts(counts), tfidf.encode_counts(counts))
        return self._fit(tfidf.fit(sample), tfidf.weighted(sample))

    def fit_counts(self, counts: TermCounts) -> Self:
        """The same from counted texts, as :meth:`TfidfEncoder.fit_counts` takes them; from all of them.

        Raises
        ------
        InputError
            Where ``max_fit_texts`` asks for a sample of them, whose terms would be in another order; and as
            :meth:`TfidfEncoder.fit_counts`.
        """
        self._check_parameters()
        if self.max_fit_texts is not None and self.max_fit_texts < len(counts):
            raise InputError(f"a sample is drawn of texts, not of counts: max_fit_texts is below {len(counts)}")
        tfidf = self._tfidf()
        return self._fit(tfidf.fit_counts(counts), tfidf.encode_counts(counts))

    def _check_parameters(self) -> None:
        for name, least in (("n_components", 1), ("max_fit_texts", 1), ("n_iter", 0)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise InputError(f"{name} must be at least {least}, found {value}")

    def _fit(self, tfidf: TfidfEncoder, matrix: Matrix) -> Self:
        width = min(self.n_components, *matrix.shape)
        _, _, components = randomized_svd(
            matrix, width, n_iter=self.n_iter, power_iteration_normalizer="QR", random_state=self.random_state
        )
        self.tfidf_ = tfidf
        self._project(components.T)
        return self

    @property
    def width(self) -> int:
        """d, the columns of what :meth:`encode` gives."""
        check_is_fitted(self, "components_")
        return len(self.components_)

    def encode(self, texts: Sequence[str]) -> Floats:
        """(n,) texts to (n, d) float32. A text without a known term gets the zero vector, which is near nothing."""
        check_is_fitted(self, "components_")
        check_texts(texts)
        vectors = np.empty((len(texts), self.width), dtype=np.float32)
        for start in range(0, len(texts), BATCH):
            part = slice(start, start + BATCH)
            vectors[part] = normalized(self.tfidf_.weighted(texts[part]) @ self.components_.T)
        return vectors

    def encode_counts(self, counts: TermCounts) -> Floats:
        """(n,) counted texts to (n, d) float32, as :meth:`TfidfEncoder.encode_counts` takes them."""
        check_is_fitted(self, "components_")
        vectors = np.empty((len(counts), self.width), dtype=np.float32)
        rows = self.tfidf_.encode_counts(counts)
        for start in range(0, len(counts), BATCH):
            part = slice(start, start + BATCH)
            vectors[part] = normalized(rows[part] @ self.components_.T)
        return vectors

    def describe(self) -> dict[str, Any]:
        """Plain values that tell this encoder from any other: class, parameters, SHA-256 of the fit, width."""
        check_is_fitted(self, "components_")
        digest = self.tfidf_.digest()
        digest.update(self.components_.T.data)
        return described(self, self.tfidf_.analyzer_, digest.hexdigest())

    def save(self, folder: Path | str) -> None:
        """Write terms (Parquet), numbers (safetensors) and parameters (JSON) to a new folder, whole or not at all.

        An encoder whose analyzer is a function is refused.
        """
        check_is_fitted(self, "components_")
        self.tfidf_.analyzer_.to_dict()
        tensors: Tensors = {"idf": self.tfidf_.idf_, "projection": self.components_.T}
        save_encoder(Path(folder), self.describe(), tensors, self.tfidf_.vocabularies_)

    @classmethod
    def load(cls, folder: Path | str) -> Self:
        """A saved encoder, which encodes bit for bit as it did; executes nothing.

        Errors: :class:`FileFormatError` where files are missing, changed, or of another kind of encoder.
        """
        folder = Path(folder)
        manifest, tensors, vocabularies = load_encoder(folder, cls.__name__, ("idf", "projection"))
        encoder = restored(cls, folder, manifest)
        analyzer = restored_analyzer(encoder, folder, manifest)
        encoder.tfidf_ = encoder._tfidf()._restore(folder, analyzer, tensors, vocabularies)
        projection = tensors["projection"]
        if projection.ndim != 2 or len(projection) != encoder.tfidf_.width:
            raise FileFormatError(folder, None, f"a projection of {projection.shape} for {encoder.tfidf_.width} terms")
        encoder._project(projection)
        return encoder

    def _tfidf(self) -> TfidfEncoder:
        names = ("language", "analyzer", "words", "char_ngrams", "min_df", "sublinear_tf")
        return TfidfEncoder(**{name: getattr(self, name) for name in names})

    def _project(self, projection: Floats) -> None:
        # Held as (n_terms, d): SciPy multiplies by that as it lies, and would copy (d, n_terms) for each batch.
        self.components_: Floats = np.ascontiguousarray(projection, dtype=np.float32).T


def _sampled(texts: Iterable[str] | Strings, limit: int | None, random_state: int | None) -> Sequence[str]:
    """At most ``limit`` of the texts, each as likely as any other; a list and an iterator give the same sample.

    Vitter, "Random Sampling with a Reservoir", ACM TOMS 11(1), 1985, algorithm R: no more than ``limit`` are held.
    """
    if limit is None:
        return [text for batch in batches(texts) for text in batch]
    rng = np.random.default_rng(random_state)
    sample: list[str] = []
    seen = 0
    for batch in batches(texts):
        places = (rng.random(len(batch)) * (seen + 1 + np.arange(len(batch)))).astype(np.int64)
        seen += len(batch)
        for text, place in zip(batch, places, strict=True):
            if len(sample) < limit:
                sample.append(text)
            elif place < limit:
                sample[place] = text
    return sample
