"""TF-IDF vectors, and the base class of lexical encoders, which are saved in a folder.

manifest.json          format, version, class, parameters, fingerprint, width, and the SHA-256 of every other file
tensors.safetensors    the weights of the terms and, for LSA, the projection
vocabulary.parquet     columns ``term`` and ``kind`` ("word" or "ngram"), one row for each column of the vectors

Loading such a folder executes no code from it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from scipy import sparse

from haybale.analysis import NO_LANGUAGE, Analyzer, Tokenize, as_analyzer
from haybale.collections.collection import Strings
from haybale.embeddings.counting import TermCounts
from haybale.embeddings.encoder import Encoder, is_fitted
from haybale.embeddings.token_batches import check_texts
from haybale.errors import FileFormatError, InputError, NotFittedError
from haybale.folders import whole_folder
from haybale.manifest import (
    MANIFEST,
    Tensors,
    check_files,
    read_any_table,
    read_manifest,
    read_tensors,
    write_manifest,
    write_tensors,
)
from haybale.parameters import BOOLEAN, COUNT, TEXT_OR_NONE, Constraints, check_parameters
from haybale.vectors import normalized_sparse

FORMAT, VERSION = "haybale encoder", 1
_TENSORS, _TERMS = "tensors.safetensors", "vocabulary.parquet"
_ENTRIES_PER_BLOCK = 2**20  # of a matrix of counts, that are weighted at once


class LexicalEncoder(Encoder):
    """Base class of TF-IDF and LSA: the weights of terms, which are learned from texts and can be saved.

    Attributes
    ----------
    vocabulary_ : dict of str to int
        The column of each term.
    idf_ : (n_terms,) float64 array
    analyzer_ : Analyzer
    """

    _parameter_constraints: ClassVar[Mapping[str, Constraints]] = {
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

    @property
    def dim(self) -> int:
        """The number of columns: one for each term."""
        self._check_fitted()
        return len(self.idf_)

    def tensors(self) -> Tensors:
        """Return the fitted tensors, each with one row for each term."""
        self._check_fitted()
        return {"idf": self.idf_}

    def set_tensors(self, tensors: Tensors) -> None:
        """Set the fitted tensors, as :meth:`tensors` returned them."""
        self.idf_: NDArray[np.float64] = np.asarray(tensors["idf"], dtype=np.float64)

    def describe(self) -> dict[str, Any]:
        """Return the class, the parameters, the SHA-256 of what was fitted, and the width."""
        tensors, parameters = self.tensors(), self.get_params()
        if parameters["analyzer"] is None:
            del parameters["analyzer"]
        else:
            parameters["analyzer"] = as_analyzer(parameters["analyzer"]).describe()
        head = f"{self._kind} {len(self.vocabulary_)}\n" + "\n".join(self.vocabulary_)
        fitted = hashlib.sha256(head.encode() + b"".join(tensor.tobytes() for tensor in tensors.values())).hexdigest()
        return {"class": type(self).__name__, "parameters": parameters, "fitted": fitted, "width": self.dim}

    def save(self, folder: Path | str) -> None:
        """Write the encoder to a new folder.

        Raise :class:`InputError` if its analyzer is a function, and :class:`OutputExistsError` if the folder is not
        empty. If writing fails, no folder is left.
        """
        tensors = self.tensors()
        if self.analyzer is not None:
            as_analyzer(self.analyzer).to_dict()  # raises InputError for a function
        terms = {"term": pa.array(self.vocabulary_, pa.large_string()), "kind": [self._kind] * len(self.vocabulary_)}
        with whole_folder(Path(folder)) as aside:
            write_tensors(aside / _TENSORS, tensors)
            pq.write_table(pa.table(terms), aside / _TERMS)
            write_manifest(aside, {"format": FORMAT, "version": VERSION} | self.describe())

    @classmethod
    def load(cls, folder: Path | str) -> Self:
        """Load a saved encoder, whose vectors are bit for bit the same.

        Raise :class:`FileFormatError` if files are missing, changed, or those of another class of encoder.
        """
        folder = Path(folder)
        manifest = read_manifest(folder, "encoder", {"format": FORMAT, "version": VERSION, "class": cls.__name__})
        check_files(folder, manifest, (_TENSORS, _TERMS))
        tensors = read_tensors(folder / _TENSORS)
        try:
            encoder: Self = _from_description(cls, manifest)
        except (AttributeError, KeyError, TypeError, InputError) as error:
            expected = f"expected the parameters of {cls.__name__}, found others ({error})"
            raise FileFormatError(folder / MANIFEST, None, expected) from None
        try:
            terms = read_any_table(folder / _TERMS).column("term").to_pylist()
        except KeyError as error:
            raise FileFormatError(folder / _TERMS, None, f"expected a column 'term', found others ({error})") from None
        encoder.vocabulary_ = {term: column for column, term in enumerate(terms)}
        lengths = {name: len(tensor) for name, tensor in tensors.items()}
        finite = all(np.isfinite(tensor).all() for tensor in tensors.values())
        if not finite or lengths != dict.fromkeys(cls._tensors, len(encoder.vocabulary_)):
            expected = f"finite tensors {', '.join(cls._tensors)}, of {len(terms)} terms"
            raise FileFormatError(folder / _TENSORS, None, f"expected {expected}, found {lengths}")
        encoder.set_tensors(tensors)
        return encoder

    _tensors: ClassVar[tuple[str, ...]] = ("idf",)

    def chosen_analyzer(self) -> Analyzer:
        """Return the analyzer that the parameters select; raise :class:`InputError` if one is out of range."""
        check_parameters(type(self).__name__, self.get_params(), self._parameter_constraints)
        if self.char_ngrams is None:
            return as_analyzer(self.analyzer or self.language or NO_LANGUAGE)
        sizes = tuple(self.char_ngrams)
        if len(sizes) != 2 or not all(isinstance(size, int) for size in sizes) or not 1 <= sizes[0] <= sizes[1]:
            raise InputError(f"char_ngrams must be two sizes, 1 <= smallest <= largest, found {self.char_ngrams}")
        return Analyzer(NO_LANGUAGE, function=_char_ngrams(*sizes))

    def fit_counts(self, counts: TermCounts) -> Self:
        """Learn terms and their weights from counted texts, bit for bit as :meth:`fit` does from the texts."""
        _check_analyzer(counts, self.chosen_analyzer())
        n_terms, terms = counts.matrix.shape[1], counts.matrix.indices
        df = np.zeros(n_terms, dtype=np.int64)
        for start in range(0, len(terms), step := max(n_terms, _ENTRIES_PER_BLOCK)):
            df += np.bincount(terms[start : start + step], minlength=n_terms)
        return self.fit_frequencies(list(counts.vocabulary), df, len(counts))

    def fit_frequencies(self, names: Sequence[str], df: NDArray[np.int64], n: int) -> Self:
        """Learn terms and their weights from the number of texts ``df`` (n_terms,) that have each, of ``n`` texts.

        The ``names`` (n_terms,) of the terms are in the order of first occurrence.
        """
        analyzer, name = self.chosen_analyzer(), type(self).__name__
        if n == 0:
            raise InputError(f"{name}.fit needs at least one text, but texts has none")
        least = 1 if self.min_df == 2 and not (df >= 2).any() else self.min_df
        chosen = np.flatnonzero(df >= least)
        if not len(chosen):
            raise InputError(f"{name}.fit: no term occurs in min_df={self.min_df} of the {n} texts; reduce min_df")
        self.vocabulary_ = {names[old]: new for new, old in enumerate(chosen.tolist())}
        self.idf_ = np.log((1 + n) / (1 + df[chosen])) + 1
        self.analyzer_ = analyzer
        return self

    def tfidf_rows(self, counts: TermCounts) -> sparse.csr_matrix:
        """Return the TF-IDF rows (n, n_terms) float32 of counted texts with any vocabulary."""
        self._check_fitted()
        _check_analyzer(counts, self.analyzer_)
        column = np.array([self.vocabulary_.get(term, -1) for term in counts.vocabulary], dtype=np.int32)
        matrix, n_entries = counts.matrix, 0
        data, columns = np.empty(matrix.nnz, dtype=np.float32), np.empty(matrix.nnz, dtype=np.int32)
        indptr = np.zeros(matrix.shape[0] + 1, dtype=np.int64)
        edges = np.searchsorted(matrix.indptr, np.arange(0, matrix.nnz, _ENTRIES_PER_BLOCK)).tolist()
        for start, end in pairwise(dict.fromkeys([*edges, matrix.shape[0]])):
            rows = self._weighted(matrix[start:end], column)
            entries = slice(n_entries, n_entries + rows.nnz)
            data[entries], columns[entries] = rows.data, rows.indices
            indptr[start + 1 : end + 1] = n_entries + rows.indptr[1:]
            n_entries += rows.nnz
        data.resize(n_entries, refcheck=False)
        columns.resize(n_entries, refcheck=False)
        return sparse.csr_matrix((data, columns, indptr), shape=(matrix.shape[0], len(self.vocabulary_)))

    def _weighted(self, counts: sparse.csr_matrix, column: NDArray[np.int32]) -> sparse.csr_matrix:
        """Return the TF-IDF rows of counts; ``column`` has the column of each term, or -1."""
        columns = column[counts.indices]
        is_kept = columns >= 0
        offsets = np.append(0, np.cumsum(is_kept))[counts.indptr]
        arrays = counts.data[is_kept].astype(np.float64), columns[is_kept], offsets
        rows = sparse.csr_matrix(arrays, shape=(counts.shape[0], len(self.vocabulary_)))
        rows.sort_indices()
        tf = 1 + np.log(rows.data) if self.sublinear_tf else rows.data
        rows.data = tf * self.idf_[rows.indices]
        return normalized_sparse(rows)

    def _check_fitted(self) -> None:
        if not is_fitted(self):
            raise NotFittedError(f"this {type(self).__name__} is not fitted: call fit(texts) first")

    @property
    def _kind(self) -> str:
        return "word" if self.char_ngrams is None else "ngram"


class TfidfEncoder(LexicalEncoder):
    """Term frequency times inverse document frequency, in CSR rows of length 1: inner products are cosines.

    Salton & Buckley, "Term-weighting approaches in automatic text retrieval", IPM 24(5), 1988. The weights are those of
    scikit-learn's ``TfidfVectorizer``: idf = ln((1 + n) / (1 + df)) + 1, tf = 1 + ln(count) if ``sublinear_tf``. A row
    depends on its text alone, bit for bit, not on the texts encoded with it.

    Parameters
    ----------
    language : str or None, default "english"
        Selects stop words and stemmer, one of :data:`haybale.analysis.LANGUAGES`; None uses neither.
    analyzer : Analyzer or callable, optional
        Splits texts into terms instead of ``language``. An encoder whose analyzer is a function cannot be saved.
    char_ngrams : (int, int), optional
        The smallest and the largest size of character n-grams within words, which then are the terms.
    min_df : int, default 2
        The smallest number of texts that a term must occur in to be kept. If no term occurs in two texts, 2 keeps all
        terms, so that a few short texts can be encoded.
    sublinear_tf : bool, default True
        Whether to replace the count of a term in a text by 1 + ln(count).

    Attributes
    ----------
    vocabulary_ : dict of str to int
        The column of each term.
    idf_ : (n_terms,) float64 array
    analyzer_ : Analyzer

    Examples
    --------
    >>> encoder = TfidfEncoder(min_df=1).fit(["dogs bark", "cats meow", "dogs and cats"])
    >>> encoder.encode(["a dog and another dog", "barking cats"]).toarray().round(3)
    array([[1.   , 0.   , 0.   , 0.   ],
           [0.   , 0.796, 0.605, 0.   ]], dtype=float32)
    """

    name = "tfidf"
    is_sparse = True

    def fit(self, texts: Iterable[str] | Strings) -> Self:
        """Learn terms and weights from texts; raise :class:`InputError` if no term occurs in ``min_df`` texts."""
        return self.fit_counts(TermCounts.of(texts, self.chosen_analyzer()))

    def encode(self, texts: Sequence[str]) -> sparse.csr_matrix:
        """Encode (n,) texts to CSR (n, n_terms) float32; a text without a known term gets the zero row."""
        self._check_fitted()
        return self.tfidf_rows(TermCounts.of(check_texts(texts), self.analyzer_))


@cache  # analyzers with the same sizes must compare equal
def _char_ngrams(*sizes: int) -> Any:
    from sklearn.feature_extraction.text import CountVectorizer

    return CountVectorizer(analyzer="char_wb", ngram_range=sizes).build_analyzer()


def _check_analyzer(counts: TermCounts, expected: Analyzer) -> None:
    if counts.analyzer != expected:
        raise InputError(f"the terms must be counted by the analyzer {expected}, found {counts.analyzer}")


def _from_description(cls: Any, described: Mapping[str, Any]) -> Any:
    """Make an encoder with the parameters and the analyzer in a manifest."""
    parameters = {name: tuple(v) if isinstance(v, list) else v for name, v in described["parameters"].items()}
    if parameters.get("analyzer") is not None:
        parameters["analyzer"] = Analyzer.from_dict(parameters["analyzer"])
    encoder = cls(**parameters)
    encoder.analyzer_ = encoder.chosen_analyzer()
    return encoder
