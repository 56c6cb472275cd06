"""``haybale embed``."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import haybale
from haybale.cli import options
from haybale.cli.application import MORE, command
from haybale.cli.options import MACHINE, RESULTS, VECTORS, given, option
from haybale.cli.settings import chunking_of
from haybale.cli.terminal import resumable, say
from haybale.cli.values import parse_part, parse_values
from haybale.errors import InputError, UnknownNameError

if TYPE_CHECKING:
    from haybale import Collection

_FIT_TEXTS = 250_000  # passages that LSA is fitted on, at most
_OF_PIECES, _OF_STORE = ("unit", "tokenizer"), ("rows_per_chunk",)  # what --set may name
_OF_ENCODERS = ("max_fit_texts", "pooling", "max_length", "precision")


@command(MORE)
def embed(
    collection: options.Source,
    out: Annotated[str, option("The store: a folder or fsspec address. The same again goes on with it.", RESULTS)],
    dtype: Annotated[str | None, option("float32 (the default) or float16: of the stored vectors.", RESULTS)] = None,
    encoder: options.Encoder = None,
    n_components: options.Components = None,
    query_prompt: options.QueryPrompt = None,
    passage_prompt: options.PassagePrompt = None,
    set_values: Annotated[
        list[str] | None,
        option(
            "name=value: unit=tokens and tokenizer of pieces; max_fit_texts of lsa; pooling, max_length and precision "
            "of a Longformer; rows_per_chunk of the store. Repeatable.",
            VECTORS,
            "--set",
        ),
    ] = None,
    layout: options.Layout = None,
    language: options.Language = None,
    paragraphs: options.Paragraphs = None,
    pieces: options.Pieces = None,
    stride: options.Stride = None,
    device: Annotated[str | None, option("Of a neural encoder: auto (the default), cpu, cuda, …", MACHINE)] = None,
    shard: Annotated[str | None, option("i/n: every n-th chunk, for one of n machines.", MACHINE)] = None,
    dask: options.Dask = None,
    shards: Annotated[int | None, option("Of the store, with --dask; default: one a worker.", MACHINE, min=1)] = None,
    random_state: options.RandomState = None,
) -> None:
    """Embed a collection's passages into a store, vectors chunk by chunk; for index and compare --store.

    Interrupted, the same command goes on where it was.
    """
    from haybale.analysis import Analyzer, guess_language
    from haybale.collections import with_paragraphs
    from haybale.collections.open import read_documents
    from haybale.embeddings import make_encoder
    from haybale.embeddings.encoder import LEXICAL, model_name
    from haybale.embeddings.store_files import LOCK, StoreFiles
    from haybale.folders import check_file
    from haybale.parameters import COUNT, COUNT_OR_NONE, check_parameters

    if shards is not None and dask is None:
        raise InputError("--shards asks for --dask; without a cluster, give each machine its own --shard i/n")
    if shard is not None and dask is not None:
        raise InputError("--shard is for one machine without --dask; give --shards with it")
    part = parse_part("shard", shard, "2/8")
    values = parse_values(set_values, rankers=False)
    for value in values:
        if value not in (known := (*_OF_PIECES, *_OF_ENCODERS, *_OF_STORE)):
            raise UnknownNameError("parameter", value, known)
    cut, model, of_store = (
        {key: values[key] for key in keys if key in values} for keys in (_OF_PIECES, _OF_ENCODERS, _OF_STORE)
    )
    whole = {"rows_per_chunk": COUNT, "max_fit_texts": COUNT_OR_NONE, "max_length": COUNT_OR_NONE}
    check_parameters("haybale embed", values, whole)
    if "precision" in model:
        model["dtype"] = model.pop("precision")
    name = encoder or "lsa"
    if cut.get("unit") == "tokens" and name not in LEXICAL:
        cut.setdefault("tokenizer", model_name(name))
    how = given(layout=layout, chunking=chunking_of(pieces, stride, **cut), dtype=dtype, **of_store)
    if (files := StoreFiles(out)).is_local:
        check_file(Path(files.at(LOCK)))
    source: str | Collection = collection
    if paragraphs is not None:
        source = with_paragraphs(haybale.open_collection(collection, layout), paragraphs)
    if name in LEXICAL:
        if language is None:
            texts = read_documents(source, layout, warn=False).passages.texts[:1000]
            language = guess_language(texts.to_pylist())
        Analyzer(language)  # refuses an unknown one
    settings = given(language=language, n_components=n_components, random_state=random_state, device=device)
    settings |= given(query_prompt=query_prompt, passage_prompt=passage_prompt)
    make = partial(make_encoder, name, **{"max_fit_texts": _FIT_TEXTS, **settings, **model})
    with resumable():
        if dask is None:
            done = haybale.embed(source, make(), out, shard=part, **how)
        else:
            # A model is loaded by each worker; what has to be fitted is fitted here.
            maker = make() if name in LEXICAL else make
            with haybale.on_cluster(dask):
                done = haybale.embed_shards(source, maker, out, shards, **how)
    kept = f", {done.kept:,} were there" if done.kept else ""
    rates = f": {done.rates}" if done.passages else ""
    say(f"{done.passages:,} passages embedded in {done.seconds:.1f} s{kept}{rates}")
    if part is None:
        say(repr(haybale.EmbeddingStore(out)))
    else:
        say(f"shard {shard} of {out}; it can be read when all shards are there")
