"""Measures through ir_measures: per query and on average."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from haybale.errors import InputError
from haybale.extras import require
from haybale.retrieval import Run

MEASURES = ("MRR@10", "nDCG@10", "nDCG@20", "Recall@100", "Recall@1000", "MAP")


def evaluate(run: Run, qrels: pd.DataFrame, measures: Sequence[str] = MEASURES) -> pd.DataFrame:
    """(n_queries, n_measures) values, a row a query, in the order of ``qrels``; the mean over rows is the measure.

    ``qrels`` has columns ``query_id``, ``doc_id``, ``relevance``. Queries with a relevant document count,
    with 0 where the run has nothing for them; queries without one (nothing could be found) do not. Names are
    ir_measures' with or without a cut-off (``P@5``, ``nDCG@10``, ``MAP``); unknown ones raise. The order
    of the run decides, ties included, so equal scores cannot be ranked in another way by the evaluation.

    >>> qrels = pd.DataFrame({"query_id": ["q"], "doc_id": ["b"], "relevance": [1]})
    >>> run = Run.from_frame(pd.DataFrame({"query_id": "q", "doc_id": ["a", "b"], "score": [2.0, 1.0]}))
    >>> evaluate(run, qrels, ["MRR@10"])
              MRR@10
    query_id
    q            0.5
    """
    ir_measures = require("ir_measures")
    parsed = [_parsed(name) for name in measures]
    relevant = qrels[qrels["relevance"] > 0]
    queries = list(dict.fromkeys(relevant["query_id"]))
    if not queries:
        raise InputError("qrels hold no relevant document: nothing can be measured")
    # trec_eval breaks ties its own way (document id, descending); scores that fall with the rank leave it none.
    ranked = {query: {doc: -float(rank) for rank, (doc, _) in enumerate(run[query])} for query in run.query_ids}
    table = pd.DataFrame(0.0, index=pd.Index(queries, name="query_id"), columns=list(measures))
    judged = qrels[qrels["query_id"].isin(set(queries))]
    for value in ir_measures.iter_calc(parsed, judged, ranked):
        table.at[value.query_id, measures[parsed.index(value.measure)]] = value.value
    return table


def averages(table: pd.DataFrame) -> dict[str, float]:
    """The mean of each measure over the queries."""
    return {str(name): float(np.mean(table[name])) for name in table.columns}


def _parsed(name: str) -> Any:
    # Not by ir_measures.parse_measure, which uses what Python 3.14 no longer has (ast.Num).
    registry = require("ir_measures.measures").registry
    base, at, cutoff = name.partition("@")
    if base not in registry or (at and not cutoff.isdecimal()):
        raise InputError(f"unknown measure {name!r}; known: {', '.join(MEASURES)} and those of ir_measures")
    return registry[base] @ int(cutoff) if at else registry[base]
