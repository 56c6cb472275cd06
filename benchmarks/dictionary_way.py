"""PARM's aggregations as notebooks have them: dictionaries, one hit at a time. The peer that bench_parm.py times."""

from __future__ import annotations

from typing import Any

import numpy as np

from haybale.retrieval import Hits, Vectors

Scores = list[dict[str, float]]  # of each query document, its documents


def aggregate(
    name: str, hits: Hits, documents: list[str], offsets: np.ndarray, vectors: Vectors | None, n_hits: int = 1000
) -> Scores:
    """``documents`` (n_passages,) is the id of each passage's document; the formulas are those of haybale's."""
    # Without padding: a list may be short.
    lists = [row[row >= 0].tolist() for row in hits.passages]
    scores = [row[: len(real)].tolist() for row, real in zip(hits.scores, lists, strict=True)]
    return [
        _query(name, lists[start:end], scores[start:end], documents, vectors, start, n_hits)
        for start, end in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)
    ]


def rank(scores: Scores) -> list[list[tuple[str, float]]]:
    """Documents by falling score, then id."""
    return [sorted(found.items(), key=lambda pair: (-pair[1], pair[0])) for found in scores]


def _query(
    name: str,
    lists: list[list[int]],
    scores: list[list[float]],
    documents: list[str],
    vectors: Vectors | None,
    first: int,
    n_hits: int,
) -> dict[str, float]:
    found: dict[str, Any] = {}
    if name in ("rrf", "combsum"):
        for passages, values in zip(lists, scores, strict=True):
            for rank, (passage, value) in enumerate(zip(passages, values, strict=True), start=1):
                document = documents[passage]
                worth = 1 / (60 + rank) if name == "rrf" else value
                found[document] = found.get(document, 0.0) + worth
        return found
    assert vectors is not None
    paragraphs = vectors.paragraphs[first : first + len(lists)]
    if name in ("vmin", "vmax"):
        extreme = np.minimum if name == "vmin" else np.maximum
        for passages in lists:
            for passage in passages:
                document, vector = documents[passage], vectors.passages[passage]
                found[document] = extreme(found[document], vector) if document in found else vector
        query = extreme.reduce(paragraphs, axis=0)
        return {document: float(query @ vector) for document, vector in found.items()}
    counts: dict[str, int] = {}
    for passages, values in zip(lists, scores, strict=True):
        for rank, (passage, value) in enumerate(zip(passages, values, strict=True), start=1):
            document, vector = documents[passage], vectors.passages[passage]
            if name == "vrrf":
                vector = vector / (60 + rank)
            elif name == "vscores":
                vector = vector * value
            elif name == "vranks":
                vector = vector * (n_hits + 1 - rank)
            if document in found:
                found[document] = found[document] + vector
                counts[document] += 1
            else:
                found[document], counts[document] = vector, 1
    query = paragraphs.sum(axis=0)
    if name == "vavg":
        return {d: float(query @ vector) / len(paragraphs) / counts[d] for d, vector in found.items()}
    return {document: float(query @ vector) for document, vector in found.items()}
