"""Texts to sparse counts of terms, batch by batch: no list of all terms of all texts is ever held.

Two kinds of terms: words as :class:`Analyzer` reduces them, and character n-grams within words. Each has its
vocabulary, a dict from term to column, in the order of first occurrence. Counts of words can be made once, as
:class:`TermCounts`, for all that weighs them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy import sparse

from haybale.analysis import Analyzer, char_ngrams
from haybale.collections.collection import Strings
from haybale.errors import InputError
from haybale.progress import track

BATCH = 8192  # texts counted at once

Vocabulary = dict[str, int]
Counter = Callable[[Sequence[str], Vocabulary, bool], sparse.csr_matrix]  # (texts, vocabulary, grow) -> counts


@dataclass(frozen=True, eq=False)
class TermCounts:
    """How often each term occurs in each text: what BM25, TF-IDF and LSA need of texts, made once for all of them.

    Make them with :meth:`of`. Attributes: ``matrix`` (n_texts, n_terms) float32 CSR, terms rising within a row, 8 bytes
    a pair; ``vocabulary``, term -> column, in the order of first occurrence; ``analyzer``, which made them.

    >>> counts = TermCounts.of(["dogs and a dog", "a lead", ""], Analyzer("english"))
    >>> counts.matrix.toarray(), counts.vocabulary
    (array([[2., 0.], [0., 1.], [0., 0.]], dtype=float32), {'dog': 0, 'lead': 1})
    """

    matrix: sparse.csr_matrix
    vocabulary: Vocabulary
    analyzer: Analyzer

    @classmethod
    def of(cls, texts: Iterable[str] | Strings, analyzer: Analyzer, vocabulary: Vocabulary | None = None) -> TermCounts:
        """Count texts, which are gone through once.

        Parameters
        ----------
        texts : iterable of str, or an Arrow column
            Of any length; beside the counts a batch of them is held. A text may be empty.
        analyzer : Analyzer
            What makes terms of them.
        vocabulary : dict, optional
            Terms that have their numbers already, 0 and up; it grows by the others.

        Raises
        ------
        InputError
            For a single string in place of texts, and for what is no string.
        """
        grown: Vocabulary = {} if vocabulary is None else vocabulary
        return cls(_counted(texts, analyzer, grown), grown, analyzer)

    def __len__(self) -> int:
        return int(self.matrix.shape[0])

    @property
    def lengths(self) -> NDArray[np.int64]:
        """(n_texts,) terms of each text, repetitions included."""
        return np.asarray(self.matrix @ np.ones(self.matrix.shape[1]), dtype=np.int64)

    def merged(self, offsets: NDArray[np.int64]) -> TermCounts:
        """The counts of documents that are runs of these texts.

        They are those of the texts joined by newlines, vocabulary included, for every analyzer that takes a newline for
        the end of a word, as all do but perhaps a function of one's own.

        Parameters
        ----------
        offsets : (n_documents + 1,) array of int
            Document d is the texts ``offsets[d]:offsets[d + 1]``; they rise from 0 to the number of texts.

        >>> TermCounts.of(["a dog", "a lead", "dogs"], Analyzer("english")).merged(np.array([0, 2, 3])).matrix.toarray()
        array([[1., 1.], [1., 0.]], dtype=float32)
        """
        offsets, n = np.asarray(offsets, dtype=np.int64), len(self)
        if offsets.ndim != 1 or not len(offsets) or offsets[0] != 0 or offsets[-1] != n or (np.diff(offsets) < 0).any():
            raise InputError(f"offsets must rise from 0 to the number of texts, {n}")
        runs = sparse.csr_matrix((np.ones(n, dtype=np.float32), np.arange(n), offsets), shape=(len(offsets) - 1, n))
        matrix = runs @ self.matrix
        matrix.sort_indices()
        return TermCounts(matrix, self.vocabulary, self.analyzer)

    def take(self, rows: NDArray[np.int64]) -> TermCounts:
        """The counts of some texts, (n,) numbers of them in any order; the vocabulary stays the whole one."""
        return TermCounts(self.matrix[np.asarray(rows, dtype=np.int64)], self.vocabulary, self.analyzer)

    def extended(self, texts: Iterable[str] | Strings) -> TermCounts:
        """These counts with those of more texts behind them; the vocabulary grows at its end."""
        more = TermCounts.of(texts, self.analyzer, dict(self.vocabulary))
        old = self.matrix
        wide = sparse.csr_matrix((old.data, old.indices, old.indptr), shape=(len(self), len(more.vocabulary)))
        return TermCounts(sparse.vstack([wide, more.matrix], format="csr"), more.vocabulary, self.analyzer)


def _counted(texts: Iterable[str] | Strings, analyzer: Analyzer, vocabulary: Vocabulary) -> sparse.csr_matrix:
    """(n_texts, n_terms) counts; the vocabulary grows."""
    total = len(texts) if isinstance(texts, Sequence | pa.ChunkedArray) else None
    checked = track(chain.from_iterable(batches(texts)), "counting terms", total)
    stream, parts = analyzer.numbered(checked, vocabulary, grow=True), []
    while rows := list(islice(stream, BATCH)):
        parts.append(count_matrix(rows, len(vocabulary)))
    shape = (sum(part.shape[0] for part in parts), len(vocabulary))
    if not parts:
        return sparse.csr_matrix(shape, dtype=np.float32)
    starts = np.cumsum([0, *(part.nnz for part in parts)], dtype=np.int64)
    indptr = [part.indptr[1:] + start for part, start in zip(parts, starts[:-1], strict=True)]
    data, indices = (np.concatenate([getattr(part, name) for part in parts]) for name in ("data", "indices"))
    return sparse.csr_matrix((data, indices, np.concatenate([[0], *indptr])), shape=shape)


def word_counter(analyzer: Analyzer) -> Counter:
    """Counts stems of words.

    >>> vocabulary = {}
    >>> word_counter(Analyzer("english"))(["dogs and a dog", "a lead"], vocabulary, True).toarray(), vocabulary
    (array([[2., 0.],
           [0., 1.]], dtype=float32), {'dog': 0, 'lead': 1})
    """

    def count(texts: Sequence[str], vocabulary: Vocabulary, grow: bool) -> sparse.csr_matrix:
        ids = list(analyzer.numbered(texts, vocabulary, grow=grow))
        return count_matrix(ids, len(vocabulary))

    return count


def ngram_counter(sizes: tuple[int, int]) -> Counter:
    """Counts character n-grams of lower-cased words, which whitespace separates; see :func:`char_ngrams`.

    >>> vocabulary = {" ta": 0, "tax": 1}
    >>> ngram_counter((3, 3))(["Tax tax", "taxi"], vocabulary, False).toarray()
    array([[2., 2.],
           [1., 1.]], dtype=float32)
    """

    def count(texts: Sequence[str], vocabulary: Vocabulary, grow: bool) -> sparse.csr_matrix:
        # Words are counted in texts and n-grams in words: their product counts n-grams in texts.
        words: Vocabulary = {}
        ids = [[words.setdefault(word, len(words)) for word in text.lower().split()] for text in texts]
        grams: list[list[int]] = []
        for word in words:
            found = char_ngrams(word, sizes)
            if grow:
                grams.append([vocabulary.setdefault(gram, len(vocabulary)) for gram in found])
            else:
                grams.append([number for gram in found if (number := vocabulary.get(gram)) is not None])
        counts = count_matrix(ids, len(words)) @ count_matrix(grams, len(vocabulary))
        counts.sort_indices()
        return counts

    return count


def count_matrix(ids: list[list[int]], n_terms: int) -> sparse.csr_matrix:
    """(n_texts, n_terms) float32 from the term numbers of each text."""
    indptr = np.concatenate(([0], np.cumsum([len(row) for row in ids]))).astype(np.int64)
    indices = np.fromiter(chain.from_iterable(ids), dtype=np.int32, count=int(indptr[-1]))
    ones = np.ones(len(indices), dtype=np.float32)
    counts = sparse.csr_matrix((ones, indices, indptr), shape=(len(ids), n_terms))
    counts.sum_duplicates()
    return counts


def batches(texts: Iterable[str] | Strings) -> Iterator[tuple[str, ...]]:
    """Texts by :data:`BATCH`; refuses a single string, and what is no string."""
    if isinstance(texts, str):
        raise InputError("expected a sequence of texts, found a single string; put it in a list")
    iterator, start = iter(strings_of(texts)), 0
    while batch := tuple(islice(iterator, BATCH)):
        for i, text in enumerate(batch, start):
            if not isinstance(text, str):
                raise InputError(f"text {i} is no string but {type(text).__name__}")
        yield batch
        start += len(batch)


def strings_of(texts: Iterable[str] | Strings) -> Iterable[str]:
    """The texts; those of an Arrow column become strings a batch at a time."""
    if not isinstance(texts, pa.ChunkedArray):
        return texts
    parts = (texts.slice(start, BATCH).to_pylist() for start in range(0, len(texts), BATCH))
    return chain.from_iterable(parts)
