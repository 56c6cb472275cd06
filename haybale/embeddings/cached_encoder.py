"""An encoder that takes the vectors of stored texts from their store."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np

from haybale.embeddings.encoder import Encoder, Encodes, encode_queries
from haybale.embeddings.store import EmbeddingStore
from haybale.embeddings.store_files import as_json
from haybale.embeddings.token_batches import check_texts
from haybale.errors import InputError
from haybale.vectors import Floats


class CachedEncoder(Encoder):
    """Read the vectors of stored texts from the store; encode other texts, and all queries, with ``encoder``.

    ``encode`` returns what the encoder would return, rounded if the store is float16. Texts are compared by a hash of
    128 bits. Only the chunks that hold the texts are read.

    Parameters
    ----------
    store : EmbeddingStore
    encoder : Encoder, optional
        The encoder that the store was made with; :class:`InputError` for another. Default: the store's own.
    """

    def __init__(self, store: EmbeddingStore, encoder: Any = None) -> None:
        self.store = store
        self.encoder: Encodes = store.encoder() if encoder is None else encoder
        if encoder is not None and as_json(encoder.describe()) != self.describe():
            raise InputError(f"{store.path} was made with {self.describe()}, found {encoder.describe()}")

    @property
    def dim(self) -> int:
        """The width d of the vectors."""
        return self.store.dim

    def describe(self) -> dict[str, Any]:
        """Return the description of the store's encoder."""
        return dict(self.store.manifest["encoder"])

    @cached_property
    def _rows(self) -> dict[bytes, int]:
        return {_digest(text.as_py()): row for row, text in enumerate(self.store.texts())}

    def encode(self, texts: Sequence[str]) -> Floats:
        """Return (n, d) float32 vectors of n texts."""
        rows = np.array([self._rows.get(_digest(text), -1) for text in check_texts(texts)], dtype=np.int64)
        out = np.empty((len(texts), self.dim), dtype=np.float32)
        out[rows >= 0] = self.store.rows(rows[rows >= 0])
        others = np.flatnonzero(rows < 0)
        if len(others):
            out[others] = np.asarray(self.encoder.encode([texts[int(i)] for i in others]))
        return out

    def encode_queries(self, texts: Sequence[str]) -> Floats:
        """Return (n, d) float32 vectors of n queries, made by the encoder."""
        return np.asarray(encode_queries(self.encoder, texts))


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=16).digest()
