"""Naive Bayes over the words of the judged rows, which learns and forgets one row at a time."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray
from scipy import sparse

from haybale.collections.collection import Ints
from haybale.vectors import Floats

_SMOOTHING = 1.0  # is added to the count of every word
_RATIO = 1.2  # the weight of all relevant rows together, for a weight of 1 of all irrelevant ones


class NaiveBayes:
    """Multinomial naive Bayes; of a row, it counts which words occur, not how often.

    See McCallum and Nigam, "A comparison of event models for naive Bayes text classification", AAAI workshop 1998.

    Parameters
    ----------
    n_words : int
        The size of the vocabulary. Other columns are ignored.
    """

    def __init__(self, n_words: int) -> None:
        self._counts = np.zeros((2, n_words))  # of irrelevant and relevant rows
        self._n = [0, 0]

    @property
    def knows(self) -> bool:
        """Whether there is a relevant row."""
        return self._n[1] > 0

    def add(self, columns: Ints, relevant: bool, times: int = 1) -> None:
        """Learn a row, given the columns of its words; ``times=-1`` forgets it."""
        label = int(relevant)
        self._counts[label, columns[columns < self._counts.shape[1]]] += times
        self._n[label] += times

    def predict(self, matrix: sparse.csr_matrix) -> Floats:
        """Return the logarithm of the odds that rows are relevant, (n_rows,), up to a constant.

        The entries of the CSR matrix are only asked where they are; the columns of a row must rise.
        """
        n_others, n_relevant = self._n
        weights = np.array([n_relevant / (_RATIO * max(n_others, 1)), 1.0])
        weights *= (n_others + n_relevant) / max(float(weights @ self._n), 1e-9)
        counts = self._counts * weights[:, None] + _SMOOTHING
        logs: NDArray[np.float64] = np.log(counts / counts.sum(axis=1, keepdims=True))
        return _sum_words(matrix.indptr, matrix.indices, (logs[1] - logs[0]).astype(np.float32))


@njit(nogil=True, cache=True)
def _sum_words(indptr: Ints, indices: Ints, weights: Floats) -> Floats:  # pragma: no cover - compiled
    """Return the sum of the weights of each row's columns."""
    out = np.zeros(len(indptr) - 1, dtype=np.float32)
    n_words = len(weights)
    for row in range(len(out)):
        total = np.float32(0)
        for place in range(indptr[row], indptr[row + 1]):
            if indices[place] >= n_words:
                break
            total += weights[indices[place]]
        out[row] = total
    return out
