"""Measures through ir_measures, per query and on average."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any

import numpy as np
import pandas as pd

from haybale.collections.qrels import judgements
from haybale.errors import InputError
from haybale.extras import import_optional
from haybale.frames import Frame, like, to_pandas
from haybale.parameters import SEQUENCE, check_parameters
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
        Names of ir_measures with or without a cut-off: ``P@5``, ``nDCG@10``, ``MAP``; and ``PRES@100``, or with another
        cut-off (:func:`pres`).

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
    kinds = all_parsed(measures)
    judged = judgements(qrels).drop_duplicates(["query_id", "doc_id"], keep="last")
    queries = judged.loc[judged["relevance"] > 0, "query_id"].unique()
    if not len(queries):
        raise InputError("qrels hold no relevant document: nothing can be measured")
    grades, by = _grades(judged[judged["query_id"].isin(queries)]), {}
    # RR is computed in Python: it gets no more than it looks at.
    first = {kind for kind in kinds if kind.NAME == "RR" and "cutoff" in kind.params}
    depth = max((int(kind["cutoff"]) for kind in first), default=1)
    for some, part in ((first, run.top(depth)), (set(kinds) - first, run)):
        for found in import_optional("ir_measures").iter_calc(some, grades, _ranked(part, grades)) if some else ():
            by[found.query_id, found.measure] = found.value
    values = [[by.get((query, kind), 0.0) for kind in kinds] for query in queries]
    return like(pd.DataFrame(values, pd.Index(queries, name="query_id"), list(measures)), qrels)


def _grades(judged: pd.DataFrame) -> dict[str, dict[str, int]]:
    """``{query: {document: grade}}``"""
    grades: dict[str, dict[str, int]] = {}
    for query, document, grade in judged[["query_id", "doc_id", "relevance"]].itertuples(index=False):
        grades.setdefault(query, {})[document] = int(grade)
    return grades


def _ranked(run: Run, queries: Container[str]) -> dict[str, dict[str, float]]:
    """``{query: {document: score}}`` of the queries that count.

    trec_eval breaks ties its own way (document id, descending); scores that fall with the rank leave it none.
    """
    rows, ranks, documents, _ = run.flat()
    ids, scores = documents.to_pylist(), (-ranks.astype(float)).tolist()
    ends = np.searchsorted(rows, np.arange(len(run) + 1)).tolist()
    parts = zip(run.query_ids, map(slice, ends[:-1], ends[1:]), strict=True)
    return {query: dict(zip(ids[part], scores[part], strict=True)) for query, part in parts if query in queries}


def values_by_query(table: Frame) -> pd.DataFrame:
    """A frame of :func:`evaluate`, of any library, as pandas with the index ``query_id``."""
    found = to_pandas(table)
    return found.set_index("query_id") if "query_id" in found.columns else found


def averages(table: Frame) -> dict[str, float]:
    """The mean of each measure over the queries; ``table`` is what :func:`evaluate` gives."""
    table = values_by_query(table)
    return {str(name): float(np.mean(table[name])) for name in table.columns}


def all_parsed(measures: Sequence[str]) -> list[Any]:
    """The measures of ir_measures of these names; an unknown one raises."""
    check_parameters("evaluate", {"measures": measures}, {"measures": SEQUENCE})
    return [parsed(name) for name in measures]


def parsed(name: str) -> Any:
    """The measure of ir_measures of that name; an unknown one raises."""
    # Not by ir_measures.parse_measure, which uses what Python 3.14 no longer has (ast.Num).
    registry = import_optional("ir_measures.measures").registry
    base, at, cutoff = str(name).partition("@")
    if base == "PRES" and cutoff.isdecimal() and int(cutoff) > 0:
        define = import_optional("ir_measures").define_byquery
        return define(lambda qrels, run: pres(qrels, run, int(cutoff)), name, support_cutoff=False)
    if base not in registry or (at and not cutoff.isdecimal()):
        raise InputError(f"unknown measure {name!r}; known: {', '.join(MEASURES)} and those of ir_measures")
    return registry[base] @ int(cutoff) if at else registry[base]


def pres(qrels: pd.DataFrame, run: pd.DataFrame, n: int) -> float:
    """PRES@n of one query, 1 − (mean rank of the relevant documents − (their number + 1) / 2) / n.

    Relevant documents that are not among the first n, of which R are, count as if at ranks n + R + 1, n + R + 2, … .
    Magdy & Jones, "PRES: A Score Metric for Evaluating Recall-Oriented Information Retrieval Applications", SIGIR 2010.

    >>> of = lambda ids: pd.DataFrame({"doc_id": ids, "relevance": 1})
    >>> pres(of(["a", "b"]), of(["a", "x", "y"]), 10)
    0.5
    """
    relevant = set(qrels["doc_id"][qrels["relevance"] > 0])
    ranks = [rank for rank, doc_id in enumerate(run["doc_id"][:n], 1) if doc_id in relevant]
    missing = range(n + len(ranks) + 1, n + len(relevant) + 1)
    total = sum(ranks) + sum(missing)
    return 1 - (total / len(relevant) - (len(relevant) + 1) / 2) / n
