"""The commands and their options. What a command needs is imported when it runs, so that help costs nothing.

A command passes on what was given; what was not is left to the defaults of what it is for.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from haybale.cli.output import given

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


Source = Annotated[str, argument("pydocs, a folder, whose layout is recognised, or ir_datasets:ID.")]
EngineFolder = Annotated[Path, argument("The folder of an engine, made by haybale index.")]

Layout = Annotated[str | None, option("gerdalir, beir, coliee, structured or parquet, if it is not recognised.", TEXTS)]
Language = Annotated[str | None, option("english or german; default: the collection's, else guessed.", TEXTS)]
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

Baseline = Annotated[str | None, option("What the others are tested against; default: bm25.", RANKING)]
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
def haybale(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Say which version this is.")] = False,
) -> None:
    """Finds the few relevant passages and documents in a haystack of long ones."""
    if version:
        from haybale import __version__

        print(f"haybale {__version__}")
    elif context.invoked_subcommand is None:
        print(context.get_help())


@app.command(rich_help_panel=ENGINES)
def index(
    collection: Source,
    out: Annotated[Path, option("The engine's folder: new, or one to go on with.", RESULTS)],
    encoder: Encoder = None,
    n_components: Components = None,
    store: Store = None,
    query_prompt: QueryPrompt = None,
    passage_prompt: PassagePrompt = None,
    layout: Layout = None,
    language: Language = None,
    paragraphs: Paragraphs = None,
    pieces: Pieces = None,
    stride: Stride = None,
    device: Device = None,
    random_state: RandomState = None,
) -> None:
    """Build an engine: a collection with its encoder and all its indexes, in one folder that opens in a moment.

    Interrupted, the same command goes on where it was.
    """
    options = given(**locals())
    from haybale.cli.engines import run_index

    run_index(**options)


@app.command(rich_help_panel=ENGINES)
def add(
    engine: EngineFolder,
    files: Annotated[
        list[Path], argument("Folders of collections; .jsonl with _id, text (a line a passage); .txt, each a document.")
    ],
) -> None:
    """Add documents, which can be found at once; models need not be trained anew. All of them, or none."""
    from haybale.cli.documents import run_add

    run_add(engine, files)


@app.command(rich_help_panel=ENGINES)
def remove(engine: EngineFolder, ids: Annotated[list[str], argument("Of the documents.")]) -> None:
    """Remove documents: they are not found from now on. Their texts stay in the folder until it is built anew."""
    from haybale.cli.documents import run_remove

    run_remove(engine, ids)


@app.command(rich_help_panel=ENGINES)
def train(
    engine: EngineFolder,
    ranker: Annotated[
        str, option("Its name, such as learned, svr-doc or learned(bm25,knn,svr), or a YAML or JSON file.", RANKING)
    ],
    out: Annotated[Path, option("The model's folder: new or empty.", RESULTS)],
    split: Split = None,
    queries: Annotated[Path | None, option("Others to learn from: .jsonl or .tsv; with --qrels.", TEXTS)] = None,
    qrels: Annotated[
        Path | None, option("Their judgements: query id, document id, grade; as in TREC, BEIR or GerDaLIR.", TEXTS)
    ] = None,
    set_values: SetValues = None,
    device: Device = None,
    dask: Dask = None,
) -> None:
    """Train a ranker on an engine's judged queries, and keep it in a folder, for rank and compare."""
    options = given(**locals())
    from haybale.cli.engines import run_train

    run_train(**options)


@app.command(rich_help_panel=ENGINES)
def rank(
    engine: EngineFolder,
    queries: Annotated[
        str,
        argument(
            "A text; a file: .txt is one document, .jsonl and .tsv hold several queries; - for a document on stdin; or "
            "the name of a split."
        ),
    ],
    model: Annotated[Path | None, option("The folder of a trained ranker, made by haybale train.", RANKING)] = None,
    ranker: Annotated[
        str | None,
        option("Another's name or YAML file; default: rrf(bm25-doc,parm-vrrf), which needs no training.", RANKING),
    ] = None,
    set_values: SetValues = None,
    k: Annotated[int | None, option("Documents a query; else 10 shown, 1000 written.", RANKING, "--k", min=1)] = None,
    within: Annotated[Path | None, option("Only these documents: a file with an id a line.", RANKING)] = None,
    paragraphs: Annotated[
        str | None,
        option("How a document is split: blank-lines (the default), lines, numbered, sentences or headings.", TEXTS),
    ] = None,
    explain: Annotated[bool, option("Say of each of them what its score rests on.", RESULTS, "--explain")] = False,
    explain_document: Annotated[list[str] | None, option("Say it of this one instead. Repeatable.", RESULTS)] = None,
    heatmap: Annotated[Path | None, option("Draw PARM's paragraphs of the first: svg, png or pdf.", RESULTS)] = None,
    out: Annotated[
        Path | None, option("Also write all that is ranked: .trec, .jsonl (with reasons), else a table.", RESULTS)
    ] = None,
    device: Device = None,
) -> None:
    """Rank an engine's documents for queries, and say why."""
    options = given(**locals())
    from haybale.cli.rank import run_rank

    run_rank(**options)


@app.command(rich_help_panel=TRIALS)
def compare(
    collection: Annotated[
        str, argument("The folder of an engine; or pydocs, the folder of a collection, or ir_datasets:ID.")
    ],
    rankers: Annotated[
        str | None,
        option(
            "Names, separated by commas; rrf(a,b) and learned(a,b) fuse. Default: bm25, bm25-doc, knn, knn-doc, "
            "parm-vrrf, svr-doc, learned.",
            RANKING,
        ),
    ] = None,
    model: Annotated[list[str] | None, option("NAME=FOLDER: a trained ranker. Repeatable.", RANKING)] = None,
    baseline: Baseline = None,
    set_values: SetValues = None,
    split: Split = None,
    layout: Layout = None,
    language: Language = None,
    paragraphs: Paragraphs = None,
    encoder: Encoder = None,
    store: Store = None,
    out: Annotated[Path | None, option("A new or empty folder for runs, table and settings.", RESULTS)] = None,
    device: Device = None,
    dask: Dask = None,
) -> None:
    """Rank a collection's queries with several rankers: one table, with significance against a baseline."""
    options = given(**locals())
    from haybale.cli.comparisons import run_compare

    run_compare(**options)


@app.command(rich_help_panel=TRIALS)
def tune(
    collection: Source,
    unit: Annotated[str | None, option("passage, document or both (the default): what is ranked by.", RANKING)] = None,
    measure: Annotated[str | None, option("What is to be best; default: nDCG@10.", RANKING)] = None,
    split: Split = None,
    queries: Annotated[int | None, option("Judge by so many queries, drawn; default: all.", TEXTS, min=1)] = None,
    language: Language = None,
    layout: Layout = None,
    out: Annotated[Path | None, option("A new JSON file for all values.", RESULTS)] = None,
    random_state: RandomState = None,
) -> None:
    """Find BM25's k1 and b on judged queries: the whole grid, and the options to give to the other commands."""
    options = given(**locals())
    from haybale.cli.comparisons import run_tune

    run_tune(**options)


@app.command(rich_help_panel=TRIALS)
def report(
    runs: Annotated[list[Path], argument("Folders written by compare --out, and TREC run files.")],
    out: Annotated[Path, option("The page; it is replaced if it exists.", RESULTS)],
    title: Annotated[str | None, option("Of the page.", RESULTS)] = None,
    collection: Annotated[str | None, option("What the runs are of; default: what the folders say.", TEXTS)] = None,
    layout: Layout = None,
    split: Annotated[str | None, option("Whose queries are ranked; default: what the folders say.", TEXTS)] = None,
    baseline: Annotated[str | None, option("Default: the folders', else bm25, else the first run.", RANKING)] = None,
    ranker: Annotated[str | None, option("Whose wins and losses are shown; default: the best one.", RANKING)] = None,
    queries: Annotated[int | None, option("Wins and losses shown, each; default: 5.", RANKING, min=0)] = None,
    query: Annotated[str | None, option("Whose heatmap is shown; default: a large win.", RANKING)] = None,
    picture: Annotated[
        str | None, option("tsne (the default), or none: neither that nor the heatmap.", VECTORS)
    ] = None,
) -> None:
    """Write one HTML page about runs: table, recall, wins and losses with texts, heatmap, picture, seconds."""
    options = given(**locals())
    from haybale.cli.comparisons import run_report

    run_report(**options)


@app.command(rich_help_panel=MORE)
def embed(
    collection: Source,
    out: Annotated[str, option("The store: a folder or fsspec address. The same again goes on with it.", RESULTS)],
    dtype: Annotated[str | None, option("float32 (the default) or float16: of the stored vectors.", RESULTS)] = None,
    encoder: Encoder = None,
    n_components: Components = None,
    query_prompt: QueryPrompt = None,
    passage_prompt: PassagePrompt = None,
    set_values: Annotated[
        list[str] | None,
        option(
            "name=value: unit=tokens and tokenizer of pieces; max_fit_texts of lsa; pooling, global_attention, "
            "max_length and precision of a Longformer; rows_per_chunk of the store. Repeatable.",
            VECTORS,
            "--set",
        ),
    ] = None,
    layout: Layout = None,
    language: Language = None,
    paragraphs: Paragraphs = None,
    pieces: Pieces = None,
    stride: Stride = None,
    device: Annotated[str | None, option("Of a neural encoder: auto (the default), cpu, cuda, …", MACHINE)] = None,
    shard: Annotated[str | None, option("i/n: every n-th chunk, for one of n machines.", MACHINE)] = None,
    dask: Dask = None,
    shards: Annotated[int | None, option("Of the store, with --dask; default: one a worker.", MACHINE, min=1)] = None,
    random_state: RandomState = None,
) -> None:
    """Embed a collection's passages into a store, also one larger than memory; for index and compare --store.

    Interrupted, the same command goes on where it was.
    """
    from haybale.cli.embed import run_embed

    run_embed(
        collection,
        out,
        encoder or "lsa",
        layout=layout,
        paragraphs=paragraphs,
        pieces=pieces,
        stride=stride,
        shard=shard,
        shards=shards,
        dask=dask,
        store=given(dtype=dtype),
        lexical=given(n_components=n_components, language=language, random_state=random_state),
        neural=given(device=device, query_prompt=query_prompt, passage_prompt=passage_prompt),
        values=set_values,
    )


@app.command(rich_help_panel=MORE)
def demo() -> None:
    """Rank the built-in collection with everything there is: no data, no download, a minute or two."""
    from haybale.cli.comparisons import run_demo

    run_demo()


@app.command(rich_help_panel=MORE)
def doctor() -> None:
    """List which backends and extras are usable here, and the pip line for those that are not."""
    from haybale.cli.doctor import run_doctor

    run_doctor()
