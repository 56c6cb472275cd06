"""Frames of queries, rankings of frames, and engines for the tests of the PyTerrier transformer."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import pandas as pd
from pages import small

from haybale.collections import Collection, CollectionBuilder
from haybale.embeddings import TfidfEncoder
from haybale.engine import Engine


class Numbered:
    """An encoder whose texts are row numbers of vectors."""

    def __init__(self, vectors: Any) -> None:
        self.vectors = vectors

    def encode(self, texts: Sequence[str]) -> Any:
        return self.vectors[[int(text) for text in texts]]


def queries(*texts: str, **columns: Any) -> pd.DataFrame:
    return pd.DataFrame({"qid": [f"q{i}" for i in range(len(texts))], "query": list(texts), **columns})


def rankings(frame: pd.DataFrame) -> dict[str, list[tuple[str, float]]]:
    """{qid: [(docno, score), …]}, of a frame whose rows are in order and whose ranks say so."""
    assert (frame["rank"] == frame.groupby("qid").cumcount()).all()
    return {qid: list(zip(part["docno"], part["score"], strict=True)) for qid, part in frame.groupby("qid")}


@cache
def engine() -> Engine:
    """Thirty documents of words around a topic, with judged queries in train and dev."""
    return Engine(small(), encoder=TfidfEncoder(min_df=1))


def collection_of(documents: dict[str, list[str]]) -> Collection:
    builder = CollectionBuilder("documents", language="english")
    for doc_id, passages in documents.items():
        builder.add_document(doc_id, passages)
    return builder.build()
