"""Represent the documents of a collection for reviews: TF-IDF vectors of words and of pairs of neighbouring words.

A document is one row if it is short, and one row for each passage if it is long. Every row begins with the title. All
words count: function words and rare words are kept, since reviews were shorter with them.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from haybale.analysis import NO_LANGUAGE, Analyzer
from haybale.collections.collection import Collection, Ints, Strings
from haybale.embeddings.counting import strings
from haybale.errors import InputError
from haybale.progress import track
from haybale.vectors import Floats

if TYPE_CHECKING:
    from haybale.engine import Engine

SHORT = 500  # words; documents with at most as many are one row
_MAX_DF = 0.95  # words in a larger share of the rows are dropped


class TermVector(NamedTuple):
    """A sparse vector of unit length: the numbers of its terms, and their weights."""

    terms: Ints
    weights: Floats


@dataclass(frozen=True, eq=False)
class TopicFeatures:
    """The vectors of a collection's documents, which all its topics share; made by :meth:`of`.

    Attributes
    ----------
    matrix : (n_rows, n_terms) CSR matrix of float32
        TF-IDF of words and word pairs. Pairs that occur in a single row are left out of the matrix, but not of the
        length by which a row is divided: the product of two rows is the same as with them.
    is_empty : (n_rows,) bool
        Rows without any term.
    row_offsets : (n_documents + 1,) int64
        ``row_offsets[d]:row_offsets[d + 1]`` are the rows of document d.
    passage_offsets : (n_documents + 1,) int64
        The same for the collection's passages.
    passages : Sequence of str
        The texts of the passages.

    Examples
    --------
    >>> features = TopicFeatures.of(["Dogs bark.", "Cats purr.", "A dog needs a lead."])
    >>> features.n_documents, features.n_rows
    (3, 3)
    """

    matrix: sparse.csr_matrix
    is_empty: NDArray[np.bool_]
    row_offsets: Ints
    passage_offsets: Ints
    passages: Sequence[str] | Strings
    words: dict[str, int]
    word_columns: Ints
    pairs: NDArray[np.int64]
    idf: Floats

    @classmethod
    def of(cls, documents: Engine | Collection | Sequence[str]) -> TopicFeatures:
        """Count the words of the documents of an engine, of a collection, or given as a list of texts.

        Raises
        ------
        InputError
            If there is no document, or ``documents`` is a single string.
        """
        if isinstance(documents, Sequence):
            texts = list(strings(documents))
            return cls._of_rows(texts, np.arange(len(texts) + 1), texts, np.arange(len(texts) + 1))
        collection = documents if isinstance(documents, Collection) else documents.collection
        passages, offsets = collection.passages, collection.passages.doc_offsets
        rows, n_rows = [], [0]
        titles = strings(collection.doc_titles)
        for title, parts in zip(titles, _documents(passages.texts, offsets), strict=True):
            whole = "\n".join([title, *parts])
            if len(parts) > 1 and whole.count(" ") >= SHORT:
                rows += [f"{title}\n{part}" for part in parts]
                n_rows.append(len(parts))
            else:
                rows.append(whole)
                n_rows.append(1)
        return cls._of_rows(rows, np.cumsum(n_rows), passages.texts, offsets)

    @classmethod
    def _of_rows(
        cls, rows: Sequence[str], row_offsets: Ints, passages: Sequence[str] | Strings, passage_offsets: Ints
    ) -> TopicFeatures:
        if not rows:
            raise InputError("expected one or more documents with a passage, found n_documents=0; add documents")
        words: dict[str, int] = {}
        terms, ends = array("q"), array("q", [0])
        for numbers in Analyzer(NO_LANGUAGE).numbered(track(rows, "counting words", len(rows)), words, grow=True):
            terms.extend(numbers)
            ends.append(len(terms))
        numbers_, indptr = np.array(terms, dtype=np.int64), np.array(ends, dtype=np.int64)
        singles = _counts(numbers_, indptr, len(words))
        keys, key_indptr = _pair_keys(numbers_, indptr)
        distinct, columns = np.unique(keys, return_inverse=True)
        doubles = _counts(columns, key_indptr, len(distinct))
        n_rows = len(rows)
        kept, found = [], []
        squares = np.zeros(n_rows)
        for counts, least in ((singles, 1), (doubles, 2)):
            df = np.bincount(counts.indices, minlength=counts.shape[1])
            idf = np.log((1 + n_rows) / (1 + df)) + 1
            counts.data = (1 + np.log(counts.data)) * idf[counts.indices]
            frequent = df > max(1, _MAX_DF * n_rows)
            counts.data[frequent[counts.indices]] = 0
            squares += np.asarray(counts.multiply(counts).sum(axis=1)).ravel()
            keep = np.flatnonzero(~frequent & (df >= least))
            kept.append(keep)
            found.append((counts[:, keep], idf[keep]))
        matrix = sparse.hstack([each for each, _ in found], format="csr")
        lengths = np.sqrt(squares)
        scale = np.divide(1, lengths, out=np.zeros(n_rows), where=lengths > 0)
        matrix = sparse.csr_matrix(sparse.diags(scale) @ matrix, dtype=np.float32)
        word_columns = np.full(len(words), -1)
        word_columns[kept[0]] = np.arange(len(kept[0]))
        idf = np.concatenate([each for _, each in found]).astype(np.float32)
        empty = lengths == 0
        return cls(matrix, empty, row_offsets, passage_offsets, passages, words, word_columns, distinct[kept[1]], idf)

    @property
    def n_documents(self) -> int:
        """The number of documents."""
        return len(self.row_offsets) - 1

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return int(self.matrix.shape[0])

    @cached_property
    def one_row_each(self) -> bool:
        """Whether every document is one row."""
        return self.n_rows == self.n_documents

    def row(self, row: int) -> TermVector:
        """Return the vector of a row."""
        start, end = self.matrix.indptr[row : row + 2]
        return TermVector(self.matrix.indices[start:end], self.matrix.data[start:end])

    def vector(self, text: str) -> TermVector:
        """Return the vector of a text; terms that the collection does not have are dropped."""
        [numbers] = Analyzer(NO_LANGUAGE).numbered([text], self.words)
        terms = np.array(numbers, dtype=np.int64)
        columns = [self.word_columns[terms]]
        if len(terms) > 1 and len(self.pairs):
            keys = (terms[:-1] << 32) | terms[1:]
            places = np.minimum(np.searchsorted(self.pairs, keys), len(self.pairs) - 1)
            known = self.pairs[places] == keys
            columns.append(places[known] + (self.matrix.shape[1] - len(self.pairs)))
        all_columns = np.concatenate(columns)
        found, counts = np.unique(all_columns[all_columns >= 0], return_counts=True)
        weights = (1 + np.log(counts)) * self.idf[found]
        length = np.sqrt((weights**2).sum())
        return TermVector(found, (weights / (length or 1)).astype(np.float32))

    def products(self, vector: TermVector, rows: sparse.csr_matrix | None = None) -> Floats:
        """Return the product of a vector with all rows, or with those of another matrix, as float32."""
        matrix = self.matrix if rows is None else rows
        dense = np.zeros(matrix.shape[1], dtype=np.float32)
        dense[vector.terms] = vector.weights
        return np.asarray(matrix @ dense, dtype=np.float32)

    def document_of_rows(self) -> Ints:
        """Return the document of each row, (n_rows,)."""
        return np.repeat(np.arange(self.n_documents), np.diff(self.row_offsets))


def _documents(texts: Strings, offsets: Ints) -> Iterator[list[str]]:
    """Yield the passages of each document."""
    found = strings(texts)
    for start, end in pairwise(offsets.tolist()):
        yield [next(found) for _ in range(end - start)]


def _counts(columns: Ints, indptr: Ints, n_columns: int) -> sparse.csr_matrix:
    """Return the number of occurrences of each column in each row."""
    counts = sparse.csr_matrix((np.ones(len(columns)), columns, indptr), shape=(len(indptr) - 1, n_columns))
    counts.sum_duplicates()
    return counts


def _pair_keys(numbers: Ints, indptr: Ints) -> tuple[Ints, Ints]:
    """Return a number for each pair of neighbouring words of a row, and where the pairs of each row begin."""
    keys = (numbers[:-1] << 32) | numbers[1:]
    first = indptr[1:-1]  # the first word of a row makes no pair with the last one of the row before
    keep = np.ones(len(keys), dtype=bool)
    keep[first[(first > 0) & (first < len(numbers))] - 1] = False
    return keys[keep], np.concatenate([[0], np.cumsum(np.maximum(np.diff(indptr) - 1, 0))])
