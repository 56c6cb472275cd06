"""``haybale embed``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import haybale
from haybale.cli import options
from haybale.cli.application import MORE, command
from haybale.cli.options import MACHINE, RESULTS, VECTORS, given, option
from haybale.cli.settings import chunking_of
from haybale.cli.terminal import resumable, say
from haybale.cli.values import parse_part, parse_values
from haybale.errors import InputError, UnknownNameError

if TYPE_CHECKING:
    from haybale import Collection, Encoder

_FIT_TEXTS = 250_000  # at most so many passages are used to fit LSA
_OF_PIECES, _OF_STORE = ("unit", "tokenizer"), ("rows_per_chunk",)  # names in --set


@command(MORE)
def embed(
    collection: options.Source,
    out: Annotated[str, option("The store: a folder or fsspec address; an unfinished one is continued.", RESULTS)],
    dtype: Annotated[
        str | None, option("Type of the stored vectors: float32 (the default) or float16.", RESULTS)
    ] = None,
    encoder: options.Encoder = None,
    set_values: Annotated[
        list[str] | None,
        option(
            "name=value sets unit (tokens) or tokenizer of pieces, or rows_per_chunk of the store. Repeatable.",
            VECTORS,
            "--set",
        ),
    ] = None,
    layout: options.Layout = None,
    language: options.Language = None,
    paragraphs: options.Paragraphs = None,
    pieces: options.Pieces = None,
    stride: options.Stride = None,
    device: Annotated[
        str | None, option("Device of a neural encoder: auto (the default), cpu, cuda, …", MACHINE)
    ] = None,
    shard: Annotated[str | None, option("i/n: embed each n-th chunk, as one of n machines.", MACHINE)] = None,
    dask: options.Dask = None,
    shards: Annotated[
        int | None, option("Shards of the store, with --dask; default: one for each worker.", MACHINE, min=1)
    ] = None,
) -> None:
    """Embed a collection's passages into a store, chunk by chunk; for index and compare --store.

    The same command continues after an interruption.
    """
    from haybale.embeddings import encoder_maker
    from haybale.embeddings.store_files import LOCK, StoreFiles
    from haybale.folders import check_file

    if shards is not None and dask is None:
        raise InputError("--shards asks for --dask; without a cluster, give each machine its own --shard i/n")
    if shard is not None and dask is not None:
        raise InputError("--shard is for one machine without --dask; give --shards with it")
    part = parse_part("shard", shard, "2/8")
    maker = partial(encoder_maker, encoder or "lsa", **given(device=device, max_fit_texts=_FIT_TEXTS))
    of_pieces, of_store = _set_values(set_values)
    model = maker().keywords.get("model")
    if of_pieces.get("unit") == "tokens" and model is not None:
        of_pieces.setdefault("tokenizer", str(model))
    how = given(layout=layout, chunking=chunking_of(pieces, stride, **of_pieces), dtype=dtype, **of_store)
    if (files := StoreFiles(out)).is_local:
        check_file(Path(files.at(LOCK)))
    source = _source(collection, layout, paragraphs)
    make = _with_language(maker, language, source, layout)
    with resumable():
        if dask is None:
            done = haybale.embed(source, make(), out, shard=part, **how)
        else:
            with haybale.on_cluster(dask):
                done = haybale.embed_shards(source, make, out, shards, **how)
    kept = f", {done.kept:,} were there" if done.kept else ""
    rates = f": {done.rates}" if done.passages else ""
    say(f"{done.passages:,} passages embedded in {done.seconds:.1f} s{kept}{rates}")
    if part is None:
        say(repr(haybale.EmbeddingStore(out)))
    else:
        say(f"shard {shard} of {out}; it can be read when all shards are there")


def _set_values(texts: list[str] | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the values of ``--set`` for pieces, and those for the store."""
    from haybale.parameters import COUNT, check_parameters

    values = parse_values(texts, rankers=False)
    known = (*_OF_PIECES, *_OF_STORE)
    for name in values:
        if name not in known:
            raise UnknownNameError("parameter", name, known)
    check_parameters("haybale embed", values, {"rows_per_chunk": COUNT})
    of_pieces = {name: value for name, value in values.items() if name in _OF_PIECES}
    return of_pieces, {name: value for name, value in values.items() if name in _OF_STORE}


def _source(collection: str, layout: str | None, paragraphs: str | None) -> str | Collection:
    """Return the collection, split anew if ``--paragraphs`` was given, else its name."""
    from haybale.collections import with_paragraphs

    if paragraphs is None:
        return collection
    return with_paragraphs(haybale.open_collection(collection, layout), paragraphs)


def _with_language(
    maker: Callable[..., partial[Encoder]], language: str | None, source: str | Collection, layout: str | None
) -> partial[Encoder]:
    """Return what makes the encoder, with the language that is given, or detected if the encoder is fitted to texts."""
    from haybale.analysis import Analyzer, guess_language
    from haybale.collections.open import read_documents

    make = maker(**given(language=language))
    if hasattr(make.func, "fit") and "language" not in make.keywords:
        texts = read_documents(source, layout, warn=False).passages.texts[:1000]
        make = maker(language=guess_language(texts.to_pylist()))
    if make.keywords.get("language") is not None:
        Analyzer(make.keywords["language"])  # refuses an unknown one
    return make
