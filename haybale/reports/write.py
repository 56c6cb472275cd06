"""Runs to a report: everything is read, checked and measured first; the page is written last, aside, then renamed.

The page is one HTML file with its style and script inside. A content security policy forbids what it does not need:
other scripts than its own, which it names by hash, and anything from a network.
"""

from __future__ import annotations

import base64
import hashlib
import math
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path, PurePath
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from haybale.collections import Collection
from haybale.engine import Engine
from haybale.errors import InputError
from haybale.evaluation import averages, recall_curves
from haybale.evaluation.table import columns_of, detail, legend, marks
from haybale.extras import require
from haybale.folders import whole_file
from haybale.reports.charts import clean, difference_chart, interval_chart, recall_chart
from haybale.reports.paragraphs import paragraphs_section
from haybale.reports.picture import check_picture, picture_section
from haybale.reports.sources import described, engine_for, find_split, load, open_for, parm_for
from haybale.reports.study import MEASURE, TOP, Study, reading, study
from haybale.stages import listening, stage


def write_report(
    runs: Sequence[Path | str],
    out: Path | str,
    *,
    collection: Collection | Engine | str | Path | None = None,
    layout: str | None = None,
    split: str | None = None,
    baseline: str | None = None,
    ranker: str | None = None,
    encoder: str | None = None,
    store: str | None = None,
    queries: int = 5,
    query: str | None = None,
    picture: str = "tsne",
    title: str | None = None,
    random_state: int = 0,
    report: Callable[[str, float], None] | None = None,
) -> Study:
    """Write one self-contained HTML page about runs.

    Everything is read, checked and measured first; the page is written last, so a page that was there stays until then.

    Parameters
    ----------
    runs : sequence of Path or str
        Folders of ``haybale compare --out``, of this version or the one before, and TREC run files.
    out : Path or str
        The HTML file; replaced if it exists.
    collection : Collection, Engine, str or Path, optional
        What the runs are of; a path may be an engine's folder. Default: what the folders say.
    layout, split, baseline : str, optional
        Likewise.
    ranker : str, optional
        Whose wins and losses are shown; default: the best by nDCG@10 that is not the baseline.
    encoder, store : str, optional
        What heatmap and picture are made of; default: what the folders say, else ``"tfidf"``. ``encoder="none"`` leaves
        both out.
    queries : int, default 5
        Wins shown, and losses.
    query : str, optional
        Whose heatmap is shown; default: that of a large win.
    picture : {"tsne", "umap", "none"}, default "tsne"
        ``"umap"`` needs the extra ``umap``.
    title : str, optional
    random_state : int, default 0
        Of the queries in the picture and of the picture.
    report : callable, optional
        Called with ``(stage, seconds)`` whenever a stage is done.

    Returns
    -------
    Study
        What the page shows.

    Raises
    ------
    InputError
        A place without runs, runs of other queries or documents than the split's, no split. Nothing is written then.
    UnknownNameError
        A run, split or picture that is not there; likewise.
    """
    out = Path(out)
    if out.is_dir():
        raise InputError(f"{out} is a folder; expected the name of an HTML file")
    if queries < 0:
        raise InputError(f"queries must be at least 0, found {queries}")
    if not runs:
        raise InputError("no run was given")
    check_picture(picture)
    with listening(report), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from")  # the browser has the letters that Matplotlib lacks
        with stage("read runs"):
            sources = [load(path) for path in runs]
        with stage("read collection"):
            opened = open_for(sources, collection, layout)
            whole = opened.whole if isinstance(opened, Engine) else opened
        with stage("evaluate"):
            about = study(sources, whole, find_split(sources, whole, split), baseline, ranker)
        if query is not None and query not in about.relevant:
            raise InputError(f"the query {query!r} is not one of {whole.name}, {about.split}, with a relevant document")
        engine = engine_for(sources, opened, encoder=encoder, store=store)
        explained = paragraphs_section(about, engine, parm_for(sources), query)
        plane = picture_section(about, engine, picture, random_state)
        page = _page(
            title=title or f"{whole.name}, {about.split}",
            explained=explained,
            plane=plane,
            vectors=described(engine) if engine else "",
            **_charts(about, queries),
            absent=_absent(about) | {"paragraphs": explained.get("absent"), "picture": plane.get("absent")},
        )
        with whole_file(out) as file:
            file.write(page)
    return about


def _page(**content: Any) -> str:
    jinja2, markup = require("jinja2"), require("markupsafe").Markup
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
        style=markup(style),
        script=markup(script),
        policy=f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{digest}'",
        flattened=flattened,
        measure=MEASURE,
        top=TOP,
        **content,
    )
    return page


def _absent(about: Study) -> dict[str, str | None]:
    """By section, what would bring it, where it is not there."""
    folder = "A folder written by haybale compare --out would bring"
    found: dict[str, str | None] = defaultdict(lambda: None)
    if about.ranker is None:
        found["queries"] = "There is one run only. A second one would bring wins and losses by query."
    for name, said in (("seconds", "the seconds of each stage"), ("facts", "what indexing and training found")):
        if not any(source.results.get(name) for source in about.sources):
            found[name] = f"{folder} {said}."
    if not any(source.settings for source in about.sources):
        found["settings"] = f"{folder} settings and environment."
    return found


def _charts(about: Study, n: int) -> dict[str, Any]:
    """What the sections about measures show: head, table, curves, intervals, and the ``n`` largest wins and losses."""
    table, baseline = about.results, about.baseline
    columns = columns_of(table) if table.comparisons else [(measure, measure) for measure in table.measures]
    curves = recall_curves(about.runs, about.qrels)
    points = {str(name): (curves.index.tolist(), curves[name].tolist()) for name in curves.columns}
    cards = {"Largest wins": about.wins(n), "Largest losses": about.losses(n)}
    links = {query: f"#q{number}" for number, query in enumerate(query for part in cards.values() for query in part)}
    theirs = table.values[baseline][MEASURE].to_numpy()
    intervals = {
        name: (*mean_interval(values[MEASURE].to_numpy() - theirs), number)
        for number, (name, values) in enumerate(table.values.items())
        if name != baseline
    }
    return {
        "about": about,
        "head": _head(about),
        "lead": reading(about),
        "columns": columns,
        "rows": _rows(about, columns),
        "legend": legend(table) if table.comparisons else f"{table.n_queries} queries.",
        "effects": intervals
        and interval_chart(
            intervals,
            f"Mean difference in {MEASURE} of {len(intervals)} rankers from {baseline}, with confidence intervals",
            f"{MEASURE} − {baseline}'s",
        ),
        "curves": curves,
        "recall_chart": recall_chart(points, f"Recall of {len(points)} runs at cut-offs to {curves.index[-1]:,}"),
        "cards": cards,
        "links": links,
        "difference_chart": about.ranker
        and difference_chart(
            about.differences,
            links,
            f"Differences in {MEASURE} of {len(theirs)} queries, {about.ranker} minus {baseline}, sorted",
        ),
    }


def _head(about: Study) -> list[tuple[str, str]]:
    """What the numbers are of."""
    collection = about.collection
    protocols = dict.fromkeys("end-to-end" if source.settings else "given runs" for source in about.sources)
    dates = dict.fromkeys(str(source.results["date"]) for source in about.sources if "date" in source.results)
    return [
        ("collection", collection.name),
        ("split", about.split),
        ("documents", f"{collection.n_documents:,}"),
        ("passages", f"{collection.n_passages:,}"),
        ("queries", f"{about.results.n_queries:,}"),
        ("runs", f"{len(about.runs):,}"),
        ("protocol", ", ".join(protocols)),
        ("date", ", ".join(dates) or f"{datetime.now(UTC):%Y-%m-%d}"),
    ]


def _rows(about: Study, columns: Sequence[tuple[str, str]]) -> dict[str, list[dict[str, Any]]]:
    """The table's cells by ranker: averages with marks, the best of each measure told apart; p and d."""
    means = {name: averages(values) for name, values in about.results.values.items()}
    rows: dict[str, list[dict[str, Any]]] = {}
    for name in means:
        rows[name] = []
        for title, measure in columns:
            compared = about.results.comparisons.get(name, {}).get(measure)
            if title == measure:
                value: float | None = means[name][measure]
                best = value == max(other[measure] for other in means.values())
                cell = {"kind": "n", "text": f"{value:.4f}", "marks": marks(compared), "best": best}
            else:
                value = compared and (compared.p_t if title.startswith("p ") else compared.effect_size)
                cell = {"kind": "n detail", "text": detail(compared, title) if compared else ""}
            rows[name].append({"marks": "", "best": False, **cell, "value": "" if value is None else repr(value)})
    return rows


def mean_interval(differences: NDArray[np.float64], share: float = 0.95) -> tuple[float, float, float]:
    """The mean of differences (n,) and the bounds of its confidence interval, by Student's t; all the same for n = 1.

    >>> [round(value, 3) for value in mean_interval(np.array([0.0, 0.1, 0.2]))]
    [0.1, -0.148, 0.348]
    """
    mean, n = float(differences.mean()), len(differences)
    if n < 2:
        return mean, mean, mean
    reach = float(stats.t.ppf((1 + share) / 2, n - 1)) * float(differences.std(ddof=1)) / math.sqrt(n)
    return mean, mean - reach, mean + reach


def flattened(values: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    """Names with values as text, one line each; those within others have the names of both.

    >>> list(flattened({"a": {"b": 0.5, "c": [1, 2]}, "d": None, "e": "/home/someone/model", "f": [{"g": 1}]}))
    [('a, b', '0.5'), ('a, c', '1, 2'), ('d', '–'), ('e', 'model'), ('f, 0, g', '1')]
    """
    for key, value in values.items():
        if isinstance(value, list | tuple) and any(isinstance(each, Mapping) for each in value):
            value = {str(place): each for place, each in enumerate(value)}  # rankers within a ranker
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
        return PurePath(value).name  # where it lies on a machine is nobody's business
    return f"{value:.6g}" if isinstance(value, float) else str(value)
