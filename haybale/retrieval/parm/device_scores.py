"""Score documents on a CUDA device, by the kernels of ``device_scores.cu``, which are compiled together.

Hits are sorted by query, document and passage. Terms and sums are those of the CPU (:mod:`.formulas`): a score without
vectors has the same bits. A product of vectors is summed in another order, so it may differ in the last bit of float32.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from haybale.device import Device, device_of, to_device, to_numpy
from haybale.device_kernels import KernelFile, count_blocks
from haybale.retrieval.hits import Ints
from haybale.retrieval.parm.formulas import Array, Task
from haybale.retrieval.parm.kernels import Doubles

_KERNELS = KernelFile(Path(__file__).with_name("device_scores.cu"))
_THREADS = 256  # of a block
_WARP = 32  # threads
_MAX_BLOCKS = 2**16  # of a kernel that takes any number
_SHARED_BYTES = 8 * _THREADS  # a double for each thread
_HOW = {"products": 0, "minimum": 1, "maximum": 2}  # how the paragraphs of a query are reduced to one vector


@dataclass(frozen=True)
class DeviceScores:
    """Scores of the documents that some query documents retrieved, on a device, by rising query and document."""

    query: Array  # (n_cells,) int64
    document: Array  # (n_cells,) int64
    score: Array  # (n_cells,) float64
    order: Array  # (r · N,) positions of the hits, flat, sorted by query, document and passage
    starts: Array  # (n_cells + 1,) where the hits of each document begin in the order
    width: int  # N, the number of columns of the hits
    share: Array | None  # (r · N,) shares of hits, None if the score is not a sum over hits
    divisor: Array | None  # (n_cells,) which shares are still to be divided by

    def columns(self) -> tuple[Array, Array, Array]:
        """Return ``(query, document, score)``."""
        return self.query, self.document, self.score

    def hits_of(self, position: int) -> tuple[Ints, Ints, Doubles | None]:
        """Return ``(row, column, share)`` of the hits of one of :meth:`columns`, the share if the score is a sum."""
        start, end = to_numpy(self.starts[position : position + 2]).tolist()
        hits = np.sort(to_numpy(self.order[start:end]))
        rows, columns = np.divmod(hits, self.width)
        if self.share is None:
            return rows, columns, None
        divisor = 1 if self.divisor is None else float(self.divisor[position])
        return rows, columns, to_numpy(self.share)[hits] / divisor


def largest_passage(passages: Array) -> int:
    """Return the largest passage number of hits, -1 without any."""
    device, blocks = device_of(passages), _blocks(passages.size)
    with device.current():
        out = device.xp.empty(blocks, dtype=np.int64)
        arrays = device.xp.ascontiguousarray(passages, dtype=np.int64), np.int64(passages.size), out
        _KERNELS.launch(device, "largest_passages", blocks, _THREADS, *arrays, shared_bytes=_SHARED_BYTES)
        return int(to_numpy(out).max())


def score_on_device(task: Task, first: int, last: int) -> DeviceScores:
    """Score the documents that the query documents ``first:last`` retrieved; they have at least one paragraph."""
    return _Hits(task, first, last).scores()


class _Hits:
    """The sorted hits of some query documents, and the arrays that its kernels share."""

    def __init__(self, task: Task, first: int, last: int) -> None:
        self.task, self.first, self.n_queries = task, first, last - first
        self.device: Device = device_of(task.doc_of)
        self.xp: Any = self.device.xp
        self.rows, offsets, queries = task.rows(first, last)
        self.passages = self.xp.ascontiguousarray(task.hits.passages[self.rows], dtype=np.int64)
        self.hit_scores = self.xp.ascontiguousarray(task.hits.scores[self.rows], dtype=np.float32)
        self.offsets = to_device(offsets.astype(np.int64), self.device)
        self.doc_of, self.n_passages = task.doc_of, np.int64(len(task.doc_of))
        self.size, self.width = np.int64(self.passages.size), np.int64(self.passages.shape[1])
        self.keys = self._keys(to_device(queries.astype(np.int32), self.device))
        self.order = self.keys.argsort()

    def _launch(self, name: str, n: int, *arguments: Any) -> None:
        """Run a kernel whose threads or warps take n items in turn."""
        _KERNELS.launch(self.device, name, _blocks(n), _THREADS, *arguments)

    def _launch_blocks(self, name: str, blocks: int, *arguments: Any) -> None:
        """Run a kernel with a block of threads for each of its results."""
        _KERNELS.launch(self.device, name, blocks, _THREADS, *arguments, shared_bytes=_SHARED_BYTES)

    def _keys(self, queries: Array) -> Array:
        task, keys = self.task, self.xp.empty(int(self.size), dtype=np.int64)
        settings = self.n_passages, self.size, self.width, np.int32(task.aggregation.only_first)
        self._launch("make_keys", int(self.size), self.passages, queries, self.doc_of, *settings, keys)
        if task.occurrences == "best":
            numbers, sizes = self.xp.empty_like(keys), (np.int64(task.n_documents), self.size, self.width)
            self._launch("number_hits", int(self.size), self.passages, keys, self.doc_of, *sizes, numbers)
            numbers.sort()
            self._launch("keep_first_hits", int(self.size), numbers, *sizes, keys)
        return keys

    def scores(self) -> DeviceScores:
        """Score the documents."""
        xp, size, sorted_hits = self.xp, int(self.size), (self.keys, self.order)
        marks = xp.empty(size, dtype=np.int64)
        self._launch("mark_cells", size, *sorted_hits, self.doc_of, self.n_passages, self.size, marks)
        cells = marks.cumsum()
        n_cells = int(cells[-1])
        starts = xp.zeros(n_cells + 1, dtype=np.int64)
        query, document = xp.empty(n_cells, dtype=np.int64), xp.empty(n_cells, dtype=np.int64)
        score, share, divisor = xp.zeros(n_cells), None, None
        if n_cells:
            sizes = self.n_passages, np.int64(self.first), self.size, np.int64(n_cells)
            columns = starts, query, document
            self._launch("list_cells", size, *sorted_hits, cells, self.doc_of, *sizes, *columns)
            combine = self.task.aggregation.combine
            if combine == "largest":
                arrays = self.order, starts, self.hit_scores, np.int64(n_cells), score
                self._launch("largest_of_cells", n_cells * _WARP, *arrays)
            elif combine in ("minimum", "maximum"):
                self._multiply_extremes(starts, score)
            else:
                share = self._sum_terms(cells, score)
            if combine == "mean products":
                divisor = xp.empty(n_cells)
                of_block = self.offsets, np.int64(self.first), np.int64(n_cells)
                self._launch("divide_scores", n_cells, starts, query, *of_block, score, divisor)
        return DeviceScores(query, document, score, self.order, starts, int(self.width), share, divisor)

    def _sum_terms(self, cells: Array, score: Array) -> Array:
        """Sum the terms of hits into the scores of their cells; return the rounded terms."""
        size, terms, weights = int(self.size), self.xp.empty(int(self.size)), self._weights()
        if self.task.aggregation.vectors is None:
            self._launch("weigh_hits", size, self.keys, *weights, self.size, self.width, terms)
        else:
            passages, reduced, d = self._vectors()
            products = self.keys, self.order, *weights, passages, reduced, self.n_passages, d, self.size, self.width
            self._launch(f"weigh_products_{self._dtype()}", size * _WARP, *products, terms)
        shifts = self.xp.empty(self.n_queries)
        self._launch_blocks("find_shifts", self.n_queries, self.keys, terms, self.offsets, self.width, shifts)
        sums = self.keys, self.order, cells, shifts, self.n_passages, self.size, terms, score
        self._launch("sum_cells", size, *sums)
        return terms

    def _weights(self) -> tuple[Array, Array, np.int32]:
        """Return the scores of hits, the weights of ranks, and whether these are used."""
        rank_weights = self.task.aggregation.rank_weights
        if rank_weights is None:
            return self.hit_scores, self.xp.empty(1), np.int32(0)
        weights = rank_weights(self.task, np.arange(1, int(self.width) + 1, dtype=np.float64))
        return self.hit_scores, to_device(weights, self.device), np.int32(1)

    def _multiply_extremes(self, starts: Array, score: Array) -> None:
        passages, reduced, d = self._vectors()
        maximum = np.int32(self.task.aggregation.combine == "maximum")
        arrays = self.keys, self.order, starts, passages, reduced, self.n_passages, d, maximum, score
        self._launch_blocks(f"multiply_extremes_{self._dtype()}", len(score), *arrays)

    def _dtype(self) -> str:
        return str(self.task.vectors.passages.dtype)

    def _vectors(self) -> tuple[Array, Array, np.int64]:
        """Return the passages, the vector of each query, and their width."""
        passages = self.xp.ascontiguousarray(self.task.vectors.passages)
        paragraphs = self.xp.ascontiguousarray(self.task.vectors.paragraphs[self.rows], dtype=np.float32)
        reduced, d = self.xp.empty((self.n_queries, passages.shape[1])), np.int64(passages.shape[1])
        how = np.int32(_HOW[self.task.aggregation.vectors or ""])
        self._launch_blocks("reduce_paragraphs", self.n_queries, paragraphs, self.offsets, d, how, reduced)
        return passages.view(np.uint16) if passages.dtype == np.float16 else passages, reduced, d


def _blocks(n: int) -> int:
    """Return the number of blocks for n threads."""
    return count_blocks(n, _THREADS, _MAX_BLOCKS)
