"""Evaluate runs with measures of ir_measures and of haybale, per query and on average."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from haybale.collections.qrels import judgements
from haybale.errors import InputError
from haybale.evaluation.own_measures import OWN_MEASURES, RATIOS
from haybale.extras import import_optional
from haybale.frames import Frame, FrameT, like, to_pandas
from haybale.parameters import SEQUENCE, check_parameters
from haybale.retrieval import Run
from haybale.returned_values import returned_number

if TYPE_CHECKING:
    import pandas as pd

_MAX_CUTOFF_DIGITS = 9  # trec_eval's numbers end at 2**63, and no run has so many documents
_DECIMAL = re.compile(r"[0-9]+(\.[0-9]+)?")
_EXAMPLE = {"cutoff": "10", "recall": "0.1"}  # of what stands behind "@"

MEASURES = ("MRR@10", "nDCG@10", "nDCG@20", "Recall@100", "Recall@1000", "MAP")
MAIN_MEASURE = "nDCG@10"  # orders rankers and queries, and stands for all measures where there is room for one only


class RatioMeasure(NamedTuple):
    """A measure of :data:`~haybale.evaluation.own_measures.RATIOS`, over the first ``cutoff`` documents or all."""

    name: str
    cutoff: int | None


def evaluate(run: Run | Frame, qrels: FrameT, measures: Sequence[str] = MEASURES) -> FrameT:
    """Compute measures for each judged query; the measure of the run is their mean.

    ``MicroP``, ``MicroR`` and ``MicroF1`` divide sums over all queries, Σ a / Σ b. The mean of their columns is this
    ratio r, too: query q of m has r + (a − r b) · m / Σ b, the linear part of its influence on r (the delta method). So
    tests and intervals over queries are those of the ratio, but a value of one query may lie outside 0 to 1.

    Queries with a relevant document are evaluated; a measure is 0 if the run has no document for the query. Queries
    without a relevant document are omitted. Documents with equal scores count in the order of the run: by rising id,
    or in trec_eval's order if the run was read from a file (:meth:`Run.from_trec`).

    Parameters
    ----------
    run : Run or frame
        The run to evaluate, or a frame as :meth:`Run.from_frame` takes it.
    qrels : frame of pandas or cuDF, or table of pyarrow
        Judgements with columns ``query_id``, ``doc_id`` and ``relevance``. Grades are whole numbers; above 0 is
        relevant. If a pair is judged twice, the last grade counts.
    measures : sequence of str, default :data:`MEASURES`
        Names of ir_measures, with or without a cut-off (``P@5``, ``nDCG@10``, ``MAP``), or of haybale, with a cut-off
        (``PRES@100``); ``MicroP``, ``MicroR`` and ``MicroF1`` may have one. A cut-off is a whole number from 1;
        ``IPrec@0.1`` has a recall in its place.

    Returns
    -------
    frame of the library of ``qrels``, (n_queries, n_measures) float64
        A row for each query, in the order of ``qrels``. ``query_id`` is the index in pandas, else the first column.

    Raises
    ------
    InputError
        For an unknown measure, one that occurs twice, one without the cut-off or the program that it needs, an invalid
        cut-off, invalid judgements, and judgements without a relevant document.

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
    reciprocal = {kind for kind in kinds if getattr(kind, "NAME", "") == "RR" and "cutoff" in kind.params}
    depth = max((int(kind["cutoff"]) for kind in reciprocal), default=1)
    values: dict[tuple[str, Any], float] = {}
    ratios = {kind for kind in kinds if isinstance(kind, RatioMeasure)}
    for some, part in ((reciprocal, run.top(depth)), (set(kinds) - reciprocal - ratios, run)):
        for metric in _computed(some, grades, _ranks(part, grades)) if some else ():
            values[metric.query_id, metric.measure] = metric.value
    for ratio in ratios:
        values |= {(query, ratio): value for query, value in _ratio_values(ratio, run, grades).items()}
    rows = [[values.get((query, kind), 0.0) for kind in kinds] for query in queries]
    return like(pd.DataFrame(rows, pd.Index(queries, name="query_id"), list(measures)), qrels)


def _computed(kinds: set[Any], grades: dict[str, dict[str, int]], ranks: dict[str, dict[str, float]]) -> Iterator[Any]:
    """Yield ir_measures' values; InputError is raised where a program or package behind a measure fails."""
    iter_calc = import_optional("ir_measures").iter_calc
    try:
        yield from iter_calc(kinds, grades, ranks)
    except InputError:  # of a measure that returned no number
        raise
    except Exception as error:  # providers raise errors of many types, also for other judgements than theirs
        names = ", ".join(sorted(map(str, kinds)))
        raise InputError(
            f"measures {names}: expected values from ir_measures, found {type(error).__name__}: {error!s:.200}; "
            f"give other measures, such as {', '.join(MEASURES)}"
        ) from error


def _ratio_values(kind: RatioMeasure, run: Run, grades: dict[str, dict[str, int]]) -> dict[str, float]:
    """Return the value of each query, whose mean is the ratio of the sums; 0 for all if the denominators are 0."""
    ranks = _ranks(run if kind.cutoff is None else run.top(kind.cutoff), grades)
    relevant = {query: {doc for doc, grade in judged.items() if grade > 0} for query, judged in grades.items()}
    counts = [
        (len(relevant[query] & ranks.get(query, {}).keys()), len(ranks.get(query, {})), len(relevant[query]))
        for query in grades
    ]
    numerators, denominators = RATIOS[kind.name](*np.array(counts, dtype=float).T)
    total = float(denominators.sum())
    ratio = float(numerators.sum()) / total if total else 0.0
    values = ratio + (numerators - ratio * denominators) * (len(grades) / (total or 1.0))
    return dict(zip(grades, values.tolist(), strict=True))


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
    texts = [str(name) for name in names]
    if repeated := [name for number, name in enumerate(texts) if name in texts[:number]]:
        raise InputError(f"expected different measures, found {repeated[0]!r} twice; give it once")
    return [_parse(name) for name in texts]


def main_measure(measures: Sequence[str]) -> str:
    """Return :data:`MAIN_MEASURE` if it is among the measures, else the first of them."""
    return MAIN_MEASURE if MAIN_MEASURE in measures else measures[0]


def is_ratio(measure: str) -> bool:
    """Return whether a measure divides sums over all queries, such as ``MicroF1@5``."""
    return measure.partition("@")[0] in RATIOS


def _parse(name: str) -> Any:
    # ir_measures.parse_measure uses ast.Num, which Python 3.14 no longer has.
    base, at, cutoff = name.partition("@")
    if base in RATIOS:
        return RatioMeasure(base, _cutoff(name, cutoff) if at else None)
    registry = import_optional("ir_measures.measures").registry
    if base in OWN_MEASURES:
        measure, n = OWN_MEASURES[base], _cutoff(name, cutoff)

        def value(judged: Any, ranked: Any) -> float:
            return returned_number(measure(judged, ranked, n), f"the measure {name}")

        return import_optional("ir_measures").define_byquery(value, name, support_cutoff=False)
    if base not in registry:
        names = [*RATIOS, *OWN_MEASURES, *registry]
        similar = [f"{other}{at}{cutoff}" for other in names if other.casefold() == base.casefold()]
        hint = f" (did you mean {' or '.join(similar)}?)" if similar else ""
        raise InputError(
            f"unknown measure {name!r}{hint}; give a measure of ir_measures, such as {', '.join(MEASURES)}, or of "
            f"haybale: {', '.join([*RATIOS, *(f'{other}@10' for other in OWN_MEASURES)])}"
        )
    parameters, at_parameter = registry[base].SUPPORTED_PARAMS, registry[base].AT_PARAM
    if at and at_parameter not in parameters:
        raise InputError(f"measure {name!r}: {base} has no cut-off, found {cutoff!r}; write {base}")
    if not at and at_parameter in parameters and parameters[at_parameter].required:
        raise InputError(
            f"measure {name!r} must have a cut-off, found none; write, for example, {base}@{_EXAMPLE[at_parameter]}"
        )
    unset = [key for key, parameter in parameters.items() if parameter.required and key != at_parameter]
    kind = registry[base]
    if at:
        kind = kind @ (_cutoff(name, cutoff) if at_parameter == "cutoff" else _recall(name, cutoff))
    if unset or not import_optional("ir_measures").DefaultPipeline.supports(kind):
        why = f"the parameter {unset[0]}" if unset else "a package or program that is not installed"
        raise InputError(f"measure {name!r} needs {why}; give another measure, such as {', '.join(MEASURES)}")
    return kind


def _cutoff(name: str, text: str) -> int:
    if text.isascii() and text.isdecimal() and len(text) <= _MAX_CUTOFF_DIGITS and int(text) > 0:
        return int(text)
    most = "9" * _MAX_CUTOFF_DIGITS
    raise InputError(f"measure {name!r}: the cut-off must be a whole number from 1 to {most}, found {text!r:.40}")


def _recall(name: str, text: str) -> float:
    if _DECIMAL.fullmatch(text) and float(text) <= 1:
        return float(text)
    raise InputError(f"measure {name!r}: the recall must be a number from 0 to 1, found {text!r:.40}")
