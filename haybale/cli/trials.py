"""``haybale compare``, ``tune``, ``report`` and ``demo``."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import haybale
from haybale.cli import options
from haybale.cli.engines import settings_of, values_of
from haybale.cli.options import RANKING, RESULTS, TEXTS, TRIALS, VECTORS, app, argument, given, option
from haybale.cli.terminal import console_for_tables, reporter, say, show, visible
from haybale.errors import InputError

if TYPE_CHECKING:
    from haybale.evaluation import Outcome


@app.command(rich_help_panel=TRIALS)
def compare(
    collection: Annotated[
        str, argument("The folder of an engine; or pydocs, the folder of a collection, or ir_datasets:ID.")
    ],
    rankers: Annotated[
        str | None,
        option(
            "Names, separated by commas; rrf(a,b) and learned(a,b) fuse. Default: bm25, bm25-doc, knn, knn-doc, "
            "parm-vrrf, svr, learned.",
            RANKING,
        ),
    ] = None,
    model: Annotated[list[str] | None, option("NAME=FOLDER: a trained ranker. Repeatable.", RANKING)] = None,
    baseline: Annotated[str, option("What the others are tested against; default: bm25.", RANKING)] = "bm25",
    set_values: options.SetValues = None,
    split: options.Split = None,
    layout: options.Layout = None,
    missing_judgements: options.MissingJudgements = None,
    language: options.Language = None,
    paragraphs: options.Paragraphs = None,
    encoder: options.Encoder = None,
    store: options.Store = None,
    out: Annotated[Path | None, option("A new or empty folder for runs, table and settings.", RESULTS)] = None,
    device: options.Device = None,
    dask: options.Dask = None,
) -> None:
    """Rank a collection's queries with several rankers: one table, with significance against a baseline."""
    from haybale.collections.open import source_of
    from haybale.evaluation import default_rankers
    from haybale.folders import check_output, write_or_rescue
    from haybale.rankers import parse_all, set_all
    from haybale.retrieval.run import check_trec
    from haybale.timing import record_timings, timed

    if out is not None:
        check_output(out)
    settings = settings_of(language=language, paragraphs=paragraphs, encoder=encoder, store=store)
    named = {str(ranker): ranker for ranker in (default_rankers() if rankers is None else parse_all(rankers))}
    trained = _models(model or (), named)
    if baseline not in named | trained:
        named = {baseline: haybale.parse(baseline), **named}
    named = dict(zip(named, set_all(list(named.values()), values_of(set_values)), strict=True))
    report = reporter()
    with nullcontext() if dask is None else haybale.on_cluster(dask):
        with record_timings(report) as before:
            if (Path(collection) / "engine.json").is_file():
                for name in settings | given(layout=layout, missing_judgements=missing_judgements):
                    option = f"--{name.replace('_', '-')}"
                    raise InputError(
                        f"{collection} is an engine, which was built with its settings: leave out {option}"
                    )
                engine = haybale.Engine.open(collection, device=device)
            else:
                with timed("read collection"):
                    read = haybale.open_collection(collection, layout, **given(missing_judgements=missing_judgements))
                engine = haybale.Engine(read, **settings, device=device)
            ready = {name: haybale.load(folder, engine) for name, folder in trained.items()}
        if out is not None:
            whole = engine.collection
            ranked = whole.queries.take(whole.split(split or "dev").queries)
            check_trec([*ranked.ids.to_pylist(), *whole.doc_ids.to_pylist()])
        outcome = haybale.compare(engine, named | ready, baseline=baseline, report=report, **given(split=split))
    seconds = before.seconds | outcome.seconds
    outcome = replace(outcome, seconds=seconds, source=source_of(collection), layout=layout)
    if out is not None:  # first: what is shown may have nobody who reads it
        write_or_rescue(outcome.write, out)
    _show(outcome, f"{outcome.collection.name}, {outcome.split}")
    if out is not None:
        say(f"runs, table.md, results.json and settings.json are in {out}")


def _models(texts: Sequence[str], named: dict[str, Any]) -> dict[str, Path]:
    """The folders of trained rankers by the names they are to have."""
    found: dict[str, Path] = {}
    for text in texts:
        name, _, folder = text.partition("=")
        if not (Path(folder) / "ranker.json").is_file():
            raise InputError(f"--model takes NAME=FOLDER of haybale train, found {text!r}")
        if name in found or name in named:
            raise InputError(f"two rankers are called {name!r}")
        found[name] = Path(folder)
    return found


def _show(outcome: Outcome, title: str) -> None:
    """The table, and the eight stages that took longest."""
    from haybale.evaluation import print_table

    console = console_for_tables()
    console.print()
    print_table(console, outcome.results, title)
    longest = sorted(outcome.seconds.items(), key=lambda item: -item[1])[:8]
    stages = " · ".join(f"{stage} {seconds:.1f}" for stage, seconds in longest)
    console.print(f"\nseconds: {visible(stages)}", soft_wrap=True, markup=False)


@app.command(rich_help_panel=TRIALS)
def tune(
    collection: options.Source,
    measure: Annotated[str | None, option("What is to be best; default: nDCG@10.", RANKING)] = None,
    split: options.Split = None,
    queries: Annotated[int | None, option("Judge by so many queries, drawn; default: all.", TEXTS, min=1)] = None,
    language: options.Language = None,
    layout: options.Layout = None,
    missing_judgements: options.MissingJudgements = None,
    out: Annotated[Path | None, option("A new JSON file for all values.", RESULTS)] = None,
    random_state: options.RandomState = None,
) -> None:
    """Find BM25's k1, b and k3 on judged queries: what was tried, and the options to give to the other commands."""
    import pandas as pd

    from haybale.folders import check_file, check_new_file, new_json, write_or_rescue
    from haybale.rankers.ranker import shown
    from haybale.timing import record_timings, timed

    if out is not None:
        check_new_file(out)
        check_file(out)
    how = given(measure=measure, split=split, n_queries=queries, language=language, random_state=random_state)
    with record_timings(reporter()):
        with timed("read collection"):
            read = haybale.open_collection(collection, layout, **given(missing_judgements=missing_judgements))
        found = [haybale.tune_bm25(read, unit, **how) for unit in ("passage", "document")]
    if out is not None:
        values = {"collection": read.name, "tuned": [tuned.to_dict() for tuned in found]}
        write_or_rescue(lambda path: new_json(path, values), out)
    for tuned in found:
        show(f"BM25 over {tuned.unit}s, {read.name}, {tuned.split}: {tuned.measure} of {tuned.n_queries:,} queries")
        of_k3 = [(k1, b, value) for k1, b, k3, value in tuned.grid if k3 == tuned.k3]
        grid = pd.DataFrame(of_k3, columns=["k1", "b", "value"]).pivot(index="k1", columns="b", values="value")
        pair, others = [tuned.k1, tuned.b], [row for row in tuned.grid if row[2] != tuned.k3]
        of_others = ", ".join(f"{shown(k3)} {value:.4f}" for *each, k3, value in others if each == pair)
        print(grid.to_string(float_format="{:.4f}".format, na_rep="–"))
        print(f"with k3 {shown(tuned.k3)}; the best of these with others: {of_others}")
        best = f"k1 {tuned.k1:g}, b {tuned.b:g}, k3 {shown(tuned.k3)}, {tuned.value:.4f}"
        folds = ""
        if tuned.gain is not None and tuned.interval is not None:
            folds = f"; gain by folds {tuned.gain:+.4f} (95 %: {tuned.interval[0]:+.4f} to {tuned.interval[1]:+.4f})"
        print(f"best: {best}; by default: {tuned.default:.4f}{folds}\n")
    show("for the other commands: " + " ".join(tuned.options for tuned in found))
    if out is not None:
        say(f"all values are in {out}")


@app.command(rich_help_panel=TRIALS)
def report(
    runs: Annotated[list[Path], argument("Folders written by compare --out, and TREC run files.")],
    out: Annotated[Path, option("The page; it is replaced if it exists.", RESULTS)],
    title: Annotated[str | None, option("Of the page.", RESULTS)] = None,
    collection: Annotated[
        str | None, option("What the runs are of, also an engine's folder; default: what the folders say.", TEXTS)
    ] = None,
    layout: options.Layout = None,
    split: Annotated[str | None, option("Whose queries are ranked; default: what the folders say.", TEXTS)] = None,
    baseline: Annotated[str | None, option("Default: the folders', else bm25, else the first run.", RANKING)] = None,
    ranker: Annotated[str | None, option("Whose wins and losses are shown; default: the best one.", RANKING)] = None,
    queries: Annotated[int, option("Wins and losses shown, each; default: 5.", RANKING, min=0)] = 5,
    query: Annotated[str | None, option("Whose heatmap is shown; default: a large win.", RANKING)] = None,
    picture: Annotated[str, option("tsne (the default), or none: neither that nor the heatmap.", VECTORS)] = "tsne",
) -> None:
    """Write one HTML page about runs: table, recall, wins and losses with texts, heatmap, picture, seconds."""
    how = locals()
    from haybale.reports import write_report
    from haybale.reports.study import reading

    show(reading(write_report(report=reporter(), **how)))
    say(f"{out}: {out.stat().st_size / 1000:,.0f} kB")


@app.command(rich_help_panel=options.MORE)
def demo() -> None:
    """Rank the built-in collection with everything there is: no data, no download, a minute or two."""
    outcome = haybale.compare("pydocs", split="test", report=reporter())
    _show(outcome, "pydocs, test: which functions does a docstring's See Also name?")
    fused, bm25 = (outcome.results.values[name]["nDCG@10"].mean() for name in ("learned", "bm25"))
    p = outcome.results.comparisons["learned"]["nDCG@10"].p_t
    verdict = "more than chance explains" if p < 0.05 else "which may be chance"
    n, learned = outcome.results.n_queries, outcome.facts["learned"]["training queries"]
    console_for_tables().print(
        f"\nEach line ranks all {outcome.collection.n_documents:,} documents for {n} queries that no ranker has seen; "
        f"fusing all of them, by weights learned from {learned:,} other queries, "
        f"takes nDCG@10 from {bm25:.3f} to {fused:.3f} (p = {p:.2g} by the t-test: {verdict}). "
        "For your own data, put it in a folder in BEIR's layout (corpus.jsonl, queries.jsonl, qrels/train.tsv, "
        "qrels/dev.tsv) or GerDaLIR's and type: haybale index FOLDER --out ENGINE; "
        "haybale train ENGINE --ranker learned --out MODEL; haybale rank ENGINE QUERY.txt --model MODEL --explain",
        soft_wrap=True,
    )
