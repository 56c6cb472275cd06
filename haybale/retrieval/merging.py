"""Merge the results of searches over different passages; the total order makes them equal to those of one search."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from haybale.retrieval.hits import NO_PASSAGE, Ints, select
from haybale.retrieval.id_order import IdOrder
from haybale.vectors import Floats

Found = tuple[Ints, Floats]  # (m, k) passage numbers and scores, best first
FoundDocuments = tuple[Ints, Ints, Floats]  # query rows, document numbers and scores, each (n,)
_QUERIES_PER_MERGE = 1024


def no_hits(m: int, k: int) -> Found:
    """Return m rows of k hits that are only padding."""
    return np.full((m, k), NO_PASSAGE, dtype=np.int64), np.full((m, k), -np.inf, dtype=np.float32)


def merge_hits(first: Found, second: Found, k: int, order: IdOrder) -> Found:
    """Return the k best of two searches over different passages."""
    merged = no_hits(len(first[0]), min(k, first[0].shape[1] + second[0].shape[1]))
    for start in range(0, len(first[0]), _QUERIES_PER_MERGE):
        rows = slice(start, start + _QUERIES_PER_MERGE)
        numbers = np.concatenate([first[0][rows], second[0][rows]], axis=1)
        scores = np.concatenate([first[1][rows], second[1][rows]], axis=1)
        merged[0][rows], merged[1][rows] = select(scores, k, numbers, order)
    return merged


def merge_documents(parts: Sequence[FoundDocuments], k: int) -> FoundDocuments:
    """Return the documents of several searches that score at least as high as the k-th best of their query.

    Each part is sorted by row, then by document, and so is the result. The parts have different documents.

    >>> one = np.array([0, 0]), np.array([0, 1]), np.array([0.5, 0.4], dtype=np.float32)
    >>> other = np.array([0, 1]), np.array([3, 3]), np.array([0.5, 0.1], dtype=np.float32)
    >>> rows, documents, scores = merge_documents([one, other], k=1)
    >>> rows, documents, scores
    (array([0, 0, 1]), array([0, 3, 3]), array([0.5, 0.5, 0.1], dtype=float32))
    """
    rows, documents, scores = (np.concatenate(column) for column in zip(*parts, strict=True))
    if len(parts) > 1:
        # The sort is a merge: NumPy's stable sort finds the parts, which are sorted already.
        order = np.argsort(rows.astype(np.int64) * (int(documents.max(initial=0)) + 1) + documents, kind="stable")
        rows, documents, scores = rows[order], documents[order], scores[order]
    edges = np.flatnonzero(np.diff(rows, prepend=-1, append=-1))  # where each query begins; none if nothing matches
    starts, ends = edges[:-1], edges[1:]
    kept = np.ones(len(rows), dtype=bool)
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        if end - start > k:
            query_scores = scores[start:end]
            kept[start:end] = query_scores >= np.partition(query_scores, end - start - k)[end - start - k]
    return rows[kept], documents[kept], scores[kept]


def local_numbers(documents: Ints, first: int, n: int) -> Ints:
    """Renumber the documents ``first:first + n`` from 0; return -1 for all others."""
    return np.where((documents >= first) & (documents < first + n), documents - first, -1)
