"""The score of a document by its most similar pairs of paragraphs: one of the query, one of the document."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from haybale.pairs.pair_encoders import PairEncoder
from haybale.parameters import COUNT, Constraints, one_of
from haybale.rankers.explanation import Share
from haybale.rankers.query_batch import QueryBatch
from haybale.retrieval.hits import Ints

BEST_PAIRS: dict[str, Constraints] = {"n_pairs": COUNT, "aggregation": one_of(["max", "mean"]), "top": COUNT}
_PAIRS_AT_ONCE = 4096

Scores = NDArray[np.float64]


class PairReranker(Protocol):
    """A re-ranker that scores a document by its best pairs of paragraphs."""

    n_pairs: int  # pairs of a document that are read: those whose vectors in the engine are most similar
    aggregation: str  # "max" or "mean", of the pairs' scores
    top: int  # number of the best scores that the mean is of


def document_scores(
    ranker: PairReranker, encoder: PairEncoder, batch: QueryBatch, rows: Ints, documents: Ints
) -> Scores:
    """Return the scores (n,) of candidates: queries by their rows in the batch, and documents by number."""
    read = _read(ranker, encoder, batch, rows, documents)
    return np.array([_counted(ranker, values).mean() for _, values in read], dtype=np.float64)


def pair_shares(ranker: PairReranker, encoder: PairEncoder, batch: QueryBatch, document: int) -> list[Share]:
    """Return what each pair adds to the score of a document for the one query of a batch."""
    ((pairs, values),) = _read(ranker, encoder, batch, [0], [document])
    counted = np.argsort(-values, kind="stable")[: len(_counted(ranker, values))]
    return [
        paragraph_share(batch, document, int(pairs[at, 0]), int(pairs[at, 1]), float(values[at]) / len(counted))
        for at in counted.tolist()
    ]


def _counted(ranker: PairReranker, values: Scores) -> Scores:
    """Return the scores that count, best first."""
    return -np.sort(-values)[: 1 if ranker.aggregation == "max" else ranker.top]


def _read(
    ranker: PairReranker,
    encoder: PairEncoder,
    batch: QueryBatch,
    rows: Sequence[int] | Ints,
    documents: Sequence[int] | Ints,
) -> Iterator[tuple[Ints, Scores]]:
    """Yield for each candidate its pairs of paragraph and passage, (p, 2), and their scores, (p,)."""
    index, texts = batch.engine.passages, batch.engine.collection.passages.texts
    waiting: list[Ints] = []
    firsts: list[str] = []
    seconds: list[str] = []
    for place, (row, document) in enumerate(zip(rows, documents, strict=True), 1):
        near = np.asarray(index.similarities(batch.paragraph_vectors[row], int(document)))
        best = np.argsort(-near, axis=None, kind="stable")[: ranker.n_pairs]
        chosen = np.stack(np.divmod(best, near.shape[1]), axis=1)
        waiting.append(chosen)
        start = index.doc_offsets[document]
        firsts += [batch.paragraphs[row][i] for i in chosen[:, 0].tolist()]
        seconds += [texts[int(start + j)].as_py() for j in chosen[:, 1].tolist()]
        if len(firsts) >= _PAIRS_AT_ONCE or place == len(rows):
            which = np.repeat(np.arange(len(firsts))[:, None], 2, axis=1)
            values = encoder.encode(firsts, seconds, which)[:, 0].astype(np.float64)
            yield from zip(waiting, np.split(values, np.cumsum([*map(len, waiting)])[:-1]), strict=True)
            waiting, firsts, seconds = [], [], []


def paragraph_share(batch: QueryBatch, document: int, paragraph: int, passage: int, share: float) -> Share:
    """Return the share of a pair: a paragraph of the one query of a batch, and a passage by its place in a document."""
    passages = batch.engine.collection.passages
    number = int(passages.doc_offsets[document]) + passage
    return Share(
        f"paragraph {paragraph} → passage {passages.ids[number].as_py()}", share, passages.texts[number].as_py()
    )
