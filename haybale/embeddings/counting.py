"""Texts to a sparse matrix of counts, batch by batch: no list of all terms of all texts is ever held.

Two kinds of terms: words as :class:`Analyzer` reduces them, and character n-grams within words. Each has its
vocabulary, a dict from term to column, in the order of first occurrence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

import numpy as np
from scipy import sparse

from haybale.analysis import Analyzer, char_ngrams
from haybale.errors import InputError

BATCH = 8192  # texts counted at once

Vocabulary = dict[str, int]
Counter = Callable[[Sequence[str], Vocabulary, bool], sparse.csr_matrix]  # (texts, vocabulary, grow) -> counts


def word_counter(language: str) -> Counter:
    """Counts stems of words.

    >>> vocabulary = {}
    >>> word_counter("english")(["dogs and a dog", "a lead"], vocabulary, True).toarray(), vocabulary
    (array([[2., 0.],
           [0., 1.]], dtype=float32), {'dog': 0, 'lead': 1})
    """
    analyzer = Analyzer(language)

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
    indices = np.fromiter((term for row in ids for term in row), dtype=np.int32, count=int(indptr[-1]))
    ones = np.ones(len(indices), dtype=np.float32)
    counts = sparse.csr_matrix((ones, indices, indptr), shape=(len(ids), n_terms))
    counts.sum_duplicates()
    return counts


def batches(texts: Iterable[str]) -> Iterator[tuple[str, ...]]:
    """Texts by :data:`BATCH`; refuses a single string, and what is no string."""
    if isinstance(texts, str):
        raise InputError("expected a sequence of texts, found a single string; put it in a list")
    iterator, start = iter(texts), 0
    while batch := tuple(islice(iterator, BATCH)):
        for i, text in enumerate(batch, start):
            if not isinstance(text, str):
                raise InputError(f"text {i} is no string but {type(text).__name__}")
        yield batch
        start += len(batch)
