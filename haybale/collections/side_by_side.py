"""Things that stand side by side by owner, as passages do by document: some of them, or more of them behind."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from haybale.errors import InputError

_SHORT = 2**16  # strings: a chunk of fewer may be copied into a longer one


def strings_at(strings: pa.ChunkedArray, numbers: NDArray[np.int64]) -> pa.ChunkedArray:
    """The strings at those numbers, as a column; where they are side by side, nothing is copied."""
    first = int(numbers[0]) if len(numbers) else 0
    if np.array_equal(numbers, np.arange(first, first + len(numbers))):
        return strings.slice(first, len(numbers))
    return strings.take(pa.array(numbers))


def joined_strings(first: pa.ChunkedArray, second: pa.ChunkedArray) -> pa.ChunkedArray:
    """One column behind the other.

    A short chunk that follows one no longer than itself becomes one with it, so a column that grows by a string at a
    time has few chunks, and none of its strings is copied often.

    >>> one = pa.chunked_array([["a"]], type=pa.large_string())
    >>> [len(chunk) for chunk in joined_strings(joined_strings(one, one), one).chunks]
    [2, 1]
    """
    chunks = list(first.chunks)
    for chunk in second.chunks:
        chunks.append(chunk)
        while len(chunks) > 1 and len(chunks[-2]) <= len(chunks[-1]) < _SHORT:
            chunks[-2:] = [pa.concat_arrays(chunks[-2:])]
    return pa.chunked_array(chunks, type=pa.large_string())


def joined_offsets(first: NDArray[np.int64], second: NDArray[np.int64]) -> NDArray[np.int64]:
    """Where things begin that stand side by side, those of ``second`` behind those of ``first``.

    >>> joined_offsets(np.array([0, 3]), np.array([0, 1, 2]))
    array([0, 3, 4, 5])
    """
    return np.concatenate([first, second[1:] + first[-1]])


def members(offsets: NDArray[np.int64], owners: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """What belongs to some owners, of things side by side: their numbers, and where each owner's begin among them.

    >>> members(np.array([0, 2, 2, 5]), np.array([0, 2]))
    (array([0, 1, 2, 3, 4]), array([0, 2, 5]))
    """
    counts = np.diff(offsets)[owners]
    new = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
    return np.repeat(offsets[owners] - new[:-1], counts) + np.arange(new[-1]), new


def rising_numbers(numbers: Sequence[int] | NDArray[np.int64], n: int, kind: str) -> NDArray[np.int64]:
    """(m,) numbers below n, each above the one before; others are refused.

    >>> rising_numbers([3, 1], 5, "document")
    Traceback (most recent call last):
    haybale.errors.InputError: document numbers must rise, found 1 after 3
    """
    chosen = numbers_below(numbers, n, kind)
    falls = np.flatnonzero(np.diff(chosen) <= 0)
    if len(falls):
        first = int(falls[0])
        raise InputError(f"{kind} numbers must rise, found {chosen[first + 1]} after {chosen[first]}")
    return chosen


def numbers_below(numbers: Sequence[int] | NDArray[np.int64], n: int, kind: str) -> NDArray[np.int64]:
    """(m,) numbers from 0 to n - 1, in any order; others are refused."""
    chosen = np.asarray(numbers)
    if chosen.ndim != 1 or (chosen.dtype.kind not in "iu" and len(chosen)):
        raise InputError(f"expected {kind} numbers (n,), found {chosen.dtype} {chosen.shape}")
    chosen = chosen.astype(np.int64)
    if len(chosen) and not 0 <= chosen.min() <= chosen.max() < n:
        raise InputError(f"{kind} numbers lie between 0 and {n - 1}, found {chosen.min()} and {chosen.max()}")
    return chosen
