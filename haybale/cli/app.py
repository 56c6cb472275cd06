"""The commands and their options."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from haybale.cli.options import (
    Dask,
    Device,
    Encoder,
    Language,
    Layout,
    Paragraphs,
    PassagePrompt,
    Pieces,
    QueryPrompt,
    Stride,
    Tokenizer,
    Unit,
    Width,
    chunking_of,
)
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
    collection: Annotated[str, typer.Argument(help="pydocs, a folder, whose layout is recognised, or ir_datasets:ID.")],
    split: Annotated[str, typer.Option(help="Whose queries are ranked.")] = "dev",
    rankers: Annotated[
        str, typer.Option(help="Names, separated by commas; rrf(a,b) and learned(a,b) fuse.")
    ] = ",".join(DEFAULT_RANKERS),
    out: Annotated[Path | None, typer.Option(help="A new or empty folder for runs, table and settings.")] = None,
    encoder: Annotated[
        str, typer.Option(help="tfidf, lsa, a folder or hub id; auto: tfidf, or lsa for what needs dense vectors.")
    ] = "auto",
    store: Annotated[str | None, typer.Option(help="A store made by embed: its vectors, pieces and encoder.")] = None,
    width: Width = Settings.width,
    device: Device = Settings.device,
    paragraphs: Paragraphs = None,
    pieces: Pieces = 0,
    stride: Stride = 0,
    unit: Unit = "words",
    tokenizer: Tokenizer = None,
    query_prompt: QueryPrompt = "",
    passage_prompt: PassagePrompt = "",
    language: Language = None,
    layout: Layout = None,
    protocol: Annotated[str, typer.Option(help="end-to-end, or injected for the paper's own figures.")] = "end-to-end",
    k1: Annotated[float, typer.Option(help="BM25's k1.")] = Settings.k1,
    b: Annotated[float, typer.Option(help="BM25's b.")] = Settings.b,
    k1_document: Annotated[float | None, typer.Option(help="Of bm25-doc; as --k1 by default.")] = None,
    b_document: Annotated[float | None, typer.Option(help="Of bm25-doc; as --b by default.")] = None,
    bags: Annotated[int, typer.Option(help="Bags of the ensemble.")] = 35,
    overlap: Annotated[float, typer.Option(help="How much the bags share.")] = 0.6,
    strategy: Annotated[str, typer.Option(help="queries, rows or regions: what goes into a bag.")] = "queries",
    rows_per_bag: Annotated[int, typer.Option(help="Training rows of a bag at most; 0 for all.")] = 0,
    fusion_queries: Annotated[
        int, typer.Option(help="Training queries that learned(…) weighs its rankers on.")
    ] = Settings.fusion_queries,
    cold: Annotated[
        float, typer.Option(help="Share of its loss that queries with new documents carry, 0 to 1.")
    ] = Settings.cold,
    train_candidates: Annotated[
        int, typer.Option(help="Candidates of a training query, from BM25 and kNN each.")
    ] = Settings.train_candidates,
    candidates: Annotated[int, typer.Option(help="Candidates of a ranked query, likewise.")] = Settings.candidates,
    jobs: Annotated[int, typer.Option(help="Bags trained at once; -1: one a core.")] = -1,
    seed: Annotated[int, typer.Option(help="Of the SVD and the bags.")] = 0,
    dask: Dask = None,
) -> None:
    """Rank a collection's queries with several rankers: one table, with significance against BM25."""
    from haybale.cli.compare import encoder_for, run_compare
    from haybale.experiments import split_names

    names = tuple(split_names(rankers))
    encoder = encoder_for(encoder, names, protocol, device)
    settings = Settings(
        split=split,
        rankers=names,
        protocol=protocol,
        encoder=encoder,
        store=store,
        paragraphs=paragraphs,
        chunking=chunking_of(pieces, stride, unit, tokenizer, encoder),
        query_prompt=query_prompt,
        passage_prompt=passage_prompt,
        width=width,
        device=device,
        language=language,
        k1=k1,
        b=b,
        k1_document=k1_document,
        b_document=b_document,
        train_candidates=train_candidates,
        candidates=candidates,
        rows_per_bag=rows_per_bag or None,
        fusion_queries=fusion_queries,
        cold=cold,
        ensemble={"n_bags": bags, "overlap": overlap, "strategy": strategy},
        random_state=seed,
        n_jobs=jobs,
    )
    run_compare(collection, layout, settings, out, dask)


@app.command()
def tune(
    collection: Annotated[str, typer.Argument(help="pydocs, a folder, whose layout is recognised, or ir_datasets:ID.")],
    unit: Annotated[str, typer.Option(help="passage, document or both: what is ranked by.")] = "both",
    split: Annotated[str, typer.Option(help="Whose judgements decide.")] = "dev",
    measure: Annotated[str, typer.Option(help="What is to be best.")] = "nDCG@10",
    queries: Annotated[int, typer.Option(help="Judge by so many queries, drawn at random; 0 for all.")] = 0,
    out: Annotated[Path | None, typer.Option(help="A new JSON file for all values.")] = None,
    language: Language = None,
    layout: Layout = None,
    seed: Annotated[int, typer.Option(help="Of the draw.")] = 0,
) -> None:
    """Find BM25's k1 and b on judged queries: the whole grid, and the options to give to compare."""
    from haybale.cli.tune import run_tune

    run_tune(
        collection,
        layout,
        unit,
        out,
        split=split,
        measure=measure,
        language=language,
        n_queries=queries or None,
        random_state=seed,
    )


@app.command()
def embed(
    collection: Annotated[
        str, typer.Argument(help="pydocs, a folder or ir_datasets:ID; streamed: it may exceed memory.")
    ],
    out: Annotated[str, typer.Option(help="The store: a folder or fsspec address. The same again goes on with it.")],
    encoder: Encoder = "lsa",
    dtype: Annotated[str, typer.Option(help="float32 or float16: of the stored vectors.")] = "float32",
    shard: Annotated[str | None, typer.Option(help="i/n: every n-th chunk, for one of n machines.")] = None,
    rows_per_chunk: Annotated[int, typer.Option(help="Passages a chunk; what an interruption may cost.")] = 2048,
    paragraphs: Paragraphs = None,
    pieces: Pieces = 0,
    stride: Stride = 0,
    unit: Unit = "words",
    tokenizer: Tokenizer = None,
    width: Width = Settings.width,
    fit_passages: Annotated[int, typer.Option(help="LSA is fitted on at most so many passages; 0 for all.")] = 250_000,
    language: Language = None,
    layout: Layout = None,
    query_prompt: QueryPrompt = "",
    passage_prompt: PassagePrompt = "",
    pooling: Annotated[str, typer.Option(help="mean or cls, of a Longformer.")] = "mean",
    global_attention: Annotated[str, typer.Option(help="none or cls, of a Longformer.")] = "none",
    max_length: Annotated[int, typer.Option(help="Tokens at which a Longformer cuts a passage; 0: its own.")] = 0,
    precision: Annotated[str, typer.Option(help="float32, float16 or bfloat16, in a Longformer.")] = "float32",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, … of a neural encoder.")] = "auto",
    seed: Annotated[int, typer.Option(help="Of the SVD and of the passages it is fitted on.")] = 0,
    dask: Dask = None,
    shards: Annotated[int, typer.Option(help="With --dask, the shards of the store; 0: one a worker.")] = 0,
) -> None:
    """Embed a collection's passages into a store; interrupted, the same command goes on where it was."""
    from haybale.cli.embed import run_embed

    run_embed(
        collection,
        out,
        encoder,
        layout=layout,
        paragraphs=paragraphs,
        dtype=dtype,
        rows_per_chunk=rows_per_chunk,
        shard=shard,
        chunking=chunking_of(pieces, stride, unit, tokenizer, encoder),
        lexical={"width": width, "language": language, "max_fit_texts": fit_passages or None, "random_state": seed},
        neural={
            "device": device,
            "query_prompt": query_prompt,
            "passage_prompt": passage_prompt,
            "pooling": pooling,
            "global_attention": global_attention,
            "max_length": max_length or None,
            "dtype": precision,
        },
        dask=dask,
        shards=shards or None,
    )


@app.command()
def rank(
    file: Annotated[str, typer.Argument(help="A document, UTF-8 text; - for stdin.")],
    store: Annotated[str, typer.Argument(help="A store made by embed.")],
    aggregation: Annotated[str | None, typer.Option(help="vrrf, rrf, combsum, …; vrrf, or rrf with --bm25.")] = None,
    bm25: Annotated[bool, typer.Option("--bm25", help="Search the store's texts with BM25, not its vectors.")] = False,
    paragraphs: Annotated[
        str, typer.Option(help="How the document is split: blank-lines, lines, numbered, sentences, headings.")
    ] = "blank-lines",
    hits: Annotated[int, typer.Option(help="Passages retrieved for each paragraph (N).")] = 1000,
    top: Annotated[int, typer.Option(help="Documents shown.")] = 10,
    pairs: Annotated[int, typer.Option(help="Pairs of paragraphs shown for each.")] = 3,
    exclude: Annotated[str | None, typer.Option(help="A document to leave out, such as the file itself.")] = None,
    explain: Annotated[list[str] | None, typer.Option(help="Show this document in place of the first ones.")] = None,
    heatmap: Annotated[Path | None, typer.Option(help="Draw the first document shown: svg, png or pdf.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write the whole ranking as a TREC run.")] = None,
    device: Device = "cpu",
    dask: Dask = None,
) -> None:
    """Rank the documents of a store for a document, with the paragraphs on which each rests (PARM)."""
    from haybale.cli.rank import run_rank

    run_rank(
        file,
        store,
        aggregation=aggregation,
        bm25=bm25,
        paragraphs=paragraphs,
        hits=hits,
        top=top,
        pairs=pairs,
        exclude=exclude,
        explain=explain or [],
        heatmap=heatmap,
        out=out,
        device=device,
        dask=dask,
    )


@app.command()
def report(
    runs: Annotated[list[Path], typer.Argument(help="Folders written by compare --out, and TREC run files.")],
    out: Annotated[Path, typer.Option(help="The page; it is replaced if it exists.")],
    collection: Annotated[
        str | None, typer.Option(help="pydocs, a folder or ir_datasets:ID; what the folders say by default.")
    ] = None,
    layout: Layout = None,
    split: Annotated[str | None, typer.Option(help="Whose queries are ranked; what the folders say.")] = None,
    baseline: Annotated[str | None, typer.Option(help="The settings', bm25, or the first run by default.")] = None,
    ranker: Annotated[
        str | None, typer.Option(help="Whose wins and losses are shown; the best by nDCG@10 by default.")
    ] = None,
    queries: Annotated[int, typer.Option(help="Wins and losses shown, each.")] = 5,
    query: Annotated[str | None, typer.Option(help="Whose heatmap is shown; a large win by default.")] = None,
    picture: Annotated[str, typer.Option(help="tsne, umap (extra umap) or none.")] = "tsne",
    encoder: Annotated[
        str | None, typer.Option(help="Of heatmap and picture: the folders', else tfidf; none for neither.")
    ] = None,
    store: Annotated[str | None, typer.Option(help="A store made by embed, in place of an encoder.")] = None,
    title: Annotated[str | None, typer.Option(help="Of the page.")] = None,
    seed: Annotated[int, typer.Option(help="Of the picture.")] = 0,
) -> None:
    """Write one HTML page about runs: table, recall, wins and losses with texts, heatmap, picture, seconds."""
    from haybale.cli.report import run_report

    run_report(
        runs,
        out,
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


@app.command()
def doctor() -> None:
    """List which backends and extras are usable here, and the pip line for those that are not."""
    from haybale.cli.doctor import run_doctor

    run_doctor()
