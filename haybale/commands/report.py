"""``haybale report``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from haybale.cli import options
from haybale.cli.application import TRIALS, command
from haybale.cli.options import RANKING, RESULTS, TEXTS, VECTORS, argument, option
from haybale.cli.terminal import note, reporter, show


@command(TRIALS)
def report(
    runs: Annotated[list[Path], argument("Folders written by haybale compare --out, and TREC run files.")],
    out: Annotated[Path, option("The HTML file. An existing file is replaced.", RESULTS)],
    title: Annotated[str | None, option("The title of the page. Default: collection and split.", RESULTS)] = None,
    collection: Annotated[
        str | None, option("The collection, or an engine's folder. Default: as recorded in the runs' folders.", TEXTS)
    ] = None,
    layout: options.Layout = None,
    split: Annotated[
        str | None, option("The split whose queries were ranked. Default: as recorded in the runs' folders.", TEXTS)
    ] = None,
    where: Annotated[
        str | None,
        option(
            "The condition on metadata that the runs were ranked with. Default: as recorded in their folders.", RANKING
        ),
    ] = None,
    baseline: Annotated[
        str | None,
        option("The ranker to test the others against. Default: as recorded, else bm25, else the first.", RANKING),
    ] = None,
    ranker: Annotated[
        str | None, option("The ranker whose wins and losses are shown. Default: the best by nDCG@10.", RANKING)
    ] = None,
    queries: Annotated[int, option("The number of wins and of losses. Default: 5.", RANKING, min=0)] = 5,
    query: Annotated[str | None, option("The id of the query of the heatmap. Default: a large win.", RANKING)] = None,
    picture: Annotated[
        str,
        option(
            "heatmap draws the paragraphs of a query and a document; tsne also a map of the vectors, which may take a "
            "minute; none neither. Default: heatmap.",
            VECTORS,
        ),
    ] = "heatmap",
    figures: Annotated[
        Path | None, option("Also save each chart as SVG and PDF in this folder. Default: no.", RESULTS)
    ] = None,
) -> None:
    """Write an HTML page about runs: measures, recall curves, wins and losses with their texts, and pictures."""
    how = locals()
    from haybale.reports import write_report
    from haybale.reports.study import summarise

    show(summarise(write_report(report=reporter(), **how)))
    if figures is not None:
        note(f"Saved the charts as SVG and PDF to {figures}.")
    note(f"Saved to {out} ({out.stat().st_size / 1000:,.0f} kB). Open it in a browser.")
