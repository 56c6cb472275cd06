"""Encoders, pieces of passages, and the resumable embedding store. Importing this package does not import torch."""

from __future__ import annotations

from haybale.embeddings.chunking import Chunking, cut
from haybale.embeddings.concat import ConcatEncoder
from haybale.embeddings.encoder import Encoder, encode_queries, encode_texts, encoder_maker, parse_encoder
from haybale.embeddings.longformer import LongformerEncoder
from haybale.embeddings.lsa import LSAEncoder
from haybale.embeddings.sentence_transformer import SentenceTransformerEncoder
from haybale.embeddings.store import EmbeddingStore
from haybale.embeddings.tfidf import TfidfEncoder
from haybale.embeddings.writing import Embedded, embed

__all__ = [
    "Chunking",
    "ConcatEncoder",
    "Embedded",
    "EmbeddingStore",
    "Encoder",
    "LSAEncoder",
    "LongformerEncoder",
    "SentenceTransformerEncoder",
    "TfidfEncoder",
    "cut",
    "embed",
    "encode_queries",
    "encode_texts",
    "encoder_maker",
    "parse_encoder",
]
__dir__ = __all__.copy  # dir() lists the public names only
