"""Features of query terms: the term, the words around it, its position in the query, and how frequent it is.

A model over these features can tell that a term matters in one query and not in another. What it learns also holds for
documents that were relevant to no training query.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple, Self

import numpy as np
from scipy import sparse

from haybale.analysis import Analyzer
from haybale.cached import cached_property
from haybale.collections.collection import indptr_from_counts
from haybale.retrieval.hits import Ints
from haybale.vectors import Floats

# The kinds of features. Each value of a kind is a feature of its own.
KINDS = (
    "term",
    "second word before",
    "word before",
    "word after",
    "second word after",
    "distance from",  # the nearest occurrence of one of the most frequent words of the queries
    "distance from the start",
    "distance from the end",
    "tenth of the query",
    "part of a compound",
    "rarity",  # logarithm of the share of texts that have the term
    "occurrences in the query",
    "length of the query",
)
TERM, BEFORE_2, BEFORE, AFTER, AFTER_2, DISTANCE, START, END, TENTH, PART, RARITY, COUNT, LENGTH = range(len(KINDS))
_WORD_OFFSETS = {BEFORE_2: -2, BEFORE: -1, AFTER: 1, AFTER_2: 2}
_KINDS_ABOUT_WORDS = (*_WORD_OFFSETS, DISTANCE)
_DISTANCE_BOUNDS = np.array([1, 2, 3, 5, 8, 13, 21, 40])  # upper ends of the ranges of distances
_N_FREQUENT_WORDS = 30  # words from which the distance is a feature
_CODES_PER_WORD = 64  # more than the values of a kind for one word; a code is word · 64 + value
_RARITY_RANGES_PER_E = 1.5  # ranges of rarity for each factor e of the share of texts

Tokens = Sequence[Sequence[str]]  # of each query, by Analyzer.tokens
Frequencies = Callable[[Sequence[str]], Ints]  # terms -> the number of texts that have each


class QueryTerms(NamedTuple):
    """The distinct terms of queries, in the order of their first occurrence, with their features."""

    terms: list[list[str]]  # of each query
    counts: Ints  # (n,) occurrences of each term in its query
    offsets: Ints  # (m + 1,) where the terms of each query begin
    features: sparse.csr_matrix  # (n, f) float32: the mean over the occurrences of a term


@dataclass(frozen=True, eq=False)
class TermFeatures:
    """The features that occurred often enough in training queries; they are computed for the terms of any query.

    ``kinds`` (f,) has numbers of :data:`KINDS`; ``words`` the term or the word that each feature is about, or "";
    ``values`` (f,) the number of its range, or 0. ``n_texts`` is the number of texts of the index.
    """

    kinds: Ints
    words: list[str]
    values: Ints
    n_texts: int

    @classmethod
    def learn(cls, tokens: Tokens, analyzer: Analyzer, frequencies: Frequencies, n_texts: int, min_count: int) -> Self:
        """Return the features that occur at least ``min_count`` times in queries."""
        counts = Counter(chain.from_iterable(tokens))
        by_count = sorted(counts, key=lambda word: (-counts[word], word))
        frequent = by_count[:_N_FREQUENT_WORDS]
        # A word that occurs once says nothing about other queries.
        words = {word: number for number, word in enumerate(by_count) if number < _N_FREQUENT_WORDS or counts[word] > 1}
        queries = _Queries.read(tokens, analyzer, words)
        names: tuple[list[str], list[str]] = list(words), list(queries.terms)
        features: list[tuple[int, str, int]] = []
        for kind, _, codes, _ in queries.coded(range(len(frequent)), queries.terms, frequencies, n_texts):
            distinct_codes, times = np.unique(codes[codes >= 0], return_counts=True)
            for number, value in zip(*np.divmod(distinct_codes[times >= min_count], _CODES_PER_WORD), strict=True):
                word = names[kind == TERM][number] if kind == TERM or kind in _KINDS_ABOUT_WORDS else ""
                features.append((kind, word, int(value)))
        kinds, values = (np.array([feature[column] for feature in features], dtype=np.int64) for column in (0, 2))
        return cls(kinds, [word for _, word, _ in features], values, n_texts)

    def __len__(self) -> int:
        return len(self.words)

    def of(self, tokens: Tokens, analyzer: Analyzer, frequencies: Frequencies) -> QueryTerms:
        """Return the terms of queries with their features."""
        queries = _Queries.read(tokens, analyzer, self._numbers[0])
        table = self._codes
        parts: list[tuple[Ints, Ints, Floats]] = []
        for kind, rows, codes, shares in queries.coded(self._frequent, self._numbers[1], frequencies, self.n_texts):
            feature_codes, features = table[kind]
            entries = np.searchsorted(feature_codes, codes)
            entries[entries == len(feature_codes)] = 0
            is_feature = feature_codes[entries] == codes if len(feature_codes) else np.zeros(len(codes), dtype=bool)
            parts.append((rows[is_feature], features[entries[is_feature]], shares[is_feature]))
        row, column, share = map(np.concatenate, zip(*parts, strict=True))
        shape = len(queries.counts), len(self)
        matrix = sparse.csr_matrix((share.astype(np.float32), (row, column)), shape)
        return QueryTerms(queries.named_terms(), queries.counts, queries.offsets, matrix)

    @cached_property
    def _numbers(self) -> tuple[dict[str, int], dict[str, int]]:
        """The numbers of the words, and those of the terms, that features are about."""
        numbers = []
        for kinds in (_KINDS_ABOUT_WORDS, (TERM,)):
            words = (self.words[feature] for feature in np.flatnonzero(np.isin(self.kinds, kinds)).tolist())
            numbers.append({word: number for number, word in enumerate(dict.fromkeys(words))})
        return numbers[0], numbers[1]

    @cached_property
    def _frequent(self) -> list[int]:
        return sorted({self._numbers[0][self.words[feature]] for feature in np.flatnonzero(self.kinds == DISTANCE)})

    @cached_property
    def _codes(self) -> list[tuple[Ints, Ints]]:
        """The codes of the features of each kind, ascending, and the numbers of these features."""
        codes_by_kind = []
        for kind in range(len(KINDS)):
            features = np.flatnonzero(self.kinds == kind)
            numbers = self._numbers[kind == TERM]
            about = np.array([numbers.get(self.words[feature], 0) for feature in features], dtype=np.int64)
            codes = about * _CODES_PER_WORD + self.values[features]
            order = np.argsort(codes)
            codes_by_kind.append((codes[order], features[order]))
        return codes_by_kind


@dataclass(frozen=True, eq=False)
class _Queries:
    """The words of queries and the occurrences of terms in them, by number."""

    words: Ints  # (n_words,) -1 for a word without a number
    ends: Ints  # (m + 1,) where the words of each query begin
    terms: dict[str, int]
    position: Ints  # (n_occurrences,) the row in ``words`` of each occurrence of a term
    is_part: Ints  # (n_occurrences,) 1 for a part of a compound
    row: Ints  # (n_occurrences,) the row in ``term`` of each occurrence
    term: Ints  # (n,) number of each distinct term of each query
    counts: Ints  # (n,) its occurrences in the query
    offsets: Ints  # (m + 1,) where the terms of each query begin

    @classmethod
    def read(cls, tokens: Tokens, analyzer: Analyzer, numbers: Mapping[str, int]) -> _Queries:
        distinct = dict.fromkeys(chain.from_iterable(tokens))
        with_terms = [token for token in distinct if analyzer.is_word(token)]
        terms: dict[str, int] = {}
        terms_of: dict[str, list[int]] = {token: [] for token in distinct}
        terms_of.update(zip(with_terms, analyzer.numbered_words(with_terms, terms), strict=True))
        terms_by_word = [terms_of[token] for token in chain.from_iterable(tokens)]
        n_terms = np.array([len(word_terms) for word_terms in terms_by_word], dtype=np.int64)
        ends = indptr_from_counts([len(words) for words in tokens])
        position = np.repeat(np.arange(len(terms_by_word)), n_terms)
        is_part = (np.arange(len(position)) > indptr_from_counts(n_terms)[position]).astype(np.int64)
        query = np.searchsorted(ends, position, side="right") - 1
        all_terms = np.array(list(chain.from_iterable(terms_by_word)), dtype=np.int64)
        keys = query * max(1, len(terms)) + all_terms
        _, firsts, row, counts = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)
        order = np.argsort(firsts)
        ranks = np.empty_like(order)
        ranks[order] = np.arange(len(order))
        offsets = np.searchsorted(query[firsts[order]], np.arange(len(tokens) + 1))
        words = np.array([numbers.get(word, -1) for word in chain.from_iterable(tokens)], dtype=np.int64)
        term = all_terms[firsts[order]]
        return cls(words, ends, terms, position, is_part, ranks[row], term, counts[order], offsets)

    def named_terms(self) -> list[list[str]]:
        names = list(self.terms)
        return [
            [names[number] for number in self.term[start:end]]
            for start, end in zip(self.offsets[:-1].tolist(), self.offsets[1:].tolist(), strict=True)
        ]

    def coded(
        self, frequent: Sequence[int], terms: Mapping[str, int], frequencies: Frequencies, n_texts: int
    ) -> Iterator[tuple[int, Ints, Ints, Any]]:
        """Yield a kind of features with the row, the code and the share of each; a code below 0 stands for no feature.

        ``frequent`` are the words from which the distance is a feature.
        """
        query = np.searchsorted(self.ends, self.position, side="right") - 1
        start, end = self.ends[query], self.ends[query + 1]
        share = 1 / self.counts[self.row]
        for kind, offset in _WORD_OFFSETS.items():
            neighbour = self.position + offset
            inside = (neighbour >= start) & (neighbour < end)
            words = self.words[np.where(inside, neighbour, 0)]
            yield kind, self.row, np.where(inside & (words >= 0), words * _CODES_PER_WORD, -1), share
        for word in frequent:
            distance = _distance(np.flatnonzero(self.words == word), self.position, start, end)
            value = _range(np.abs(distance)) + np.where(distance < 0, 0, len(_DISTANCE_BOUNDS) + 1)
            yield DISTANCE, self.row, np.where(distance == 0, -1, word * _CODES_PER_WORD + value), share
        yield START, self.row, _range(self.position - start + 1), share
        yield END, self.row, _range(end - self.position), share
        yield TENTH, self.row, (self.position - start) * 10 // (end - start), share
        yield PART, self.row, self.is_part, share
        names, rows = list(self.terms), np.arange(len(self.term))
        once = np.ones(len(rows))
        numbers = np.array([terms.get(name, -1) for name in names], dtype=np.int64)[self.term]
        yield TERM, rows, np.where(numbers < 0, -1, numbers * _CODES_PER_WORD), once
        rarity = np.log(n_texts / np.clip(frequencies(names), 1, n_texts))
        ranges = np.minimum(rarity * _RARITY_RANGES_PER_E, _CODES_PER_WORD - 1).astype(np.int64)
        yield RARITY, rows, ranges[self.term], once
        yield COUNT, rows, np.minimum(self.counts, 6), once
        lengths = np.diff(self.offsets)
        yield LENGTH, rows, np.log2(np.repeat(lengths, lengths)).astype(np.int64), once


def _range(distances: Ints) -> Ints:
    return np.searchsorted(_DISTANCE_BOUNDS, distances)


def _distance(words: Ints, positions: Ints, start: Ints, end: Ints) -> Ints:
    """Return the distance (n,) from each position to the nearest word, negative if the word comes before it.

    ``words`` are ascending positions, too. Words before ``start`` or from ``end`` on do not count, nor does a word at
    the position itself; the distance is 0 if no word is left.

    >>> _distance(np.array([1, 5]), np.array([1, 2, 4]), np.zeros(3, dtype=int), np.array([4, 9, 9])).tolist()
    [0, -1, 1]
    """
    padded = np.concatenate(([-1], words, [np.iinfo(np.int64).max // 2]))
    before = padded[np.searchsorted(words, positions)]
    after = padded[np.searchsorted(words, positions, side="right") + 1]
    none = np.iinfo(np.int64).max // 4
    back = np.where((before >= start) & (before >= 0), positions - before, none)
    forth = np.where(after < end, after - positions, none)
    nearest = np.where(back <= forth, -back, forth)
    return np.where(np.minimum(back, forth) == none, 0, nearest)
