"""The commands and their options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from haybale.experiments.settings import DEFAULT_RANKERS, Settings

app = typer.Typer(
    help="Finds the few relevant passages and documents in a haystack of long ones.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@app.command()
def demo() -> None:
    """Rank the built-in collection with everything there is: no data, no download, a minute or two."""
    from haybale.cli.demo import run_demo

    run_demo()


@app.command()
def compare(
    collection: Annotated[str, typer.Argument(help="pydocs, or a folder; its layout is recognised.")],
    split: Annotated[str, typer.Option(help="Whose queries are ranked.")] = "dev",
    rankers: Annotated[str, typer.Option(help="Names, separated by commas; rrf(a,b) fuses.")] = ",".join(
        DEFAULT_RANKERS
    ),
    out: Annotated[Path | None, typer.Option(help="A new or empty folder for runs, table and settings.")] = None,
    encoder: Annotated[str, typer.Option(help="lsa, or a sentence-transformers hub id or folder.")] = "lsa",
    width: Annotated[int, typer.Option(help="Width of the LSA vectors.")] = Settings.width,
    language: Annotated[str | None, typer.Option(help="english or german; guessed by default.")] = None,
    layout: Annotated[str | None, typer.Option(help="gerdalir, beir or structured, if not recognised.")] = None,
    protocol: Annotated[str, typer.Option(help="end-to-end, or injected for the paper's own figures.")] = "end-to-end",
    k1: Annotated[float, typer.Option(help="BM25's k1.")] = Settings.k1,
    b: Annotated[float, typer.Option(help="BM25's b.")] = Settings.b,
    bags: Annotated[int, typer.Option(help="Bags of the ensemble.")] = 35,
    overlap: Annotated[float, typer.Option(help="How much the bags share.")] = 0.6,
    strategy: Annotated[str, typer.Option(help="queries, rows or regions: what goes into a bag.")] = "queries",
    rows_per_bag: Annotated[int, typer.Option(help="Training rows of a bag at most; 0 for all.")] = 0,
    train_candidates: Annotated[
        int, typer.Option(help="Candidates of a training query, from BM25 and kNN each.")
    ] = Settings.train_candidates,
    candidates: Annotated[int, typer.Option(help="Candidates of a ranked query, likewise.")] = Settings.candidates,
    jobs: Annotated[int, typer.Option(help="Bags trained at once; -1: one a core.")] = -1,
    seed: Annotated[int, typer.Option(help="Of the SVD and the bags.")] = 0,
) -> None:
    """Rank a collection's queries with several rankers: one table, with significance against BM25."""
    from haybale.cli.compare import run_compare
    from haybale.experiments import split_names

    settings = Settings(
        split=split,
        rankers=tuple(split_names(rankers)),
        protocol=protocol,
        encoder=encoder,
        width=width,
        language=language,
        k1=k1,
        b=b,
        train_candidates=train_candidates,
        candidates=candidates,
        rows_per_bag=rows_per_bag or None,
        ensemble={"n_bags": bags, "overlap": overlap, "strategy": strategy},
        random_state=seed,
        n_jobs=jobs,
    )
    run_compare(collection, layout, settings, out)


@app.command()
def doctor() -> None:
    """List which backends and extras are usable here, and the pip line for those that are not."""
    from haybale.cli.doctor import run_doctor

    run_doctor()
