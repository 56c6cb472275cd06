"""The options that several commands share, and how options become arguments of the Python API.

A command passes on only the options that the user gave (:func:`given`), so the defaults of the Python API apply.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import haybale
from haybale.errors import InputError

if TYPE_CHECKING:
    from haybale import Chunking

TEXTS, VECTORS, RANKING, RESULTS, MACHINE = "Texts", "Vectors", "Ranking", "Results", "Machine"  # panels of the help


def option(help: str, panel: str, *names: str, **how: Any) -> Any:
    """Return an option in a panel of the help; ``help`` states the default."""
    return typer.Option(*names, help=help, rich_help_panel=panel, show_default=False, **how)


def argument(help: str) -> Any:
    """Return a positional argument."""
    return typer.Argument(help=help, show_default=False)


def given(**options: Any) -> dict[str, Any]:
    """Return the options that the user gave, which are those that are not None."""
    return {name: value for name, value in options.items() if value is not None}


def on_cluster_of(dask: str | None) -> AbstractContextManager[Any]:
    """Run tasks on the cluster that ``--dask`` names within the block; without an address, on this machine."""
    return nullcontext() if dask is None else haybale.on_cluster(dask)


def engine_settings(language: str | None, store: str | None, **settings: Any) -> dict[str, Any]:
    """Return the settings of an engine that the user gave; the folder of a store becomes absolute."""
    from haybale.analysis import Analyzer

    if language is not None:
        Analyzer(language)  # raises an error for an unknown language
    if store is not None and Path(store).is_dir():
        store = str(Path(store).absolute())
    return given(language=language, store=store, **settings)


def chunking_of(length: int | None, stride: int | None, **how: Any) -> Chunking | None:
    """Return how passages are cut into pieces, or None if they stay whole."""
    for name in given(stride=stride, **how):
        if length is None:
            raise InputError(f"{name} needs --pieces; give the length of a piece")
    return None if length is None else haybale.Chunking(length, stride, **how)


Source = Annotated[str, argument("The collection: its folder, pydocs (built in), or ir_datasets:ID.")]
EngineFolder = Annotated[Path, argument("The folder of an engine, written by haybale index.")]
JudgementsFile = Annotated[
    Path | None,
    option("The file that keeps the judgements. Default: ENGINE-judgements.sqlite beside the engine.", RESULTS),
]
ModelsFolder = Annotated[
    Path | None, option("The folder of trained rankers. Default: beside --judgements, named after it.", RESULTS)
]
EnginePlace = Annotated[
    str, argument("An engine: its folder, written by haybale index, or its address, such as s3://bucket/engine.")
]

DEFAULT_RANKER = "rrf(bm25-doc,parm-vrrf)"
Model = Annotated[
    Path | None, option("The folder of a trained ranker, written by haybale train. Default: use --ranker.", RANKING)
]
Ranker = Annotated[
    str | None,
    option(f"The ranker: a name, or a YAML or JSON file. Default: {DEFAULT_RANKER}, which needs no training.", RANKING),
]

Layout = Annotated[
    str | None, option("The layout of the folder, such as beir or gerdalir. Default: recognised by its files.", TEXTS)
]
MissingJudgements = Annotated[
    str | None, option("Judgements of missing documents: refuse them, or skip and count them. Default: refuse.", TEXTS)
]
Language = Annotated[
    str | None,
    option("The language, such as english; none for no stemming. Default: the collection's, or detected.", TEXTS),
]
Compounds = Annotated[
    bool | None,
    option("Whether the parts of compounds are terms, in German and languages like it. Default: in German.", TEXTS),
]
TextColumn = Annotated[str | None, option("The column of tables with the text. Default: recognised.", TEXTS, "--text")]
IdColumn = Annotated[str | None, option("The column of tables with the id. Default: recognised.", TEXTS, "--id")]
TitleColumn = Annotated[
    str | None, option("The column of tables with the title. Default: recognised.", TEXTS, "--title")
]
HtmlText = Annotated[
    str | None,
    option(
        "Which text of web pages is read: all-text, or main-text without menus. Default: all-text.", TEXTS, "--html"
    ),
]
Ocr = Annotated[
    str | None,
    option(
        "Which pages and pictures are read by OCR: never, missing (those without a text), or all. Default: never.",
        TEXTS,
        "--ocr",
    ),
]
OcrLanguages = Annotated[
    str | None,
    option("Languages of OCR, such as deu+eng. Default: --language, or all that are installed.", TEXTS),
]
Paragraphs = Annotated[
    str | None,
    option("Split texts again: lines, blank-lines, numbered, sentences, headings or sections. Default: no.", TEXTS),
]
Pieces = Annotated[
    int | None, option("Cut passages into pieces of this many words. Default: do not cut.", TEXTS, min=1)
]
Stride = Annotated[
    int | None, option("Words between the starts of two pieces. Default: --pieces, without overlap.", TEXTS, min=1)
]
Split = Annotated[str | None, option("The split whose queries are ranked and measured. Default: dev.", TEXTS)]
TrainingSplit = Annotated[str | None, option("The split whose judged queries are learned from. Default: train.", TEXTS)]

ENCODER = (
    'The encoder: tfidf, lsa, "lsa(n_components=256)", or the folder or Hugging Face id of a model; with settings: '
    "\"sentence-transformers('MODEL',query_prompt='query: ')\" or \"longformer('MODEL')\"."
)
Encoder = Annotated[str | None, option(f"{ENCODER} Default: tfidf.", VECTORS)]
Store = Annotated[
    str | None,
    option("Use the vectors, pieces and encoder of a store that haybale embed wrote. Default: none.", VECTORS),
]

Where = Annotated[
    str | None,
    option(
        'Rank only documents with this SQL condition on their metadata, such as "year >= 2015". Default: all.', RANKING
    ),
]
Before = Annotated[
    str | None,
    option(
        "Queries find only documents before their own date; the metadata column with the dates. Default: all.", RANKING
    ),
]
SetValues = Annotated[
    list[str] | None,
    option("NAME=VALUE sets a parameter of all rankers, bm25-doc.NAME=VALUE of one. Repeatable.", RANKING, "--set"),
]
Device = Annotated[
    str | None, option("The device of vectors and kernels: cpu, cuda, cuda:1 or auto. Default: cpu.", MACHINE)
]
Dask = Annotated[str | None, option("The address of the scheduler of a Dask cluster. Default: this machine.", MACHINE)]
RandomState = Annotated[int | None, option("The seed of random choices. Default: 0.", MACHINE, min=0)]
