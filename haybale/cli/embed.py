"""``haybale embed``."""

from __future__ import annotations

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


@command(MORE)
def embed(
    collection: options.Source,
    out: Annotated[str, option("The store: a folder or fsspec address. The same again goes on with it.", RESULTS)],
    dtype: Annotated[str | None, option("float32 (the default) or float16: of the stored vectors.", RESULTS)] = None,
    encoder: options.Encoder = None,
    set_values: Annotated[
        list[str] | None,
        option(
            "name=value: unit=tokens and tokenizer of pieces; rows_per_chunk of the store. Repeatable.",
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
) -> None:
    """Embed a collection's passages into a store, vectors chunk by chunk; for index and compare --store.

    Interrupted, the same command goes on where it was.
    """
    from haybale.analysis import Analyzer, guess_language
    from haybale.collections import with_paragraphs
    from haybale.collections.open import read_documents
    from haybale.embeddings import encoder_maker
    from haybale.embeddings.store_files import LOCK, StoreFiles
    from haybale.folders import check_file
    from haybale.parameters import COUNT, check_parameters

    if shards is not None and dask is None:
        raise InputError("--shards asks for --dask; without a cluster, give each machine its own --shard i/n")
    if shard is not None and dask is not None:
        raise InputError("--shard is for one machine without --dask; give --shards with it")
    part = parse_part("shard", shard, "2/8")
    values = parse_values(set_values, rankers=False)
    for value in values:
        if value not in (known := (*_OF_PIECES, *_OF_STORE)):
            raise UnknownNameError("parameter", value, known)
    cut, of_store = ({key: values[key] for key in keys if key in values} for keys in (_OF_PIECES, _OF_STORE))
    check_parameters("haybale embed", values, {"rows_per_chunk": COUNT})
    text, defaults = encoder or "lsa", given(language=language, device=device, max_fit_texts=_FIT_TEXTS)
    maker = encoder_maker(text, **defaults)
    if cut.get("unit") == "tokens" and "model" in maker.keywords:
        cut.setdefault("tokenizer", str(maker.keywords["model"]))
    how = given(layout=layout, chunking=chunking_of(pieces, stride, **cut), dtype=dtype, **of_store)
    if (files := StoreFiles(out)).is_local:
        check_file(Path(files.at(LOCK)))
    source: str | Collection = collection
    if paragraphs is not None:
        source = with_paragraphs(haybale.open_collection(collection, layout), paragraphs)
    if hasattr(maker.func, "fit") and "language" not in maker.keywords:
        texts = read_documents(source, layout, warn=False).passages.texts[:1000]
        maker = encoder_maker(text, language=guess_language(texts.to_pylist()), **defaults)
    if maker.keywords.get("language") is not None:
        Analyzer(maker.keywords["language"])  # refuses an unknown one
    with resumable():
        if dask is None:
            done = haybale.embed(source, maker(), out, shard=part, **how)
        else:
            with haybale.on_cluster(dask):
                done = haybale.embed_shards(source, maker, out, shards, **how)
    kept = f", {done.kept:,} were there" if done.kept else ""
    rates = f": {done.rates}" if done.passages else ""
    say(f"{done.passages:,} passages embedded in {done.seconds:.1f} s{kept}{rates}")
    if part is None:
        say(repr(haybale.EmbeddingStore(out)))
    else:
        say(f"shard {shard} of {out}; it can be read when all shards are there")
