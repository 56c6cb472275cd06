"""Between PyTerrier's frames and haybale's arrays."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from haybale.errors import InputError
from haybale.retrieval.hits import Ints


def texts_of(queries: pd.DataFrame) -> list[str]:
    """(n,) the texts of queries; one that is missing or blank raises and is named."""
    texts = queries["query"].tolist()
    for qid, text in zip(queries["qid"], texts, strict=True):
        if not isinstance(text, str) or not text.strip():
            raise InputError(f"query {qid!r} has no text: expected a column 'query' of non-empty strings")
    return texts


def own_of(queries: pd.DataFrame) -> list[str | None] | None:
    """(n,) the document each query leaves out, None for none; None if there is none at all.

    >>> own_of(pd.DataFrame({"qid": ["1", "2"], "own": ["a", float("nan")]}))
    ['a', None]
    """
    if "own" not in queries.columns or queries["own"].isna().all():
        return None
    return [None if pd.isna(own) else str(own) for own in queries["own"]]


def ranked(
    frame: pd.DataFrame, rows: Ints, docnos: Sequence[str], scores: NDArray[np.floating], k: int | None = None
) -> pd.DataFrame:
    """A results frame: of each query the best ``k``, ordered by score, then docno, with ranks from 0.

    ``rows`` (n,) are rows of ``frame`` whose other columns go along; rows of one ``qid`` are one ranking, and the
    rankings keep the order of the frame.

    >>> queries = pd.DataFrame({"qid": ["1", "2"], "query": ["dog", "cat"]})
    >>> ranked(queries, np.array([0, 0, 1]), ["c", "b", "a"], np.array([1.0, 1.0, 3.0]))
      qid query docno  score  rank
    0   1   dog     b    1.0     0
    1   1   dog     c    1.0     1
    2   2   cat     a    3.0     0
    """
    names = np.asarray(docnos, dtype=object)
    values = np.asarray(scores, dtype=np.float64)
    query = pd.factorize(frame["qid"])[0][rows]
    by_name = np.unique(names, return_inverse=True)[1] if len(names) else rows
    order = np.lexsort((by_name, -values, query))
    query = query[order]
    rank = np.arange(len(order)) - np.searchsorted(query, query)
    kept = rank < (len(order) if k is None else k)
    order, rank = order[kept], rank[kept]
    result = frame.iloc[rows[order]].reset_index(drop=True)
    return result.assign(docno=pd.Series(names[order], dtype="str"), score=values[order], rank=rank)
