"""Text to vectors: encoders, each ``encode(texts) -> (n, d)`` float32, L2-normalised; dense or CSR."""

from haybale.embeddings.concat import ConcatEncoder
from haybale.embeddings.encoder import Encoder, encode_queries
from haybale.embeddings.lsa import LSAEncoder
from haybale.embeddings.sentence_transformer import SentenceTransformerEncoder
from haybale.embeddings.tfidf import TfidfEncoder

__all__ = [
    "ConcatEncoder",
    "Encoder",
    "LSAEncoder",
    "SentenceTransformerEncoder",
    "TfidfEncoder",
    "encode_queries",
]
