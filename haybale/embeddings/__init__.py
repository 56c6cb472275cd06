"""Text to vectors: encoders, each ``encode(texts) -> (n, d)`` float32, L2-normalised; chunking; the store."""

from haybale.embeddings.cached import CachedEncoder
from haybale.embeddings.chunking import Chunking, Pieces, cut
from haybale.embeddings.counts import EncodeCounts
from haybale.embeddings.encoder import Encoder, encode_queries
from haybale.embeddings.lsa import LSAEncoder
from haybale.embeddings.sentence_transformer import SentenceTransformerEncoder
from haybale.embeddings.store import Embedded, EmbeddingStore, embed

__all__ = [
    "CachedEncoder",
    "Chunking",
    "Embedded",
    "EmbeddingStore",
    "EncodeCounts",
    "Encoder",
    "LSAEncoder",
    "Pieces",
    "SentenceTransformerEncoder",
    "cut",
    "embed",
    "encode_queries",
]
