"""``haybale train``."""

from __future__ import annotations

import shlex
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import haybale
from haybale.cli import options
from haybale.cli.application import ENGINES, command
from haybale.cli.options import RANKING, RESULTS, TEXTS, option
from haybale.cli.terminal import note, reporter, show, size_on_disk, verbosity
from haybale.cli.values import parse_ranker
from haybale.errors import InputError

if TYPE_CHECKING:
    from haybale import Ranker

FEW = 100  # with this many judged queries, training was better in every draw (benchmarks/results/judgements.md)
FORECAST_QUERIES = 300  # that a forecast after training is for


@command(ENGINES)
def train(
    engine: options.EnginePlace,
    ranker: Annotated[
        str, option("A name, such as learned, svr or learned(bm25,knn,svr), or a YAML or JSON file.", RANKING)
    ],
    out: Annotated[Path, option("A new or empty folder for the trained ranker.", RESULTS)],
    split: options.TrainingSplit = None,
    judgements: Annotated[
        Path | None,
        option("Learn from the topics of a store that haybale review wrote. Default: from the split.", TEXTS),
    ] = None,
    before: options.Before = None,
    set_values: options.SetValues = None,
    device: options.Device = None,
    dask: options.Dask = None,
) -> None:
    """Train a ranker on the judged queries of an engine, or on reviewed topics, and save it for rank and compare.

    Finished searches and bags are kept in OUT.training until the ranker is saved. If training is interrupted, run the
    same command again: it continues, and gives the same ranker.
    """
    from haybale.cli.resuming import resuming
    from haybale.folders import check_output, write_or_rescue
    from haybale.rankers.forecasting import Forecasting
    from haybale.review import train_ranker
    from haybale.timing import record_timings

    start = time.perf_counter()
    if judgements is not None and split is not None:
        raise InputError("--judgements cannot be combined with --split; omit one of them")
    if judgements is not None and before is not None:
        raise InputError("--judgements cannot be combined with --before, since topics have no date; omit one of them")
    chosen = parse_ranker(ranker, set_values)
    check_output(out)
    opened = haybale.Engine.open(engine, device=device)
    with resuming(out, "training"), options.on_cluster_of(dask), record_timings(reporter()):
        if judgements is None:
            chosen.fit(opened, split, before=before)
        else:
            train_ranker(chosen, opened, judgements)
        if isinstance(chosen, Forecasting) and chosen.can_forecast:
            chosen.learn_forecast()
        write_or_rescue(chosen.save, out)
    reports = [(inner, inner.fit_report_) for inner in _all(chosen) if inner.fit_report_]
    seconds = f"{time.perf_counter() - start:.1f} s"
    counts = [report["training queries"] for _, report in reports if "training queries" in report]
    counts += [len(inner.query_ids_) for inner in _all(chosen) if inner.query_ids_]
    if counts:
        show(f"Trained {chosen} on {counts[0]:,} queries of {opened.collection.name} in {seconds}.")
        if counts[0] < FEW:
            note(
                f"{counts[0]:,} judged queries are few. On two collections, those trained on 3 or 10 were often worse "
                f"than the best one that needs no training; from {FEW} on they were better. Judge more, and measure: "
                "haybale judge … --split dev, then haybale compare."
            )
    else:
        show(f"Prepared {chosen}, which needs no training, in {seconds}.")
    weights = next(((inner, report["weights"]) for inner, report in reports if "weights" in report), None)
    if weights is not None:
        show(f"The inputs of {weights[0].name} with the largest weights: {_largest(weights[1], 3)}.")
    if isinstance(chosen, Forecasting) and chosen.can_forecast:
        forecast = chosen.forecast_as_trained(FORECAST_QUERIES)
        show(f"Forecast for queries like those it was trained on: {forecast}.")
    show(f"Saved to {out} ({size_on_disk(out)}).")
    if verbosity.verbose:
        for inner, report in reports:
            show(f"{inner}:")
            for name, value in report.items():
                show(f"  {name}: {_formatted(value)}")
    elif reports:
        show("The option --verbose prints everything that training found.")
    show(f"Next: haybale rank {shlex.quote(str(engine))} QUERY --model {shlex.quote(str(out))} --explain")


def _all(ranker: Ranker) -> Iterator[Ranker]:
    """Yield a fitted ranker and the rankers inside it."""
    yield ranker
    for inner in ranker.rankers_:
        yield from _all(inner)


def _formatted(value: Any) -> str:
    if isinstance(value, dict):
        return _largest(value)
    return f"{value:,.4g}" if isinstance(value, float) else str(value)


def _largest(weights: dict[str, float], n: int | None = None) -> str:
    """Return the n weights with the largest magnitudes as a text."""
    largest = sorted(weights.items(), key=lambda item: -abs(item[1]))[:n]
    return ", ".join(f"{name} {weight:.3g}" for name, weight in largest)
