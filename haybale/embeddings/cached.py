"""An encoder that looks up what a store already has."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from haybale.embeddings.encoder import Encoder, check_texts, encode_queries
from haybale.embeddings.store.manifest import as_json
from haybale.embeddings.store.reading import EmbeddingStore
from haybale.errors import InputError
from haybale.vectors import Floats


class CachedEncoder:
    """Vectors of texts that are in the store from there, of others by ``encoder`` (default: the store's own).

    ``encode`` gives what the encoder would have given (rounded as the store is, for float16). Texts are compared by
    128 bits of their hash, 16 bytes of memory each; the vectors stay on disk but for the chunks that are read.
    Queries are always encoded. Errors: :class:`InputError` for an encoder other than the store was made with.
    """

    def __init__(self, store: EmbeddingStore, encoder: Any = None) -> None:
        self.store = store
        self.encoder: Encoder = store.encoder() if encoder is None else encoder
        self.found = self.missed = 0  # texts looked up so far
        described = getattr(encoder, "describe", lambda: store.manifest["encoder"])()
        if as_json(described) != store.manifest["encoder"]:
            raise InputError(f"{store.path} was made with {store.manifest['encoder']}, found {described}")

    @property
    def width(self) -> int:
        return self.store.width

    def describe(self) -> dict[str, Any]:
        return dict(self.store.manifest["encoder"])

    @cached_property
    def _rows(self) -> tuple[NDArray[np.bytes_], NDArray[np.int64]]:
        """Sorted digests of the store's texts, and the row of each."""
        digests = np.array([_digest(text.as_py()) for text in self.store.texts()], dtype="S32")
        order = np.argsort(digests, kind="stable")
        return digests[order], order

    def encode(self, texts: Sequence[str]) -> Floats:
        """(n,) texts to (n, d) float32."""
        digests, rows = self._rows
        asked = np.array([_digest(text) for text in check_texts(texts)], dtype="S32")
        place = np.minimum(np.searchsorted(digests, asked), len(digests) - 1)
        known = digests[place] == asked
        out = np.empty((len(texts), self.width), dtype=np.float32)
        out[known] = self.store.rows(rows[place[known]])
        others = np.flatnonzero(~known)
        if len(others):
            out[others] = self.encoder.encode([texts[int(i)] for i in others])
        self.found, self.missed = self.found + int(known.sum()), self.missed + len(others)
        return out

    def encode_queries(self, texts: Sequence[str]) -> Floats:
        """(n,) queries to (n, d) float32, by the encoder."""
        return np.asarray(encode_queries(self.encoder, texts))


def _digest(text: str) -> bytes:
    # Hexadecimal: NumPy's byte strings drop trailing zero bytes.
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest().encode()
