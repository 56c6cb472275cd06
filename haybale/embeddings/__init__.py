"""Text to vectors: encoders, each ``encode(texts) -> (n, d)``, rows of length 1; pieces of passages; the store.

:class:`LongformerEncoder` is imported when it is asked for: it is a module of torch, which the base install lacks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from haybale.embeddings.cached_encoder import CachedEncoder
from haybale.embeddings.chunking import Chunking, cut
from haybale.embeddings.concat import ConcatEncoder
from haybale.embeddings.encoder import Encoder, encode_queries, longformer_encoder, make_encoder
from haybale.embeddings.lsa import LSAEncoder
from haybale.embeddings.sentence_transformer import SentenceTransformerEncoder
from haybale.embeddings.shards import embed_shards
from haybale.embeddings.store import EmbeddingStore
from haybale.embeddings.tfidf import TfidfEncoder
from haybale.embeddings.writing import Embedded, embed

if TYPE_CHECKING:
    from haybale.embeddings.longformer import LongformerEncoder as LongformerEncoder

__all__ = [
    "CachedEncoder",
    "Chunking",
    "ConcatEncoder",
    "Embedded",
    "EmbeddingStore",
    "Encoder",
    "LSAEncoder",
    "SentenceTransformerEncoder",
    "TfidfEncoder",
    "cut",
    "embed",
    "embed_shards",
    "encode_queries",
    "make_encoder",
]


def __getattr__(name: str) -> Any:
    if name == "LongformerEncoder":
        return longformer_encoder()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
