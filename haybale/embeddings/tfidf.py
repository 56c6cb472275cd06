"""TF-IDF: the sparse space that stands beside LSA, and what LSA is built on; and how fitted lexical encoders are kept.

A folder of one holds, and nothing of it can be executed:

manifest.json          format, version, class, parameters, fingerprint, width, and the SHA-256 of every other file
tensors.safetensors    weights, and what is built on them
vocabulary.parquet     columns ``term`` and ``kind`` ("word" or "ngram"), a row a column of the counts
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.utils.validation import check_is_fitted

from haybale.analysis import NO_LANGUAGE, Analyzer, Tokenize, as_analyzer
from haybale.collections.collection import Strings
from haybale.embeddings.counting import TermCounts
from haybale.embeddings.token_batches import check_texts
from haybale.errors import FileFormatError, InputError
from haybale.folders import whole_folder
from haybale.manifest import MANIFEST, Tensors, check_files, read_manifest, read_tensors, write_manifest, write_tensors
from haybale.parameters import BOOLEAN, COUNT, TEXT_OR_NONE, Constraints, check_parameters
from haybale.vectors import normalized_sparse

FORMAT, VERSION = "haybale encoder", 1
_TENSORS, _TERMS = "tensors.safetensors", "vocabulary.parquet"


class LexicalEncoder(BaseEstimator):  # type: ignore[misc]
    """What TF-IDF and LSA share: what they say of themselves, and how they are kept."""

    def describe(self) -> dict[str, Any]:
        """Plain values that tell this encoder from any other: class, parameters, SHA-256 of the fit, width."""
        (tfidf, tensors), parameters = self._learned(), self.get_params()
        if parameters["analyzer"] is None:
            del parameters["analyzer"]
        else:
            parameters["analyzer"] = as_analyzer(parameters["analyzer"]).describe()
        head = f"{tfidf.kind} {tfidf.dim}\n" + "\n".join(tfidf.vocabulary_)
        fitted = hashlib.sha256(head.encode() + b"".join(tensor.tobytes() for tensor in tensors.values())).hexdigest()
        return {"class": type(self).__name__, "parameters": parameters, "fitted": fitted, "width": self.dim}

    def save(self, folder: Path | str) -> None:
        """Write it to a new folder, whole or not at all. An encoder whose analyzer is a function is refused."""
        tfidf, tensors = self._learned()
        if tfidf.analyzer is not None:
            as_analyzer(tfidf.analyzer).to_dict()  # refuses a function
        terms = {"term": pa.array(tfidf.vocabulary_, pa.large_string()), "kind": [tfidf.kind] * tfidf.dim}
        with whole_folder(Path(folder)) as aside:
            write_tensors(aside / _TENSORS, tensors)
            pq.write_table(pa.table(terms), aside / _TERMS)
            write_manifest(aside, {"format": FORMAT, "version": VERSION} | self.describe())

    @classmethod
    def load(cls, folder: Path | str) -> Self:
        """A saved encoder, which encodes bit for bit as it did; executes nothing.

        Errors: :class:`FileFormatError` where files are missing, changed, or of another kind of encoder.
        """
        folder = Path(folder)
        manifest = read_manifest(folder, "encoder", {"format": FORMAT, "version": VERSION, "class": cls.__name__})
        check_files(folder, manifest, (_TENSORS, _TERMS))
        tensors = read_tensors(folder / _TENSORS)
        try:
            guessed = {"analyzer": manifest["analyzer"]} if "analyzer" in manifest else {}  # of its texts, until 0.2
            encoder: Self = from_parameters(cls, manifest["parameters"] | guessed)
            tfidf = encoder._tfidf()
            tfidf.analyzer_ = tfidf.chosen_analyzer()
        except (AttributeError, KeyError, TypeError, InputError) as error:
            raise FileFormatError(folder / MANIFEST, None, f"parameters: {error}") from None
        try:
            terms = pq.read_table(folder / _TERMS, columns=["term"]).column("term").to_pylist()
        except (pa.ArrowException, KeyError) as error:
            raise FileFormatError(folder / _TERMS, None, f"expected Parquet with 'term': {error}") from None
        tfidf.vocabulary_ = {term: column for column, term in enumerate(terms)}
        shapes = {name: tensor.shape[:1] for name, tensor in tensors.items()}
        finite = all(np.isfinite(tensor).all() for tensor in tensors.values())
        if not finite or shapes != dict.fromkeys(cls._tensors, (len(tfidf.vocabulary_),)):
            expected = f"finite tensors {', '.join(cls._tensors)}, of {len(terms)} terms"
            raise FileFormatError(folder / _TENSORS, None, f"expected {expected}, found {shapes}")
        tfidf.idf_ = np.asarray(tensors["idf"], dtype=np.float64)
        encoder.load_state(tfidf, tensors)
        return encoder

    _tensors: ClassVar[tuple[str, ...]] = ("idf",)

    def _tfidf(self) -> TfidfEncoder:
        """One that is not fitted, with those of the parameters that it has."""
        return TfidfEncoder(**{name: getattr(self, name) for name in TfidfEncoder().get_params()})

    def _learned(self) -> tuple[TfidfEncoder, Tensors]:
        raise NotImplementedError

    def load_state(self, tfidf: TfidfEncoder, tensors: Tensors) -> None:
        raise NotImplementedError


class TfidfEncoder(LexicalEncoder):
    """Term frequency times inverse document frequency, rows of length 1, as CSR: cosines are inner products.

    Salton & Buckley, "Term-weighting approaches in automatic text retrieval", IPM 24(5), 1988; weights as in
    scikit-learn's ``TfidfVectorizer``: idf = ln((1 + n) / (1 + df)) + 1, tf = 1 + ln(count) if ``sublinear_tf``.
    A row depends on its text alone, bit for bit, whatever other texts are encoded with it.

    Parameters
    ----------
    language : str, default "english"
        Of stop words and stemmer, one of :data:`haybale.analysis.LANGUAGES`.
    analyzer : Analyzer or callable, optional
        In place of ``language``; an encoder with a function, from a text to its terms, cannot be saved.
    char_ngrams : (int, int), optional
        In place of words: the sizes (least, greatest) of character n-grams within words.
    min_df : int, default 2
        The texts a term must occur in to count.
    sublinear_tf : bool, default True

    Attributes
    ----------
    vocabulary_, idf_, analyzer_ : dict of term -> column, (n_terms,) float64 array, Analyzer

    Examples
    --------
    >>> encoder = TfidfEncoder(min_df=1).fit(["dogs bark", "cats meow", "dogs and cats"])
    >>> encoder.encode(["a dog and another dog", "barking cats"]).toarray().round(3)
    array([[1.   , 0.   , 0.   , 0.   ],
           [0.   , 0.796, 0.605, 0.   ]], dtype=float32)
    """

    _parameter_constraints: ClassVar[dict[str, Constraints]] = {
        "language": TEXT_OR_NONE,
        "analyzer": [Analyzer, callable, None],
        "char_ngrams": [tuple, list, None],
        "min_df": COUNT,
        "sublinear_tf": BOOLEAN,
    }

    def __init__(
        self,
        *,
        language: str | None = "english",
        analyzer: Analyzer | Tokenize | None = None,
        char_ngrams: tuple[int, int] | None = None,
        min_df: int = 2,
        sublinear_tf: bool = True,
    ) -> None:
        self.language = language
        self.analyzer = analyzer
        self.char_ngrams = char_ngrams
        self.min_df = min_df
        self.sublinear_tf = sublinear_tf

    def fit(self, texts: Iterable[str] | Strings) -> Self:
        """Learn terms and weights from texts; errors: no texts, no term in ``min_df`` of them, parameters."""
        return self.fit_counts(TermCounts.of(texts, self.chosen_analyzer()))

    def fit_counts(self, counts: TermCounts) -> Self:
        """Learn from counted texts, bit for bit what :meth:`fit` learns from the texts."""
        analyzer, n, name = self.chosen_analyzer(), len(counts), type(self).__name__
        _check_analyzer(counts, analyzer)
        if n == 0:
            raise InputError(f"{name}.fit: no texts")
        found = np.bincount(counts.matrix.indices, minlength=counts.matrix.shape[1])
        chosen = np.flatnonzero(found >= self.min_df)
        if not len(chosen):
            raise InputError(f"{name}.fit: no term occurs in {self.min_df} or more of the {n} texts")
        names = list(counts.vocabulary)
        self.vocabulary_ = {names[old]: new for new, old in enumerate(chosen)}
        self.idf_: NDArray[np.float64] = np.log((1 + n) / (1 + found[chosen])) + 1
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
        return self.encode_counts(TermCounts.of(check_texts(texts), self.analyzer_))

    def encode_counts(self, counts: TermCounts) -> sparse.csr_matrix:
        """The same for counted texts, bit for bit; their vocabulary may be any, their analyzer must be this one's."""
        check_is_fitted(self, "idf_")
        _check_analyzer(counts, self.analyzer_)
        column = np.array([self.vocabulary_.get(term, -1) for term in counts.vocabulary], dtype=np.int32)
        (known,) = np.nonzero(column >= 0)
        shape = (counts.matrix.shape[1], self.dim)
        moved = sparse.csr_matrix((np.ones(len(known), dtype=np.float32), (known, column[known])), shape=shape)
        rows = counts.matrix @ moved
        rows.sort_indices()
        tf = rows.data.astype(np.float64)
        if self.sublinear_tf:
            tf = 1 + np.log(tf)
        rows.data = tf * self.idf_[rows.indices]
        return normalized_sparse(rows)

    def _learned(self) -> tuple[TfidfEncoder, Tensors]:
        check_is_fitted(self, "idf_")
        return self, {"idf": self.idf_}

    def load_state(self, tfidf: TfidfEncoder, tensors: Tensors) -> None:
        self.vocabulary_, self.idf_, self.analyzer_ = tfidf.vocabulary_, tfidf.idf_, tfidf.analyzer_

    @property
    def kind(self) -> str:
        """Of its terms."""
        return "word" if self.char_ngrams is None else "ngram"

    def chosen_analyzer(self) -> Analyzer:
        """What makes terms of a text; refuses parameters that are out of range."""
        check_parameters(type(self).__name__, self.get_params(), self._parameter_constraints)
        if self.char_ngrams is None:
            return as_analyzer(self.analyzer or self.language or NO_LANGUAGE)
        sizes = tuple(self.char_ngrams)
        if len(sizes) != 2 or not all(isinstance(size, int) for size in sizes) or not 1 <= sizes[0] <= sizes[1]:
            raise InputError(f"char_ngrams must be two sizes, 1 <= least <= greatest, found {self.char_ngrams}")
        return Analyzer(NO_LANGUAGE, function=_char_ngrams(*sizes))


@cache  # so that those of the same sizes are equal
def _char_ngrams(*sizes: int) -> Any:
    return CountVectorizer(analyzer="char_wb", ngram_range=sizes).build_analyzer()


def _check_analyzer(counts: TermCounts, expected: Analyzer) -> None:
    if counts.analyzer != expected:
        raise InputError(f"the terms were counted by another analyzer: expected {expected}, found {counts.analyzer}")


def from_parameters(cls: Any, described: Mapping[str, Any]) -> Any:
    """An encoder that is not fitted, of the parameters that one described."""
    parameters = {name: tuple(v) if isinstance(v, list) else v for name, v in described.items()}
    if parameters.pop("words", not parameters.get("char_ngrams")) == bool(parameters.get("char_ngrams")):  # until 0.2
        raise InputError("words and character n-grams in one space are read no more; concatenate two encoders")
    if parameters.get("analyzer") is not None:
        parameters["analyzer"] = Analyzer.from_dict(parameters["analyzer"])
    return cls(**parameters)
