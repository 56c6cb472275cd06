"""Write a report about runs as one HTML page."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path, PurePath
from typing import Any

from haybale.collections import Collection
from haybale.engine import Engine
from haybale.errors import InputError
from haybale.evaluation import recall_curves
from haybale.evaluation.intervals import LEVEL, N_SAMPLES
from haybale.evaluation.measures import is_ratio
from haybale.evaluation.table import cells, columns_of, legend
from haybale.folders import check_file
from haybale.parameters import FROM_0, TEXT_OR_NONE, check_parameters, one_of
from haybale.reports.charts import difference_chart, recall_chart
from haybale.reports.page import write_page
from haybale.reports.paragraphs import paragraphs_section
from haybale.reports.picture import picture_section
from haybale.reports.sources import describe_vectors, engine_for, find_split, limited, load, open_for, recorded_limit
from haybale.reports.study import Study, study, summarise
from haybale.timing import record_timings, timed

_CONSTRAINTS = {
    "queries": FROM_0,
    "picture": one_of(["heatmap", "tsne", "none"]),
    "figures": [str, Path, None],
    "report": [callable, None],
    "where": TEXT_OR_NONE,
}


def write_report(
    runs: Sequence[Path | str],
    out: Path | str,
    *,
    collection: Collection | Engine | str | Path | None = None,
    layout: str | None = None,
    split: str | None = None,
    where: str | None = None,
    baseline: str | None = None,
    ranker: str | None = None,
    queries: int = 5,
    query: str | None = None,
    picture: str = "heatmap",
    title: str | None = None,
    figures: Path | str | None = None,
    report: Callable[[str, float], None] | None = None,
) -> Study:
    """Write one self-contained HTML page about runs.

    Its measures are those that the folders record, as far as they are known here, or else the default ones.
    Everything is read, checked and measured first; the page is written at the end, so an error leaves no partial page.

    Parameters
    ----------
    runs : sequence of Path or str
        Folders written by ``haybale compare --out``, and TREC run files.
    out : Path or str
        The HTML file. An existing file is replaced.
    collection : Collection, Engine, str or Path, optional
        The collection of the runs, or an engine of it; a path may be the folder of either. The default is the one that
        the folders record.
    layout : str, optional
        The layout of the collection's folder. The default is the recorded one, or else it is recognised.
    split : str, optional
        The split whose queries were ranked. The default is the recorded one, or else the only one.
    where : str, optional
        The condition on the metadata of documents with which the runs were ranked, as in :func:`~haybale.compare`: only
        judgements of these documents count. The default is the recorded one.
    baseline : str, optional
        The ranker that the others are tested against. The default is the recorded one, or else bm25, or the first run.
    ranker : str, optional
        The ranker whose wins and losses are shown. The default is the one with the best nDCG@10, or
        else the best first measure, besides the baseline.
    queries : int, default 5
        The number of wins, and of losses, that are shown.
    query : str, optional
        The id of the query of the heatmap. The default is one of the largest wins.
    picture : {"heatmap", "tsne", "none"}, default "heatmap"
        Whether to draw a heatmap of the paragraphs of a query and a document, and, with ``"tsne"``, also a t-SNE map of
        queries and passages, which may take a minute. They use the vectors of the engine, of the recorded settings, or
        TF-IDF; ``"none"`` needs no vectors.
    title : str, optional
        The title of the page. The default is the names of the collection and the split.
    figures : str or Path, optional
        A folder to which each chart of the page is also saved, as SVG and as PDF, such as ``recall.pdf``; existing
        files are replaced. By default there are none.
    report : callable, optional
        Called with ``(stage, seconds)`` at the end of each stage.

    Raises
    ------
    InputError
        For a path without runs, runs with queries or documents that the split does not have, and unknown names.
    """
    out = Path(out)
    check_file(out)
    check_parameters("write_report", locals(), _CONSTRAINTS)
    if not runs:
        raise InputError(f"write_report needs at least one run, found runs={list(runs)}")
    with record_timings(report), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from")  # the browser draws them
        with timed("read runs"):
            sources = [load(path) for path in runs]
        with timed("read collection"):
            condition = recorded_limit(sources, "where") if where is None else where
            opened = limited(open_for(sources, collection, layout), condition)
            whole = opened.whole if isinstance(opened, Engine) else opened
        with timed("evaluate"):
            before = recorded_limit(sources, "before")
            about = study(sources, whole, find_split(sources, whole, split), baseline, ranker, before)
        if query is not None and query not in about.relevant:
            raise InputError(
                f"the query {query!r} has no relevant document in {whole.name}, {about.split}; choose another query"
            )
        engine = None if picture == "none" else engine_for(sources, opened)
        explained = plane = {"absent": "The encoder of the comparison is not recorded. Give an engine as --collection."}
        if engine is not None or picture == "none":
            explained, plane = ({"absent": f"Left out. Use --picture {name}."} for name in ("heatmap", "tsne"))
        if engine is not None:
            explained = paragraphs_section(about, engine, query)
            plane = picture_section(about, engine) if picture == "tsne" else plane
        vectors = describe_vectors(engine) if engine else ""
        sections = {"explained": explained, "plane": plane, "vectors": vectors}
        content = {"title": title} | sections | _content(about, queries)
        if figures is not None:
            charts = {"recall": content["recall_chart"], "differences": content["difference_chart"]}
            charts |= {"paragraphs": explained.get("chart"), "picture": plane.get("chart")}
            for name, chart in charts.items():
                if chart is not None:
                    chart.save(Path(figures, name))
        write_page(out, files("haybale.reports") / "report.html", content)
    return about


def _content(about: Study, n: int) -> dict[str, Any]:
    """Return the variables of the template, except the heatmap and the picture; n is the number of wins and losses."""
    table, sources = about.results, about.sources
    columns = columns_of(table)
    curves = recall_curves(about.runs, about.qrels)
    points = {str(name): (curves.index.tolist(), curves[name].tolist()) for name in curves.columns}
    cards = {"Largest wins": about.wins(n), "Largest losses": about.losses(n)}
    links = {query: f"#q{number}" for number, query in enumerate(query for part in cards.values() for query in part)}
    record: dict[str, list[tuple[str, Mapping[str, Any]]]] = {
        kind: [(source.name, source.results[kind]) for source in sources if source.results.get(kind)]
        for kind in ("seconds", "facts", "environment")
    }
    record["settings"] = [(source.name, source.settings) for source in sources if source.settings]
    why = "Not recorded in the runs. Give a folder written by haybale compare --out."
    absent = {kind: why for kind in ("seconds", "facts", "settings") if not record[kind]}
    seen = [(source.name, source.results["seen"]) for source in sources if source.results.get("seen")]
    if about.ranker is None:
        absent["queries"] = "There is only one run. Give a second one to compare them query by query."
    label = (
        f"Differences in {about.measure} of {table.n_queries} queries, {about.ranker} minus {about.baseline}, sorted"
    )
    return {
        "about": about,
        "absent": absent,
        "cards": cards,
        "columns": columns,
        "curves": curves,
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "difference_chart": about.ranker and difference_chart(about.differences, links, label),
        "flattened": flattened,
        "lead": summarise(about),
        "legend": legend(table),
        "links": links,
        "level": LEVEL,
        "measure": about.measure,
        "n_samples": N_SAMPLES,
        "ratios": [measure for measure in table.measures if is_ratio(measure)],
        "recall_chart": recall_chart(points, f"Recall of {len(points)} runs at cut-offs to {curves.index[-1]:,}"),
        "record": record,
        "rows": {name: cells(table, name, columns) for name in table.values},
        "seen": seen,
    }


def flattened(values: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    """Yield names with formatted values; the name of a nested value has the names of all levels.

    >>> list(flattened({"a": {"b": 0.5, "c": [1, 2]}, "d": None, "e": "/home/someone/model", "f": [{"g": 1}]}))
    [('a, b', '0.5'), ('a, c', '1, 2'), ('d', '–'), ('e', 'model'), ('f, 0, g', '1')]
    """
    for key, value in values.items():
        if isinstance(value, list | tuple) and any(isinstance(member, Mapping) for member in value):
            value = {str(number): member for number, member in enumerate(value)}  # such as the rankers inside a ranker
        if isinstance(value, Mapping) and value:
            yield from flattened(value, f"{before}{key}, ")
        else:
            yield f"{before}{key}", _text(value)


def _text(value: Any) -> str:
    if value is None or value in ({}, [], ""):
        return "–"
    if isinstance(value, list | tuple):
        return ", ".join(map(_text, value))
    if isinstance(value, str) and PurePath(value).is_absolute():
        return PurePath(value).name  # the page does not show folders of the machine
    return f"{value:.6g}" if isinstance(value, float) else str(value)
