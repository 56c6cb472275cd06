"""Out-of-bag scores: training queries scored by the bags that did not see them, for model selection without dev."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from haybale.device import to_numpy
from haybale.ensemble.rows import CandidateRows, Ints
from haybale.ensemble.support import Pairs, Support
from haybale.ensemble.training import TrainingSet
from haybale.errors import InputError


def out_of_bag(
    support: Support, data: TrainingSet, bags: list[Ints], rows: CandidateRows, sample: Ints | None = None
) -> NDArray[np.float64]:
    """(n_rows,) the prediction of each row by the bags that saw nothing of its query; NaN where there is none.

    A bag has seen a query if it holds any of its rows, so no neighbour of a row ever leaks. ``sample`` are the
    numbers of the queries to score (of ``data.queries``); None: all.
    """
    outside = ~seen_by(data.query, bags, len(data.queries))
    counts = outside.sum(axis=1)
    judged = counts > 0
    if not judged.any():
        raise InputError("out-of-bag scores: every bag saw every training query; take more bags or less overlap")
    if sample is not None:
        judged &= np.isin(np.arange(len(judged)), sample)
    weights = outside / np.maximum(counts, 1)[:, None]
    scored = np.flatnonzero(judged[data.query])
    prediction = np.full(len(rows), np.nan)
    if len(scored):
        features = None if data.features is None else data.features[scored]
        pairs = Pairs(data.queries, data.passages, data.query[scored], data.passage[scored], features=features)
        prediction[scored] = to_numpy(support.mean(pairs, weights))
    return prediction


def seen_by(query: NDArray[Any], bags: list[Ints], n_queries: int) -> NDArray[np.bool_]:
    """(n_queries, n_bags) whether a bag holds any row of a query; ``query`` (n_rows,) is each row's.

    >>> seen_by(np.array([0, 0, 2]), [np.array([0, 1]), np.array([1, 2])], 3).tolist()
    [[True, True], [False, False], [False, True]]
    """
    seen = np.zeros((n_queries, len(bags)), dtype=bool)
    for number, bag in enumerate(bags):
        seen[query[bag], number] = True
    return seen


def reciprocal_ranks(
    query: NDArray[Any], document: Ints, score: NDArray[np.float64], relevant: tuple[Ints, Ints], depth: int = 10
) -> NDArray[np.float64]:
    """(n_queries,) of the first relevant document of each query with rows and relevant documents; 0 beyond ``depth``.

    Flat rows (n,), of which a document's best counts; ``relevant`` (query, document) pairs. Equal scores rank by
    document.
    """
    n_documents = int(max(document.max(initial=0), relevant[1].max(initial=0))) + 1
    counted = np.intersect1d(query, relevant[0])
    order = np.lexsort((document, -score, query))
    pair = query[order].astype(np.int64) * n_documents + document[order]
    _, first = np.unique(pair, return_index=True)  # a document's best row
    pair = pair[np.sort(first)]
    of_query = pair // n_documents
    _, starts, counts = np.unique(of_query, return_index=True, return_counts=True)
    rank = np.arange(len(pair)) - np.repeat(starts, counts) + 1
    hit = np.isin(pair, relevant[0] * n_documents + relevant[1]) & (rank <= depth)
    # Ranks rise within a query, so a query's first hit is its best.
    found, best = np.unique(of_query[hit], return_index=True)
    gained = np.zeros(len(counted))
    gained[np.searchsorted(counted, found)] = 1 / rank[hit][best]
    return gained
