"""Indexes that lie in segments: each has a range of the documents, and its hits are merged with those of the others.

A score depends on one query, one passage and the statistics of all passages, which each segment has. So the best hits
of all segments, in the total order, are those of one index over all passages. A segment is opened when it is first
searched: by this process, or by a worker of the backend that ``joblib.parallel_config`` or
:func:`~haybale.cluster.on_cluster` selects. A process keeps segments open as far as its memory allows, and closes the
least recently used ones.
"""

from __future__ import annotations

import hashlib
import json
import sys
import threading
import weakref
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from haybale.analysis import Terms
from haybale.cached import cached_property
from haybale.cluster import memory_per_task, shares_memory, spread
from haybale.collections.collection import indptr_from_counts
from haybale.errors import FileFormatError, StoreError
from haybale.manifest import MANIFEST
from haybale.parallel import half_of_memory
from haybale.retrieval.bm25_index import BM25Index
from haybale.retrieval.exclusion import Exclusion
from haybale.retrieval.hits import NO_PASSAGE, Hits, Ints
from haybale.retrieval.merging import FoundDocuments, merge_documents, merge_hits, no_hits
from haybale.retrieval.object_storage import copied_index
from haybale.retrieval.passage_index import PassageIndex
from haybale.retrieval.passages import Columns

_QUERIES_PER_SEGMENT_SEARCH = 4096
_BYTES_PER_TERM = 150  # memory of a term in a vocabulary
_RESERVED_WORKER_BYTES = 5e8  # memory for Python, the libraries and a block of queries

Parameters = tuple[float, float, float | None]  # k1, b and k3
Index = BM25Index | PassageIndex


@dataclass(frozen=True, eq=False)
class TermStatistics:
    """The number of texts that have each term, the number of texts, and the number of their terms with repetitions."""

    frequencies: Mapping[str, int]
    n_texts: int = 0
    n_terms: int = 0

    def plus(self, other: TermStatistics) -> TermStatistics:
        """Return the statistics of both."""
        frequencies = Counter(self.frequencies)
        frequencies.update(other.frequencies)
        return TermStatistics(frequencies, self.n_texts + other.n_texts, self.n_terms + other.n_terms)


NO_TEXTS = TermStatistics({})
_memory_segment_numbers = count()
_last_analyzer: list[Any] = [None]  # the analyzer of the BM25 index that was opened last


@dataclass(frozen=True, eq=False)
class IndexSegment:
    """An index of some documents, in a folder or in memory, with settings that the process that opens it applies.

    ``chosen`` are the numbers of its documents that are searched, None for all. ``parameters`` are those of BM25, and
    ``later`` the statistics of texts that were added after the index was built. An index with an ``address`` is on
    object storage, and the machine that opens it copies it.
    """

    folder: Path | None
    index: Index | None
    name: str  # identifies the content in the cache of open segments
    chosen: Ints | None = None
    parameters: Parameters | None = None
    later: TermStatistics = NO_TEXTS
    address: str | None = None

    @classmethod
    def in_folder(cls, folder: Path, address: str | None = None) -> IndexSegment:
        """Return the segment in a folder, which every worker must reach by its absolute path, or by an address.

        With an address, the folder has only the manifest.
        """
        try:
            mark = (folder / MANIFEST).read_text(encoding="utf-8")
        except OSError as error:
            raise FileFormatError(
                folder, None, f"expected an index ({error.strerror}); build the engine again"
            ) from None
        return cls(folder.absolute(), None, mark, address=address)

    @classmethod
    def in_memory(cls, index: Index) -> IndexSegment:
        return cls(None, index, f"in memory {next(_memory_segment_numbers)}")

    @cached_property
    def key(self) -> str:
        """A digest of the name and the settings; segments with equal keys open equal indexes."""
        later = sorted(self.later.frequencies.items()), self.later.n_texts, self.later.n_terms
        sha = hashlib.sha256(json.dumps([str(self.folder), self.name, self.parameters, later]).encode())
        sha.update(b"all" if self.chosen is None else self.chosen.tobytes())
        return sha.hexdigest()

    def opened(self, budget: float | None = None) -> Any:
        """Return the index; open it if necessary. Open segments share ``budget`` bytes; a single one may exceed it."""
        return _open_segments.get(self.key, self._open, memory_for_segments() if budget is None else budget)

    def _open(self, budget: float) -> Index:
        if self.chosen is not None:
            whole: Index = replace(self, chosen=None).opened(budget)
            return whole.take(self.chosen)
        index = self.index
        if index is None:
            assert self.folder is not None
            folder = self.folder if self.address is None else copied_index(self.address, self.name)
            is_bm25 = self.parameters is not None
            try:
                index = BM25Index.open(folder) if is_bm25 else PassageIndex.open(folder, device="cpu")
            except (FileFormatError, FileNotFoundError):
                self._check_same(folder)
                raise
            self._check_same(folder)
        if isinstance(index, BM25Index):
            # All segments share one analyzer, since its compounds may take much memory.
            if index.analyzer == _last_analyzer[0]:
                index.analyzer = _last_analyzer[0]
            _last_analyzer[0] = index.analyzer
            if self.later.n_texts:
                index = index.with_later(self.later.frequencies, self.later.n_texts, self.later.n_terms)
            if self.parameters is not None:
                index = index.with_parameters(*self.parameters)
        return index

    def _check_same(self, folder: Path) -> None:
        """Raise StoreError if a folder has another index than when the engine was opened, or none."""
        try:
            is_same = (folder / MANIFEST).read_text(encoding="utf-8") == self.name
        except (FileNotFoundError, NotADirectoryError):
            is_same = False
        if not is_same:
            raise StoreError(
                f"{folder}: expected the index of the engine that was opened, found none or one that was built since; "
                "open the engine again"
            )


class _OpenSegments:
    """The segments that a process has open, in the order of their last use."""

    def __init__(self) -> None:
        self._indexes: OrderedDict[str, tuple[Any, float]] = OrderedDict()  # by key, with the bytes of each
        self._holders: Counter[str] = Counter()
        self._released: deque[str] = deque()
        self._lock, self._opening = threading.Lock(), threading.RLock()

    def hold(self, holder: Any, keys: Sequence[str]) -> None:
        """Close segments when the last of their holders is deleted; those that a worker opens for a task have none."""
        with self._lock:
            self._holders.update(keys)
        weakref.finalize(holder, self._release, keys)

    def _release(self, keys: Sequence[str]) -> None:
        self._released.extend(keys)
        if self._lock.acquire(blocking=False):  # the garbage collector may run while this thread holds the lock
            try:
                self._close_released()
            finally:
                self._lock.release()

    def _close_released(self) -> None:
        while self._released:
            key = self._released.popleft()
            self._holders[key] -= 1
            if self._holders[key] <= 0:
                del self._holders[key]
                self._indexes.pop(key, None)

    def get(self, key: str, make: Callable[[float], Any], budget: float) -> Any:
        index = self._open_index(key)
        if index is None:
            with self._opening:
                index = self._open_index(key)
                if index is None:
                    index = make(budget)
                    self._keep(key, index, budget)
        return index

    def _open_index(self, key: str) -> Any:
        with self._lock:
            if key not in self._indexes:
                return None
            self._indexes.move_to_end(key)
            return self._indexes[key][0]

    def _keep(self, key: str, index: Any, budget: float) -> None:
        with self._lock:
            self._close_released()
            self._indexes[key] = index, _bytes_of(index)
            while len(self._indexes) > 1 and sum(size for _, size in self._indexes.values()) > budget:
                self._indexes.popitem(last=False)


_open_segments = _OpenSegments()


def memory_for_segments() -> float:
    """Return the bytes that open segments may take in this process.

    It is half of the machine's memory. In a task of a Dask worker, it is half of the memory limit, less the memory of
    Python, the libraries and a block of queries, divided by the threads of the worker.
    """
    if "distributed.worker" in sys.modules:
        import distributed

        with suppress(ValueError):  # this is not a task of a worker
            worker: Any = distributed.get_worker()
            limit = worker.memory_manager.memory_limit
            if limit:
                return max(0.0, float(limit) - _RESERVED_WORKER_BYTES) / 2 / int(worker.state.nthreads)
    return half_of_memory()


def _bytes_of(index: Index) -> float:
    """Estimate the bytes of an index, including mapped pages, which count towards the limit of a worker, too."""
    ids = index.passage_ids.nbytes + index.doc_ids.nbytes
    if isinstance(index, BM25Index):
        return float(ids + index.nbytes + _BYTES_PER_TERM * len(index.vocabulary))
    vectors: Any = index.vectors
    return float(ids + (12 * vectors.nnz * 2 if index.is_sparse else vectors.nbytes))


class IndexSegments:
    """The segments of an index, in the order of their documents, each with at least one passage.

    ``firsts`` (n_segments,) are their first documents, and ``counts`` (n_segments,) the numbers of their documents.
    Documents without a passage need not be in a segment. ``doc_offsets`` are those of the whole index.
    """

    def __init__(self, segments: Sequence[IndexSegment], doc_offsets: Ints, firsts: Ints, counts: Ints) -> None:
        self.segments, self.doc_offsets, self.firsts, self.counts = tuple(segments), doc_offsets, firsts, counts
        self.passages: Ints = np.append(doc_offsets[firsts], doc_offsets[-1])  # (n_segments + 1,) their first passages
        _open_segments.hold(self, [segment.key for segment in self.segments])

    def opened(self, number: int) -> Any:
        """Return the index of a segment."""
        return _checked(self.segments[number], self.n_passages(number), memory_for_segments())

    def n_passages(self, number: int) -> int:
        return int(self.passages[number + 1] - self.passages[number])

    def with_document(self, document: int) -> tuple[Any, int]:
        """Return the index of the segment that has a document with a passage, and its number there."""
        number = int(np.searchsorted(self.firsts, document, side="right")) - 1
        return self.opened(number), document - int(self.firsts[number])

    def with_passage(self, passage: int) -> tuple[Any, int]:
        """Return the index of the segment that has a passage, and its number there."""
        number = int(np.searchsorted(self.passages, passage, side="right")) - 1
        return self.opened(number), passage - int(self.passages[number])

    def take(self, documents: Ints) -> IndexSegments:
        """Return the segments of some documents, given by rising numbers, without those that have none of them."""
        segments, firsts, counts = [], [], []
        sizes = np.diff(self.doc_offsets)[documents]
        for segment, first, n in zip(self.segments, self.firsts.tolist(), self.counts.tolist(), strict=True):
            start, end = np.searchsorted(documents, [first, first + n]).tolist()
            if sizes[start:end].any():
                some = documents[start:end] - first
                chosen = some if segment.chosen is None else segment.chosen[some]
                segments.append(segment if len(some) == n else replace(segment, chosen=chosen))
                firsts.append(start)
                counts.append(end - start)
        return IndexSegments(segments, indptr_from_counts(sizes), np.array(firsts), np.array(counts))

    def changed(self, **how: Any) -> IndexSegments:
        """Return segments that are opened with other parameters or statistics."""
        segments = [replace(segment, **how) for segment in self.segments]
        return IndexSegments(segments, self.doc_offsets, self.firsts, self.counts)

    def joined(self, segment: IndexSegment, doc_offsets: Ints) -> IndexSegments:
        """Return segments with one more; ``doc_offsets`` are those of all documents."""
        first = len(self.doc_offsets) - 1
        firsts, counts = np.append(self.firsts, first), np.append(self.counts, len(doc_offsets) - 1 - first)
        return IndexSegments([*self.segments, segment], doc_offsets, firsts, counts)

    # search -------------------------------------------------------------------------------------------------------

    def search(self, queries: Any, k: int, excluded: Exclusion, columns: Columns) -> Hits:
        """Return the k best passages of each query."""
        passages, scores = no_hits(len(excluded), k)
        for number, rows, (segment_passages, values) in self._ask("search", queries, k, excluded):
            numbers = np.where(segment_passages != NO_PASSAGE, segment_passages + self.passages[number], NO_PASSAGE)
            both = (passages[rows], scores[rows]), (numbers, values)
            passages[rows], scores[rows] = merge_hits(*both, k, columns.order)
        return Hits(passages, scores)

    def documents(self, queries: Any, k: int, top: int, excluded: Exclusion) -> FoundDocuments:
        """Return the documents that score at least as high as the k-th best, sorted by query row, then by document."""
        best: dict[int, FoundDocuments] = {}
        for number, rows, (row, documents, scores) in self._ask("documents", queries, k, excluded, top=top):
            of_segment = row, documents + self.firsts[number], scores
            best[rows.start] = merge_documents(
                [best[rows.start], of_segment] if rows.start in best else [of_segment], k
            )
        none = np.empty(0, dtype=np.int64)
        blocks = [(row + start, documents, scores) for start, (row, documents, scores) in sorted(best.items())]
        blocks = [(none, none, np.empty(0, dtype=np.float32)), *blocks]
        rows_, documents, scores = (np.concatenate(column) for column in zip(*blocks, strict=True))
        return rows_, documents, scores

    def _ask(
        self, method: str, queries: Any, k: int, excluded: Exclusion, **more: Any
    ) -> Iterator[tuple[int, slice, Any]]:
        """Yield the number of a segment, a block of query rows, and what a method of its index returns for them.

        All segments are searched for all blocks. This process searches the segments in memory. Tasks search the other
        ones, unless they share the memory of this process.
        """
        m, size = len(excluded), _QUERIES_PER_SEGMENT_SEARCH
        blocks = [slice(start, min(start + size, m)) for start in range(0, m, size)]
        # Segment by segment, so that a worker keeps using the segment that it has open.
        pairs = [(number, rows) for number in range(len(self.segments)) for rows in blocks]
        by_tasks = not shares_memory()
        budget = memory_per_task(None) if by_tasks else memory_for_segments()

        def task(number: int, rows: slice) -> tuple[Any, ...]:
            excluded_here = excluded[rows].in_segment(int(self.firsts[number]), int(self.counts[number]))
            n = self.n_passages(number)
            return self.segments[number], n, budget, method, _rows_of(queries, rows), k, excluded_here, more

        sent = [pair for pair in pairs if by_tasks and self.segments[pair[0]].index is None]
        answers = spread(search_segment, [task(*pair) for pair in sent], None, "searching segments") if sent else None
        for number, rows in pairs:
            if answers is not None and self.segments[number].index is None:
                yield number, rows, next(answers)
            else:
                yield number, rows, search_segment(*task(number, rows))


def search_segment(
    segment: IndexSegment,
    n: int,
    budget: float,
    method: str,
    queries: Any,
    k: int,
    excluded: Exclusion,
    more: dict[str, Any],
) -> Any:
    """Open a segment of ``n`` passages, call a method of its index, and return its arrays."""
    index = _checked(segment, n, budget)
    segment_queries = terms_in(index, queries) if isinstance(index, BM25Index) else queries
    if method == "documents":
        return index.documents(segment_queries, k, exclude=excluded, **more)
    hits = index.search(segment_queries, min(k, n), exclude=excluded)
    return hits.passages.astype(np.int32), hits.scores


def _checked(segment: IndexSegment, n: int, budget: float) -> Any:
    """Open a segment; raise an error if it has another number of passages than ``n``."""
    index = segment.opened(budget)
    if len(index) != n:
        message = f"expected an index of {n:,} passages, found {len(index):,}; build the engine again"
        raise FileFormatError(segment.folder or "the index", None, message)
    return index


def _rows_of(queries: Any, rows: slice) -> Any:
    if not isinstance(queries, Terms):
        return queries[rows]
    return Terms(queries.ids[rows], queries.vocabulary, None if queries.factors is None else queries.factors[rows])


def terms_in(index: BM25Index, queries: Terms) -> Terms:
    """Return queries with the term numbers of another index, without the terms that it lacks."""
    if queries.factors is not None:
        names = list(queries.vocabulary)
        return index.weighted([[names[number] for number in query_ids] for query_ids in queries.ids], queries.factors)
    numbers = [index.vocabulary.get(term, -1) for term in queries.vocabulary]
    ids = [[n for n in map(numbers.__getitem__, query_ids) if n >= 0] for query_ids in queries.ids]
    return Terms(ids, index.vocabulary)
