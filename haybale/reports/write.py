"""Runs to a report: everything is read, checked and measured first; the page is written last, aside, then renamed."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from haybale.collections import Collection
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
from haybale.reports.vectors import workbench


def write_report(
    runs: Sequence[Path | str],
    out: Path | str,
    *,
    collection: Collection | str | Path | None = None,
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
    report: Callable[[str, float], None] = lambda stage, seconds: None,
) -> Study:
    """Write one self-contained HTML page about ``runs`` to ``out``, replaced if it exists; returns what it shows.

    ``runs``: folders of ``haybale compare --out`` and TREC run files. ``collection``, ``layout``, ``split``,
    ``baseline``, ``encoder`` and ``store`` default to what the folders say (encoder: else ``"tfidf"``; ``"none"``
    leaves heatmap and picture out). ``ranker``: whose wins and losses are shown (default: the best by nDCG@10 that is
    not the baseline), ``queries`` of them each; ``query``: whose heatmap (default: that of a large win).
    ``picture``: ``"tsne"``, ``"umap"`` (extra ``umap``) or ``"none"``. ``random_state``: of the queries in the picture
    and of the picture. ``report(stage, seconds)`` is called whenever a stage is done.

    Errors: :class:`InputError` for a place without runs, runs of other queries or documents than the split's, no split;
    :class:`UnknownNameError` for a run, split or picture that is not there; nothing is written then.
    """
    out = Path(out)
    if out.is_dir():
        raise InputError(f"{out} is a folder; expected the name of an HTML file")
    if queries < 0:
        raise InputError(f"queries must be at least 0, found {queries}")
    if not runs:
        raise InputError("no run was given")
    check_picture(picture)
    with _timed("read runs", report):
        sources = [load(path) for path in runs]
    with _timed("read collection", report):
        opened = open_for(sources, collection, layout)
    with _timed("evaluate", report):
        about = study(sources, opened, find_split(sources, opened, split), baseline, ranker)
    if query is not None and query not in about.relevant:
        raise InputError(f"the query {query!r} is not one of {opened.name}, {about.split}, with a relevant document")
    bench = workbench(sources, opened, about.split, encoder=encoder, store=store, report=report)
    sections = [
        table_section(about),
        recall_section(about),
        differences_section(about, queries),
        heatmap_section(about, bench, query),
        picture_section(about, bench, picture, random_state),
        timings_section(sources),
        facts_section(sources),
        settings_section(sources),
    ]
    heading = title or f"{opened.name}, {about.split}"
    _replace(out, page(heading, _facts(about), reading(about), sections))
    return about


def _facts(about: Study) -> list[tuple[str, str]]:
    """What the numbers are of."""
    collection, recorded = about.collection, [source.results for source in about.sources if source.results]
    protocols = dict.fromkeys(source.settings.get("protocol", "given runs") for source in about.sources)
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


@contextmanager
def _timed(stage: str, report: Callable[[str, float], None]) -> Iterator[None]:
    start = time.perf_counter()
    yield
    report(stage, time.perf_counter() - start)


def _replace(out: Path, text: str) -> None:
    out.parent.mkdir(parents=True, exist_ok=True)
    aside = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        aside.write_text(text, encoding="utf-8", errors="replace", newline="\n")
        os.replace(aside, out)
    finally:
        aside.unlink(missing_ok=True)
