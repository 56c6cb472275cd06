"""Batch scoring of frames: pairs of query and passage by id, a row a pair, in whatever library the frame is of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from sklearn.utils.validation import check_is_fitted

from haybale.device import to_numpy
from haybale.ensemble.rows import Ints
from haybale.ensemble.scoring import EnsembleScorer
from haybale.errors import InputError
from haybale.frames import Frame, check_filled, numbers, to_pandas, with_column
from haybale.vectors import Floats, Matrix

_PAIRS = 2**18  # scored at once


def score_frame(
    ensemble: EnsembleScorer,
    query_vectors: Matrix | Sequence[Matrix],
    query_ids: Sequence[str],
    frame: Frame,
    *,
    features: Sequence[str] | Any = None,
) -> Frame:
    """The frame with a float32 column ``score``: what the ensemble gives each of its pairs of query and passage.

    ``frame``, of pandas, cuDF or pyarrow, has columns ``query_id`` and ``passage_id``, a row a pair in any order; it
    comes back in its own library with the same rows and all of its columns (an old ``score`` is replaced). A pair may
    stand in several rows, each of which is scored. ``query_vectors`` (m, d), one matrix a space, are those of
    ``query_ids`` (m,); queries without a row cost nothing. ``features``, for an ensemble that was trained with them:
    names of columns of the frame, or an array (n_rows, f). Rows are scored in batches of queries, so memory does not
    grow with the frame. Errors: unknown ids, which are named; a missing id; a query id given twice.

    >>> from haybale import PassageIndex, SVREnsemble
    >>> index = PassageIndex(np.eye(3), passage_ids=["a", "b", "c"], doc_ids=["a", "b", "c"])
    >>> model = SVREnsemble(n_bags=2, k=2).fit(index, np.eye(3), [["a"], ["b"], ["c"]])
    >>> pairs = pd.DataFrame({"query_id": ["q2", "q1"], "passage_id": ["b", "b"], "page": [7, 8]})
    >>> list(score_frame(model, np.eye(3)[:2], ["q1", "q2"], pairs).columns)
    ['query_id', 'passage_id', 'page', 'score']
    """
    check_is_fitted(ensemble, "support_")
    spaces = _spaces(query_vectors)
    n_queries = {int(space.shape[0]) for space in spaces}
    if n_queries != {len(query_ids)}:
        raise InputError(f"{len(query_ids)} query ids for {', '.join(map(str, sorted(n_queries)))} query vectors")
    pairs = to_pandas(frame, ["query_id", "passage_id"], "score_frame")
    check_filled(pairs, "score_frame")
    query = _numbers(pairs["query_id"].astype(str), query_ids)
    codes, distinct = pd.factorize(pairs["passage_id"].astype(str))
    passage = ensemble.index_.numbers(list(distinct))[codes]
    evidence = _features(frame, features, len(pairs))
    scores = np.empty(len(pairs), dtype=np.float32)
    for batch in _batches(query, len(query_ids)):
        passages = np.full(batch.shape, -1, dtype=np.int64)
        passages[batch.row, batch.column] = passage[batch.pairs]
        values = None
        if evidence is not None:
            values = np.zeros((*batch.shape, evidence.shape[1]), dtype=np.float32)
            values[batch.row, batch.column] = evidence[batch.pairs]
        part = [space[batch.first : batch.first + batch.shape[0]] for space in spaces]
        found = ensemble.score_candidates(part if len(part) > 1 else part[0], passages, values)
        scores[batch.pairs] = to_numpy(found)[batch.row, batch.column]
    return with_column(frame, "score", scores)


def _spaces(query_vectors: Matrix | Sequence[Matrix]) -> list[Matrix]:
    """One matrix a space, of which a plain list of lists is one; they stay on their device."""
    if not isinstance(query_vectors, list | tuple):
        return [query_vectors]
    if query_vectors and getattr(query_vectors[0], "ndim", 1) == 2:
        return list(query_vectors)
    return [np.asarray(query_vectors, dtype=np.float32)]


def _numbers(ids: pd.Series, query_ids: Sequence[str]) -> Ints:
    """(n,) the row of each query id among ``query_ids``."""
    known = pd.Index([str(query_id) for query_id in query_ids])
    if not known.is_unique:
        raise InputError(f"query_ids: {known[known.duplicated()][0]!r} stands there twice")
    numbers = known.get_indexer(pd.Index(ids))
    if (numbers < 0).any():
        row = int((numbers < 0).argmax())
        raise InputError(f"score_frame: row {row} names query {ids.iloc[row]!r}, which is not among the query_ids")
    return np.asarray(numbers, dtype=np.int64)


def _features(frame: Frame, features: Sequence[str] | Any, n: int) -> Floats | None:
    """(n, f) the features of each row."""
    if features is None:
        return None
    if isinstance(features, list | tuple) and all(isinstance(name, str) for name in features):
        found = to_pandas(frame, features, "score_frame")
        columns = [numbers(found, name, "score_frame").astype(np.float32) for name in features]
        values = np.stack(columns, axis=1) if columns else np.empty((n, 0), dtype=np.float32)
    else:
        values = np.asarray(to_numpy(features), dtype=np.float32)
    if values.ndim != 2 or len(values) != n:
        raise InputError(f"features: expected {n} rows, one a row of the frame, found shape {values.shape}")
    return values


class _Batch:
    """Pairs of queries ``first`` and after, each with its place in a table of ``shape``."""

    def __init__(self, first: int, n_queries: int, pairs: Ints, row: Ints, column: Ints) -> None:
        self.first, self.pairs, self.row, self.column = first, pairs, row, column
        self.shape = (n_queries, int(column.max(initial=-1)) + 1)


def _batches(query: Ints, m: int, size: int = _PAIRS) -> Iterator[_Batch]:
    """Pairs by the number of their query, of m, in tables (queries, pairs of each) of at most ``size`` cells.

    >>> [(batch.first, batch.shape, batch.pairs.tolist()) for batch in _batches(np.array([1, 0, 1, 1, 3]), 4, size=2)]
    [(0, (1, 1), [1]), (1, (1, 2), [0, 2]), (1, (1, 1), [3]), (3, (1, 1), [4])]
    """
    order = np.argsort(query, kind="stable")
    counts = np.bincount(query, minlength=m)
    ends = np.cumsum(counts)
    column = np.arange(len(order)) - np.repeat(ends - counts, counts)  # of the pairs in order
    asked = np.flatnonzero(counts)
    at = 0
    while at < len(asked):
        first = last = int(asked[at])
        width = int(counts[first])
        at += 1
        while at < len(asked) and (int(asked[at]) + 1 - first) * max(width, int(counts[asked[at]])) <= size:
            last, width = int(asked[at]), max(width, int(counts[asked[at]]))
            at += 1
        inside = slice(ends[first] - counts[first], ends[last])
        pairs, places = order[inside], column[inside]
        for left in range(0, width, size):  # a query with more pairs than a table holds takes several
            kept = (places >= left) & (places < left + size)
            yield _Batch(first, last + 1 - first, pairs[kept], query[pairs[kept]] - first, places[kept] - left)
