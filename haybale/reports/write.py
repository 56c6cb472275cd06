"""Runs to a report: everything is read, checked and measured first; the page is written last, aside, then renamed."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

from haybale.collections import Collection
from haybale.engine import Engine
from haybale.errors import InputError
from haybale.reports.differences import differences_section
from haybale.reports.heatmap import heatmap_section
from haybale.reports.load import load
from haybale.reports.page import page
from haybale.reports.picture import picture_section
from haybale.reports.plane import check_picture
from haybale.reports.recall import recall_section
from haybale.reports.record import facts_section, settings_section, timings_section
from haybale.reports.study import Study, find_split, open_for, study
from haybale.reports.table import reading, table_section
from haybale.reports.vectors import engine_for, parm_for
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
    with listening(report):
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
        sections = [
            table_section(about),
            recall_section(about),
            differences_section(about, queries),
            heatmap_section(about, engine, parm_for(sources), query),
            picture_section(about, engine, picture, random_state),
            timings_section(sources),
            facts_section(sources),
            settings_section(sources),
        ]
        heading = title or f"{whole.name}, {about.split}"
        _replace(out, page(heading, _facts(about), reading(about), sections))
    return about


def _facts(about: Study) -> list[tuple[str, str]]:
    """What the numbers are of."""
    collection, recorded = about.collection, [source.results for source in about.sources if source.results]
    protocols = dict.fromkeys("end-to-end" if source.settings else "given runs" for source in about.sources)
    dates = dict.fromkeys(str(each["date"]) for each in recorded if "date" in each)
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


def _replace(out: Path, text: str) -> None:
    out.parent.mkdir(parents=True, exist_ok=True)
    aside = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        aside.write_text(text, encoding="utf-8", errors="replace", newline="\n")
        os.replace(aside, out)
    finally:
        aside.unlink(missing_ok=True)
