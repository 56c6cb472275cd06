"""The commands and their options. What a command needs is imported when it runs, so that help costs nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from haybale.cli.options import (
    MACHINE,
    RANKING,
    RESULTS,
    TEXTS,
    VECTORS,
    Dask,
    Device,
    Encoder,
    EngineFolder,
    Language,
    Layout,
    Paragraphs,
    PassagePrompt,
    Pieces,
    QueryPrompt,
    Seed,
    SetValues,
    Source,
    Store,
    Stride,
    Width,
    given,
    option,
)

app = typer.Typer(
    help="Finds the few relevant passages and documents in a haystack of long ones.",
    add_completion=False,
    pretty_exceptions_enable=False,
)
_ENGINES, _TRIALS, _MORE = "Engines", "Comparisons", "More"


@app.callback(invoke_without_command=True)
def haybale(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Say which version this is.")] = False,
) -> None:
    """Finds the few relevant passages and documents in a haystack of long ones."""
    if version:
        from haybale import __version__

        print(f"haybale {__version__}")
        raise typer.Exit
    if context.invoked_subcommand is None:
        print(context.get_help())
        raise typer.Exit


@app.command(rich_help_panel=_ENGINES)
def index(
    collection: Source,
    out: Annotated[Path, option("The engine's folder: new, or one to go on with.", RESULTS)],
    encoder: Encoder = None,
    width: Width = None,
    store: Store = None,
    query_prompt: QueryPrompt = None,
    passage_prompt: PassagePrompt = None,
    layout: Layout = None,
    language: Language = None,
    paragraphs: Paragraphs = None,
    pieces: Pieces = None,
    stride: Stride = None,
    device: Device = None,
    seed: Seed = None,
) -> None:
    """Build an engine: a collection with its encoder and all its indexes, in one folder that opens in a moment.

    Interrupted, the same command goes on where it was.
    """
    from haybale.cli.index import run_index

    settings = given(
        encoder=encoder,
        width=width,
        store=store,
        query_prompt=query_prompt,
        passage_prompt=passage_prompt,
        language=language,
        paragraphs=paragraphs,
        device=device,
        random_state=seed,
    )
    run_index(collection, out, layout=layout, pieces=pieces, stride=stride, settings=settings)


@app.command(rich_help_panel=_ENGINES)
def add(
    engine: EngineFolder,
    files: Annotated[
        list[Path],
        typer.Argument(
            help="Folders of collections; .jsonl with _id, text (a line a passage) and title; .txt, each one document.",
            show_default=False,
        ),
    ],
) -> None:
    """Add documents, which can be found at once; models need not be trained anew. All of them, or none."""
    from haybale.cli.documents import run_add

    run_add(engine, files)


@app.command(rich_help_panel=_ENGINES)
def remove(
    engine: EngineFolder,
    ids: Annotated[list[str], typer.Argument(help="Of the documents.", show_default=False)],
) -> None:
    """Remove documents: they are not found from now on. Their texts stay in the folder until it is built anew."""
    from haybale.cli.documents import run_remove

    run_remove(engine, ids)


@app.command(rich_help_panel=_ENGINES)
def train(
    engine: EngineFolder,
    ranker: Annotated[
        str, option("Its name, such as learned, svr-doc or learned(bm25,knn,svr), or a YAML or JSON file.", RANKING)
    ],
    out: Annotated[Path, option("The model's folder: new or empty.", RESULTS)],
    split: Annotated[str | None, option("Whose judged queries are learned from; default: train.", TEXTS)] = None,
    queries: Annotated[Path | None, option("Others to learn from: .jsonl or .tsv; with --qrels.", TEXTS)] = None,
    qrels: Annotated[
        Path | None, option("Their judgements: query id, document id, grade; as in TREC, BEIR or GerDaLIR.", TEXTS)
    ] = None,
    set_values: SetValues = None,
    device: Device = None,
    dask: Dask = None,
) -> None:
    """Train a ranker on an engine's judged queries, and keep it in a folder, for rank and compare."""
    from haybale.cli.train import run_train

    run_train(
        engine, ranker, out, split=split, queries=queries, qrels=qrels, values=set_values, device=device, dask=dask
    )


@app.command(rich_help_panel=_ENGINES)
def rank(
    engine: EngineFolder,
    queries: Annotated[
        str,
        typer.Argument(
            help="A text; a file: .txt is one document, .jsonl and .tsv hold several queries; - for a document on "
            "stdin; or the name of a split.",
            show_default=False,
        ),
    ],
    model: Annotated[Path | None, option("The folder of a trained ranker, made by haybale train.", RANKING)] = None,
    ranker: Annotated[
        str | None,
        option("Another's name or YAML file; default: rrf(bm25-doc,parm-vrrf), which needs no training.", RANKING),
    ] = None,
    set_values: SetValues = None,
    depth: Annotated[int | None, option("Documents ranked for each query; default: 1000.", RANKING, min=1)] = None,
    within: Annotated[Path | None, option("Only these documents: a file with an id a line.", RANKING)] = None,
    paragraphs: Annotated[
        str | None,
        option("How a document is split: blank-lines (the default), lines, numbered, sentences or headings.", TEXTS),
    ] = None,
    top: Annotated[int, option("Documents shown for each query; default: 10.", RESULTS, min=1)] = 10,
    explain: Annotated[bool, option("Say of each of them what its score rests on.", RESULTS, "--explain")] = False,
    explain_document: Annotated[
        list[str] | None, option("Say it of this document instead. Repeatable.", RESULTS)
    ] = None,
    heatmap: Annotated[
        Path | None, option("Draw PARM's paragraphs for the first document: svg, png or pdf.", RESULTS)
    ] = None,
    out: Annotated[
        Path | None, option("Also write all that is ranked: .trec, .jsonl (with reasons), else a table.", RESULTS)
    ] = None,
    device: Device = None,
) -> None:
    """Rank an engine's documents for queries, and say why."""
    from haybale.cli.rank import run_rank

    run_rank(
        engine,
        queries,
        model=model,
        ranker=ranker,
        values=set_values,
        depth=depth,
        within=within,
        paragraphs=paragraphs,
        top=top,
        explain=explain,
        documents=explain_document or [],
        heatmap=heatmap,
        out=out,
        device=device,
    )


@app.command(rich_help_panel=_TRIALS)
def compare(
    collection: Annotated[
        str,
        typer.Argument(
            help="The folder of an engine; or pydocs, the folder of a collection, or ir_datasets:ID.",
            show_default=False,
        ),
    ],
    rankers: Annotated[
        str | None,
        option(
            "Names, separated by commas; rrf(a,b) and learned(a,b) fuse. Default: bm25, bm25-doc, knn, knn-doc, "
            "parm-vrrf, svr-doc, learned.",
            RANKING,
        ),
    ] = None,
    model: Annotated[
        list[str] | None, option("NAME=FOLDER: a trained ranker, made by haybale train. Repeatable.", RANKING)
    ] = None,
    baseline: Annotated[str | None, option("What the others are tested against; default: bm25.", RANKING)] = None,
    set_values: SetValues = None,
    split: Annotated[str | None, option("Whose queries are ranked; default: dev.", TEXTS)] = None,
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
    from haybale.cli.compare import run_compare

    settings = given(language=language, paragraphs=paragraphs, encoder=encoder, store=store)
    how = given(split=split, baseline=baseline)
    run_compare(
        collection,
        rankers,
        models=model or [],
        values=set_values,
        out=out,
        layout=layout,
        settings=settings,
        device=device,
        dask=dask,
        **how,
    )


@app.command(rich_help_panel=_TRIALS)
def tune(
    collection: Source,
    unit: Annotated[str, option("passage, document or both (the default): what is ranked by.", RANKING)] = "both",
    measure: Annotated[str | None, option("What is to be best; default: nDCG@10.", RANKING)] = None,
    split: Annotated[str | None, option("Whose judgements decide; default: dev.", TEXTS)] = None,
    queries: Annotated[
        int | None, option("Judge by so many queries, drawn at random; default: all.", TEXTS, min=1)
    ] = None,
    language: Language = None,
    layout: Layout = None,
    out: Annotated[Path | None, option("A new JSON file for all values.", RESULTS)] = None,
    seed: Seed = None,
) -> None:
    """Find BM25's k1 and b on judged queries: the whole grid, and the options to give to the other commands."""
    from haybale.cli.tune import run_tune

    how = given(split=split, measure=measure, language=language, n_queries=queries, random_state=seed)
    run_tune(collection, layout, unit, out, **how)


@app.command(rich_help_panel=_TRIALS)
def report(
    runs: Annotated[
        list[Path], typer.Argument(help="Folders written by compare --out, and TREC run files.", show_default=False)
    ],
    out: Annotated[Path, option("The page; it is replaced if it exists.", RESULTS)],
    title: Annotated[str | None, option("Of the page.", RESULTS)] = None,
    collection: Annotated[
        str | None, option("pydocs, a folder or ir_datasets:ID; default: what the folders say.", TEXTS)
    ] = None,
    layout: Layout = None,
    split: Annotated[str | None, option("Whose queries are ranked; default: what the folders say.", TEXTS)] = None,
    baseline: Annotated[str | None, option("Default: the folders', else bm25, else the first run.", RANKING)] = None,
    ranker: Annotated[
        str | None, option("Whose wins and losses are shown; default: the best by nDCG@10.", RANKING)
    ] = None,
    queries: Annotated[int | None, option("Wins and losses shown, each; default: 5.", RANKING, min=0)] = None,
    query: Annotated[str | None, option("Whose heatmap is shown; default: a large win.", RANKING)] = None,
    encoder: Annotated[
        str | None, option("Of heatmap and picture; default: the folders', else tfidf; none for neither.", VECTORS)
    ] = None,
    store: Store = None,
    picture: Annotated[str | None, option("tsne (the default), umap (extra umap) or none.", VECTORS)] = None,
    seed: Seed = None,
) -> None:
    """Write one HTML page about runs: table, recall, wins and losses with texts, heatmap, picture, seconds."""
    from haybale.cli.report import run_report

    options = given(
        collection=collection,
        layout=layout,
        split=split,
        baseline=baseline,
        ranker=ranker,
        queries=queries,
        query=query,
        picture=picture,
        encoder=encoder,
        store=store,
        title=title,
        random_state=seed,
    )
    run_report(runs, out, **options)


@app.command(rich_help_panel=_MORE)
def embed(
    collection: Source,
    out: Annotated[str, option("The store: a folder or fsspec address. The same again goes on with it.", RESULTS)],
    dtype: Annotated[str | None, option("float32 (the default) or float16: of the stored vectors.", RESULTS)] = None,
    encoder: Annotated[
        str,
        option(
            "lsa (the default), tfidf, a folder or hub id; longformer:NAME and sentence-transformers:NAME decide.",
            VECTORS,
        ),
    ] = "lsa",
    width: Width = None,
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
    shards: Annotated[
        int | None, option("With --dask, the shards of the store; default: one a worker.", MACHINE, min=1)
    ] = None,
    seed: Seed = None,
) -> None:
    """Embed a collection's passages into a store, also one larger than memory; for index and compare --store.

    Interrupted, the same command goes on where it was.
    """
    from haybale.cli.embed import run_embed

    run_embed(
        collection,
        out,
        encoder,
        layout=layout,
        paragraphs=paragraphs,
        pieces=pieces,
        stride=stride,
        shard=shard,
        shards=shards,
        dask=dask,
        store=given(dtype=dtype),
        lexical=given(n_components=width, language=language, random_state=seed),
        neural=given(device=device, query_prompt=query_prompt, passage_prompt=passage_prompt),
        values=set_values,
    )


@app.command(rich_help_panel=_MORE)
def demo() -> None:
    """Rank the built-in collection with everything there is: no data, no download, a minute or two."""
    from haybale.cli.demo import run_demo

    run_demo()


@app.command(rich_help_panel=_MORE)
def doctor() -> None:
    """List which backends and extras are usable here, and the pip line for those that are not."""
    from haybale.cli.doctor import run_doctor

    run_doctor()
