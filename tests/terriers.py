"""Frames of queries, rankings of frames, and a small ensemble for the tests of the PyTerrier transformers."""

from __future__ import annotations

from functools import cache

import pandas as pd
from worlds import world

from haybale.ensemble import SVREnsemble
from haybale.retrieval import PassageIndex


class Numbered:
    """An encoder whose texts are row numbers of vectors."""

    def __init__(self, vectors) -> None:
        self.vectors = vectors

    def encode(self, texts):
        return self.vectors[[int(text) for text in texts]]


def queries(*texts: str, **columns) -> pd.DataFrame:
    return pd.DataFrame({"qid": [f"q{i}" for i in range(len(texts))], "query": list(texts), **columns})


def rankings(frame: pd.DataFrame) -> dict[str, list[tuple[str, float]]]:
    """{qid: [(docno, score), …]}, of a frame whose rows are in order and whose ranks say so."""
    assert (frame["rank"] == frame.groupby("qid").cumcount()).all()
    return {qid: list(zip(part["docno"], part["score"], strict=True)) for qid, part in frame.groupby("qid")}


@cache
def trained() -> tuple[SVREnsemble, PassageIndex, Numbered]:
    """An ensemble, its index, and an encoder of its training queries."""
    index, vectors, relevant = world()
    return SVREnsemble(3, k=10).fit(index, vectors, relevant), index, Numbered(vectors)
