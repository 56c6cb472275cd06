"""The hits of a search: the best passages of each query, with their scores.

Hits are in a total order: by falling score, then by document id, then by position in the document (:class:`IdOrder`).
Equal scores are frequent, for example in statutes that repeat themselves. The order makes results independent of the
order of documents, and of tiles, threads and backends.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from haybale.device import CPU, device_of, to_numpy
from haybale.device_kernels import KernelFile, blocks_per_row
from haybale.errors import InputError
from haybale.vectors import Floats

if TYPE_CHECKING:
    from haybale.retrieval.id_order import IdOrder

Ints = NDArray[np.int64]
NO_PASSAGE = -1
_KERNELS = KernelFile(Path(__file__).with_name("hits.cu"))
_THREADS_PER_BLOCK = 256


@dataclass(frozen=True)
class Hits:
    """Passage numbers with their scores, one row for each query, best first; NumPy or CuPy arrays.

    Parameters
    ----------
    passages : (m, k) int64
        Rows with fewer hits are padded with -1.
    scores : (m, k) float32
        Padded with -inf. InputError is raised if shapes or devices differ.
    """

    passages: Ints
    scores: Floats

    def __post_init__(self) -> None:
        if self.passages.shape != self.scores.shape or self.passages.ndim != 2:
            shapes = f"{self.passages.shape} and {self.scores.shape}"
            raise InputError(f"hits: passages and scores must be matrices of one shape, found {shapes}")
        devices = device_of(self.passages), device_of(self.scores)
        if devices[0] != devices[1]:
            raise InputError(f"hits: passages and scores must be on one device, found {devices[0]} and {devices[1]}")

    def __len__(self) -> int:
        return len(self.passages)

    def to_numpy(self) -> Hits:
        """Return the hits as NumPy arrays."""
        return Hits(to_numpy(self.passages), to_numpy(self.scores))

    def top(self, k: int) -> Hits:
        """Return the first k hits of each row."""
        return Hits(self.passages[:, :k], self.scores[:, :k])

    def flat(self) -> tuple[Ints, Ints, Ints, Floats]:
        """Return ``(query row, rank from 1, passage, score)`` without padding, each (n_hits,)."""
        with device_of(self.passages).current():
            rows, columns = (self.passages != NO_PASSAGE).nonzero()
            return rows, columns + 1, self.passages[rows, columns], self.scores[rows, columns]


def select(scores: Any, k: int, numbers: Any = None, order: IdOrder | None = None) -> tuple[Any, Any]:
    """Return the k best columns of each row in the total order: ``(numbers, scores)``, each (m, min(k, n)).

    ``scores`` (m, n) are float32. ``numbers`` (m, n), below 2^32, are the passages of the columns; the default is
    0..n-1. Without ``order``, equal scores are in the order of the numbers. A score of -inf gets the number -1.

    >>> select(np.array([[0.5, 0.9, 0.5, 0.5]], dtype=np.float32), 3)
    (array([[1, 0, 2]]), array([[0.9, 0.5, 0.5]], dtype=float32))
    """
    if not device_of(scores).is_cpu:
        return _select_on_device(scores, min(k, int(scores.shape[1])), numbers, order)
    if numbers is None:
        numbers = np.broadcast_to(np.arange(scores.shape[1]), scores.shape)
    best_numbers, best_scores = _select(scores, k + 1, numbers)  # one more, to see whether the last is tied
    if order is not None:
        equal = (best_scores[:, 1:] == best_scores[:, :-1]) & ~np.isneginf(best_scores[:, 1:])
        tied = np.flatnonzero(equal.any(axis=1))
        id_order = order.on(CPU) if len(tied) else None
        if id_order is not None:
            positions, passages_by_id = id_order
            best_positions, best_scores[tied] = _select(scores[tied], k + 1, positions[numbers[tied]])
            best_passages = passages_by_id[best_positions].astype(np.int64)
            best_numbers[tied] = np.where(best_positions == NO_PASSAGE, NO_PASSAGE, best_passages)
    return best_numbers[:, :k], best_scores[:, :k]


def _select_on_device(scores: Any, k: int, numbers: Any, order: IdOrder | None) -> tuple[Any, Any]:
    """Return the k best columns, as :func:`select` does; k is at most n."""
    device, (m, n) = device_of(scores), scores.shape
    with device.current():
        xp = device.xp
        best_numbers, best_scores = xp.empty((m, k), dtype=np.int64), xp.empty((m, k), dtype=np.float32)
        if not (m and k):
            return best_numbers, best_scores
        scores, tied = xp.ascontiguousarray(scores, dtype=np.float32), xp.zeros(m, dtype=np.int32)
        unused = xp.empty(1, dtype=np.int64), xp.empty(1, dtype=np.uint32)
        device_numbers = unused[0] if numbers is None else xp.ascontiguousarray(numbers, dtype=np.int64)
        of_numbers = device_numbers, np.int32(numbers is not None)

        def run(rows: Any, id_order: tuple[Any, Any] | None) -> None:
            n_rows = m if rows is None else len(rows)
            keys = xp.empty((n_rows, n), dtype=np.int64)
            parts = blocks_per_row(n_rows, n, _THREADS_PER_BLOCK)
            of_rows = tied if rows is None else xp.asarray(rows.astype(np.int32)), np.int32(rows is not None)
            positions, passages_by_id = (unused[1], unused[1]) if id_order is None else id_order
            has_ids = np.int32(id_order is not None)
            columns: Any = scores, *of_numbers, *of_rows, positions, has_ids, np.int64(n), np.int32(parts), keys
            _KERNELS.launch(device, "make_keys", n_rows * parts, _THREADS_PER_BLOCK, *columns)
            keys.sort(axis=1)
            sizes, best = (np.int64(n), np.int32(k)), (best_numbers, best_scores)
            columns = keys, *sizes, *of_rows, passages_by_id, has_ids, *best, tied
            _KERNELS.launch(device, "read_keys", n_rows, _THREADS_PER_BLOCK, *columns)

        run(None, None)
        if order is not None:
            rows = np.flatnonzero(to_numpy(tied))
            id_order = order.on(device) if len(rows) else None
            if id_order is not None:
                run(rows, id_order)
        return best_numbers, best_scores


def _select(scores: Any, k: int, numbers: Any) -> tuple[Any, Any]:
    """Return the k best columns by falling score, then by rising number."""
    # Sort by one integer key of score and number. The bits of a positive float32, read as int32, rise with its value;
    # those of a negative one fall. Adding 0.0 turns -0.0 into 0.0.
    bits = (np.ascontiguousarray(scores, dtype=np.float32) + np.float32(0)).view(np.int32)
    rising = bits ^ ((bits >> 31) & 0x7FFFFFFF)
    keys = ((~rising).astype(np.int64) << 32) | (numbers & 0xFFFFFFFF)
    if k < keys.shape[1]:
        keys = np.partition(keys, k - 1, axis=1)[:, :k]
    keys = np.sort(keys, axis=1)
    rising = ~(keys >> 32).astype(np.int32)
    best = (rising ^ ((rising >> 31) & 0x7FFFFFFF)).view(np.float32)
    return np.where(np.isneginf(best), NO_PASSAGE, keys & 0xFFFFFFFF), best


def from_flat(m: int, rows: NDArray[Any], passages: NDArray[Any], scores: Floats) -> Hits:
    """Make hits of m queries from flat columns, which are sorted by query row and, within a row, best first."""
    counts = np.bincount(rows, minlength=m)
    width = int(counts.max(initial=0))
    column = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    table = np.full((m, width), NO_PASSAGE, dtype=np.int64)
    values = np.full((m, width), -np.inf, dtype=np.float32)
    table[rows, column] = passages
    values[rows, column] = scores
    return Hits(table, values)
