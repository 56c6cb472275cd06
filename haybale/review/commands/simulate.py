"""``haybale simulate``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from haybale.cli import options
from haybale.cli.application import TRIALS, command
from haybale.cli.options import RANKING, RESULTS, TEXTS, argument, given, option
from haybale.cli.terminal import console_for_tables, note, visible
from haybale.errors import UnknownNameError

if TYPE_CHECKING:
    import pandas as pd

FORMATS = ("table", "json")
JUDGING = "Judging"  # a panel of the help


@command(TRIALS)
def simulate(
    source: Annotated[
        str,
        argument(
            "A record file of ASReview (.csv, .tsv, .xlsx or .ris, with a column label_included), an engine's folder, "
            "or a collection with judged queries: its folder, pydocs (built in), or ir_datasets:ID."
        ),
    ],
    start: Annotated[
        list[str] | None,
        option(
            "What is known before: random (a relevant and an irrelevant document), text (the topic's text), or both. "
            "Repeatable, to compare them. Default: text if there is one, else random.",
            JUDGING,
        ),
    ] = None,
    text: Annotated[str | None, option("The text of the topic of a record file. Default: none.", TEXTS)] = None,
    split: Annotated[str | None, option("Only the judged queries of this split. Default: all.", TEXTS)] = None,
    seeds: Annotated[int, option("Simulations of each topic. Default: 5.", JUDGING, min=1)] = 5,
    target: Annotated[float, option("The recall to reach, from 0 to 1. Default: 0.95.", JUDGING)] = 0.95,
    stop: Annotated[
        list[str] | None,
        option('A stopping rule, such as cmh or "consecutive(100)". Repeatable. Default: none.', JUDGING),
    ] = None,
    sample: Annotated[
        int, option("Documents drawn at random and judged before, for rules such as qbcb. Default: 0.", JUDGING, min=0)
    ] = 0,
    explore_every: Annotated[
        int | None, option("Propose as every k-th document the least certain one. Default: never.", RANKING, min=1)
    ] = None,
    learn_from: Annotated[
        int | None,
        option("Learn from at most so many judgements, to save time. Default: until all are found.", RANKING, min=1),
    ] = None,
    format: Annotated[str, option("table for people; json with all runs. Default: table.", RESULTS)] = "table",
    out: Annotated[
        Path | None,
        option(
            "Write one page to this file (.html), or results.json, table.md and recall.svg to this new or empty "
            "folder. Default: print only.",
            RESULTS,
        ),
    ] = None,
    random_state: options.RandomState = None,
) -> None:
    """Simulate reviews whose judgements are known: how early relevant documents are found, and where rules stop.

    WSS@95 is the work saved at 95 % recall, read@95 the documents read until then, RRF@10 the recall when 10 % are
    read, and ATD the mean number of documents read until a relevant one is found.
    """
    from haybale.extras import import_optional
    from haybale.folders import check_file, check_output, write_or_rescue
    from haybale.review import simulate as simulated

    if format not in FORMATS:
        raise UnknownNameError("format", format, FORMATS)
    is_page = out is not None and out.suffix.lower() in (".html", ".htm")
    if out is not None:
        (check_file if is_page else check_output)(out)
    if is_page:
        import_optional("jinja2", "reports")
    how = given(start=start, text=text, split=split, explore_every=explore_every, learn_from=learn_from)
    how |= given(random_state=random_state)
    simulation = simulated(source, seeds=seeds, target=target, rules=stop or (), sample=sample, **how)
    if out is not None:  # written before the table is printed, because printing may fail
        if is_page:
            from haybale.review import write_simulation

            write_simulation(simulation, out)
        else:
            write_or_rescue(simulation.write, out)
    if format == "json":
        print(simulation.to_json(indent=1))
    else:
        what = f"{simulation.name}: start {', '.join(simulation.starts)}, mean of {seeds} seeds"
        _print_table(simulation.table().reset_index(), what)
        if simulation.rules:
            _print_table(simulation.stops_table().reset_index(), f"Stops; target: recall {target:g}")
    if out is not None:
        what = "the page" if is_page else "results.json, table.md and, with the extra reports, recall.svg"
        note(f"Saved {what} to {out}.")


def _print_table(table: pd.DataFrame, title: str) -> None:
    from rich.table import Table

    from haybale.review.simulation_results import formatted

    shown = Table(title=visible(title), title_justify="left")
    for number, name in enumerate(table.columns):
        shown.add_column(str(name), justify="right" if number else "left")
    for row in table.itertuples(index=False):
        shown.add_row(*(visible(formatted(value)) for value in row))
    console_for_tables().print(shown)
