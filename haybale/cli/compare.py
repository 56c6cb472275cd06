"""``haybale compare``."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from haybale.cli.output import console_for_tables, read, report, show
from haybale.cluster import on_cluster
from haybale.collections.open import source_of
from haybale.experiments import CAVEAT, Settings, check_output, classify_injected, compare, write, write_injected
from haybale.experiments.rankers import parts_of


def encoder_for(name: str, rankers: tuple[str, ...], protocol: str, device: str) -> str:
    """``auto`` is TF-IDF, the better lexical space, or LSA for what needs dense vectors.

    >>> encoder_for("auto", ("bm25", "knn"), "end-to-end", "cpu")
    'tfidf'
    >>> encoder_for("auto", ("svr-paper",), "end-to-end", "cpu")
    'lsa'
    """
    if name != "auto":
        return name
    dense = protocol == "injected" or device != "cpu" or any("svr-paper" in ranker for ranker in rankers)
    return "lsa" if dense else "tfidf"


def run_compare(name: str, layout: str | None, settings: Settings, out: Path | None, dask: str | None = None) -> None:
    """Compare, print, and write where a folder is given; what can be refused is refused before the work.

    ``dask``: the scheduler of a cluster whose workers train the bags.
    """
    if out is not None:
        check_output(out)
    for ranker in settings.rankers:
        parts_of(ranker)
    with nullcontext() if dask is None else on_cluster(dask):
        if settings.protocol == "injected":
            _run_injected(name, layout, settings, out)
            return
        outcome = compare(read(name, layout), settings, report)
    show(outcome, f"{outcome.collection.name}, {settings.split}")
    if out is not None:
        write(replace(outcome, source=source_of(name), layout=layout), out)
        Console(stderr=True).print(f"runs, table.md, results.json and settings.json are in {out}")


def _run_injected(name: str, layout: str | None, settings: Settings, out: Path | None) -> None:
    outcome = classify_injected(read(name, layout), settings, report)
    figures = outcome.figures
    console = console_for_tables()
    console.print(
        f"\nrelevant class, vote of {outcome.facts['svr-paper']['bags']} bags: precision {figures.precision:.4f}, "
        f"recall {figures.recall:.4f}, F1 {figures.f1:.4f}; accuracy {figures.accuracy:.4f} "
        f"over {figures.n_rows:,} rows, {figures.n_positive:,} of them relevant",
        soft_wrap=True,
    )
    console.print(CAVEAT, soft_wrap=True)
    if out is not None:
        write_injected(outcome, out)
