"""Out-of-bag scores: every training query scored by the bags that did not see it, for model selection without dev."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import r2_score

from haybale.ensemble.rows import CandidateRows, Ints
from haybale.ensemble.support import Pairs, Support
from haybale.ensemble.training import TrainingSet
from haybale.errors import InputError


def out_of_bag(
    support: Support,
    data: TrainingSet,
    bags: list[Ints],
    rows: CandidateRows,
    relevant: tuple[Ints, Ints],
    doc_of: Ints,
) -> tuple[NDArray[np.float64], float, float]:
    """``(prediction of each row (n_rows,), their R², MRR@10 of the training queries)``.

    A bag has seen a query if it holds any of its rows, so no neighbour of a row ever leaks; a query that every bag
    saw has no prediction (NaN) and counts in neither figure. The MRR ranks a query's documents by their best
    candidate. Rows that are there only because they are relevant are not ranked, a user's search would not have
    found them: a query whose relevant documents no search found counts 0. ``relevant`` (query rows, documents).
    """
    outside = np.ones((len(data.queries), len(bags)), dtype=bool)
    for number, bag in enumerate(bags):
        outside[data.query[bag], number] = False
    counts = outside.sum(axis=1)
    judged = counts > 0
    if not judged.any():
        raise InputError("oob_score: every bag saw every training query; take more bags or less overlap")
    weights = outside / np.maximum(counts, 1)[:, None]
    scored = np.flatnonzero(judged[data.query])
    evidence = None if data.evidence is None else data.evidence[scored]
    pairs = Pairs(data.queries, data.passages, data.query[scored], data.passage[scored], evidence=evidence)
    prediction = np.full(len(rows), np.nan)
    prediction[scored] = support.mean(pairs, weights)
    if rows.place is not None:
        scored = scored[rows.place[scored] >= 0]
    mrr = _mrr(
        rows.query[scored], doc_of[rows.passage[scored]], prediction[scored], relevant, np.unique(rows.query)[judged]
    )
    known = np.isfinite(prediction)
    return prediction, float(r2_score(data.label[known], prediction[known])), mrr


def _mrr(
    query: NDArray[Any],
    document: Ints,
    score: NDArray[np.float64],
    relevant: tuple[Ints, Ints],
    judged: Ints,
    depth: int = 10,
) -> float:
    """MRR at ``depth`` over the judged queries that have a relevant document."""
    n_documents = int(max(document.max(initial=0), relevant[1].max(initial=0))) + 1
    order = np.lexsort((document, -score, query))
    query, document = query[order], document[order]
    _, first = np.unique(query.astype(np.int64) * n_documents + document, return_index=True)  # a document's best
    first.sort()
    query, document = query[first], document[first]
    _, starts, counts = np.unique(query, return_index=True, return_counts=True)
    rank = np.arange(len(query)) - np.repeat(starts, counts) + 1
    wanted = relevant[0] * n_documents + relevant[1]
    hit = np.isin(query.astype(np.int64) * n_documents + document, wanted) & (rank <= depth)
    counted = np.intersect1d(judged, relevant[0])
    # Ranks rise within a query, so a query's first hit is its best.
    found, best = np.unique(query[hit], return_index=True)
    gained = (1 / rank[hit][best])[np.isin(found, counted)]
    return float(gained.sum() / max(1, len(counted)))
