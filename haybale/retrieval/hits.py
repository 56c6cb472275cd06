"""Hits: the passages of each query row with their scores, best first; and their selection.

Hits are always in the same total order: higher scores first, among equal scores the lower number. So results do not
depend on tiles, threads or backend, although equal scores are frequent (statutes repeat themselves).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haybale.device import device_of, to_numpy
from haybale.errors import InputError
from haybale.vectors import Floats, array_namespace

Ints = NDArray[np.int64]
NO_PASSAGE = -1


@dataclass(frozen=True)
class Hits:
    """Passage numbers with their scores, a row for each query, best first; NumPy arrays, or CuPy arrays on a device.

    Parameters
    ----------
    passages : (m, k) int64
        Padded with -1.
    scores : (m, k) float32
        Padded with -inf.
    """

    passages: Ints
    scores: Floats

    def __post_init__(self) -> None:
        if self.passages.shape != self.scores.shape or self.passages.ndim != 2:
            raise InputError(f"hits: shapes {self.passages.shape} and {self.scores.shape} differ")
        if device_of(self.passages) != device_of(self.scores):
            raise InputError("hits: passages and scores must both be NumPy or both be CuPy arrays")

    def __len__(self) -> int:
        return len(self.passages)

    def to_numpy(self) -> Hits:
        """Return the hits as NumPy arrays."""
        return Hits(to_numpy(self.passages), to_numpy(self.scores))

    def top(self, k: int) -> Hits:
        """Return the first k of each row."""
        return Hits(self.passages[:, :k], self.scores[:, :k])

    def flat(self) -> tuple[Ints, Ints, Ints, Floats]:
        """Return ``(query row, rank from 1, passage, score)`` without padding, each (n_hits,)."""
        with device_of(self.passages).current():
            rows, columns = (self.passages != NO_PASSAGE).nonzero()
            return rows, columns + 1, self.passages[rows, columns], self.scores[rows, columns]


def select(scores: Any, k: int, numbers: Any = None) -> tuple[Any, Any]:
    """Return the k best of each row in the total order: ``(numbers, scores)``, each (m, min(k, n)).

    ``scores`` (m, n) are float32; ``numbers`` (m, n), below 2^32, are the numbers of their columns (default: 0..n-1).
    Scores of -inf get the number -1.

    >>> select(np.array([[0.5, 0.9, 0.5, 0.5]], dtype=np.float32), 3)
    (array([[1, 0, 2]]), array([[0.9, 0.5, 0.5]], dtype=float32))
    """
    xp = array_namespace(scores)
    if numbers is None:
        numbers = xp.broadcast_to(xp.arange(scores.shape[1]), scores.shape)
    # Sort score and number as one integer key. The bits of a float32, read as int32, rise with it if it is positive and
    # fall if it is negative. -0.0 + 0.0 is 0.0.
    bits = (xp.ascontiguousarray(scores, dtype=np.float32) + np.float32(0)).view(np.int32)
    rising = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    keys = ((~rising).astype(np.int64) << 32) | (numbers & 0xFFFFFFFF)
    if k < keys.shape[1]:
        keys = xp.partition(keys, k - 1, axis=1)[:, :k]
    keys = xp.sort(keys, axis=1)
    rising = ~(keys >> 32).astype(np.int32)
    best = (rising ^ ((rising >> 31) & 0x7FFFFFFF)).view(np.float32)
    return xp.where(xp.isneginf(best), NO_PASSAGE, keys & 0xFFFFFFFF), best


def pool(*parts: Hits) -> Hits:
    """Return the union of several searches for the same queries, by the best reciprocal rank, as NumPy arrays.

    Parameters
    ----------
    *parts : Hits

    Examples
    --------
    >>> a = Hits(np.array([[4, 2]]), np.array([[9.0, 8.0]], dtype=np.float32))
    >>> b = Hits(np.array([[2, 7]]), np.array([[0.3, 0.2]], dtype=np.float32))
    >>> pool(a, b).passages
    array([[2, 4, 7]])
    """
    if len({len(part) for part in parts}) != 1:
        raise InputError(f"pool: hits of different numbers of queries: {[len(part) for part in parts]}")
    flats = [part.to_numpy().flat() for part in parts]
    rows, ranks, passages = (np.concatenate([flat[column] for flat in flats]) for column in range(3))
    order = np.lexsort((passages, ranks, rows))
    rows, ranks, passages = rows[order], ranks[order], passages[order]
    # The first occurrence of a (row, passage) pair is its best rank.
    _, first = np.unique(rows * (passages.max(initial=0) + 1) + passages, return_index=True)
    first.sort()
    return from_flat(len(parts[0]), rows[first], passages[first], (1 / ranks[first]).astype(np.float32))


def from_flat(m: int, rows: NDArray[Any], passages: NDArray[Any], scores: Floats) -> Hits:
    """Make hits of m query rows from flat columns that are sorted by row and, within a row, best first."""
    counts = np.bincount(rows, minlength=m)
    width = int(counts.max(initial=0))
    column = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    table = np.full((m, width), NO_PASSAGE, dtype=np.int64)
    values = np.full((m, width), -np.inf, dtype=np.float32)
    table[rows, column] = passages
    values[rows, column] = scores
    return Hits(table, values)
