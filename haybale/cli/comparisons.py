"""``haybale compare``, ``tune``, ``report`` and ``demo``."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.table import Table

from haybale.cli.arguments import engine_of, values_of
from haybale.cli.output import check_file, check_folder, console_for_tables, given, reporter, say, visible
from haybale.cluster import on_cluster
from haybale.collections import open_collection
from haybale.collections.open import source_of
from haybale.errors import InputError, UnknownNameError
from haybale.evaluation import Outcome, Tuned, compare, default_rankers, print_table, tune_bm25
from haybale.evaluation.tuning import DEFAULT
from haybale.folders import check_new_file, new_json
from haybale.rankers import Ranker, load, parse, parse_all, set_all
from haybale.reports import write_report
from haybale.reports.study import reading
from haybale.stages import listening, stage

UNITS = {"passage": ("passage",), "document": ("document",), "both": ("passage", "document")}


def run_compare(
    collection: str,
    rankers: str | None = None,
    model: Sequence[str] = (),
    baseline: str = "bm25",
    set_values: Sequence[str] = (),
    split: str | None = None,
    layout: str | None = None,
    out: Path | None = None,
    device: str | None = None,
    dask: str | None = None,
    **settings: Any,
) -> None:
    """Compare, print, and write where a folder is given; what can be refused is refused before the work.

    ``settings`` are those of an engine that is made here; ``dask``: the scheduler of a cluster whose workers train the
    bags.
    """
    check_folder(out)
    chosen = default_rankers() if rankers is None else parse_all(rankers)
    named = {str(ranker): ranker for ranker in chosen}
    trained = _models(model, named)
    if baseline not in named | trained:
        named = {baseline: parse(baseline), **named}
    named = dict(zip(named, set_all(list(named.values()), values_of(set_values)), strict=True))
    report = reporter()
    with nullcontext() if dask is None else on_cluster(dask):
        with listening(report) as before:
            engine = engine_of(collection, layout, device, settings)
            ready = {name: load(folder, engine) for name, folder in trained.items()}
        outcome = compare(engine, named | ready, baseline=baseline, report=report, **given(split=split))
    seconds = before.seconds | outcome.seconds
    outcome = replace(outcome, seconds=seconds, source=source_of(collection), layout=layout)
    show(outcome, f"{outcome.collection.name}, {outcome.split}")
    if out is not None:
        outcome.write(out)
        say(f"runs, table.md, results.json and settings.json are in {out}")


def _models(texts: Sequence[str], named: dict[str, Ranker]) -> dict[str, Path]:
    """The folders of trained rankers by the names they are to have."""
    found: dict[str, Path] = {}
    for text in texts:
        name, _, folder = text.partition("=")
        if not name or not folder:
            raise InputError(f"--model takes NAME=FOLDER, found {text!r}")
        if name in found or name in named:
            raise InputError(f"two rankers are called {name!r}")
        if not (Path(folder) / "ranker.json").is_file():
            raise InputError(f"{folder}: no trained ranker; haybale train makes one")
        found[name] = Path(folder)
    return found


def show(outcome: Outcome, title: str) -> None:
    """The table, and the eight stages that took longest."""
    console = console_for_tables()
    console.print()
    print_table(console, outcome.results, title)
    longest = sorted(outcome.seconds.items(), key=lambda item: -item[1])[:8]
    stages = " · ".join(f"{stage} {seconds:.1f}" for stage, seconds in longest)
    console.print(f"\nseconds: {stages}", soft_wrap=True, markup=False)


def run_tune(
    collection: str,
    layout: str | None = None,
    unit: str = "both",
    out: Path | None = None,
    queries: int | None = None,
    **how: Any,
) -> None:
    """Tune, print the grid and the options to use, and write where a file is given; ``how`` as for tune_bm25."""
    if unit not in UNITS:
        raise UnknownNameError("unit", unit, UNITS)
    if out is not None:
        check_new_file(out)
        check_file(out)
    with listening(reporter()):
        with stage("read collection"):
            read = open_collection(collection, layout)
        found = [tune_bm25(read, each, n_queries=queries, **how) for each in UNITS[unit]]
    for tuned in found:
        _show_grid(tuned, read.name)
    print("for the other commands: " + " ".join(tuned.options for tuned in found))
    if out is not None:
        new_json(out, {"collection": read.name, "tuned": [tuned.to_dict() for tuned in found]})
        say(f"all values are in {out}")


def _show_grid(tuned: Tuned, name: str) -> None:
    """A line a k1, a column a b; the best is marked."""
    values = {(k1, b): value for k1, b, value in tuned.grid}
    k1s, bs = (sorted({pair[place] for pair in values}) for place in (0, 1))
    table = Table()
    for title in ("k1", *(f"b {b:g}" for b in bs)):
        table.add_column(title, justify="right")
    for k1 in k1s:
        cells = (f"{'* ' * ((k1, b) == (tuned.k1, tuned.b))}{values[k1, b]:.4f}" for b in bs)
        table.add_row(f"{k1:g}", *cells)
    about = f"BM25 over {tuned.unit}s, {name}, {tuned.split}: {tuned.measure} of {tuned.n_queries:,} queries"
    best = f"* best: k1 {tuned.k1:g}, b {tuned.b:g}, {tuned.value:.4f}"
    print(visible(about), flush=True)
    console_for_tables().print(table)
    print(f"{best}; by default, k1 {DEFAULT[0]:g}, b {DEFAULT[1]:g}: {tuned.default:.4f}\n", flush=True)


def run_report(runs: Sequence[Path], out: Path, **options: Any) -> None:
    """Write the page, and say what it says; ``options`` as for :func:`haybale.reports.write_report`."""
    check_file(out)
    about = write_report(runs, out, report=reporter(), **options)
    print(visible(reading(about)))
    say(f"{out}: {out.stat().st_size / 1000:,.0f} kB")


def run_demo() -> None:
    """Rank pydocs' test queries and say what is seen."""
    outcome = compare("pydocs", split="test", report=reporter())
    show(outcome, "pydocs, test: which functions does a docstring's See Also name?")
    fused, bm25 = (outcome.results.values[name]["nDCG@10"].mean() for name in ("learned", "bm25"))
    p = outcome.results.comparisons["learned"]["nDCG@10"].p_t
    verdict = "more than chance explains" if p < 0.05 else "which may be chance"
    n, learned = outcome.results.n_queries, outcome.facts["learned"]["training queries"]
    console_for_tables().print(
        f"\nEach line ranks all {outcome.collection.n_documents:,} documents for {n} queries that no ranker has seen; "
        f"fusing all of them, by weights learned from {learned:,} other queries, "
        f"takes nDCG@10 from {bm25:.3f} to {fused:.3f} (p = {p:.2g}: {verdict}). "
        "For your own data, put it in a folder in BEIR's layout (corpus.jsonl, queries.jsonl, qrels/train.tsv, "
        "qrels/dev.tsv) or GerDaLIR's and type: haybale index FOLDER --out ENGINE; "
        "haybale train ENGINE --ranker learned --out MODEL; haybale rank ENGINE QUERY.txt --model MODEL --explain",
        soft_wrap=True,
    )
