"""The options that several commands have.

A command passes on the options that were given (:func:`given`); the others are left to the defaults of what it calls.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

TEXTS, VECTORS, RANKING, RESULTS, MACHINE = "Texts", "Vectors", "Ranking", "Results", "Machine"  # panels of the help


def option(help: str, panel: str, *names: str, **how: Any) -> Any:
    """Return an option in a panel of the help; the text names the default, if there is one."""
    return typer.Option(*names, help=help, rich_help_panel=panel, show_default=False, **how)


def argument(help: str) -> Any:
    """Return a positional argument."""
    return typer.Argument(help=help, show_default=False)


def given(**options: Any) -> dict[str, Any]:
    """Return the options that were given, which are those that are not None."""
    return {name: value for name, value in options.items() if value is not None}


Source = Annotated[str, argument("pydocs, the folder of a collection, or ir_datasets:ID.")]
EngineFolder = Annotated[Path, argument("The folder of an engine, made by haybale index.")]

Layout = Annotated[
    str | None, option("Layout of the folder, such as gerdalir or beir; default: recognised by its files.", TEXTS)
]
MissingJudgements = Annotated[
    str | None,
    option("Judgements of documents that are missing: refuse (the default), or skip, which counts them.", TEXTS),
]
Language = Annotated[
    str | None, option("Language of the texts: english, german, …; default: the collection's, else detected.", TEXTS)
]
Paragraphs = Annotated[
    str | None,
    option("Split documents and queries anew: lines, blank-lines, numbered, sentences, headings or sections.", TEXTS),
]
Pieces = Annotated[int | None, option("Cut passages into pieces of this many words; default: whole.", TEXTS, min=1)]
Stride = Annotated[
    int | None, option("Words from one piece's start to the next; default: the length of a piece.", TEXTS, min=1)
]
Split = Annotated[
    str | None, option("The split whose queries are ranked or learned from; default: dev, in train: train.", TEXTS)
]

Encoder = Annotated[
    str | None,
    option(
        'tfidf, lsa or "lsa(n_components=256)"; the folder or hub id of a model; with settings, '
        "\"sentence-transformers('MODEL',query_prompt='query: ')\" or \"longformer('MODEL')\". "
        "Default: tfidf, in embed: lsa.",
        VECTORS,
    ),
]
Store = Annotated[str | None, option("A store made by haybale embed: its vectors, pieces and encoder.", VECTORS)]

SetValues = Annotated[
    list[str] | None,
    option(
        "name=value sets a parameter of every ranker that has it; bm25-doc.k1=6 only of rankers of that name. "
        "Repeatable.",
        RANKING,
        "--set",
    ),
]
Device = Annotated[str | None, option("Device for dense vectors: cpu (the default), cuda, cuda:1, … or auto.", MACHINE)]
Dask = Annotated[str | None, option("Work on the Dask cluster whose scheduler has this address.", MACHINE)]
RandomState = Annotated[int | None, option("Seed of all that is drawn at random; default: 0.", MACHINE, min=0)]
