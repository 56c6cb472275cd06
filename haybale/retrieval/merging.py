"""Merge the results of several searches, over different passages or for the same queries, in the total order."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from haybale.errors import InputError
from haybale.retrieval.hits import NO_PASSAGE, Hits, Ints, from_flat, select
from haybale.retrieval.id_order import IdOrder
from haybale.retrieval.passages import PassageTable
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


def pool(*parts: Hits, index: PassageTable | None = None) -> Hits:
    """Merge the hits of several searches for the same queries.

    A passage scores by its best reciprocal rank in any of the searches. The result holds NumPy arrays.

    Parameters
    ----------
    *parts : Hits
        The hits of each search.
    index : PassageTable, optional
        The index that was searched, or another one of the same passages. Passages of equal ranks are in the order of
        its ids; by default, in the order of their numbers.

    Raises
    ------
    InputError
        The searches have different numbers of queries.

    Examples
    --------
    >>> a = Hits(np.array([[4, 2]]), np.array([[9.0, 8.0]], dtype=np.float32))
    >>> b = Hits(np.array([[2, 7]]), np.array([[0.3, 0.2]], dtype=np.float32))
    >>> pool(a, b).passages
    array([[2, 4, 7]])
    """
    if len({len(part) for part in parts}) != 1:
        raise InputError(f"pool: hits must have the same number of queries, found {[len(part) for part in parts]}")
    flats = [part.to_numpy().flat() for part in parts]
    rows, ranks, passages = (np.concatenate([flat[column] for flat in flats]) for column in range(3))
    positions = None if index is None else index.columns.order.places
    order = np.lexsort((passages if positions is None else positions[passages], ranks, rows))
    rows, ranks, passages = rows[order], ranks[order], passages[order]
    # After sorting, a pair of row and passage occurs first with its best rank.
    _, first = np.unique(rows * (passages.max(initial=0) + 1) + passages, return_index=True)
    first.sort()
    return from_flat(len(parts[0]), rows[first], passages[first], (1 / ranks[first]).astype(np.float32))
