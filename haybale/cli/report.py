"""``haybale report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from haybale.cli import options
from haybale.cli.application import TRIALS, command
from haybale.cli.options import RANKING, RESULTS, TEXTS, VECTORS, argument, option
from haybale.cli.terminal import reporter, say, show


@command(TRIALS)
def report(
    runs: Annotated[list[Path], argument("Folders written by compare --out, and TREC run files.")],
    out: Annotated[Path, option("The HTML file; replaced if it exists.", RESULTS)],
    title: Annotated[str | None, option("Title of the page.", RESULTS)] = None,
    collection: Annotated[
        str | None,
        option("The collection that was ranked, or an engine's folder; default: as recorded in the folders.", TEXTS),
    ] = None,
    layout: options.Layout = None,
    split: Annotated[
        str | None, option("The split whose queries were ranked; default: as recorded in the folders.", TEXTS)
    ] = None,
    baseline: Annotated[
        str | None, option("Default: as recorded in the folders, else bm25, else the first run.", RANKING)
    ] = None,
    ranker: Annotated[
        str | None, option("The ranker whose wins and losses are shown; default: the best one.", RANKING)
    ] = None,
    queries: Annotated[int, option("Number of wins and of losses; default: 5.", RANKING, min=0)] = 5,
    query: Annotated[str | None, option("The query of the heatmap; default: a large win.", RANKING)] = None,
    picture: Annotated[str, option("tsne (the default), or none, which leaves out the heatmap too.", VECTORS)] = "tsne",
) -> None:
    """Write one HTML page about runs: table, recall curves, wins and losses with texts, heatmap, picture, seconds."""
    how = locals()
    from haybale.reports import write_report
    from haybale.reports.study import reading

    show(reading(write_report(report=reporter(), **how)))
    say(f"{out}: {out.stat().st_size / 1000:,.0f} kB")
