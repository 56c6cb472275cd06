"""Group queries that are one question for a ranker that learns: what is learned from one must not be tested on another.

Two queries belong together

- if they were taken from the same document;
- if they have the same words, whatever their order, case, punctuation and white space;
- if they are nearly the same: the cosine of their term counts is at least :data:`NEAR`, they differ in one term of
  each, or in 2 % of their terms, and short ones do not have different numbers.

Queries that are linked through others belong together, too. Query logs hold the same question many times. Without
groups, a ranker that is tested on one of them has learned the answer from another, and looks far better than it will be
on new questions.

Both limits were chosen on the queries of six collections. No query of irled and peps is nearly the same as another one,
4 of 3,636 of obliqa-mp, 95 of 24,609 of gesetze, 66 of 1,109 of scifact, whose authors made pairs of claims such as
"increases" and "reduces", and 131 of 3,042 of pydocs, whose docstrings have aliases. By the cosine alone, 465 of pydocs
would be, many of which ask something else. Terms are counted, and vectors of the engine's encoder are not compared: TF-
IDF drops words that no document has, and cosines of neural encoders have no common scale.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from haybale.normalisation import normalise

if TYPE_CHECKING:
    from scipy import sparse

NEAR = 0.95  # the least cosine of two queries that are nearly the same
FEW_TERMS, FEW_SHARE = 2, 0.02  # terms that only one of two queries has: the number, and the share of all their terms
MAX_WORDS = 30  # words of a text that its numbers distinguish; longer texts may be versions of one document
_PAIRS_PER_BLOCK = 2**18  # pairs whose cosines are computed at once, about
_ROUNDING = 1e-9  # tolerance of squares and cosines
_SYMBOLS = "#&@%*/\\"  # punctuation in Unicode, but these tell C# from C
_WORD = re.compile(r"\S+")

Ints = NDArray[np.int64]


def words_key(text: str) -> str:
    """Return a text that is equal for texts with the same words, in any order, case, punctuation and white space.

    A text without a word is its own key.

    >>> words_key("What is a List?") == words_key("a list,  what IS…")
    True
    >>> words_key("a list in C++") == words_key("a list in C#")
    False
    """
    folded = normalise(normalise(text).casefold())
    words = _WORD.findall(folded.translate(_Replaced()))
    return " ".join(sorted(words)) or folded.strip()


class _Replaced(dict[int, str | None]):
    """What each character becomes in a key: punctuation is white space, an apostrophe is dropped."""

    def __missing__(self, code: int) -> str | None:
        self[code] = _replacement(code)
        return self[code]


@lru_cache(maxsize=2**16)
def _replacement(code: int) -> str | None:
    character = chr(code)
    if character in "'’`´":
        return None
    is_punctuation = unicodedata.category(character)[0] == "P" and character not in _SYMBOLS and character != "_"
    return " " if is_punctuation else character


def same_words(texts: Iterable[str]) -> Ints:
    """Return a number for each text (m,), which is equal for texts with the same words.

    >>> same_words(["Dogs bark.", "cats", "bark: dogs!"]).tolist()
    [0, 1, 0]
    """
    numbers: dict[str, int] = {}
    return np.array([numbers.setdefault(words_key(text), len(numbers)) for text in texts], dtype=np.int64)


def numbers_of(text: str) -> frozenset[str]:
    """Return the words of a short text that have a digit; none of a text of more than :data:`MAX_WORDS` words.

    >>> sorted(numbers_of("Does § 5 apply since 2019?"))
    ['2019', '5']
    """
    words = words_key(text).split(" ")
    return frozenset(word for word in words if any(map(str.isdigit, word))) if len(words) <= MAX_WORDS else frozenset()


def have_other_numbers(one: frozenset[str], other: frozenset[str]) -> bool:
    """Return whether each of two texts has a number that the other lacks: § 5 is not § 6.

    >>> have_other_numbers(numbers_of("the end of § 5"), numbers_of("the end of § 6"))
    True
    >>> have_other_numbers(numbers_of("the end of § 5"), numbers_of("the end"))
    False
    """
    return bool(one - other) and bool(other - one)


def term_counts(numbers: Iterable[Sequence[int]]) -> sparse.csr_matrix:
    """Return how often each query (m,) has each term, given the numbers of its terms.

    >>> term_counts([[0, 1, 0], [], [2]]).toarray().tolist()
    [[2.0, 1.0, 0.0], [0.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
    """
    from scipy import sparse

    of_queries = [np.asarray(terms, dtype=np.int64) for terms in numbers]
    columns = np.concatenate([np.empty(0, dtype=np.int64), *of_queries])
    row = np.repeat(np.arange(len(of_queries)), list(map(len, of_queries)))
    shape = len(of_queries), int(columns.max(initial=-1)) + 1
    return sparse.coo_matrix((np.ones(len(columns), dtype=np.float32), (row, columns)), shape=shape).tocsr()


def near_pairs(vectors: sparse.csr_matrix, threshold: float = NEAR) -> Ints:
    """Return the pairs (n, 2) of rows with a cosine of at least ``threshold``, the smaller number first.

    The search is exact, and reads few pairs. If two vectors of length 1 have no column of a part of the first vector in
    common, their cosine is at most the length of the rest of the first one. So each row is only compared with rows that
    have one of its rarest columns: without them, its length is below the threshold (Bayardo, Ma & Srikant, "Scaling Up
    All Pairs Similarity Search", WWW 2007).

    >>> from scipy import sparse
    >>> near_pairs(sparse.csr_matrix([[1.0, 1, 0], [0, 1, 1], [2, 2, 0], [0, 0, 0]])).tolist()
    [[0, 2]]
    """
    from scipy import sparse

    rows = sparse.csr_matrix(vectors, dtype=np.float64, copy=True)
    rows.eliminate_zeros()
    lengths = np.sqrt(np.asarray(rows.multiply(rows).sum(axis=1)).ravel())
    row_of = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
    rows.data /= lengths[row_of]
    shape, n_rows_of = rows.shape, np.bincount(rows.indices, minlength=rows.shape[1])  # of each column
    order = np.lexsort((rows.indices, -n_rows_of[rows.indices], row_of))  # in each row, the most frequent column first
    sums = np.concatenate([[0.0], np.cumsum(rows.data[order] ** 2)])
    is_rare = np.empty(rows.nnz, dtype=bool)
    is_rare[order] = sums[1:] - sums[rows.indptr[:-1]][row_of] >= threshold**2 - _ROUNDING
    rare = sparse.csr_matrix((np.ones(int(is_rare.sum())), (row_of[is_rare], rows.indices[is_rare])), shape=shape)
    n_candidates = rare @ n_rows_of
    parts = [np.empty((0, 2), dtype=np.int64)]
    if 2 * n_candidates.sum() * rows.nnz > shape[0] * (n_rows_of.astype(np.float64) ** 2).sum():
        for start, end in _blocks(np.full(shape[0], shape[0])):  # long texts, which have many words in common
            products = (rows[start:end] @ rows.T).tocoo()
            near = (products.data >= threshold - _ROUNDING) & (products.row + start < products.col)
            parts.append(np.stack([products.row[near] + start, products.col[near]], axis=1).astype(np.int64))
        return np.unique(np.concatenate(parts), axis=0)
    columns = sparse.csr_matrix((np.ones(rows.nnz), rows.indices, rows.indptr), shape=shape).T.tocsr()
    for start, end in _blocks(n_candidates):
        candidates = (rare[start:end] @ columns).tocoo()
        beyond = candidates.row + start < candidates.col
        first, second = candidates.row[beyond].astype(np.int64) + start, candidates.col[beyond].astype(np.int64)
        cosines = np.asarray(rows[first].multiply(rows[second]).sum(axis=1)).ravel()
        near = cosines >= threshold - _ROUNDING
        parts.append(np.stack([first[near], second[near]], axis=1))
    return np.unique(np.concatenate(parts), axis=0)


def with_few_differences(counts: sparse.csr_matrix, pairs: Ints) -> Ints:
    """Return the pairs (n, 2) of rows of term counts that differ in one term of each, or in 2 % of their terms.

    >>> rows = term_counts([[0, 1, 2], [0, 1, 3], [0, 1, 1, 4, 5]])
    >>> with_few_differences(rows, np.array([[0, 1], [0, 2]])).tolist()
    [[0, 1]]
    """
    one, other = counts[pairs[:, 0]], counts[pairs[:, 1]]
    differences, totals = (np.asarray(per_term.sum(axis=1)).ravel() for per_term in (abs(one - other), one + other))
    few: Ints = pairs[differences <= np.maximum(FEW_TERMS, FEW_SHARE * totals)]
    return few


def _blocks(costs: NDArray[Any]) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each block of rows; the costs of a block sum to about ``_PAIRS_PER_BLOCK``."""
    starts = np.flatnonzero(np.diff(np.cumsum(costs) // _PAIRS_PER_BLOCK, prepend=-1))
    yield from pairwise([*starts.tolist(), len(costs)])


def joined_groups(numbers: Ints, labels: Sequence[Ints] = (), pairs: Ints | None = None) -> Ints:
    """Return a group for each query (m,): those with an equal number or label are linked, and so are pairs.

    Groups are numbered from 0 in the order of ``numbers``; a group is placed by its largest number.

    >>> joined_groups(np.array([-1, 4, -3, 2]), [np.array([7, 8, 7, 9])]).tolist()
    [0, 2, 0, 1]
    """
    from scipy import sparse
    from scipy.sparse.csgraph import connected_components

    n = len(numbers)
    links = [np.empty((0, 2), dtype=np.int64)] if pairs is None else [pairs]
    for values in (numbers, *labels):
        _, firsts, inverse = np.unique(values, return_index=True, return_inverse=True)
        links.append(np.stack([firsts[inverse], np.arange(n)], axis=1))
    one, other = np.concatenate(links).T
    graph: Any = sparse.coo_matrix((np.ones(len(one)), (one, other)), shape=(n, n))
    n_groups, group_of = connected_components(graph, directed=False)
    largest = np.full(n_groups, np.iinfo(np.int64).min)
    np.maximum.at(largest, group_of, numbers)
    return np.unique(largest[group_of], return_inverse=True)[1]
