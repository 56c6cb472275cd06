"""The k best of each row of a wide matrix that comes tile by tile, without sorting the tiles.

Each row keeps a buffer of candidates. A tile is read once, and what is above the row's threshold, the k-th best score
it had when it was last cut, is appended; once a buffer has seen some tiles, that is little. Full buffers are sorted and
cut to k, which raises the threshold. (Johnson, Douze & Jégou 2017, "Billion-scale similarity search with GPUs", §4,
keep the queues in registers, which limits k; buffers in memory do not.)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from haybale import cuda
from haybale.vectors import array_namespace

_THREADS = 256  # of a block, one a column
_BLOCKS = 128  # for a row; more columns than they have threads are taken in turns


class Kept:
    """Buffers of (score, number) for ``rows`` rows of which the ``k`` best are wanted, on the device of ``xp``.

    At equal scores any may be kept: whoever asks settles ties by asking for more.
    """

    def __init__(self, rows: int, k: int, xp: Any, capacity: int | None = None) -> None:
        self.k = k
        self.capacity = max(k + 1, capacity or 4 * k + 1024)
        self.xp = xp
        self.scores = xp.full((rows, self.capacity), -np.inf, dtype=np.float32)
        self.numbers = xp.full((rows, self.capacity), -1, dtype=np.int64)
        self.counts = xp.zeros(rows, dtype=np.int32)
        self.thresholds = xp.full(rows, -np.inf, dtype=np.float32)
        self._piece = self.capacity  # columns to take at once: few while there is no threshold

    @staticmethod
    def bytes_per_row(k: int) -> int:
        """Memory of a row, of its buffer and of what cutting it takes."""
        return 40 * (4 * k + 1024)  # 12 a place for the buffer, the rest for sorting it

    def add(self, scores: Any, first: int) -> None:
        """Columns ``first``, ``first`` + 1, … of the matrix: ``scores`` (rows, columns) float32, C-ordered."""
        width, start = int(scores.shape[1]), 0
        while start < width:
            stop = min(start + self._piece, width)
            before = self.counts.copy()
            append(scores, first, start, stop, self.thresholds, self.counts, self.scores, self.numbers)
            fullest = int(self.counts.max())
            if fullest > self.capacity:
                # Some were lost. Again with higher thresholds and fewer columns; capacity - k of them always fit.
                self.counts = before
                self._cut()
                self._piece = max(self.capacity - self.k, (stop - start) // 2)
                continue
            if 2 * fullest > self.capacity + self.k:
                self._cut()
            start = stop
            self._piece = min(2 * self._piece, 2**30)

    def best(self) -> tuple[Any, Any]:
        """``(numbers, scores)``, (rows, k) each, in any order; -1 and -inf where there were fewer columns."""
        self._cut()
        scores = self.scores[:, : self.k].copy()
        return self.xp.where(self.xp.isneginf(scores), -1, self.numbers[:, : self.k]), scores

    def _cut(self) -> None:
        xp, k = self.xp, self.k
        places = xp.arange(self.capacity)
        scores = xp.where(places[None, :] < self.counts[:, None], self.scores, np.float32(-np.inf))
        # A full sort: CuPy's argpartition is one too.
        order = xp.argsort(-scores, axis=1)[:, :k]
        self.scores[:, :k] = xp.take_along_axis(scores, order, axis=1)
        self.numbers[:, :k] = xp.take_along_axis(self.numbers, order, axis=1)
        self.counts = xp.minimum(self.counts, np.int32(k))
        # With fewer than k so far the k-th is -inf, above which everything is.
        self.thresholds = self.scores[:, k - 1].copy()


def append(
    scores: Any, first: int, start: int, stop: int, thresholds: Any, counts: Any, kept_scores: Any, kept_numbers: Any
) -> None:
    """Append columns start..stop of ``scores`` that are above their row's threshold, as number ``first`` + column.

    ``counts`` (rows,) int32 counts also what found no place in ``kept_scores`` and ``kept_numbers`` (rows, capacity).
    """
    if array_namespace(scores) is np:
        _append_numpy(scores, first, start, stop, thresholds, counts, kept_scores, kept_numbers)
        return
    from haybale.retrieval.exact.cuda_kernels import append_better

    blocks = (len(scores), min(_BLOCKS, -(-(stop - start) // _THREADS)))
    cuda.launch(
        append_better, blocks, _THREADS, scores, first, start, stop, thresholds, counts, kept_scores, kept_numbers
    )


def _append_numpy(
    scores: Any, first: int, start: int, stop: int, thresholds: Any, counts: Any, kept_scores: Any, kept_numbers: Any
) -> None:
    """The kernel's twin."""
    capacity = kept_scores.shape[1]
    for row in range(len(scores)):
        columns = start + np.flatnonzero(scores[row, start:stop] > thresholds[row])
        begin = int(counts[row])
        counts[row] += len(columns)
        columns = columns[: max(0, capacity - begin)]
        kept_scores[row, begin : begin + len(columns)] = scores[row, columns]
        kept_numbers[row, begin : begin + len(columns)] = first + columns
