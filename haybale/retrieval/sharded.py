"""Exact search over a store of embeddings that no single memory holds: a shard a task, on threads or a cluster.

Every block of a shard is searched by :class:`~haybale.retrieval.PassageIndex`, whose scores depend on one query and
one passage alone; the best of all blocks in the total order are therefore the hits of one index over the whole store.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from haybale.cluster.spreading import count_jobs, memory_per_task, shares_memory, spread
from haybale.device import device_of, to_numpy
from haybale.embeddings import EmbeddingStore
from haybale.embeddings.store import address_of, count_chunks, fingerprint_of, rows_per_chunk
from haybale.errors import InputError
from haybale.retrieval.hits import NO_PASSAGE, Hits, Ints
from haybale.retrieval.index import PassageIndex
from haybale.retrieval.passages import Exclude, PassageTable, document_offsets
from haybale.retrieval.shard_tasks import Memory, Shard, merged, no_hits, offsets_within, own_within, search_shard
from haybale.vectors import Floats, check_like


@dataclass(frozen=True)
class Narrowed:
    """An index of some passages, hits in its numbers, and (n,) the numbers its passages had."""

    index: PassageIndex
    hits: Hits
    numbers: Ints


class ShardedIndex(PassageTable):
    """Exact inner-product search over an :class:`EmbeddingStore`; hits are those of ``PassageIndex.from_store``.

    A shard is a range of the store's chunks; each is searched by one task, through joblib: in threads by default, by
    processes or on a Dask cluster as ``joblib.parallel_config`` or :func:`~haybale.cluster.on_cluster` says. A task
    opens the store at its path, which every worker must reach.

    Parameters: ``store``; ``n_shards`` (None: as many as are searched at once); ``memory_budget`` bytes of vectors in a
    task (None: half of the memory there is, divided by the tasks; one chunk is the least); ``device`` and ``backend``
    as :class:`PassageIndex` has them, found on each worker (``"cuda"`` is its current device; None: the CPU);
    ``keep_vectors``: a process keeps the shards it has searched, as far as half of its budget goes; ``n_jobs`` for
    joblib.

    The ids of all passages are held here; the vectors are not: :meth:`rows` reads some.
    """

    def __init__(
        self,
        store: EmbeddingStore,
        n_shards: int | None = None,
        *,
        memory_budget: float | None = None,
        device: str | None = None,
        backend: str = "auto",
        keep_vectors: bool = True,
        n_jobs: int | None = None,
    ) -> None:
        if n_shards is not None and n_shards < 1:
            raise InputError(f"n_shards must be at least 1, found {n_shards}")
        if memory_budget is not None and not memory_budget > 0:
            raise InputError(f"memory_budget is a number of bytes above 0, or None, found {memory_budget!r}")
        offsets, doc_ids = document_offsets(store.doc_ids)
        super().__init__(len(store), offsets, store.passage_ids, doc_ids)
        self.store, self.n_shards, self.memory_budget = store, n_shards, memory_budget
        self.device, self.backend, self.keep_vectors, self.n_jobs = device, backend, keep_vectors, n_jobs

    @property
    def width(self) -> int:
        return self.store.dim

    def search(self, queries: Floats, k: int, *, exclude: Exclude | None = None) -> Hits:
        """The k nearest passages of each query vector (m, d); all as :meth:`PassageIndex.search` has it.

        Hits are NumPy arrays, wherever the queries are. Errors: also :class:`StoreError` where a worker does not find
        this store, or a chunk is damaged, and :class:`ClusterError`.
        """
        queries = check_like(queries if device_of(queries).is_cpu else to_numpy(queries), "queries", self._no_vectors)
        self._check_k(k)
        m = len(queries)
        own = self.excluded(exclude, m)
        best = no_hits(m, k if not m else 0)
        if not m:
            return Hits(*best)
        shards = self._shards()
        tasks = [self._task(shard, queries, own, k) for shard in shards]
        for found in spread(search_shard, tasks, self.n_jobs, "searching shards"):
            best = merged(best, found, k)
        return Hits(*best)

    def rows(self, numbers: Ints) -> Floats:
        """(len(numbers), d) float32 vectors of some passages, read from the store."""
        return self.store.rows(numbers)

    def similarities(self, queries: Floats, document: int) -> Floats:
        """(m, passages of the document) inner products of query vectors (m, d) with its passages."""
        start, end = (int(place) for place in self.doc_offsets[document : document + 2])
        index = PassageIndex(self.rows(np.arange(start, end)), np.array([0, end - start]))
        return np.asarray(index.similarities(queries, 0))

    def narrowed(self, hits: Hits, documents: Sequence[int] = ()) -> Narrowed:
        """An index of only the passages that were found, vectors and all, and the hits in its numbers.

        ``documents`` are there with all their passages. Documents keep their numbers. It serves what needs the vectors
        of passages, such as the aggregations of PARM whose names begin with v.
        """
        real = hits.passages != NO_PASSAGE
        whole = [np.arange(*self.doc_offsets[document : document + 2]) for document in documents]
        used = np.unique(np.concatenate([hits.passages[real], *whole]))
        used = used if len(used) else np.zeros(1, dtype=np.int64)  # an index needs a passage
        ids = {"passage_ids": self.passage_ids.take(pa.array(used)), "doc_ids": self.doc_ids}
        index = PassageIndex(self.rows(used), np.searchsorted(used, self.doc_offsets), **ids)
        passages = np.where(real, np.searchsorted(used, hits.passages), NO_PASSAGE)
        return Narrowed(index, Hits(passages, hits.scores), used)

    def __repr__(self) -> str:
        shards = "a shard a task" if self.n_shards is None else f"{self.n_shards} shards"
        return f"ShardedIndex over {self.store!r}, {len(self.doc_ids):,} documents, {shards}"

    @property
    def _no_vectors(self) -> Floats:
        return np.empty((0, self.width), dtype=np.float32)

    def _shards(self) -> list[tuple[int, int]]:
        n = count_chunks(self.store)
        wanted = min(n, self.n_shards or count_jobs(self.n_jobs))
        return list(pairwise(n * number // wanted for number in range(wanted + 1)))

    def _task(self, chunks: tuple[int, int], queries: Floats, own: Ints, k: int) -> tuple[Any, ...]:
        size = rows_per_chunk(self.store)
        start, end = chunks[0] * size, min(chunks[1] * size, len(self))
        place = address_of(self.store), fingerprint_of(self.store)
        shard = Shard(*place, *chunks, start, self.device, self.backend)
        document, offsets = offsets_within(self.doc_offsets, start, end)
        return shard, self._memory(), k, offsets, queries, own_within(own, document, len(offsets) - 1)

    def _memory(self) -> Memory:
        budget = memory_per_task(self.n_jobs) if self.memory_budget is None else self.memory_budget
        return Memory(budget, self.keep_vectors, count_jobs(self.n_jobs) if shares_memory() else 1)
