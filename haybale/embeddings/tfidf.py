"""TF-IDF: the sparse space that stands beside LSA, and what LSA is built on."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from haybale.analysis import LANGUAGES
from haybale.embeddings.counting import Counter, Vocabulary, batches, ngram_counter, word_counter
from haybale.embeddings.encoder import check_texts
from haybale.embeddings.encoder_files import load_encoder, restored, save_encoder
from haybale.errors import FileFormatError, InputError, UnknownNameError
from haybale.vectors import normalized_sparse


class TfidfEncoder(BaseEstimator):  # type: ignore[misc]
    """Term frequency times inverse document frequency, rows of length 1, as CSR: cosines are inner products.

    Salton & Buckley, "Term-weighting approaches in automatic text retrieval", IPM 24(5), 1988; weights as in
    scikit-learn's ``TfidfVectorizer``: idf = ln((1 + n) / (1 + df)) + 1, tf = 1 + ln(count) if ``sublinear_tf``.

    Parameters: ``language``, of stop words and stemmer; ``words``, whether stems of words are terms;
    ``char_ngrams``, the sizes (least, greatest) of the character n-grams within words that are terms, None for none;
    ``min_df``, the texts a term must occur in to count; ``sublinear_tf``.

    Fitted: ``vocabularies_`` (``"word"`` and ``"ngram"``, each term -> its place there; the columns are the words',
    then the n-grams'), ``idf_`` (n_terms,) float64.

    A row depends on its text alone, bit for bit, whatever other texts are encoded with it.

    >>> encoder = TfidfEncoder(min_df=1).fit(["dogs bark", "cats meow", "dogs and cats"])
    >>> encoder.encode(["a dog and another dog", "barking cats"]).toarray().round(3)
    array([[1.   , 0.   , 0.   , 0.   ],
           [0.   , 0.796, 0.605, 0.   ]], dtype=float32)
    """

    def __init__(
        self,
        *,
        language: str = "english",
        words: bool = True,
        char_ngrams: tuple[int, int] | None = None,
        min_df: int = 2,
        sublinear_tf: bool = True,
    ) -> None:
        self.language = language
        self.words = words
        self.char_ngrams = char_ngrams
        self.min_df = min_df
        self.sublinear_tf = sublinear_tf

    def fit(self, texts: Iterable[str]) -> Self:
        """Learn terms and weights from texts, which are gone through once; memory grows with the vocabulary alone.

        Errors: no texts, no term in ``min_df`` of them, parameters out of range.
        """
        counters = self._counters()
        grown: dict[str, Vocabulary] = {kind: {} for kind in counters}
        frequencies = {kind: np.zeros(0, dtype=np.int64) for kind in counters}
        n = 0
        for batch in batches(texts):
            n += len(batch)
            for kind, count in counters.items():
                counts = count(batch, grown[kind], True)
                here = np.bincount(counts.indices, minlength=counts.shape[1])
                here[: len(frequencies[kind])] += frequencies[kind]
                frequencies[kind] = here
        if n == 0:
            raise InputError(f"{type(self).__name__}.fit: no texts")
        kept = {kind: np.flatnonzero(found >= self.min_df) for kind, found in frequencies.items()}
        if not any(len(columns) for columns in kept.values()):
            raise InputError(f"{type(self).__name__}.fit: no term occurs in {self.min_df} or more of the {n} texts")
        self.vocabularies_ = {kind: _renumbered(grown[kind], columns) for kind, columns in kept.items()}
        df = np.concatenate([frequencies[kind][columns] for kind, columns in kept.items()])
        self.idf_: NDArray[np.float64] = np.log((1 + n) / (1 + df)) + 1
        return self

    @property
    def width(self) -> int:
        """Terms, which are the columns."""
        check_is_fitted(self, "idf_")
        return len(self.idf_)

    def encode(self, texts: Sequence[str]) -> sparse.csr_matrix:
        """(n,) texts to CSR (n, n_terms) float32. A text without a known term gets the zero row, near nothing."""
        check_is_fitted(self, "idf_")
        return self.weighted(check_texts(texts))

    def weighted(self, texts: Iterable[str]) -> sparse.csr_matrix:
        """The same for any iterable, whose texts may be empty."""
        counters = self._counters()
        parts = [sparse.csr_matrix((0, self.width), dtype=np.float32)]
        for batch in batches(texts):
            counts = [count(batch, self.vocabularies_[kind], False) for kind, count in counters.items()]
            rows = counts[0] if len(counts) == 1 else sparse.hstack(counts, format="csr")
            tf = rows.data.astype(np.float64)
            if self.sublinear_tf:
                tf = 1 + np.log(tf)
            weights = tf * self.idf_[rows.indices]
            parts.append(normalized_sparse(sparse.csr_matrix((weights, rows.indices, rows.indptr), shape=rows.shape)))
        return sparse.vstack(parts, format="csr") if len(parts) != 2 else parts[1]

    def describe(self) -> dict[str, Any]:
        """Plain values that tell this encoder from any other: class, parameters, SHA-256 of the fit, width."""
        check_is_fitted(self, "idf_")
        return {
            "class": type(self).__name__,
            "parameters": self.get_params(),
            "fitted": self.digest().hexdigest(),
            "width": self.width,
        }

    def digest(self) -> Any:
        """SHA-256 over terms and weights, to be updated with what is built on them."""
        digest = hashlib.sha256()
        for kind, vocabulary in self.vocabularies_.items():
            digest.update(f"{kind} {len(vocabulary)}\n".encode())
            digest.update("\n".join(vocabulary).encode())
        digest.update(self.idf_.tobytes())
        return digest

    def save(self, folder: Path | str) -> None:
        """Write terms (Parquet), weights (safetensors) and parameters (JSON) to a new folder, whole or not at all."""
        save_encoder(Path(folder), self.describe(), {"idf": self.idf_}, self.vocabularies_)

    @classmethod
    def load(cls, folder: Path | str) -> Self:
        """A saved encoder, which encodes bit for bit as it did; executes nothing.

        Errors: :class:`FileFormatError` where files are missing, changed, or of another kind of encoder.
        """
        manifest, tensors, vocabularies = load_encoder(Path(folder), cls.__name__, ("idf",))
        return restored(cls, Path(folder), manifest)._restore(Path(folder), tensors, vocabularies)

    def _restore(self, folder: Path, tensors: dict[str, NDArray[Any]], vocabularies: dict[str, Vocabulary]) -> Self:
        self.vocabularies_ = {kind: vocabularies.get(kind, {}) for kind in self._counters()}
        self.idf_ = np.asarray(tensors["idf"], dtype=np.float64)
        n_terms = sum(map(len, self.vocabularies_.values()))
        if self.idf_.shape != (n_terms,) or n_terms != sum(map(len, vocabularies.values())):
            raise FileFormatError(folder, None, f"{n_terms} terms do not fit weights of shape {self.idf_.shape}")
        return self

    def _counters(self) -> dict[str, Counter]:
        """Of each kind of term; refuses parameters that are out of range."""
        if self.language not in LANGUAGES:
            raise UnknownNameError("language", self.language, LANGUAGES)
        if self.min_df < 1:
            raise InputError(f"min_df must be at least 1, found {self.min_df}")
        counters: dict[str, Counter] = {}
        if self.words:
            counters["word"] = word_counter(self.language)
        if self.char_ngrams is not None:
            sizes = tuple(self.char_ngrams)
            if len(sizes) != 2 or not all(isinstance(size, int) for size in sizes) or not 1 <= sizes[0] <= sizes[1]:
                raise InputError(f"char_ngrams must be two sizes, 1 <= least <= greatest, found {self.char_ngrams}")
            counters["ngram"] = ngram_counter(sizes)
        if not counters:
            raise InputError("without words an encoder needs char_ngrams")
        return counters


def _renumbered(vocabulary: Vocabulary, kept: NDArray[Any]) -> Vocabulary:
    """The terms at the places ``kept``, numbered anew."""
    names = list(vocabulary)
    return {names[place]: i for i, place in enumerate(kept)}
