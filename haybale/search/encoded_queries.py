"""Encode the texts of queries; many texts are encoded in blocks, as tasks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from haybale.embeddings import encode_queries
from haybale.engine import Engine
from haybale.engine.workers import Workers, sendable_engine
from haybale.kept_results import Arrays
from haybale.vectors import Matrix, array_namespace

BLOCK = 512  # texts that are encoded by one task


def encoded_queries(engine: Engine, texts: Sequence[str]) -> Matrix:
    """Return the vectors (n, d) of texts as queries.

    Many texts are encoded in blocks where tasks run in other processes, and within
    :func:`~haybale.kept_results.resumable`. Sparse vectors take so little time that they are always made here. Of many
    equal texts, one is encoded.
    """
    distinct = dict.fromkeys(texts) if len(texts) > BLOCK else {}
    if 2 * len(distinct) < len(texts) and distinct:  # such as the empty lines and numbers of a long document
        rows = {text: row for row, text in enumerate(distinct)}
        vectors = encoded_queries(engine, list(distinct))
        repeated: Matrix = vectors[array_namespace(vectors).asarray([rows[text] for text in texts])]
        return repeated
    if len(texts) <= BLOCK or getattr(engine.encoder, "is_sparse", False) or not (workers := Workers(engine)).divide:
        return encode_queries(engine.encoder, texts)
    blocks = [(list(texts[start : start + BLOCK]),) for start in range(0, len(texts), BLOCK)]
    results = workers.run(encode_block, (sendable_engine(engine),), blocks, lambda: blocks, "encoding queries")
    return np.concatenate([arrays["vectors"] for arrays in results])


def encode_block(engine: Engine, texts: Sequence[str]) -> Arrays:
    """Return the vectors of some texts by the encoder of an engine."""
    return {"vectors": np.asarray(encode_queries(engine.encoder, texts))}
