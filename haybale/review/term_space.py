"""TF-IDF vectors of words and of pairs of neighbouring words, by which reviews compare documents.

All words count: function words and rare words are kept, since reviews were shorter with them.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numba import njit
from scipy import sparse

from haybale.analysis import Analyzer
from haybale.cached import cached_property
from haybale.collections.collection import Ints
from haybale.progress import track
from haybale.vectors import Floats

_MAX_DF = 0.95  # terms in a larger share of the rows are dropped


class TermVector(NamedTuple):
    """A sparse vector of unit length, or of length 0: the columns of its terms, and their weights."""

    columns: Ints
    weights: Floats


class Words(NamedTuple):
    """The words of texts as numbers: those of text i are ``numbers[indptr[i]:indptr[i + 1]]``."""

    numbers: Ints
    indptr: Ints
    vocabulary: dict[str, int]
    analyzer: Analyzer

    @classmethod
    def of(cls, texts: Sequence[str], analyzer: Analyzer) -> Words:
        """Split texts into words."""
        vocabulary: dict[str, int] = {}
        numbers, ends = array("q"), array("q", [0])
        for word_numbers in analyzer.numbered(track(texts, "counting words", len(texts)), vocabulary, grow=True):
            numbers.extend(word_numbers)
            ends.append(len(numbers))
        return cls(np.array(numbers, dtype=np.int64), np.array(ends, dtype=np.int64), vocabulary, analyzer)

    def as_terms_of(self, analyzer: Analyzer) -> Words:
        """Return what :meth:`of` returns with another analyzer that splits texts alike and drops no word."""
        vocabulary: dict[str, int] = {}
        terms = [term for [term] in analyzer.numbered_words(self.vocabulary, vocabulary)]
        return Words(np.array(terms, dtype=np.int64)[self.numbers], self.indptr, vocabulary, analyzer)


@dataclass(frozen=True, eq=False)
class TermSpace:
    """The TF-IDF vectors of texts, and the vocabulary and weights for those of other texts; made by :meth:`of`.

    Attributes
    ----------
    matrix : (n_texts, n_terms) CSR matrix of float32
        First the columns of words, then those of pairs. Pairs that occur in a single text have no column, but count in
        the length by which a vector is divided: the product of two different texts is the same as with such columns.
    words : Words
        The vocabulary, without the numbers.
    word_columns : (n_words,) int64 array
        The column of each word; -1 if it has none.
    pairs : (n_pairs,) int64 array
        The two words of each pair as one number, rising.
    idf : (n_terms,) float32 array
    """

    matrix: sparse.csr_matrix
    words: Words
    word_columns: Ints
    pairs: Ints
    idf: Floats

    @classmethod
    def of(cls, words: Words, *, pairs_only: bool = False) -> TermSpace:
        """Weigh words and pairs, or pairs only: (1 + ln tf) · (1 + ln((1 + n) / (1 + df))), then to unit length."""
        n_texts = len(words.indptr) - 1
        keys, key_indptr = _pair_keys(words.numbers, words.indptr)
        distinct, pair_numbers = _numbered_pairs(keys, len(words.vocabulary))
        counted = [_counts(pair_numbers, key_indptr, len(distinct))]
        if not pairs_only:
            counted.insert(0, _counts(words.numbers, words.indptr, len(words.vocabulary)))
        squares, parts, idfs, kept = np.zeros(n_texts), [], [], np.empty(0, dtype=np.int64)
        for least, counts in enumerate(counted, 3 - len(counted)):
            df = np.bincount(counts.indices, minlength=counts.shape[1])
            idf = np.log((1 + n_texts) / (1 + df)) + 1
            usual = df <= max(1, _MAX_DF * n_texts)
            counts.data = np.where(usual[counts.indices], (1 + np.log(counts.data)) * idf[counts.indices], 0)
            squares += np.bincount(np.repeat(np.arange(n_texts), np.diff(counts.indptr)), counts.data**2, n_texts)
            kept = np.flatnonzero(usual & (df >= least))
            parts.append(counts[:, kept])
            idfs.append(idf[kept])
            if least == 1:
                word_columns = np.full(len(words.vocabulary), -1)
                word_columns[kept] = np.arange(len(kept))
        if pairs_only:
            word_columns = np.full(len(words.vocabulary), -1)
        lengths = np.sqrt(squares)
        scale = np.divide(1, lengths, out=np.zeros(n_texts), where=lengths > 0)
        matrix = sparse.csr_matrix(sparse.diags(scale) @ sparse.hstack(parts, format="csr"), dtype=np.float32)
        matrix.sort_indices()
        vocabulary = words._replace(numbers=words.numbers[:0], indptr=words.indptr[:1])
        return cls(matrix, vocabulary, word_columns, distinct[kept], np.concatenate(idfs).astype(np.float32))

    @cached_property
    def postings(self) -> sparse.csc_matrix:
        """The same matrix by columns."""
        return self.matrix.tocsc()

    def row(self, row: int) -> TermVector:
        """Return the vector of a text."""
        start, end = self.matrix.indptr[row : row + 2]
        return TermVector(self.matrix.indices[start:end], self.matrix.data[start:end])

    def vector(self, text: str) -> TermVector:
        """Return the vector of another text; terms that no text has are dropped."""
        [numbers] = self.words.analyzer.numbered([text], self.words.vocabulary)
        word_numbers = np.array(numbers, dtype=np.int64)
        columns = self.word_columns[word_numbers]
        if len(word_numbers) > 1 and len(self.pairs):
            keys = (word_numbers[:-1] << 32) | word_numbers[1:]
            places = np.minimum(np.searchsorted(self.pairs, keys), len(self.pairs) - 1)
            pair_numbers = places[self.pairs[places] == keys]
            columns = np.concatenate([columns, pair_numbers + (self.matrix.shape[1] - len(self.pairs))])
        terms, counts = np.unique(columns[columns >= 0], return_counts=True)
        weights = (1 + np.log(counts)) * self.idf[terms]
        length = np.sqrt((weights**2).sum())
        return TermVector(terms, (weights / (length or 1)).astype(np.float32))


def _counts(columns: Ints, indptr: Ints, n_columns: int) -> sparse.csr_matrix:
    """Return the number of occurrences of each column in each row."""
    counts = sparse.csr_matrix((np.ones(len(columns)), columns, indptr), shape=(len(indptr) - 1, n_columns))
    counts.sum_duplicates()
    return counts


def _pair_keys(numbers: Ints, indptr: Ints) -> tuple[Ints, Ints]:
    """Return a number for each pair of neighbouring words of a text, and where the pairs of each text begin."""
    keys = (numbers[:-1] << 32) | numbers[1:]
    first = indptr[1:-1]  # the first word of a text makes no pair with the last one of the text before
    keep = np.ones(len(keys), dtype=bool)
    keep[first[(first > 0) & (first < len(numbers))] - 1] = False
    return keys[keep], np.concatenate([[0], np.cumsum(np.maximum(np.diff(indptr) - 1, 0))])


@njit(nogil=True, cache=True)
def _numbered_pairs(keys: Ints, n_words: int) -> tuple[Ints, Ints]:  # pragma: no cover - compiled
    """Return the distinct pairs, rising, and the number of each pair among them; np.unique sorts by comparing."""
    starts, order, before = np.empty(n_words + 1, np.int64), np.arange(len(keys)), np.empty(len(keys), np.int64)
    for shift in (0, 32):  # by the second word, then by the first one; pairs with equal words keep their order
        starts[:] = 0
        for key in keys:
            starts[((key >> shift) & 0xFFFFFFFF) + 1] += 1
        for word in range(n_words):
            starts[word + 1] += starts[word]
        before[:] = order
        for pair in before:
            word = (keys[pair] >> shift) & 0xFFFFFFFF
            order[starts[word]] = pair
            starts[word] += 1
    distinct, numbers, n_distinct = np.empty(len(keys), np.int64), np.empty(len(keys), np.int64), 0
    for pair in order:
        if n_distinct == 0 or keys[pair] != distinct[n_distinct - 1]:
            distinct[n_distinct] = keys[pair]
            n_distinct += 1
        numbers[pair] = n_distinct - 1
    return distinct[:n_distinct].copy(), numbers
