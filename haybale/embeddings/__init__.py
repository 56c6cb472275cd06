"""Text to vectors: encoders, each ``encode(texts) -> (n, d)`` float32, L2-normalised."""

from haybale.embeddings.encoder import Encoder
from haybale.embeddings.lsa import LSAEncoder
from haybale.embeddings.sentence_transformer import SentenceTransformerEncoder

__all__ = ["Encoder", "LSAEncoder", "SentenceTransformerEncoder"]
