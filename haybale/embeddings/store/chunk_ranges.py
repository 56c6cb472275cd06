"""Consecutive chunks of a store, and which store it is: for tasks that each read a part of it, wherever they run."""

from __future__ import annotations

import hashlib
import json
import os
import socket
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from haybale.embeddings.store.files import StoreFiles
from haybale.embeddings.store.reading import EmbeddingStore
from haybale.errors import InputError, StoreError

if TYPE_CHECKING:
    from haybale.vectors import Floats


def rows_per_chunk(store: EmbeddingStore) -> int:
    """Rows of every chunk but, perhaps, the last."""
    return int(store._parts[0].size)


def count_chunks(store: EmbeddingStore) -> int:
    """Chunks of the store, over all its shards."""
    return store._n_chunks


def read_chunks(store: EmbeddingStore, first: int, last: int) -> Floats:
    """(rows, d) float32 vectors of the chunks ``first`` to ``last``, the latter left out. A damaged one raises."""
    size, parts = rows_per_chunk(store), store._parts
    start, end = first * size, min(last * size, len(store))
    out = np.empty((end - start, store.width), dtype=np.float32)
    for number in range(first, last):
        rows = parts[number % len(parts)].read(number // len(parts))
        out[number * size - start :][: len(rows)] = rows
    return out


def address_of(store: EmbeddingStore) -> str:
    """The path of a store as it can be opened from another working directory."""
    return os.path.abspath(store.path) if StoreFiles(store.path).is_local else store.path


def fingerprint_of(store: EmbeddingStore) -> str:
    """SHA-256 of what the store says of itself: its input, encoder and settings."""
    return hashlib.sha256(json.dumps(store.manifest, sort_keys=True).encode()).hexdigest()


@lru_cache(maxsize=8)
def opened(address: str, fingerprint: str) -> EmbeddingStore:
    """The store at an address, which must be the one that was meant; opened once in a process."""
    try:
        store = EmbeddingStore(address)
    except InputError as error:
        raise StoreError(f"{error} (on {socket.gethostname()}); every worker must reach the store there") from error
    if fingerprint_of(store) != fingerprint:
        raise StoreError(f"{address}: on {socket.gethostname()} this is another store")
    return store
