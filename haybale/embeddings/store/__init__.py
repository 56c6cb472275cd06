"""Vectors on disk: written chunk by chunk, resumed after an interruption, read whole or streamed."""

from haybale.embeddings.store.reading import EmbeddingStore
from haybale.embeddings.store.sharding import embed_shards
from haybale.embeddings.store.writing import Embedded, embed

__all__ = ["Embedded", "EmbeddingStore", "embed", "embed_shards"]
