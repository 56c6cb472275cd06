"""Exact search over an embedding store that does not fit into memory, in threads, processes or on a cluster.

A score depends on one query and one passage only. So the best hits of all shards, in the total order, are the hits of
one index over the whole store.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple, cast

import numpy as np
import pyarrow as pa

from haybale.cluster import count_jobs, memory_per_task, spread
from haybale.collections.collection import Strings, strings_at
from haybale.device import to_numpy
from haybale.embeddings import EmbeddingStore
from haybale.embeddings.store import address_of, count_chunks, fingerprint_of, opened, read_chunks, rows_per_chunk
from haybale.parameters import COUNT_OR_NONE, MEMORY, N_JOBS, check_parameters
from haybale.retrieval.hits import NO_PASSAGE, Hits, Ints
from haybale.retrieval.id_order import IdOrder
from haybale.retrieval.index import PassageIndex
from haybale.retrieval.merging import Found, local_numbers, merge_hits, no_hits
from haybale.retrieval.passages import Exclude, PassageTable, document_offsets
from haybale.vectors import Floats, check_like


class ShardedIndex(PassageTable):
    """Exact inner-product search over an :class:`EmbeddingStore`, with the hits of ``PassageIndex.from_store``.

    A shard is a range of the store's chunks, and one task searches it. Tasks run in threads by default; select
    processes or a Dask cluster with ``joblib.parallel_config`` or :func:`~haybale.cluster.on_cluster`. Each task opens
    the store by its path, which every worker must reach. The index itself holds ids, but no vectors.

    Parameters
    ----------
    store : EmbeddingStore
    n_shards : int, optional
        Number of shards. By default, one for each task that runs at the same time.
    memory_budget : float, optional
        Bytes of vectors that a task holds; at least one chunk is read. By default, the tasks share half of the memory.
    device : str, default "cpu"
        Where vectors are searched, as in :class:`PassageIndex`; on a worker, "cuda" is its current device.
    n_jobs : int, optional
        Number of tasks at the same time, as for joblib.
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
        """Return the k nearest passages of each query vector (m, d), as NumPy arrays; see :meth:`PassageIndex.search`.

        Also raises :class:`StoreError` if a worker does not find the store or a chunk is damaged, and
        :class:`ClusterError` if the cluster fails.
        """
        queries = cast(Floats, check_like(to_numpy(queries), "queries", np.empty((0, self.dim), dtype=np.float32)))
        self.check_k(k)
        m = len(queries)
        excluded = self.excluded(exclude, m)
        if not m:
            return Hits(*no_hits(0, k))
        budget = memory_per_task(self.n_jobs) if self.memory_budget is None else self.memory_budget
        tasks, n = [], count_chunks(self.store)
        wanted = min(n, self.n_shards or count_jobs(self.n_jobs))
        for first, last in pairwise(n * number // wanted for number in range(wanted + 1)):
            start, end = _rows(self.store, first, last)
            document, offsets = _local_offsets(self.doc_offsets, start, end)
            shard = _Shard(address_of(self.store), fingerprint_of(self.store), first, last, self.device)
            n_documents = len(offsets) - 1
            ids = strings_at(self.doc_ids, np.arange(document, document + n_documents))  # a task gets only its own
            own = local_numbers(excluded, document, n_documents)
            tasks.append((shard, budget, k, offsets, ids, queries, own))
        best = no_hits(m, 0)
        for found in spread(search_shard, tasks, self.n_jobs, "searching shards"):
            best = merge_hits(best, found, k, self.columns.order)
        return Hits(*best)

    def index_of_hits(self, hits: Hits, documents: Sequence[int] = ()) -> tuple[PassageIndex, Hits]:
        """Load the vectors of the passages that were found into an index; return it with the hits renumbered for it.

        The index also has all passages of ``documents``. Documents keep their numbers.
        """
        used, renumbered = self.passages_of(hits, documents)
        ids = {"passage_ids": self.passage_ids.take(pa.array(used)), "doc_ids": self.doc_ids}
        return PassageIndex(self.store.rows(used), np.searchsorted(used, self.doc_offsets), **ids), renumbered

    def __repr__(self) -> str:
        shards = "one shard per task" if self.n_shards is None else f"{self.n_shards} shards"
        return f"ShardedIndex over {self.store!r}, {len(self.doc_ids):,} documents, {shards}"


class _Shard(NamedTuple):
    """The chunks ``first:last`` of the store at an address."""

    address: str
    fingerprint: str
    first: int
    last: int
    device: str


def search_shard(
    shard: _Shard, budget: float, k: int, offsets: Ints, doc_ids: Strings, queries: Floats, excluded: Ints
) -> Found:
    """Return the k best passages of a shard for each query (m, d), as passage numbers of the store.

    At most ``budget`` bytes of vectors are held. ``offsets`` (n_documents + 1,) and ``doc_ids`` (n_documents,) are
    those of the shard's documents, and ``excluded`` (m,) has the document that each query excludes, -1 for none.
    """
    best, order = no_hits(len(queries), 0), IdOrder(doc_ids, offsets)
    store = opened(shard.address, shard.fingerprint)
    origin, _ = _rows(store, shard.first, shard.last)
    step = int(max(1, budget / 2 // (4 * store.dim * rows_per_chunk(store))))
    for first in range(shard.first, shard.last, step):
        last = min(first + step, shard.last)
        start, end = _rows(store, first, last)
        document, block = _local_offsets(offsets, start - origin, end - origin)
        ids = doc_ids[document : document + len(block) - 1]
        index = PassageIndex(read_chunks(store, first, last), block, doc_ids=ids, device=shard.device)
        hits = index.search(queries, min(k, len(index)), exclude=local_numbers(excluded, document, len(index.doc_ids)))
        numbers = np.where(hits.passages != NO_PASSAGE, hits.passages + start - origin, NO_PASSAGE)
        best = merge_hits(best, (numbers, hits.scores), k, order)
    return np.where(best[0] != NO_PASSAGE, best[0] + origin, NO_PASSAGE), best[1]


def _rows(store: EmbeddingStore, first: int, last: int) -> tuple[int, int]:
    """Return the first row of the chunks ``first:last``, and the row after their last."""
    return first * rows_per_chunk(store), min(last * rows_per_chunk(store), len(store))


def _local_offsets(offsets: Ints, start: int, end: int) -> tuple[int, Ints]:
    """Return the first document of the passages ``start:end``, and the offsets of their documents within them.

    >>> _local_offsets(np.array([0, 3, 5, 9]), 4, 7)
    (1, array([0, 1, 3]))
    """
    first = int(np.searchsorted(offsets, start, side="right")) - 1
    last = int(np.searchsorted(offsets, end, side="left"))
    return first, np.clip(offsets[first : last + 1], start, end) - start
