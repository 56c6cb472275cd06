"""Evaluate runs with measures of ir_measures and of haybale, per query and on average."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from haybale.collections.qrels import judgements
from haybale.errors import InputError
from haybale.evaluation.own_measures import OWN_MEASURES
from haybale.extras import import_optional
from haybale.frames import Frame, FrameT, like, to_pandas
from haybale.parameters import SEQUENCE, check_parameters
from haybale.retrieval import Run

if TYPE_CHECKING:
    import pandas as pd

MEASURES = ("MRR@10", "nDCG@10", "nDCG@20", "Recall@100", "Recall@1000", "MAP")


def evaluate(run: Run | Frame, qrels: FrameT, measures: Sequence[str] = MEASURES) -> FrameT:
    """Compute measures for each judged query; the measure of the run is their mean.

    Queries with a relevant document are evaluated; a measure is 0 if the run has no document for the query. Queries
    without a relevant document are omitted. Documents with equal scores count in the order of the run.

    Parameters
    ----------
    run : Run or frame
        The run to evaluate, or a frame as :meth:`Run.from_frame` takes it.
    qrels : frame of pandas or cuDF, or table of pyarrow
        Judgements with columns ``query_id``, ``doc_id`` and ``relevance``. Grades are whole numbers; above 0 is
        relevant. If a pair is judged twice, the last grade counts.
    measures : sequence of str, default :data:`MEASURES`
        Names of ir_measures, with or without a cut-off (``P@5``, ``nDCG@10``, ``MAP``), or of haybale, with a cut-off
        (``PRES@100``).

    Returns
    -------
    frame of the library of ``qrels``, (n_queries, n_measures) float64
        A row for each query, in the order of ``qrels``. ``query_id`` is the index in pandas, else the first column.

    Raises
    ------
    InputError
        For an unknown measure, invalid judgements, and judgements without a relevant document.

    Examples
    --------
    >>> import pandas as pd
    >>> qrels = pd.DataFrame({"query_id": ["q"], "doc_id": ["b"], "relevance": [1]})
    >>> run = Run.from_frame(pd.DataFrame({"query_id": "q", "doc_id": ["a", "b"], "score": [2.0, 1.0]}))
    >>> evaluate(run, qrels, ["MRR@10"])
              MRR@10
    query_id
    q            0.5
    """
    import pandas as pd

    run = run if isinstance(run, Run) else Run.from_frame(run)
    kinds = parse_measures(measures)
    judged = judgements(qrels).drop_duplicates(["query_id", "doc_id"], keep="last")
    queries = judged.loc[judged["relevance"] > 0, "query_id"].unique()
    if not len(queries):
        raise InputError("qrels must have a 'relevance' above 0, found none")
    grades: dict[str, dict[str, int]] = {query: {} for query in queries}
    evaluated = judged[judged["query_id"].isin(queries)]
    for query, document, grade in evaluated[["query_id", "doc_id", "relevance"]].itertuples(index=False):
        grades[query][document] = int(grade)
    # ir_measures computes RR in Python, which is slow, so it only gets documents above the cut-off.
    reciprocal = {kind for kind in kinds if kind.NAME == "RR" and "cutoff" in kind.params}
    depth = max((int(kind["cutoff"]) for kind in reciprocal), default=1)
    values: dict[tuple[str, Any], float] = {}
    for some, part in ((reciprocal, run.top(depth)), (set(kinds) - reciprocal, run)):
        for metric in import_optional("ir_measures").iter_calc(some, grades, _ranks(part, grades)) if some else ():
            values[metric.query_id, metric.measure] = metric.value
    rows = [[values.get((query, kind), 0.0) for kind in kinds] for query in queries]
    return like(pd.DataFrame(rows, pd.Index(queries, name="query_id"), list(measures)), qrels)


def _ranks(run: Run, queries: dict[str, Any]) -> dict[str, dict[str, float]]:
    """Return ``{query: {document: -rank}}`` of the evaluated queries.

    Negative ranks replace the scores, because trec_eval sorts documents of equal scores by descending id.
    """
    rows, ranks, documents, _ = run.flat()
    ids, scores = documents.to_pylist(), (-ranks.astype(float)).tolist()
    ends = np.searchsorted(rows, np.arange(len(run) + 1)).tolist()
    parts = zip(run.query_ids, map(slice, ends[:-1], ends[1:]), strict=True)
    return {query: dict(zip(ids[part], scores[part], strict=True)) for query, part in parts if query in queries}


def values_by_query(table: Frame) -> pd.DataFrame:
    """Convert a frame of :func:`evaluate` from any library to pandas, with the index ``query_id``."""
    frame = to_pandas(table)
    return frame.set_index("query_id") if "query_id" in frame.columns else frame


def averages(table: Frame) -> dict[str, float]:
    """Return the mean of each measure over the queries, from a frame of :func:`evaluate`."""
    values = values_by_query(table)
    return {str(name): float(np.mean(values[name])) for name in values.columns}


def parse_measures(names: Sequence[str]) -> list[Any]:
    """Return ir_measures' objects for names of measures; InputError for an unknown name."""
    check_parameters("evaluate", {"measures": names}, {"measures": SEQUENCE})
    return [_parse(str(name)) for name in names]


def _parse(name: str) -> Any:
    # ir_measures.parse_measure uses ast.Num, which Python 3.14 no longer has.
    registry = import_optional("ir_measures.measures").registry
    base, at, cutoff = name.partition("@")
    if base in OWN_MEASURES and cutoff.isdecimal() and int(cutoff) > 0:
        measure, n = OWN_MEASURES[base], int(cutoff)
        define = import_optional("ir_measures").define_byquery
        return define(lambda judged, ranked: measure(judged, ranked, n), name, support_cutoff=False)
    if base not in registry or (at and not cutoff.isdecimal()):
        raise InputError(f"unknown measure {name!r}; give a measure of ir_measures, such as {', '.join(MEASURES)}")
    return registry[base] @ int(cutoff) if at else registry[base]
