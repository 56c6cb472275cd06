"""The application, and the options that several commands have.

What a command needs is imported when it runs, so that help costs nothing. A command passes on what was given; what was
not is left to the defaults of what it is for.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any

import typer

from haybale.errors import InputError

app = typer.Typer(
    help="Finds the few relevant passages and documents in a haystack of long ones.",
    add_completion=False,
    pretty_exceptions_enable=False,
)
ENGINES, TRIALS, MORE = "Engines", "Comparisons", "More"  # panels of commands
TEXTS, VECTORS, RANKING, RESULTS, MACHINE = "Texts", "Vectors", "Ranking", "Results", "Machine"  # of options


def option(help: str, panel: str, *names: str, **how: Any) -> Any:
    """An option in a panel of the help. Its default, where it has one, is in the words."""
    return typer.Option(*names, help=help, rich_help_panel=panel, show_default=False, **how)


def argument(help: str) -> Any:
    return typer.Argument(help=help, show_default=False)


def given(**options: Any) -> dict[str, Any]:
    """The options that were given: the others are left to the defaults of what they are for."""
    return {name: value for name, value in options.items() if value is not None}


def part_of(name: str, text: str | None, example: str) -> tuple[int, int] | None:
    """``i/n`` as two numbers."""
    if text is None:
        return None
    found = re.fullmatch(r"(\d+)/(\d+)", text)
    if found is None:
        raise InputError(f"{name} must be i/n, such as {example}, found {text!r}")
    return int(found[1]), int(found[2])


Source = Annotated[str, argument("pydocs, a folder, whose layout is recognised, or ir_datasets:ID.")]
EngineFolder = Annotated[Path, argument("The folder of an engine, made by haybale index.")]

Layout = Annotated[str | None, option("gerdalir, beir, coliee, structured or parquet, if it is not recognised.", TEXTS)]
MissingJudgements = Annotated[
    str | None, option("Of documents that are not there: refuse (default), or skip, which counts them.", TEXTS)
]
Language = Annotated[str | None, option("english, german, …; default: the collection's, else detected.", TEXTS)]
Paragraphs = Annotated[
    str | None,
    option("Split documents and queries anew: lines, blank-lines, numbered, sentences, headings or sections.", TEXTS),
]
Pieces = Annotated[int | None, option("Cut passages into pieces of so many words; default: whole.", TEXTS, min=1)]
Stride = Annotated[int | None, option("A piece begins every so many; default: the length of a piece.", TEXTS, min=1)]
Split = Annotated[str | None, option("Whose queries are ranked or learned from; default: dev, in train: train.", TEXTS)]

Encoder = Annotated[
    str | None,
    option(
        "tfidf, lsa, a folder or a hub id; longformer:NAME and sentence-transformers:NAME decide. Default: tfidf, in "
        "embed: lsa.",
        VECTORS,
    ),
]
Components = Annotated[int | None, option("Of the vectors of lsa; default: 1024.", VECTORS, min=1)]
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
Device = Annotated[str | None, option("cpu, cuda, cuda:1, … or auto, of dense vectors; default: cpu.", MACHINE)]
Dask = Annotated[str | None, option("Work on the Dask cluster whose scheduler has this address.", MACHINE)]
RandomState = Annotated[int | None, option("Of what is drawn at random; default: 0.", MACHINE, min=0)]


@app.callback(invoke_without_command=True)
def about(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Say which version this is.")] = False,
) -> None:
    """Finds the few relevant passages and documents in a haystack of long ones."""
    if version:
        from haybale import __version__

        print(f"haybale {__version__}")
    elif context.invoked_subcommand is None:
        print(context.get_help())
