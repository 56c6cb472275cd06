"""Exact search over a store of embeddings that no single memory holds: a shard a task, on threads or a cluster.

Every block of a shard is searched by :class:`~haybale.retrieval.PassageIndex`, whose scores depend on one query and
one passage alone; the best of all blocks in the total order are therefore the hits of one index over the whole store.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from haybale.cluster import count_jobs, memory_per_task, spread
from haybale.device import to_numpy
from haybale.embeddings import EmbeddingStore
from haybale.embeddings.store import address_of, count_chunks, fingerprint_of, opened, read_chunks, rows_per_chunk
from haybale.parameters import COUNT_OR_NONE, MEMORY, N_JOBS, check_parameters
from haybale.retrieval.hits import NO_PASSAGE, Hits, Ints, select
from haybale.retrieval.index import PassageIndex
from haybale.retrieval.passages import Exclude, PassageTable, document_offsets
from haybale.vectors import Floats, check_like

Found = tuple[Ints, Floats]  # (m, k) passage numbers and scores, best first


class ShardedIndex(PassageTable):
    """Exact inner-product search over an :class:`EmbeddingStore`; hits are those of ``PassageIndex.from_store``.

    A shard is a range of the store's chunks; each is searched by one task: in threads by default, by processes or on a
    Dask cluster as ``joblib.parallel_config`` or :func:`~haybale.cluster.on_cluster` says. A task opens the store at
    its path, which every worker must reach. The ids of all passages are held here; the vectors are not.

    Parameters
    ----------
    store : EmbeddingStore
    n_shards : int, optional
        None: as many as are searched at once.
    memory_budget : float, optional
        Bytes of vectors in a task; None: half of the memory there is, divided by the tasks. One chunk is the least.
    device : str, default "cpu"
        As :class:`PassageIndex` has it, found on each worker ("cuda" is its current device).
    n_jobs : int, optional
        For joblib.
    """

    def __init__(
        self,
        store: EmbeddingStore,
        n_shards: int | None = None,
        *,
        memory_budget: float | None = None,
        device: str = "cpu",
        n_jobs: int | None = None,
    ) -> None:
        given = {"n_shards": n_shards, "memory_budget": memory_budget, "n_jobs": n_jobs}
        ranges = {"n_shards": COUNT_OR_NONE, "memory_budget": MEMORY, "n_jobs": N_JOBS}
        check_parameters(type(self).__name__, given, ranges)
        offsets, doc_ids = document_offsets(store.doc_ids)
        super().__init__(len(store), offsets, store.passage_ids, doc_ids)
        self.store, self.n_shards, self.memory_budget = store, n_shards, memory_budget
        self.device, self.n_jobs = device, n_jobs

    @property
    def dim(self) -> int:
        return self.store.dim

    def search(self, queries: Floats, k: int, *, exclude: Exclude | None = None) -> Hits:
        """The k nearest passages of each query vector (m, d); all as :meth:`PassageIndex.search` has it.

        Hits are NumPy arrays, wherever the queries are. Errors: also :class:`StoreError` where a worker does not find
        this store, or a chunk is damaged, and :class:`ClusterError`.
        """
        checked: Any = check_like(to_numpy(queries), "queries", np.empty((0, self.dim), dtype=np.float32))
        queries = checked
        self.check_k(k)
        m = len(queries)
        excluded = self.excluded(exclude, m)
        if not m:
            return Hits(*_no_hits(0, k))
        budget = memory_per_task(self.n_jobs) if self.memory_budget is None else self.memory_budget
        tasks, n = [], count_chunks(self.store)
        wanted = min(n, self.n_shards or count_jobs(self.n_jobs))
        for first, last in pairwise(n * number // wanted for number in range(wanted + 1)):
            start, end = _rows(self.store, first, last)
            document, offsets = _offsets_within(self.doc_offsets, start, end)
            shard = _Shard(address_of(self.store), fingerprint_of(self.store), first, last, self.device)
            tasks.append((shard, budget, k, offsets, queries, _within(excluded, document, len(offsets) - 1)))
        best = _no_hits(m, 0)
        for found in spread(search_shard, tasks, self.n_jobs, "searching shards"):
            best = _merged(best, found, k)
        return Hits(*best)

    def narrowed(self, hits: Hits, documents: Sequence[int] = ()) -> tuple[PassageIndex, Hits]:
        """Return an index of the passages that were found, with their vectors, and the hits in its numbers.

        It has all passages of ``documents``, and documents keep their numbers. It serves what needs the vectors of
        passages, such as the aggregations of PARM whose names begin with v.
        """
        real = hits.passages != NO_PASSAGE
        whole = [np.arange(*self.doc_offsets[document : document + 2]) for document in documents]
        used = np.unique(np.concatenate([hits.passages[real], *whole]))
        used = used if len(used) else np.zeros(1, dtype=np.int64)  # an index needs a passage
        ids = {"passage_ids": self.passage_ids.take(pa.array(used)), "doc_ids": self.doc_ids}
        index = PassageIndex(self.store.rows(used), np.searchsorted(used, self.doc_offsets), **ids)
        passages = np.where(real, np.searchsorted(used, hits.passages), NO_PASSAGE)
        return index, Hits(passages, hits.scores)

    def __repr__(self) -> str:
        shards = "a shard a task" if self.n_shards is None else f"{self.n_shards} shards"
        return f"ShardedIndex over {self.store!r}, {len(self.doc_ids):,} documents, {shards}"


class _Shard(NamedTuple):
    """Chunks ``first`` to ``last``, the latter left out, of the store at an address."""

    address: str
    fingerprint: str
    first: int
    last: int
    device: str


def search_shard(shard: _Shard, budget: float, k: int, offsets: Ints, queries: Floats, excluded: Ints) -> Found:
    """The k best passages of a shard for each query (m, d), in the numbers of the store.

    ``budget``: bytes of vectors; ``offsets`` (n + 1,) where the shard's documents begin; ``excluded`` (m,) the one to
    leave out, -1 for none.
    """
    best = _no_hits(len(queries), 0)
    store = opened(shard.address, shard.fingerprint)
    origin, _ = _rows(store, shard.first, shard.last)
    step = int(max(1, budget / 2 // (4 * store.dim * rows_per_chunk(store))))
    for first in range(shard.first, shard.last, step):
        last = min(first + step, shard.last)
        start, end = _rows(store, first, last)
        document, block = _offsets_within(offsets, start - origin, end - origin)
        index = PassageIndex(read_chunks(store, first, last), block, device=shard.device)
        hits = index.search(queries, min(k, len(index)), exclude=_within(excluded, document, len(index.doc_ids)))
        numbers = np.where(hits.passages != NO_PASSAGE, hits.passages + start, NO_PASSAGE)
        best = _merged(best, (numbers, hits.scores), k)
    return best


def _rows(store: EmbeddingStore, first: int, last: int) -> tuple[int, int]:
    """The first row of some chunks, and the one after the last."""
    return first * rows_per_chunk(store), min(last * rows_per_chunk(store), len(store))


def _no_hits(m: int, k: int) -> Found:
    return np.full((m, k), NO_PASSAGE, dtype=np.int64), np.full((m, k), -np.inf, dtype=np.float32)


def _merged(one: Found, other: Found, k: int) -> Found:
    """The k best of two searches over different passages, in the total order."""
    numbers = np.concatenate([one[0], other[0]], axis=1)
    return select(np.concatenate([one[1], other[1]], axis=1), k, numbers)


def _offsets_within(offsets: Ints, start: int, end: int) -> tuple[int, Ints]:
    """``(first document, offsets)`` of passages ``start`` to ``end``; documents may begin before or end after.

    >>> _offsets_within(np.array([0, 3, 5, 9]), 4, 7)
    (1, array([0, 1, 3]))
    """
    first = int(np.searchsorted(offsets, start, side="right")) - 1
    last = int(np.searchsorted(offsets, end, side="left"))
    return first, np.clip(offsets[first : last + 1], start, end) - start


def _within(documents: Ints, first: int, n: int) -> Ints:
    """Documents ``first`` to ``first + n`` as 0 to n, all others as -1."""
    return np.where((documents >= first) & (documents < first + n), documents - first, -1)
