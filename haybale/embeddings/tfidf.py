"""TF-IDF: the sparse space that stands beside LSA, and what LSA is built on; and how fitted lexical encoders are kept.

A folder of one holds, and nothing of it can be executed:

manifest.json          format, version, class, parameters, fingerprint, width, the analyzer where its language was
                       guessed, and the SHA-256 of every other file
tensors.safetensors    weights, and what is built on them
vocabulary.parquet     columns ``term`` and ``kind`` ("word" or "ngram"), a row a column of the counts
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from safetensors.numpy import save_file
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from haybale.analysis import NO_LANGUAGE, Analyzer, Split, as_analyzer, guess_language
from haybale.collections.collection import Strings
from haybale.embeddings import counting
from haybale.embeddings.counting import TermCounts, Vocabulary, batches, count_ngrams, count_words
from haybale.embeddings.token_batches import check_texts
from haybale.errors import FileFormatError, InputError
from haybale.folders import whole_folder
from haybale.manifest import MANIFEST, Tensors, check_files, read_manifest, read_tensors, write_manifest
from haybale.vectors import normalized_sparse

FORMAT, VERSION = "haybale encoder", 1
_TENSORS, _TERMS = "tensors.safetensors", "vocabulary.parquet"
_GUESSED_FROM = 1000  # texts

Counter = Callable[[Sequence[str], Vocabulary, bool], sparse.csr_matrix]  # (texts, vocabulary, grow) -> counts


class TfidfEncoder(BaseEstimator):  # type: ignore[misc]
    """Term frequency times inverse document frequency, rows of length 1, as CSR: cosines are inner products.

    Salton & Buckley, "Term-weighting approaches in automatic text retrieval", IPM 24(5), 1988; weights as in
    scikit-learn's ``TfidfVectorizer``: idf = ln((1 + n) / (1 + df)) + 1, tf = 1 + ln(count) if ``sublinear_tf``.
    A row depends on its text alone, bit for bit, whatever other texts are encoded with it.

    Parameters
    ----------
    language : str or None, default "english"
        Of stop words and stemmer, one of :data:`haybale.analysis.LANGUAGES`; None: guessed from the first thousand
        texts it is fitted on.
    analyzer : Analyzer or callable, optional
        What makes words of a text, in place of ``language``: an :class:`~haybale.analysis.Analyzer`, or a function from
        a text to its terms. An encoder with a function cannot be saved.
    words : bool, default True
        Whether stems of words are terms.
    char_ngrams : (int, int), optional
        The sizes (least, greatest) of the character n-grams within words that are terms.
    min_df : int, default 2
        The texts a term must occur in to count.
    sublinear_tf : bool, default True
        Whether tf is 1 + ln(count) or the count.

    Attributes
    ----------
    vocabularies_ : dict
        ``"word"`` and ``"ngram"``, each term -> its place there; the columns are the words', then the n-grams'.
    idf_ : (n_terms,) float64 array
        The weights.
    analyzer_ : Analyzer
        The one at work.

    Examples
    --------
    >>> encoder = TfidfEncoder(min_df=1).fit(["dogs bark", "cats meow", "dogs and cats"])
    >>> encoder.encode(["a dog and another dog", "barking cats"]).toarray().round(3)
    array([[1.   , 0.   , 0.   , 0.   ],
           [0.   , 0.796, 0.605, 0.   ]], dtype=float32)
    """

    def __init__(
        self,
        *,
        language: str | None = "english",
        analyzer: Analyzer | Split | None = None,
        words: bool = True,
        char_ngrams: tuple[int, int] | None = None,
        min_df: int = 2,
        sublinear_tf: bool = True,
    ) -> None:
        self.language = language
        self.analyzer = analyzer
        self.words = words
        self.char_ngrams = char_ngrams
        self.min_df = min_df
        self.sublinear_tf = sublinear_tf

    def fit(self, texts: Iterable[str] | Strings) -> Self:
        """Learn terms and weights from texts, which are gone through once; memory grows with the vocabulary alone.

        Errors: no texts, no term in ``min_df`` of them, parameters out of range.
        """
        analyzer, texts = self.chosen_analyzer(texts)
        counters = self._counters(analyzer)
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
        return self._fit(analyzer, n, grown, frequencies)

    def fit_counts(self, counts: TermCounts) -> Self:
        """Learn from counted texts, bit for bit what :meth:`fit` learns from the texts.

        Errors: an encoder with character n-grams or without words, which needs the texts; counts of another analyzer;
        and as :meth:`fit`.
        """
        self._check_counts(counts, self._given_analyzer())
        self._counters(counts.analyzer)
        frequencies = np.bincount(counts.matrix.indices, minlength=counts.matrix.shape[1])
        return self._fit(counts.analyzer, len(counts), {"word": counts.vocabulary}, {"word": frequencies})

    def _fit(self, analyzer: Analyzer, n: int, grown: dict[str, Vocabulary], frequencies: dict[str, Any]) -> Self:
        """From the number of texts that each term occurs in."""
        if n == 0:
            raise InputError(f"{type(self).__name__}.fit: no texts")
        chosen = {kind: np.flatnonzero(found >= self.min_df) for kind, found in frequencies.items()}
        if not any(len(columns) for columns in chosen.values()):
            raise InputError(f"{type(self).__name__}.fit: no term occurs in {self.min_df} or more of the {n} texts")
        names = {kind: list(vocabulary) for kind, vocabulary in grown.items()}
        self.vocabularies_ = {kind: {names[kind][c]: i for i, c in enumerate(cs)} for kind, cs in chosen.items()}
        df = np.concatenate([frequencies[kind][columns] for kind, columns in chosen.items()])
        self.idf_: NDArray[np.float64] = np.log((1 + n) / (1 + df)) + 1
        self.analyzer_ = analyzer
        return self

    @property
    def dim(self) -> int:
        """Terms, which are the columns."""
        check_is_fitted(self, "idf_")
        return len(self.idf_)

    def encode(self, texts: Sequence[str]) -> sparse.csr_matrix:
        """(n,) texts to CSR (n, n_terms) float32. A text without a known term gets the zero row, near nothing."""
        check_is_fitted(self, "idf_")
        return self.weighted(check_texts(texts))

    def weighted(self, texts: Iterable[str] | Strings) -> sparse.csr_matrix:
        """As :meth:`encode`, for any iterable, whose texts may be empty."""
        counters = self._counters(self.analyzer_)
        parts = []
        for batch in batches(texts):
            counts = [count(batch, self.vocabularies_[kind], False) for kind, count in counters.items()]
            parts.append(self._weighted(counts[0] if len(counts) == 1 else sparse.hstack(counts, format="csr")))
        return self._joined(parts)

    def encode_counts(self, counts: TermCounts) -> sparse.csr_matrix:
        """The same for counted texts, bit for bit; their vocabulary may be any, their analyzer must be this one's."""
        check_is_fitted(self, "idf_")
        self._check_counts(counts, self.analyzer_)
        ours = self.vocabularies_["word"]
        place = np.array([(old, ours[term]) for term, old in counts.vocabulary.items() if term in ours], dtype=np.int32)
        old, new = place.reshape(-1, 2).T
        shape = (counts.matrix.shape[1], self.dim)
        moved = sparse.csr_matrix((np.ones(len(old), dtype=np.float32), (old, new)), shape=shape)
        parts = []
        for start in range(0, len(counts), counting.BATCH):
            rows = counts.matrix[start : start + counting.BATCH] @ moved
            rows.sort_indices()
            parts.append(self._weighted(rows))
        return self._joined(parts)

    def _weighted(self, counts: sparse.csr_matrix) -> sparse.csr_matrix:
        tf = counts.data.astype(np.float64)
        if self.sublinear_tf:
            tf = 1 + np.log(tf)
        weights = tf * self.idf_[counts.indices]
        return normalized_sparse(sparse.csr_matrix((weights, counts.indices, counts.indptr), shape=counts.shape))

    def _joined(self, parts: list[sparse.csr_matrix]) -> sparse.csr_matrix:
        if len(parts) == 1:
            return parts[0]
        return sparse.vstack([sparse.csr_matrix((0, self.dim), dtype=np.float32), *parts], format="csr")

    def describe(self) -> dict[str, Any]:
        """Plain values that tell this encoder from any other: class, parameters, SHA-256 of the fit, width."""
        check_is_fitted(self, "idf_")
        return described(self, self.analyzer_, self.digest().hexdigest())

    def digest(self) -> Any:
        """SHA-256 over terms and weights, to be updated with what is built on them."""
        digest = hashlib.sha256()
        for kind, vocabulary in self.vocabularies_.items():
            digest.update(f"{kind} {len(vocabulary)}\n".encode())
            digest.update("\n".join(vocabulary).encode())
        digest.update(self.idf_.tobytes())
        return digest

    def save(self, folder: Path | str) -> None:
        """Write it to a new folder, whole or not at all. An encoder whose analyzer is a function is refused."""
        check_is_fitted(self, "idf_")
        save_encoder(self, Path(folder), self, {"idf": self.idf_})

    @classmethod
    def load(cls, folder: Path | str) -> Self:
        """A saved encoder, which encodes bit for bit as it did; executes nothing.

        Errors: :class:`FileFormatError` where files are missing, changed, or of another kind of encoder.
        """
        return load_encoder(cls, Path(folder), ("idf",))[1]

    @property
    def counts_words_alone(self) -> bool:
        """Whether :class:`TermCounts` have all that this encoder counts."""
        return self.words and self.char_ngrams is None

    def chosen_analyzer(self, texts: Iterable[str] | Strings) -> tuple[Analyzer, Iterable[str] | Strings]:
        """The analyzer, guessed from the texts if need be; and the texts, of which an iterator loses none by it."""
        given = self._given_analyzer()
        if given is not None:
            return given, texts
        stream = chain.from_iterable(batches(texts))
        first = list(islice(stream, _GUESSED_FROM))
        return Analyzer(guess_language(first)), chain(first, stream)

    def _given_analyzer(self) -> Analyzer | None:
        """None: it is guessed."""
        if self.analyzer is not None:
            return as_analyzer(self.analyzer)
        if self.language is not None:
            return Analyzer(self.language)
        return None if self.words else Analyzer(NO_LANGUAGE)

    def _check_counts(self, counts: TermCounts, analyzer: Analyzer | None) -> None:
        if not self.counts_words_alone:
            raise InputError("counts of terms hold words alone: an encoder with char_ngrams needs the texts")
        if analyzer not in (None, counts.analyzer):
            raise InputError(
                f"the terms were counted by another analyzer: expected {analyzer}, found {counts.analyzer}"
            )

    def _counters(self, analyzer: Analyzer) -> dict[str, Counter]:
        """Of each kind of term; refuses parameters that are out of range."""
        if self.min_df < 1:
            raise InputError(f"min_df must be at least 1, found {self.min_df}")
        counters: dict[str, Counter] = {}
        if self.words:
            counters["word"] = partial(count_words, analyzer)
        if self.char_ngrams is not None:
            sizes = tuple(self.char_ngrams)
            if len(sizes) != 2 or not all(isinstance(size, int) for size in sizes) or not 1 <= sizes[0] <= sizes[1]:
                raise InputError(f"char_ngrams must be two sizes, 1 <= least <= greatest, found {self.char_ngrams}")
            counters["ngram"] = partial(count_ngrams, sizes)
        if not counters:
            raise InputError("without words an encoder needs char_ngrams")
        return counters


def tfidf_of(encoder: Any) -> TfidfEncoder:
    """One that is not fitted, with those of an encoder's parameters that it has."""
    return TfidfEncoder(**{name: getattr(encoder, name) for name in TfidfEncoder().get_params()})


def described(encoder: Any, analyzer: Analyzer, fitted: str) -> dict[str, Any]:
    """Plain values that tell a fitted encoder from any other; ``fitted`` is the SHA-256 of what it learned."""
    parameters = encoder.get_params()
    own = {} if parameters.pop("analyzer") is None else {"analyzer": analyzer.describe()}
    guessed = {"analyzer": analyzer.describe()} if not own and parameters["language"] is None else {}
    head = {"class": type(encoder).__name__, "parameters": {**own, **parameters}}
    return {**head, "fitted": fitted, "width": encoder.dim, **guessed}


def save_encoder(encoder: Any, folder: Path, tfidf: TfidfEncoder, tensors: Tensors) -> None:
    """Write a lexical encoder with the terms of its TF-IDF; the folder must be new or empty."""
    tfidf.analyzer_.to_dict()  # refuses a function
    terms = [(term, kind) for kind, vocabulary in tfidf.vocabularies_.items() for term in vocabulary]
    columns = [[row[0] for row in terms], [row[1] for row in terms]]
    schema = pa.schema([("term", pa.large_string()), ("kind", pa.string())])
    with whole_folder(folder) as aside:
        save_file({name: np.ascontiguousarray(value) for name, value in tensors.items()}, aside / _TENSORS)
        pq.write_table(pa.table(columns, schema=schema), aside / _TERMS)
        write_manifest(aside, {"format": FORMAT, "version": VERSION} | encoder.describe())


def load_encoder(cls: Any, folder: Path, names: tuple[str, ...]) -> tuple[Any, TfidfEncoder, Tensors]:
    """An encoder of a class, with its parameters; its TF-IDF, fitted; and its tensors, which are ``names``."""
    manifest = read_manifest(folder, "encoder", {"format": FORMAT, "version": VERSION, "class": cls.__name__})
    check_files(folder, manifest, (_TENSORS, _TERMS))
    tensors = read_tensors(folder / _TENSORS)
    if set(tensors) != set(names) or not all(np.isfinite(value).all() for value in tensors.values()):
        raise FileFormatError(folder / _TENSORS, None, f"expected finite tensors {', '.join(names)}")
    try:
        parameters = {name: tuple(v) if isinstance(v, list) else v for name, v in manifest["parameters"].items()}
        if "analyzer" in parameters:
            parameters["analyzer"] = Analyzer.from_dict(parameters["analyzer"])
        encoder = cls(**parameters)
        tfidf = tfidf_of(encoder)
        tfidf.analyzer_ = tfidf._given_analyzer() or Analyzer.from_dict(manifest.get("analyzer"))
        kinds = tfidf._counters(tfidf.analyzer_)
    except (AttributeError, KeyError, TypeError, InputError) as error:
        raise FileFormatError(folder / MANIFEST, None, f"parameters: {error}") from None
    try:
        table = pq.read_table(folder / _TERMS, columns=["term", "kind"])
    except (pa.ArrowException, KeyError) as error:
        raise FileFormatError(folder / _TERMS, None, f"expected Parquet with 'term' and 'kind': {error}") from None
    tfidf.vocabularies_ = {kind: {} for kind in kinds}
    for term, kind in zip(table.column("term").to_pylist(), table.column("kind").to_pylist(), strict=True):
        vocabulary = tfidf.vocabularies_.setdefault(kind, {})
        vocabulary[term] = len(vocabulary)
    tfidf.idf_ = np.asarray(tensors["idf"], dtype=np.float64)
    n_terms = sum(map(len, tfidf.vocabularies_.values()))
    if tfidf.idf_.shape != (n_terms,) or len(tfidf.vocabularies_) != len(kinds):
        raise FileFormatError(folder, None, f"{n_terms} terms do not fit weights of shape {tfidf.idf_.shape}")
    return encoder, tfidf, tensors
