"""Write a report: read, check and measure everything first, then write the page to a temporary file and rename it.

The page is one HTML file with its style and script inside. A content security policy forbids what it does not need:
other scripts than its own, which it names by hash, and anything from a network.
"""

from __future__ import annotations

import base64
import hashlib
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path, PurePath
from typing import Any

from haybale.collections import Collection
from haybale.drawing import clean
from haybale.engine import Engine
from haybale.errors import InputError
from haybale.evaluation import recall_curves
from haybale.evaluation.table import cells, columns_of, legend
from haybale.extras import import_optional
from haybale.folders import check_file, whole_file, write_or_rescue
from haybale.parameters import FROM_0, check_parameters, one_of
from haybale.reports.charts import difference_chart, recall_chart
from haybale.reports.paragraphs import paragraphs_section
from haybale.reports.picture import picture_section
from haybale.reports.sources import described, engine_for, find_split, load, open_for
from haybale.reports.study import MEASURE, Study, reading, study
from haybale.timing import record_timings, timed

_CONSTRAINTS = {"queries": FROM_0, "picture": one_of(["tsne", "none"]), "report": [callable, None]}


def write_report(
    runs: Sequence[Path | str],
    out: Path | str,
    *,
    collection: Collection | Engine | str | Path | None = None,
    layout: str | None = None,
    split: str | None = None,
    baseline: str | None = None,
    ranker: str | None = None,
    queries: int = 5,
    query: str | None = None,
    picture: str = "tsne",
    title: str | None = None,
    report: Callable[[str, float], None] | None = None,
) -> Study:
    """Write one self-contained HTML page about runs; an existing page is replaced at the very end.

    Parameters
    ----------
    runs : sequence of Path or str
        Folders of ``haybale compare --out``, and TREC run files.
    out : Path or str
        The HTML file; replaced if it exists.
    collection : Collection, Engine, str or Path, optional
        The collection of the runs; a path may be an engine's folder. By default, the folders name it.
    layout, split, baseline : str, optional
        By default, the folders name them.
    ranker : str, optional
        The ranker whose wins and losses are shown. The default is the best by nDCG@10 other than the baseline.
    queries : int, default 5
        Number of wins, and of losses, that are shown.
    query : str, optional
        The query of the heatmap. The default is one of the largest wins.
    picture : {"tsne", "none"}, default "tsne"
        Whether heatmap and picture are drawn, with the vectors of the engine, of the folders' settings, or TF-IDF.
    title : str, optional
    report : callable, optional
        Called with ``(stage, seconds)`` at the end of each stage.

    Raises
    ------
    InputError
        For a path without runs, runs of other queries or documents than the split's, and unknown names.
    """
    out = Path(out)
    check_file(out)
    check_parameters("write_report", locals(), _CONSTRAINTS)
    if not runs:
        raise InputError("no run was given")
    with record_timings(report), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from")  # the browser has glyphs that Matplotlib lacks
        with timed("read runs"):
            sources = [load(path) for path in runs]
        with timed("read collection"):
            opened = open_for(sources, collection, layout)
            whole = opened.whole if isinstance(opened, Engine) else opened
        with timed("evaluate"):
            about = study(sources, whole, find_split(sources, whole, split), baseline, ranker)
        if query is not None and query not in about.relevant:
            raise InputError(f"the query {query!r} is not one of {whole.name}, {about.split}, with a relevant document")
        engine = engine_for(sources, opened) if picture == "tsne" else None
        if engine is not None:
            explained, plane = paragraphs_section(about, engine, query), picture_section(about, engine)
        elif picture == "tsne":
            explained = plane = {"absent": "The encoder was an object; an engine as --collection would bring it."}
        else:
            explained = plane = {"absent": "Left out; --picture tsne would bring it."}
        vectors = described(engine) if engine else ""
        page = _page(_content(about, queries), title=title, explained=explained, plane=plane, vectors=vectors)
        write_or_rescue(lambda path: _write(path, page), out)
    return about


def _write(path: Path, page: str) -> None:
    with whole_file(path) as file:
        file.write(page)


def _page(content: dict[str, Any], **sections: Any) -> str:
    jinja2, markup = import_optional("jinja2", "reports"), import_optional("markupsafe", "reports").Markup
    template, style, script = (
        (files("haybale.reports") / f"page.{kind}").read_text(encoding="utf-8") for kind in ("html", "css", "js")
    )
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    environment = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=lambda value: clean(value) if type(value) is str else value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    page: str = environment.from_string(template).render(
        **content,
        **sections,
        style=markup(style),
        script=markup(script),
        policy=f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'",
    )
    return page


def _content(about: Study, n: int) -> dict[str, Any]:
    """Return the content of the sections about measures and records, with the ``n`` largest wins and losses."""
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
    missing = {"seconds": "the seconds of each stage", "facts": "what indexing and training found"}
    missing["settings"] = "settings and environment"
    would_bring = {
        kind: f"A folder written by haybale compare --out would bring {what}."
        for kind, what in missing.items()
        if not record[kind]
    }
    if about.ranker is None:
        would_bring["queries"] = "There is one run only. A second one would bring wins and losses by query."
    label = f"Differences in {MEASURE} of {table.n_queries} queries, {about.ranker} minus {about.baseline}, sorted"
    return {
        "about": about,
        "absent": would_bring,
        "cards": cards,
        "columns": columns,
        "curves": curves,
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "difference_chart": about.ranker and difference_chart(about.differences, links, label),
        "flattened": flattened,
        "lead": reading(about),
        "legend": legend(table),
        "links": links,
        "measure": MEASURE,
        "recall_chart": recall_chart(points, f"Recall of {len(points)} runs at cut-offs to {curves.index[-1]:,}"),
        "record": record,
        "rows": {name: cells(table, name, columns) for name in table.values},
    }


def flattened(values: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    """Yield names with values as texts; nested values get the names of all levels.

    >>> list(flattened({"a": {"b": 0.5, "c": [1, 2]}, "d": None, "e": "/home/someone/model", "f": [{"g": 1}]}))
    [('a, b', '0.5'), ('a, c', '1, 2'), ('d', '–'), ('e', 'model'), ('f, 0, g', '1')]
    """
    for key, value in values.items():
        if isinstance(value, list | tuple) and any(isinstance(each, Mapping) for each in value):
            value = {str(place): each for place, each in enumerate(value)}  # rankers inside a ranker
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
        return PurePath(value).name  # folders of the machine are not shown
    return f"{value:.6g}" if isinstance(value, float) else str(value)
