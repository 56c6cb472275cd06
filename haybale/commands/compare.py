"""``haybale compare``."""

from __future__ import annotations

import json
import shlex
from collections.abc import Container, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import haybale
from haybale.cli import options
from haybale.cli.application import TRIALS, command
from haybale.cli.options import RANKING, RESULTS, argument, engine_settings, given, option
from haybale.cli.terminal import console_for_tables, note, print_outcome, reporter, show
from haybale.cli.values import parse_values
from haybale.errors import InputError, UnknownNameError

if TYPE_CHECKING:
    from haybale.evaluation import Outcome

FORMATS = ("table", "latex", "csv", "json")


@command(TRIALS)
def compare(
    collection: Annotated[
        str, argument("The folder of an engine, or a collection: its folder, pydocs (built in), or ir_datasets:ID.")
    ],
    rankers: Annotated[
        str | None,
        option("Names, separated by commas. Default: bm25, bm25-doc, knn, knn-doc, parm-vrrf, svr, learned.", RANKING),
    ] = None,
    model: Annotated[
        list[str] | None, option("NAME=FOLDER adds a ranker that haybale train wrote to FOLDER. Repeatable.", RANKING)
    ] = None,
    baseline: Annotated[str, option("The ranker that the others are tested against. Default: bm25.", RANKING)] = "bm25",
    where: options.Where = None,
    before: options.Before = None,
    set_values: options.SetValues = None,
    measures: Annotated[
        str | None,
        option(
            "Measures, separated by commas, such as MicroF1,SetF,nDCG@5. Default: MRR@10, nDCG@10, nDCG@20, "
            "Recall@100, Recall@1000 and MAP.",
            RESULTS,
        ),
    ] = None,
    split: options.Split = None,
    layout: options.Layout = None,
    missing_judgements: options.MissingJudgements = None,
    language: options.Language = None,
    paragraphs: options.Paragraphs = None,
    encoder: options.Encoder = None,
    store: options.Store = None,
    out: Annotated[
        Path | None, option("Write runs and table to this new or empty folder. Default: print the table only.", RESULTS)
    ] = None,
    format: Annotated[
        str,
        option(
            "What is printed: table for people; latex, csv or json for papers and programs. Default: table.", RESULTS
        ),
    ] = "table",
    device: options.Device = None,
    dask: options.Dask = None,
) -> None:
    """Compare rankers on judged queries: print one table, with significance tests against a baseline.

    Rankers that learn are trained on the split train. With --out, finished tasks are kept in OUT.comparing until the
    comparison is written. If it is interrupted, run the same command again to continue.
    """
    from haybale.cli.resuming import resuming
    from haybale.collections.open import source_of
    from haybale.device import find_device
    from haybale.evaluation import default_rankers
    from haybale.evaluation.comparison import KNOWN_QUESTIONS, LEFT_OUT
    from haybale.evaluation.measures import MEASURES, parse_measures
    from haybale.evaluation.seen_queries import print_seen
    from haybale.folders import check_output, write_or_rescue
    from haybale.rankers import parse_all, set_all
    from haybale.retrieval.run import check_trec
    from haybale.timing import record_timings, timed

    if format not in FORMATS:
        raise UnknownNameError("format", format, FORMATS)
    names = MEASURES if measures is None else [name.strip() for name in measures.split(",")]
    parse_measures(names)  # raises for unknown measures before any work
    find_device(device or "cpu")  # raises for a missing device before any work
    if out is not None:
        check_output(out)
    settings = engine_settings(language, store, paragraphs=paragraphs, encoder=encoder)
    named = {str(ranker): ranker for ranker in (default_rankers() if rankers is None else parse_all(rankers))}
    trained = _models(model or (), named)
    if baseline not in named | trained:
        named = {baseline: haybale.parse(baseline), **named}
    named = dict(zip(named, set_all(list(named.values()), parse_values(set_values)), strict=True))
    report = reporter()
    with resuming(out, "comparing"), options.on_cluster_of(dask):
        with record_timings(report) as preparation:
            if (Path(collection) / "engine.json").is_file():
                for name in settings | given(layout=layout, missing_judgements=missing_judgements):
                    option = f"--{name.replace('_', '-')}"
                    raise InputError(f"{option} cannot change the engine {collection}; omit it or build another engine")
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
        outcome = haybale.compare(
            engine,
            named | ready,
            baseline=baseline,
            measures=names,
            where=where,
            before=before,
            report=report,
            **given(split=split),
        )
        seconds = preparation.seconds | outcome.seconds
        outcome = replace(outcome, seconds=seconds, source=source_of(collection), layout=layout)
        if out is not None:  # written before the table is printed, because printing may fail
            write_or_rescue(outcome.write, out)
    if format == "table":
        print_outcome(outcome, outcome.title)
        if outcome.seen is not None:
            print_seen(console_for_tables(), outcome.seen)
        for name, forecast in outcome.forecasts.items():
            show(f"Forecast of {name} from training alone: {forecast}.")
    else:
        print(formatted(outcome, format))
    if repeated := outcome.facts.get(KNOWN_QUESTIONS):
        note(
            f"{repeated['queries']:,} of {repeated['of']:,} queries of {outcome.split} have the words of a training "
            f"query, such as {repeated['first']} and {repeated['training query']}: rankers that learn know the answers "
            "to these."
        )
    if any(outcome.facts.get(LEFT_OUT, {}).values()):
        note(f"--before leaves out {', '.join(f'{n:,} {what}' for what, n in outcome.facts[LEFT_OUT].items() if n)}.")
    if out is not None:
        note(f"Saved runs, table.md, per_query.csv, results.json and settings.json to {out}.")
        note(f"Next: haybale report {shlex.quote(str(out))} --out report.html")


def formatted(outcome: Outcome, format: str) -> str:
    """Return the tables in LaTeX, all rows in CSV, or everything except the runs in JSON."""
    if format == "latex":
        return outcome.to_latex(groups=True)
    if format == "csv":
        return outcome.to_frame(groups=True).to_csv(index=False).rstrip("\n")
    return json.dumps(outcome.to_dict(), indent=2, ensure_ascii=False)


def _models(texts: Sequence[str], taken: Container[str]) -> dict[str, Path]:
    """Return the folders of trained rankers by the names that ``--model NAME=FOLDER`` gives them."""
    folders: dict[str, Path] = {}
    for text in texts:
        name, _, folder = text.partition("=")
        if not (Path(folder) / "ranker.json").is_file():
            raise InputError(f"--model must be NAME=FOLDER, with a folder written by haybale train, found {text!r}")
        if name in folders or name in taken:
            raise InputError(f"another ranker is already called {name!r}; choose another NAME for --model NAME=FOLDER")
        folders[name] = Path(folder)
    return folders
