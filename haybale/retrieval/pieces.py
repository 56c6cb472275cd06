"""Hits over pieces of passages to hits over the passages."""

from __future__ import annotations

import numpy as np

from haybale.errors import InputError
from haybale.retrieval.hits import Hits, Ints, from_flat


def passage_hits(hits: Hits, passage: Ints) -> Hits:
    """Each passage by its best piece. ``passage`` (n_pieces,) is the passage of each piece (``Pieces.passage``).

    Rows have as many hits as passages were among their pieces, so fewer than ``hits``; best first, ties by number.

    >>> hits = Hits(np.array([[3, 0, 2]]), np.array([[0.9, 0.8, 0.7]], dtype=np.float32))
    >>> passage_hits(hits, np.array([0, 0, 1, 1])).passages
    array([[1, 0]])
    """
    hits = hits.to_numpy()
    rows, _, pieces, scores = hits.flat()
    if len(pieces) and pieces.max() >= len(passage):
        raise InputError(f"hits name piece {pieces.max()}, expected numbers below {len(passage)}")
    passages = np.asarray(passage, dtype=np.int64)[pieces]
    order = np.lexsort((passages, -scores, rows))
    rows, passages, scores = rows[order], passages[order], scores[order]
    _, first = np.unique(np.stack([rows, passages]), axis=1, return_index=True)
    first.sort()
    return from_flat(len(hits), rows[first], passages[first], scores[first])
