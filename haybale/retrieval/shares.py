"""What each pair (query paragraph, paragraph of the document) adds to a document's score."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from haybale.retrieval.aggregation.aggregate import scored_blocks
from haybale.retrieval.aggregation.block import Block, Options
from haybale.retrieval.aggregation.checks import find_aggregation
from haybale.retrieval.aggregation.products import Vectors
from haybale.retrieval.hits import Hits, Ints


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
    one = np.array([0, n])
    blocks = scored_blocks(hits, aggregation, doc_of, one, vectors=vectors, weights=weights, options=Options(**options))
    done = next(blocks, None)
    if done is None:
        return Shares(None, share, np.empty(0, dtype=np.int64), np.empty(0))
    _, block, scored = done
    cells, _, documents = block.filled()
    scores = scored.score[cells]
    at = np.flatnonzero(documents == document)
    if not len(at):
        return Shares(None, share, documents, scores)
    score, cell = float(scores[at[0]]), cells[at[0]]
    extreme = find_aggregation(aggregation).vectors
    if scored.share is not None:
        rows, columns = np.nonzero(block.cell == cell)
        by = 1 if scored.divisor is None else scored.divisor[cell]
        share[rows, block.passages[rows, columns] - start] = scored.share[rows, columns] / by
    elif extreme is None:  # a maximum: the first of the best
        rows, columns = np.nonzero((block.cell == cell) & (block.scores == np.float32(score)))
        share[rows[0], block.passages[rows[0], columns[0]] - start] = score
    else:
        assert vectors is not None
        _by_dimension(share, block, cell, vectors, start, extreme)
    return Shares(score, share, documents, scores)


def _by_dimension(share: Any, block: Block, cell: Any, vectors: Vectors, start: int, extreme: str) -> None:
    """⟨min q, min p⟩ is a sum over dimensions, each with one paragraph on either side that gives the extreme."""
    paragraphs = np.flatnonzero(block.weight > 0)
    retrieved = np.unique(block.passages[block.cell == cell])
    q, p = vectors.paragraphs[paragraphs], vectors.passages[retrieved]
    if sparse.issparse(q):
        terms = np.union1d(q.indices, p.indices)  # outside of them all is 0
        q, p = q[:, terms].toarray(), p[:, terms].toarray()
    pick = np.argmin if extreme == "minimum" else np.argmax
    row, column = pick(q, axis=0), pick(p, axis=0)  # (d,) the first of equal ones
    d = np.arange(q.shape[1])
    product = q[row, d].astype(np.float64) * p[column, d]
    np.add.at(share, (paragraphs[row], retrieved[column] - start), product)
