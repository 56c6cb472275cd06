"""Measures through ir_measures: per query and on average."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from haybale.errors import InputError
from haybale.extras import require
from haybale.frames import Frame, check_filled, like, numbers, to_pandas
from haybale.retrieval import Run

MEASURES = ("MRR@10", "nDCG@10", "nDCG@20", "Recall@100", "Recall@1000", "MAP")


def evaluate(run: Run, qrels: Frame, measures: Sequence[str] = MEASURES) -> Frame:
    """(n_queries, n_measures) values, a row a query, in the order of ``qrels``; the mean over rows is the measure.

    ``qrels`` has columns ``query_id``, ``doc_id``, ``relevance``. Queries with a relevant document count,
    with 0 where the run has nothing for them; queries without one (nothing could be found) do not. Names are
    ir_measures' with or without a cut-off (``P@5``, ``nDCG@10``, ``MAP``); unknown ones raise. The order
    of the run decides, ties included, so equal scores cannot be ranked in another way by the evaluation.

    ``qrels`` is a frame of pandas or cuDF, or a table of pyarrow, and so is the result: with pandas ``query_id`` is its
    index, with the others its first column.

    >>> qrels = pd.DataFrame({"query_id": ["q"], "doc_id": ["b"], "relevance": [1]})
    >>> run = Run.from_frame(pd.DataFrame({"query_id": "q", "doc_id": ["a", "b"], "score": [2.0, 1.0]}))
    >>> evaluate(run, qrels, ["MRR@10"])
              MRR@10
    query_id
    q            0.5
    """
    ir_measures = require("ir_measures")
    kinds = [parsed(name) for name in measures]
    given, qrels = qrels, judgements(qrels)
    relevant = qrels[qrels["relevance"] > 0]
    queries = list(dict.fromkeys(relevant["query_id"]))
    if not queries:
        raise InputError("qrels hold no relevant document: nothing can be measured")
    # trec_eval breaks ties its own way (document id, descending); scores that fall with the rank leave it none.
    ranked = {query: {doc: -float(rank) for rank, (doc, _) in enumerate(run[query])} for query in run.query_ids}
    table = pd.DataFrame(0.0, index=pd.Index(queries, name="query_id"), columns=list(measures))
    judged = qrels[qrels["query_id"].isin(set(queries))]
    names: dict[Any, list[str]] = {}  # of one measure there may be two: MAP is AP
    for name, measure in zip(measures, kinds, strict=True):
        names.setdefault(measure, []).append(name)
    for value in ir_measures.iter_calc(list(names), judged, ranked):
        table.loc[value.query_id, names[value.measure]] = value.value
    return like(table, given)


def judgements(qrels: Frame) -> pd.DataFrame:
    """Columns ``query_id``, ``doc_id``, both strings, and ``relevance``, whole numbers, of a frame of any library."""
    found = to_pandas(qrels, ["query_id", "doc_id", "relevance"], "qrels")
    check_filled(found, "qrels")
    grades = numbers(found, "relevance", "qrels")
    whole = (grades == np.round(grades)) & (np.abs(grades) < 2**31)
    if not whole.all():
        row = int(whole.argmin())
        raise InputError(f"qrels: row {row}, column relevance: expected a whole number, found {grades[row]}")
    return found.astype({"query_id": str, "doc_id": str}).assign(relevance=grades.astype(np.int64))


def values_by_query(table: Frame) -> pd.DataFrame:
    """A frame of :func:`evaluate`, of any library, as pandas with the index ``query_id``."""
    found = to_pandas(table)
    return found.set_index("query_id") if "query_id" in found.columns else found


def averages(table: Frame) -> dict[str, float]:
    """The mean of each measure over the queries; ``table`` is what :func:`evaluate` gives."""
    table = values_by_query(table)
    return {str(name): float(np.mean(table[name])) for name in table.columns}


def parsed(name: str) -> Any:
    """The measure of ir_measures of that name; an unknown one raises."""
    # Not by ir_measures.parse_measure, which uses what Python 3.14 no longer has (ast.Num).
    registry = require("ir_measures.measures").registry
    base, at, cutoff = name.partition("@")
    if base not in registry or (at and not cutoff.isdecimal()):
        raise InputError(f"unknown measure {name!r}; known: {', '.join(MEASURES)} and those of ir_measures")
    return registry[base] @ int(cutoff) if at else registry[base]
