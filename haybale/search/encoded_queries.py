"""Encode the texts of queries; many texts are encoded in blocks, as tasks."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from haybale.embeddings import encode_queries
from haybale.engine import Engine
from haybale.engine.opened import opened_engine, task_address
from haybale.kept_results import Arrays, spread_resumably, task_key
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
    if len(texts) <= BLOCK or getattr(engine.encoder, "is_sparse", False):
        return encode_queries(engine.encoder, texts)
    by_tasks, address = task_address(engine)
    if not by_tasks:
        return encode_queries(engine.encoder, texts)
    blocks = [list(texts[start : start + BLOCK]) for start in range(0, len(texts), BLOCK)]
    # Without an address, only this process has the engine; with one, any process can open it.
    encode = partial(_encoded, engine) if address is None else partial(encode_block, *address)
    parts = spread_resumably(
        encode,
        [(block,) for block in blocks],
        lambda: (task_key("encode queries", engine.documents_digest, block) for block in blocks),
        "encoding queries",
        n_jobs=1 if address is None else None,  # an encoder uses all cores itself
    )
    return np.concatenate([part["vectors"] for part in parts])


def encode_block(folder: str, documents: str, texts: Sequence[str]) -> Arrays:
    """Return the vectors of some texts by the encoder of the engine at an address, in any process."""
    return _encoded(opened_engine(folder, documents), texts)


def _encoded(engine: Engine, texts: Sequence[str]) -> Arrays:
    return {"vectors": np.asarray(encode_queries(engine.encoder, texts))}
