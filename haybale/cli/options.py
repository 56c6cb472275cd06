"""Options that several commands share. Only typer is imported: what a command needs is imported when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

TEXTS, VECTORS, RANKING, RESULTS, MACHINE = "Texts", "Vectors", "Ranking", "Results", "Machine"


def option(help: str, panel: str, *names: str, **how: Any) -> Any:
    """An option in a panel of the help. Its default, where it has one, is in the words."""
    return typer.Option(*names, help=help, rich_help_panel=panel, show_default=False, **how)


Source = Annotated[
    str, typer.Argument(help="pydocs, a folder, whose layout is recognised, or ir_datasets:ID.", show_default=False)
]
EngineFolder = Annotated[
    Path, typer.Argument(help="The folder of an engine, made by haybale index.", show_default=False)
]

Layout = Annotated[str | None, option("gerdalir, beir, coliee, structured or parquet, if it is not recognised.", TEXTS)]
Language = Annotated[str | None, option("english or german; default: the collection's, else guessed.", TEXTS)]
Paragraphs = Annotated[
    str | None,
    option("Split documents and queries anew: lines, blank-lines, numbered, sentences, headings or sections.", TEXTS),
]
Pieces = Annotated[int | None, option("Cut passages into pieces of so many words; default: whole.", TEXTS, min=1)]
Stride = Annotated[int | None, option("A piece begins every so many; default: the length of a piece.", TEXTS, min=1)]

Encoder = Annotated[
    str | None,
    option(
        "tfidf, lsa, a folder or a hub id; longformer:NAME and sentence-transformers:NAME decide. Default: tfidf.",
        VECTORS,
    ),
]
Width = Annotated[int | None, option("Of the vectors of lsa; default: 1024.", VECTORS, min=1)]
Store = Annotated[str | None, option("A store made by haybale embed: its vectors, pieces and encoder.", VECTORS)]
QueryPrompt = Annotated[str | None, option("Put before each query, for models that ask for it.", VECTORS)]
PassagePrompt = Annotated[str | None, option("Put before each passage, likewise.", VECTORS)]

SetValues = Annotated[
    list[str] | None,
    option(
        "name=value: a parameter of every ranker that has it; bm25-doc.k1=6 of those of that name. Repeatable.",
        RANKING,
        "--set",
    ),
]

Device = Annotated[
    str | None, option("Where dense vectors are searched: cpu, cuda, cuda:1, … or auto; default: cpu.", MACHINE)
]
Dask = Annotated[str | None, option("Work on the Dask cluster whose scheduler has this address.", MACHINE)]
Seed = Annotated[int | None, option("Of what is drawn at random; default: 0.", MACHINE, min=0)]


def given(**options: Any) -> dict[str, Any]:
    """The options that were given: the others are left to the defaults of what they are for."""
    return {name: value for name, value in options.items() if value is not None}
