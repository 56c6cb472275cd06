"""Measures through ir_measures, per query and on average; and the ranks a run has the relevant documents at."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from haybale.collections.collection import pick
from haybale.collections.qrels import judgements
from haybale.errors import InputError
from haybale.extras import require
from haybale.frames import Frame, like, to_pandas
from haybale.retrieval import Run

MEASURES = ("MRR@10", "nDCG@10", "nDCG@20", "Recall@100", "Recall@1000", "MAP")


def evaluate(run: Run, qrels: Frame, measures: Sequence[str] = MEASURES) -> Frame:
    """The measures of every judged query; their mean over the rows is the measure of the run.

    Queries with a relevant document count, with 0 where the run has nothing for them; queries without one (nothing
    could be found) do not. The order of the run decides, ties included, so equal scores cannot be ranked in another
    way by the evaluation.

    Parameters
    ----------
    run : Run
    qrels : frame of pandas or cuDF, or table of pyarrow
        Columns ``query_id``, ``doc_id`` and ``relevance``, whole numbers; above 0 is relevant. Of a pair that is judged
        twice the last grade counts.
    measures : sequence of str, default :data:`MEASURES`
        Names of ir_measures with or without a cut-off: ``P@5``, ``nDCG@10``, ``MAP``.

    Returns
    -------
    frame of the library of ``qrels``, (n_queries, n_measures) float64
        Queries in the order of ``qrels``: with pandas as the index ``query_id``, with others as the first column.

    Raises
    ------
    InputError
        An unknown measure, qrels that are none, or qrels without a relevant document.

    Examples
    --------
    >>> qrels = pd.DataFrame({"query_id": ["q"], "doc_id": ["b"], "relevance": [1]})
    >>> run = Run.from_frame(pd.DataFrame({"query_id": "q", "doc_id": ["a", "b"], "score": [2.0, 1.0]}))
    >>> evaluate(run, qrels, ["MRR@10"])
              MRR@10
    query_id
    q            0.5
    """
    kinds = [parsed(name) for name in measures]
    judged = judgements(qrels)
    queries = list(dict.fromkeys(judged.loc[judged["relevance"] > 0, "query_id"]))
    if not queries:
        raise InputError("qrels hold no relevant document: nothing can be measured")
    row = {query: i for i, query in enumerate(queries)}
    grades: dict[str, dict[str, int]] = {query: {} for query in queries}
    for query, doc_id, grade in zip(*(judged[name].tolist() for name in judged.columns), strict=True):
        if query in grades:
            grades[query][doc_id] = grade
    columns: dict[Any, list[int]] = {}  # of one measure there may be two: MAP is AP
    for column, measure in enumerate(kinds):
        columns.setdefault(measure, []).append(column)
    values = np.zeros((len(queries), len(kinds)))
    for metric in _metrics(list(columns), grades, run):
        values[row[metric.query_id], columns[metric.measure]] = metric.value
    return like(pd.DataFrame(values, pd.Index(queries, name="query_id"), list(measures)), qrels)


def _metrics(measures: list[Any], grades: dict[str, dict[str, int]], run: Run) -> Iterator[Any]:
    """Values of ir_measures by query and measure. RR, which it computes in Python, gets no more than it looks at."""
    ir_measures = require("ir_measures")
    first = [measure for measure in measures if measure.NAME == "RR" and "cutoff" in measure.params]
    rest = [measure for measure in measures if measure not in first]
    if first:
        depth = max(int(measure["cutoff"]) for measure in first)
        yield from ir_measures.iter_calc(first, grades, _ranked(run.top(depth), grades))
    if rest:
        yield from ir_measures.iter_calc(rest, grades, _ranked(run, grades))


def _ranked(run: Run, queries: Container[str]) -> dict[str, dict[str, float]]:
    """``{query: {document: score}}`` of the queries that count.

    trec_eval breaks ties its own way (document id, descending); scores that fall with the rank leave it none.
    """
    rows, ranks, documents, doc_ids, _ = run.coded()
    ids = pick(doc_ids, documents)
    ends = np.searchsorted(rows, np.arange(len(run) + 1)).tolist()
    scores = [-float(rank) for rank in range(int(ranks.max(initial=0)))]
    return {
        query: dict(zip(ids[start:end], scores[: end - start], strict=True))
        for query, start, end in zip(run.query_ids, ends[:-1], ends[1:], strict=True)
        if query in queries
    }


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


def relevant_pairs(qrels: Frame) -> pd.DataFrame:
    """Columns ``query_id`` and ``doc_id``, both strings; a row a pair with relevance above 0, in the order of qrels."""
    judged = judgements(qrels)
    pairs = judged.loc[judged["relevance"] > 0, ["query_id", "doc_id"]].drop_duplicates(ignore_index=True)
    if pairs.empty:
        raise InputError("qrels hold no relevant document: nothing can be measured")
    return pairs


def ranks_of(run: Run, pairs: pd.DataFrame) -> pd.Series:
    """(n_pairs,) the rank, from 1, of each pair in the run, in the order of ``pairs``; infinity where it is absent.

    >>> run = Run.from_frame(pd.DataFrame({"query_id": "q", "doc_id": ["a", "b"], "score": [1.0, 2.0]}))
    >>> ranks_of(run, pd.DataFrame({"query_id": "q", "doc_id": ["a", "z"]})).tolist()
    [2.0, inf]
    """
    ranked = run.to_frame()[["query_id", "doc_id", "rank"]]
    return pairs.merge(ranked, how="left", on=["query_id", "doc_id"])["rank"].astype(float).fillna(float("inf"))
