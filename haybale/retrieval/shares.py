"""What each pair (query paragraph, paragraph of the document) adds to a document's score."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from haybale.device import device_of, to_numpy
from haybale.retrieval.aggregation.block import Options
from haybale.retrieval.aggregation.checks import find_aggregation
from haybale.retrieval.aggregation.products import Vectors
from haybale.retrieval.aggregation.task import prepared
from haybale.retrieval.hits import Hits, Ints
from haybale.vectors import Matrix, array_namespace


class Shares(NamedTuple):
    """The document's score (None: not found), its shares (n, m), and all documents found with their scores."""

    score: float | None
    share: NDArray[np.float64]
    documents: Ints
    scores: NDArray[np.float64]


def shares_of(
    doc_of: Ints,
    aggregation: str,
    hits: Hits,
    vectors: Vectors | None,
    document: int,
    span: tuple[int, int],
    weights: Sequence[float] | None,
    options: dict[str, Any],
) -> Shares:
    """Aggregate the hits of one query document (n, N) and take one document apart, whose passages are ``span``."""
    n, (start, end) = len(hits), span
    share = np.zeros((n, end - start))
    with device_of(hits.passages).current():
        one = np.array([0, n])
        task = prepared(hits, aggregation, doc_of, one, vectors=vectors, weights=weights, options=Options(**options))
        done = None if task is None else next(task.blocks(slice(0, 1)), None)
        if done is None:
            return Shares(None, share, np.empty(0, dtype=np.int64), np.empty(0))
        _, block, scored = done
        cells, _, documents = map(to_numpy, block.filled())
        scores = to_numpy(scored.score)[cells]
        at = np.flatnonzero(documents == document)
        if not len(at):
            return Shares(None, share, documents, scores)
        score, cell = float(scores[at[0]]), int(cells[at[0]])
        # (k,) the hits of the document: row, and passage
        rows, columns = np.nonzero(to_numpy(block.cell == cell))
        passages = to_numpy(block.passages)[rows, columns]
        extreme = find_aggregation(aggregation).vectors
        if scored.share is not None:
            by = 1 if scored.divisor is None else float(scored.divisor[cell])
            share[rows, passages - start] = to_numpy(scored.share)[rows, columns] / by
        elif extreme is None:  # a maximum: the first of the best
            best = np.flatnonzero(to_numpy(block.scores)[rows, columns] == np.float32(score))[0]
            share[rows[best], passages[best] - start] = score
        else:
            assert task is not None
            assert task.vectors is not None
            paragraphs = np.flatnonzero(to_numpy(block.weight) > 0)
            _by_dimension(share, paragraphs, np.unique(passages), task.vectors, start, extreme)
    return Shares(score, share, documents, scores)


def _by_dimension(share: Any, paragraphs: Ints, retrieved: Ints, vectors: Vectors, start: int, extreme: str) -> None:
    """⟨min q, min p⟩ is a sum over dimensions, each with one paragraph on either side that gives the extreme."""
    q, p = _rows(vectors.paragraphs, paragraphs), _rows(vectors.passages, retrieved)
    if sparse.issparse(q):
        terms = np.union1d(q.indices, p.indices)  # outside of them all is 0
        q, p = q[:, terms].toarray(), p[:, terms].toarray()
    pick = np.argmin if extreme == "minimum" else np.argmax
    row, column = pick(q, axis=0), pick(p, axis=0)  # (d,) the first of equal ones
    d = np.arange(q.shape[1])
    product = q[row, d].astype(np.float64) * p[column, d].astype(np.float64)
    np.add.at(share, (paragraphs[row], retrieved[column] - start), product)


def _rows(matrix: Matrix, numbers: Ints) -> Matrix:
    """Rows of a matrix, in main memory."""
    return matrix[numbers] if sparse.issparse(matrix) else to_numpy(matrix[array_namespace(matrix).asarray(numbers)])
