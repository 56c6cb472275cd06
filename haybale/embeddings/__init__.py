"""Text to vectors: encoders, each ``encode(texts) -> (n, d)``, rows of length 1; pieces of passages; the store.

:class:`LongformerEncoder` is imported when it is asked for: it is a module of torch, which the base install lacks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from haybale.embeddings.cached import CachedEncoder
from haybale.embeddings.chunking import Chunking, Pieces, cut
from haybale.embeddings.concat import ConcatEncoder
from haybale.embeddings.counts import EncodeCounts
from haybale.embeddings.encoder import Encoder, encode_on, encode_queries
from haybale.embeddings.find import find_encoder
from haybale.embeddings.lsa import LSAEncoder
from haybale.embeddings.sentence_transformer import SentenceTransformerEncoder
from haybale.embeddings.store import Embedded, EmbeddingStore, embed, embed_shards
from haybale.embeddings.tfidf import TfidfEncoder

if TYPE_CHECKING:
    from haybale.embeddings.longformer.encoder import LongformerEncoder as LongformerEncoder

__all__ = [
    "CachedEncoder",
    "Chunking",
    "ConcatEncoder",
    "Embedded",
    "EmbeddingStore",
    "EncodeCounts",
    "Encoder",
    "LSAEncoder",
    "Pieces",
    "SentenceTransformerEncoder",
    "TfidfEncoder",
    "cut",
    "embed",
    "embed_shards",
    "encode_on",
    "encode_queries",
    "find_encoder",
]


def __getattr__(name: str) -> Any:
    if name == "LongformerEncoder":
        from haybale.extras import require

        for package in ("torch", "transformers", "sentence_transformers"):
            require(package, "neural")
        return require("haybale.embeddings.longformer.encoder", "neural").LongformerEncoder
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
