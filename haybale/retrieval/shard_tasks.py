"""One shard of a store, searched by whichever process has the task."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from haybale.cluster.spreading import tasks_here
from haybale.device import find_device, to_device
from haybale.embeddings import EmbeddingStore
from haybale.embeddings.store import opened, read_chunks, rows_per_chunk
from haybale.retrieval.hits import NO_PASSAGE, Ints, select
from haybale.retrieval.index import PassageIndex
from haybale.vectors import Floats

Found = tuple[Ints, Floats]  # (m, k) passage numbers and scores, best first


class Shard(NamedTuple):
    """Chunks ``first`` to ``last``, the latter left out, of the store at an address; ``start`` is their first row."""

    address: str
    fingerprint: str
    first: int
    last: int
    start: int
    device: str | None
    backend: str


class Memory(NamedTuple):
    """``budget`` bytes of vectors for a task; whether to ``keep`` them after it; how many ``threads`` have a task."""

    budget: float
    keep: bool
    threads: int


def search_shard(shard: Shard, memory: Memory, k: int, offsets: Ints, queries: Floats, own: Ints) -> Found:
    """The k best passages of a shard for each query (m, d), in the numbers of the store.

    ``offsets`` (n + 1,) where the shard's documents begin; ``own`` (m,) the one to leave out, -1 for none.
    """
    best = no_hits(len(queries), 0)
    for start, index, document in _blocks(shard, memory, offsets):
        left_out = own_within(own, document, len(index.doc_offsets) - 1)
        hits = index.search(queries, min(k, len(index)), exclude=left_out)
        real = hits.passages != NO_PASSAGE
        numbers = np.where(real, hits.passages + (shard.start + start), NO_PASSAGE)
        best = merged(best, (numbers, hits.scores), k)
    return best


def no_hits(m: int, k: int) -> Found:
    """(m, k) hits that are none."""
    return np.full((m, k), NO_PASSAGE, dtype=np.int64), np.full((m, k), -np.inf, dtype=np.float32)


def merged(one: Found, other: Found, k: int) -> Found:
    """The k best of two searches over different passages, in the total order.

    >>> a = np.array([[4, 2]]), np.array([[9.0, 8.0]], dtype=np.float32)
    >>> b = np.array([[1, -1]]), np.array([[9.0, -np.inf]], dtype=np.float32)
    >>> merged(a, b, 3)[0]
    array([[1, 4, 2]])
    """
    numbers = np.concatenate([one[0], other[0]], axis=1)
    return select(np.concatenate([one[1], other[1]], axis=1), k, numbers)


def offsets_within(offsets: Ints, start: int, end: int) -> tuple[int, Ints]:
    """``(first document, offsets)`` of passages ``start`` to ``end``; documents may begin before or end after.

    >>> offsets_within(np.array([0, 3, 5, 9]), 4, 7)
    (1, array([0, 1, 3]))
    """
    first = int(np.searchsorted(offsets, start, side="right")) - 1
    last = int(np.searchsorted(offsets, end, side="left"))
    return first, np.clip(offsets[first : last + 1], start, end) - start


def own_within(own: Ints, first: int, n: int) -> Ints:
    """Documents ``first`` to ``first + n`` as 0 to n, all others as -1."""
    return np.where((own >= first) & (own < first + n), own - first, -1)


def _blocks(shard: Shard, memory: Memory, offsets: Ints) -> Iterator[tuple[int, PassageIndex, int]]:
    """``(first row in the shard, index, first document)`` of every block that half of the budget holds."""
    store = opened(shard.address, shard.fingerprint)
    size = rows_per_chunk(store)
    step = int(max(1, memory.budget / 2 // (4 * store.dim * size)))
    for first in range(shard.first, shard.last, step):
        last = min(first + step, shard.last)
        start, end = first * size - shard.start, min(last * size, len(store)) - shard.start
        document, own = offsets_within(offsets, start, end)
        yield start, _index(store, shard, first, last, own, memory), document


_kept: OrderedDict[tuple[object, ...], PassageIndex] = OrderedDict()  # of this process, the last used last
_lock = threading.Lock()


def _index(store: EmbeddingStore, shard: Shard, first: int, last: int, offsets: Ints, memory: Memory) -> PassageIndex:
    """The index of some chunks, kept where they are a whole shard: what is streamed would drive out all else."""
    key = (*shard, first, last)
    with _lock:
        found = _kept.get(key)
        if found is not None:
            _kept.move_to_end(key)
            return found
    vectors = read_chunks(store, first, last)
    if shard.device is not None:
        vectors = to_device(vectors, find_device(shard.device))
    index = PassageIndex(vectors, offsets, backend=shard.backend)
    if memory.keep and (first, last) == (shard.first, shard.last):
        allowed = memory.budget / 2 * max(memory.threads, tasks_here())
        with _lock:
            _kept[key] = index
            while sum(kept.vectors.nbytes for kept in _kept.values()) > allowed and len(_kept) > 1:
                _kept.popitem(last=False)
    return index


def forget_shards() -> None:
    """Let go of all vectors that this process keeps between searches."""
    with _lock:
        _kept.clear()
