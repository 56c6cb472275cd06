"""``haybale compare``."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from haybale.cli.arguments import check_device, is_engine, opened, settled, values_of
from haybale.cli.options import given
from haybale.cli.output import check_folder, console_for_tables, reporter, say
from haybale.cluster import on_cluster
from haybale.collections import open_collection
from haybale.collections.open import source_of
from haybale.engine import Engine
from haybale.errors import InputError
from haybale.evaluation import Outcome, compare, default_rankers, print_table
from haybale.rankers import Ranker, load, parse, parse_all, set_all
from haybale.stages import listening, stage

_STAGES = 8  # that are shown


def run_compare(
    place: str,
    rankers: str | None,
    *,
    models: Sequence[str],
    values: list[str] | None,
    out: Path | None,
    layout: str | None,
    settings: dict[str, Any],
    device: str | None,
    dask: str | None,
    baseline: str = "bm25",
    **how: Any,
) -> None:
    """Compare, print, and write where a folder is given; what can be refused is refused before the work.

    ``settings`` are those of an engine that is made here; ``dask``: the scheduler of a cluster whose workers train the
    bags.
    """
    check_folder(out)
    chosen = default_rankers() if rankers is None else parse_all(rankers)
    named = {str(ranker): ranker for ranker in chosen}
    trained = models_of(models, named)
    if baseline not in named | trained:
        named = {baseline: parse(baseline), **named}
    named = dict(zip(named, set_all(list(named.values()), values_of(values)), strict=True))
    report = reporter()
    with nullcontext() if dask is None else on_cluster(dask):
        with listening(report) as before:
            engine = engine_of(place, layout, settings, device)
            ready = {name: load(folder, engine) for name, folder in trained.items()}
        outcome = compare(engine, named | ready, baseline=baseline, report=report, **how)
    outcome = replace(outcome, seconds=before.seconds | outcome.seconds, source=source_of(place), layout=layout)
    show(outcome, f"{outcome.collection.name}, {outcome.split}")
    if out is not None:
        outcome.write(out)
        say(f"runs, table.md, results.json and settings.json are in {out}")


def models_of(given: Sequence[str], named: dict[str, Ranker]) -> dict[str, Path]:
    """The folders of trained rankers by the names they are to have."""
    found: dict[str, Path] = {}
    for text in given:
        name, sign, folder = text.partition("=")
        if not name or not sign or not folder:
            raise InputError(f"--model takes NAME=FOLDER, found {text!r}")
        if name in found or name in named:
            raise InputError(f"two rankers are called {name!r}")
        if not (Path(folder) / "ranker.json").is_file():
            raise InputError(f"{folder}: no trained ranker; haybale train makes one")
        found[name] = Path(folder)
    return found


def engine_of(place: str, layout: str | None, settings: dict[str, Any], device: str | None) -> Engine:
    """The engine of that folder, or one in memory of that collection."""
    if is_engine(place):
        for name in [*settings, *(["layout"] if layout else [])]:
            raise InputError(f"{place} is an engine, which was built with its settings: leave out --{name}")
        return opened(Path(place), device)
    check_device(settings.get("encoder", "tfidf"), settings.get("store"), device)
    with stage("read collection"):
        collection = open_collection(place, layout)
    return Engine(collection, **settled(settings), **given(device=device))


def show(outcome: Outcome, title: str) -> None:
    """The table, and the stages that took longest."""
    console = console_for_tables()
    console.print()
    print_table(console, outcome.results, title)
    longest = sorted(outcome.seconds.items(), key=lambda item: -item[1])[:_STAGES]
    stages = " · ".join(f"{stage} {seconds:.1f}" for stage, seconds in longest)
    console.print(f"\nseconds: {stages}", soft_wrap=True, markup=False)
